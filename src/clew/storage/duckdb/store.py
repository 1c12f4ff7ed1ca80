"""The store in one DuckDB file: the embedded store with its truth in another database.

Indexes, filters and the change log are the very same. DuckDB could rank by itself, but its exact
scan of 20,000 vectors takes some twenty times as long as the shared index, and its full-text search
is an extension that has to be downloaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clew.errors import StoreError
from clew.storage.duckdb import lives, rows, writing
from clew.storage.duckdb.database import Database
from clew.storage.duckdb.filters import where
from clew.storage.duckdb.labelled import labelled
from clew.storage.store import EmbeddedStore, make_folder

__all__ = ["DuckStore"]


class DuckStore(EmbeddedStore):
    """One file, which one process at a time may have open; the derived indexes are in `folder`, by
    default beside it, and can be deleted at any time."""

    _rows: Any = rows
    _writing: Any = writing
    _lives: Any = lives
    _labelled: Any = staticmethod(labelled)
    _where: Any = staticmethod(where)

    def __init__(
        self,
        database: Path,
        *,
        folder: Path | None = None,
        create: bool = True,
        ivf_threshold: int = 50_000,
        busy_seconds: float = 10.0,
    ):
        if not create and not database.exists():
            raise StoreError(f"there is no store in {database}: check the path, or index something")
        if folder is not None and create:
            make_folder(folder)  # the file may be meant to be in it
        db: Any = Database(database, busy_seconds=busy_seconds)
        self._begin(folder or database.with_name(f"{database.name}.clew"), db, ivf_threshold)
