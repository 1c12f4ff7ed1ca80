"""Abstracts of Wikipedia, in the FTS5 file that `clew exocortex build` makes."""

from __future__ import annotations

from pathlib import Path

from clew.protocols import Source
from clew.sources.rows import Columns, Origin
from clew.sources.sqlite_table import SECONDS, TableSource, database, positive

__all__ = ["FILE", "exocortex"]

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
