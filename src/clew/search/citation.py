"""The record that is meant by an id, by a path, or by a citation such as notes/fuses.md#L12."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace

from clew.errors import InputError
from clew.filter import EVERYTHING, Filter, exact_glob
from clew.protocols import Store, read_pages
from clew.types import Candidate, Record

ROWS_PAGE = 1_000
"""Rows of a table that are looked through at a time."""
MOST_PATHS = 20_000
"""Paths among which the nearest is looked for."""
_CITED = re.compile(r"(.+)#L(\d{1,9})(?:-L?(\d{1,9}))?", re.DOTALL)
_PLACE = re.compile(r"(.+):(\d{1,9})", re.DOTALL)


class UnknownRecordError(InputError):
    """Nothing has this id."""


def find_record(store: Store, id: str) -> Record:
    """The record of this id or path, or the lines of it that are cited, or a table's row there."""
    if (record := _record(store, id)) is not None:
        return record
    if (cited := _CITED.fullmatch(id)) and (record := _record(store, cited[1])):
        first, last = int(cited[2]), int(cited[3] or cited[2])
        lines = record.content.splitlines()[max(0, first - 1) : last]
        if not lines:
            raise UnknownRecordError(f"{cited[1]!r} has no line {first}")
        return replace(record, content="\n".join(lines))
    if (place := _PLACE.fullmatch(id)) and (record := _record(store, place[1])):
        number = int(place[2])
        if (row := _row_at(store, record, number)) is not None:
            return row
        if not 1 <= number <= len(record.content.splitlines()):
            raise UnknownRecordError(f"{place[1]!r} has no line {number}")
        return record
    near = _nearest_path(store, (cited or place or [id, id])[1])
    advice = f"did you mean {near!r}?" if near else "`clew search` shows ids with --json"
    raise UnknownRecordError(f"there is no record {id!r}: {advice}")


def first_line(id: str, record: Record) -> int:
    """The line that a record begins at which was found by this id, path or citation."""
    cited = _CITED.fullmatch(id)
    return max(1, int(cited[2])) if cited and id != record.id else 1


def _record(store: Store, id: str) -> Record | None:
    """Find it by its id, with the name of its root or without, or by its path. A disk may have its
    letters apart from their marks."""
    names = dict.fromkeys((id, *(unicodedata.normalize(form, id) for form in ("NFC", "NFD"))))
    roots = ("", *(f"{root}:" for root in store.files.roots()))
    if found := store.get([f"{root}{name}" for name in names for root in roots]):
        return found[0]
    paths = [r for r in store.select(Filter(path=exact_glob(id)), limit=1) if r.path == id]
    return paths[0] if paths else None


def ids_at(store: Store, path: str) -> Iterator[list[str]]:
    """The records of a file, its rows among them, or below a folder, some at a time."""
    literal = re.split(r"[*?\[]", path, maxsplit=1)[0]  # no filter takes a path as it is
    below = f"{path.rstrip('/')}/"
    for page in read_pages(store, Filter(path=literal or ()), ROWS_PAGE) if path else ():
        yield [r.id for r in page if r.path and (r.path == path or r.path.startswith(below))]


def _row_at(store: Store, table: Record, number: int) -> Record | None:
    """The row of a table that stands at this line of its file."""
    for ids in ids_at(store, table.path or ""):
        rows = [each for each in ids if each.startswith(f"{table.id}#")]
        for found in store.passages([Candidate(row, 1.0) for row in rows]):
            if found is not None and found.lines[0] <= number <= found.lines[1]:
                return found.record
    return None


def _nearest_path(store: Store, given: str) -> str:
    """The path that is most like this one; "" where none is."""
    from difflib import get_close_matches  # for the unlucky only

    paths = list(store.counts("path", EVERYTHING))[:MOST_PATHS]
    folded = {path.casefold(): path for path in reversed(paths)}
    near = get_close_matches(given.casefold(), folded, n=1, cutoff=0.75)
    return folded[near[0]] if near else ""
