"""Which folders a run of indexing looks at."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clew.errors import InputError
from clew.protocols import Store

__all__ = ["Target", "targets"]


@dataclass(frozen=True, slots=True)
class Target:
    """A folder that is a collection, and what of it to look at (None: all of it)."""

    collection: str
    root: Path
    only: Path | None = None


def targets(store: Store, base: Path, paths: Sequence[str | Path]) -> list[Target]:
    """Where `paths` belong; without any, all folders the store knows, or else `base`.

    A path outside the known folders becomes one of them. All paths are looked at before that.
    """
    for path in paths:
        if not Path(path).expanduser().exists():
            raise InputError(f"there is no {str(path)!r} to index: check the path")
    base = base.absolute()
    known = {name: (base / folder).resolve() for name, folder in store.roots().items()}
    if not paths and known:
        return [Target(name, folder) for name, folder in known.items()]
    found: list[Target] = []
    for path in paths or [base]:
        place = Path(path).expanduser().resolve()
        around = [n for n, folder in known.items() if place == folder or folder in place.parents]
        if around:
            name = max(around, key=lambda n: len(known[n].parts))
            folder = known[name]
        else:
            folder = place if place.is_dir() else place.parent
            name = _collection_name(folder, known)
            store.set_root(name, "." if folder == base.resolve() else str(folder))
            known[name] = folder
        found.append(Target(name, folder, None if place == folder else place))
    return found


def _collection_name(folder: Path, taken: Collection[str]) -> str:
    stem = re.sub(r"[^\w.-]+", "-", folder.name.casefold()).strip("-") or "files"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name
