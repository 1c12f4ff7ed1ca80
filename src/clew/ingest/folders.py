"""Which folders are meant, and each of them brought into the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clew.ingest.groups import Groups
from clew.ingest.roots import targets
from clew.ingest.sync import Report, sync
from clew.protocols import Progress, Store

__all__ = ["read_folders"]


def read_folders(
    store: Store,
    base: Path,
    paths: Sequence[str | Path],
    *,
    max_file_mb: float,
    chunk_size: int,
    groups_of: Callable[[Path], Groups],
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """What was done. `base` is the store's own folder, `groups_of` says of a folder which
    collections and domains its files belong to."""
    report = Report()
    for target in targets(store, base, paths):
        sync(
            store,
            target.collection,
            target.root,
            report,
            only=target.only,
            force=force,
            max_bytes=int(max_file_mb * 1024 * 1024),
            chunk_size=chunk_size,
            groups=groups_of(target.root),
            progress=progress,
        )
    return report
