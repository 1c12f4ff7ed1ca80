"""The record that is meant: by its id, its path, or where a search said that it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from clew.errors import InputError
from clew.filter import EVERYTHING, Filter
from clew.types import Candidate, Record

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["named"]

PAGE = 1_000
"""Rows of a table that are looked through at a time."""
MOST = 20_000
"""Paths among which the nearest is looked for."""
_CITED = re.compile(r"(.+)#L(\d+)(?:-L?(\d+))?", re.DOTALL)
_PLACE = re.compile(r"(.+):(\d+)", re.DOTALL)


def named(engine: Engine, id: str) -> Record:
    """The record, or the lines of it that are cited."""
    if (record := _record(engine, id)) is not None:
        return record
    if (cited := _CITED.fullmatch(id)) and (record := _record(engine, cited[1])):
        return _lines(record, cited[1], int(cited[2]), int(cited[3] or cited[2]))
    if (place := _PLACE.fullmatch(id)) and (record := _record(engine, place[1])):
        return _at(engine, record, place[1], int(place[2]))
    near = _nearest(engine, (cited or place or [id, id])[1])
    advice = f"did you mean {near!r}?" if near else "`clew search` shows ids with --json"
    raise InputError(f"there is no record {id!r}: {advice}")


def _record(engine: Engine, id: str) -> Record | None:
    """By its id, with the name of its root or without, or by its path."""
    roots = engine.store.roots()
    if found := engine.store.get([id, *(f"{root}:{id}" for root in roots)]):
        return found[0]
    paths = [r for r in engine.store.select(Filter(path=id), limit=2) if r.path == id]
    return paths[0] if paths else None


def _lines(record: Record, name: str, first: int, last: int) -> Record:
    lines = record.content.splitlines()[max(0, first - 1) : last]
    if not lines:
        raise InputError(f"{name!r} has no line {first}")
    return replace(record, content="\n".join(lines))


def _at(engine: Engine, record: Record, name: str, line: int) -> Record:
    """The row of a table that has this line; of other files the record that has it."""
    for row, (first, last) in _rows(engine, record):
        if first <= line <= last:
            return row
    if not 1 <= line <= len(record.content.splitlines()):
        raise InputError(f"{name!r} has no line {line}")
    return record


def _rows(engine: Engine, table: Record) -> Iterator[tuple[Record, tuple[int, int]]]:
    """A table's rows, each with its lines in the file."""
    after, path = table.id, table.path or ""
    while some := engine.store.select(Filter(path=path), limit=PAGE, after=after):
        after = some[-1].id
        rows = [each.id for each in some if each.id.startswith(f"{table.id}#")]
        for found in engine.store.passages([Candidate(row, 1.0) for row in rows]):
            if found is not None:
                yield found.record, found.lines


def _nearest(engine: Engine, given: str) -> str:
    """The path that is most like this one; "" where none is."""
    from difflib import get_close_matches  # for the unlucky only

    paths = list(engine.store.counts("path", EVERYTHING))[:MOST]
    folded = {path.casefold(): path for path in reversed(paths)}
    near = get_close_matches(given.casefold(), folded, n=1, cutoff=0.75)
    return folded[near[0]] if near else ""
