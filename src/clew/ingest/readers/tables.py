"""Tables: each row becomes a record of its own, with its columns as text and as metadata.

The file itself stays a record as well: of its columns, so that it is found by them and by its name.
"""

from __future__ import annotations

import csv
import email.utils
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clew.errors import InputError
from clew.ingest.readers.text import decode, folded_tags, title_from
from clew.moments import timestamp
from clew.types import Document, TableRow

__all__ = ["cells_of", "read_csv", "read_jsonl", "read_tsv", "table", "table_rows"]

_DELIMITERS = ",;\t|"
# csv keeps one limit for the process; it is a C long, which may have 32 bits.
_LONGEST_FIELD = 2**31 - 1
_SAMPLE = 8192
# A cell of more lines than this is no cell (a mail may have hundreds): a quote was never closed.
_LONGEST_CELL = 1000
_MOST_WARNINGS = 5
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?%?|[\d:/.-]+(?:[T ][\d:.Z+-]+)?")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
# A value of more characters than this is text, which filters have no use for.
_LONGEST_VALUE = 200
_LONGEST_KEY = 120

# What columns are commonly called, folded to letters and figures.
_KEYS = ("id", "key", "uuid", "guid", "messageid", "docid", "recordid", "rowid")
_TITLES = ("title", "subject", "name", "headline", "label")
_TAGS = ("tags", "tag", "labels", "keywords", "categories")
_UPDATED = ("updated", "updatedat", "modified", "modifiedat", "lastmodified", "changed")
_CREATED = (
    *("date", "datetime", "timestamp", "created", "createdat", "sent", "sentat", "datesent"),
    *("received", "receivedat", "published", "publishedat", "time", "day", "when"),
)
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})\b(.*)", re.DOTALL)
_SLASHED = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})\b(.*)", re.DOTALL)
_EPOCH = re.compile(r"\d{9,10}(?:\.\d+)?|\d{12,13}")


Cells = dict[str, Any]
"""The columns of one row that have something in them, each a text or a number."""


def table_rows(
    rows: Iterable[tuple[tuple[int, int], Cells]], *, title: str, sheet: str = ""
) -> tuple[TableRow, ...]:
    """A record's parts of each row, whose cells go by the columns' names ("" and figures: none).

    A row is named by its key column, if the table has one and no two rows agree in it, else by its
    number.
    """
    listed = list(rows)
    folded = {name: _folded(name) for _, cells in listed for name in cells}
    keys = _keys([cells for _, cells in listed], folded)
    made: list[TableRow] = []
    for number, (lines, cells) in enumerate(listed, start=1):
        key = keys[number - 1] if keys else str(lines[0] if sheet else number)
        fields = {name: _value(given) for name, given in cells.items() if _filterable(name, given)}
        made.append(
            TableRow(
                key=f"{sheet}!{key}" if sheet else key,
                text="\n".join(
                    f"{name}: {value}" if _named(name) else str(value)
                    for name, value in cells.items()
                ),
                lines=lines,
                title=_line(_first(cells, folded, _TITLES)) or title,
                tags=folded_tags(_first(cells, folded, _TAGS)),
                created_at=_moment(cells, folded, _CREATED),
                updated_at=_moment(cells, folded, (*_UPDATED, *_CREATED)),
                metadata={"sheet": sheet, **fields} if sheet else fields,
            )
        )
    return tuple(made)


def _named(name: str) -> bool:
    return bool(name) and not name.isdigit()


def _filterable(name: str, value: Any) -> bool:
    return _named(name) and (not isinstance(value, str) or len(value) <= _LONGEST_VALUE)


def _value(cell: Any) -> Any:
    """A number where it is written as one and nothing is lost by that: 007 is a name."""
    if isinstance(cell, str) and len(cell) <= 18 and _PLAIN_NUMBER.fullmatch(cell):
        return float(cell) if "." in cell else int(cell)
    return cell


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _first(cells: Cells, folded: Mapping[str, str], names: Sequence[str]) -> Any:
    """What stands in the column that has the first of these names."""
    by_name = {folded[name]: value for name, value in cells.items()}
    return next((by_name[name] for name in names if name in by_name), "")


def _line(value: Any) -> str:
    return " ".join(str(value).split())[:_LONGEST_VALUE]


def _keys(rows: Sequence[Cells], folded: Mapping[str, str]) -> list[str] | None:
    for wanted in _KEYS:
        for name in [name for name, plain in folded.items() if plain == wanted]:
            keys = [_line(cells.get(name, "")) for cells in rows]
            if all(0 < len(key) <= _LONGEST_KEY for key in keys) and len({*keys}) == len(keys):
                return keys
    return None


def _moment(cells: Cells, folded: Mapping[str, str], names: Sequence[str]) -> float | None:
    """The first of these columns that has a date in it."""
    by_name = {folded[name]: value for name, value in cells.items()}
    for name in names:
        if name in by_name and (found := _date(str(by_name[name]).strip())) is not None:
            return found
    return None


def _date(text: str) -> float | None:
    """As people and programs write them: ISO, that of mails, 31.12.2026, 2026/12/31, seconds."""
    if _EPOCH.fullmatch(text):
        seconds = float(text)
        return seconds / 1000 if seconds > 1e11 else seconds
    if day_first := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = day_first.groups()
        text = f"{year}-{month:>02}-{day:>02}{rest}"
    elif slashed := _SLASHED.fullmatch(text):
        year, month, day, rest = slashed.groups()
        text = f"{year}-{month:>02}-{day:>02}{rest}"
    try:
        return timestamp(text)
    except InputError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


# ---------------------------------------------------------------- comma, tab and the like


def read_csv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, _delimiter(text), warnings)


def read_tsv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, "\t", warnings)


def _read(text: str, path: str, delimiter: str, warnings: tuple[str, ...]) -> Document:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    rows = list(_rows(text, delimiter, csv.QUOTE_MINIMAL))
    if (line := _never_closed(rows, quotes=text.count('"'))) is not None:
        warnings = (*warnings, f"line {line}: a quote is never closed; read without quoting")
        rows = list(_rows(text, delimiter, csv.QUOTE_NONE))
    columns, cells = cells_of(rows)
    return table(table_rows(cells, title=title_from(path)), columns, path, warnings)


def table(
    rows: tuple[TableRow, ...], columns: Sequence[str], path: str, warnings: tuple[str, ...]
) -> Document:
    """The document of a file whose rows are records of their own."""
    named = list(filter(None, columns))
    return Document(
        text="; ".join(named),
        kind="table",
        title=title_from(path),
        metadata={**({"columns": named} if named else {}), "rows": len(rows)},
        rows=rows,
        warnings=warnings,
    )


def _delimiter(text: str) -> str:
    """The sign that cuts most lines into as many cells as the first, and into most cells.

    Not csv.Sniffer: on some samples of 8 KB its patterns run for minutes.
    """
    sample = text[:_SAMPLE].strip("\n").split("\n")
    # The last line may have been cut off by the end of the sample.
    sample = sample[:-1] if len(sample) > 1 and len(text) > _SAMPLE else sample

    def fit(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(sample, delimiter=delimiter) if row]
        width = widths[0] if widths else 0
        return (widths.count(width) / len(widths) if width > 1 else 0.0), width

    return max(_DELIMITERS, key=fit)


def _rows(text: str, delimiter: str, quoting: Any) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """The rows that are not empty, each with the lines that it stands on."""
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, quoting=quoting)
    at = 1
    for row in reader:
        if any(cell.strip() for cell in row):
            yield (at, reader.line_num), row
        at = reader.line_num + 1


def _never_closed(rows: Sequence[tuple[tuple[int, int], list[str]]], *, quotes: int) -> int | None:
    """The line of a quote that takes the rest of the file, or far too much of it, into one cell."""
    last = rows[-1:] if quotes % 2 else []
    for some, most in ((rows, _LONGEST_CELL), (last, 0)):
        for (line, _), row in some:
            if any(cell.count("\n") > most for cell in row):
                return line
    return None


def cells_of(
    rows: Iterable[tuple[tuple[int, int], Sequence[str]]],
) -> tuple[list[str], list[tuple[tuple[int, int], Cells]]]:
    """The names of the columns, where the first row has them, and the cells of each further row.

    What is empty is left out; what has no column's name goes by its number.
    """
    columns: list[str] = []
    found: list[tuple[tuple[int, int], Cells]] = []
    first = True
    for lines, row in rows:
        cells = [cell.strip() for cell in row]
        if first and _is_header(cells):
            columns = [" ".join(cell.split()) for cell in cells]
        else:
            names = [
                columns[i] if i < len(columns) and columns[i] else str(i + 1)
                for i in range(len(cells))
            ]
            named = {n: c for n, c in zip(names, cells, strict=True) if c}
            found += [(lines, named)] if named else []
        first = False
    return columns, found


def _is_header(cells: Sequence[str]) -> bool:
    """Names, all different, and no figures. csv.Sniffer's own guess fails on columns of words."""
    names = list(cells)
    while names and not names[-1]:
        names.pop()
    return (
        bool(names)
        and all(names)
        and len(set(names)) == len(names)
        and not any(_NUMBER.fullmatch(name) for name in names)
    )


# ---------------------------------------------------------------- JSON, line by line


def read_jsonl(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    rows: list[tuple[tuple[int, int], Cells]] = []
    bad: list[int] = []
    for at, source in enumerate(text.split("\n"), start=1):
        if not source.strip():
            continue
        try:
            cells = dict(_flat(json.loads(source), ""))
        except (ValueError, RecursionError):
            bad.append(at)
            cells = {"": source.strip()}
        if cells:
            rows.append(((at, at), cells))
    troubles = [f"line {at} is not JSON and counts as text" for at in bad[:_MOST_WARNINGS]]
    if len(bad) > _MOST_WARNINGS:
        troubles.append(f"{len(bad) - _MOST_WARNINGS} more lines are not JSON and count as text")
    columns = dict.fromkeys(name for _, cells in rows for name in cells if name)
    made = table_rows(rows, title=title_from(path))
    return table(made, list(columns), path, (*warnings, *troubles))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Scalars by the names that lead to them; plain ones of a list together."""
    if isinstance(value, dict):
        for key, inner in value.items():
            column = " ".join(str(key).split())
            yield from _flat(inner, f"{name}.{column}" if name else column)
    elif isinstance(value, list):
        plain = [_word(v) for v in value if not isinstance(v, (dict, list))]
        if words := ", ".join(str(word) for word in plain if word != ""):
            yield name, words
        for i, inner in enumerate(value, start=1):
            if isinstance(inner, (dict, list)):
                yield from _flat(inner, f"{name}.{i}" if name else str(i))
    elif (word := _word(value)) != "":
        yield name, word


def _word(value: Any) -> str | int | float:
    if isinstance(value, bool):
        return str(value).lower()
    # A store keeps whole numbers in 64 bits.
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return "" if value is None else str(value).strip()
