"""Abstracts of Wikipedia, in the FTS5 file that `clew exocortex build` makes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.protocols import Source
from clew.sources.rows import Columns, Origin
from clew.sources.sqlite_file import read
from clew.sources.sqlite_table import SECONDS, TableSource, database, positive

__all__ = ["FILE", "about", "exocortex"]

FILE = ".clew/exocortex.db"
COLUMNS = Columns(text="abstract", id="title", title="title", path="url", pairs="pairs")
NOT_YET = "no exocortex built yet: run `clew exocortex build DUMP`"


def exocortex(
    root: Path,
    *,
    name: str = "exocortex",
    file: str = FILE,
    optional: bool = False,
    seconds: float = SECONDS,
) -> Source:
    """Articles by title and abstract.

    With `optional` a file that is not there is passed over in silence: for a profile in which
    everybody has this source.
    """
    return TableSource(
        file=database(root, file),
        table="abstracts",
        columns=COLUMNS,
        origin=Origin(name, "exocortex", "exocortex"),
        seconds=positive(seconds),
        missing="" if optional else NOT_YET,
    )


def about(file: Path) -> dict[str, Any]:
    """How many articles a file has, when it was made and from what."""
    from clew.ingest.wikipedia import is_exocortex

    def look(db: sqlite3.Connection) -> dict[str, Any]:
        return dict(db.execute("SELECT key, value FROM about ORDER BY key").fetchall())

    if not file.exists():
        raise InputError(f"there is no exocortex {file}: run `clew exocortex build DUMP`")
    if not is_exocortex(file):
        raise InputError(f"{file} was not made by `clew exocortex build`: name another file")
    return {"file": str(file), **read(file, look, seconds=10.0), "bytes": file.stat().st_size}
