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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clew.errors import InputError
from clew.ingest.readers.text import decode, folded_tags, title_from, whole
from clew.timestamps import timestamp
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
# 31/12/2019 or 12/31/2019: which, the column tells.
_EITHER_WAY = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})\b(.*)", re.DOTALL)
_WEEKDAY = r"(?:[A-Za-z]{2,9}\.?,?\s+)?"
_DAY_MONTH = re.compile(
    rf"{_WEEKDAY}(\d{{1,2}})(?:st|nd|rd|th|\.)?[\s-]+([A-Za-z]{{3,9}})\.?,?[\s-]+(\d{{4}})\b,?(.*)",
    re.DOTALL,
)
_MONTH_DAY = re.compile(
    rf"{_WEEKDAY}([A-Za-z]{{3,9}})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})\b,?(.*)",
    re.DOTALL,
)
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
# A column of that name that holds nothing else says whether, and not when.
_FLAGS = frozenset({"true", "false", "yes", "no", "y", "n", "0", "1"})

_SEPARATOR = re.compile(r"""\s*"?sep=([^\w\s"]|\t)"?[ \t]*(?=\n)""", re.IGNORECASE)
_COMMENTS = re.compile(r"(?:[ \t]*(?:#.*)?\n)*")


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
    dates = _Dates.of([cells for _, cells in listed], folded)
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
                created_at=dates.moment(cells, dates.created),
                updated_at=dates.moment(cells, dates.updated),
                of_dates=(bool(dates.created), bool(dates.updated)),
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
            # As a store will have them: what differs only in half characters is the same there.
            keys = [whole(_line(cells.get(name, ""))) for cells in rows]
            if all(0 < len(key) <= _LONGEST_KEY for key in keys) and len({*keys}) == len(keys):
                return keys
    return None


class _Dates(NamedTuple):
    """The columns of a table that hold dates."""

    created: tuple[str, ...]
    updated: tuple[str, ...]
    day_first: Mapping[str, bool | None]
    """Of each: 31/12/2019 or 12/31/2019. None: there is no telling."""

    @classmethod
    def of(cls, rows: Sequence[Cells], folded: Mapping[str, str]) -> _Dates:
        values: dict[str, list[str]] = {}
        for cells in rows:
            for name, value in cells.items():
                if folded[name] in _UPDATED or folded[name] in _CREATED:
                    values.setdefault(name, []).append(str(value).strip())
        named = [n for n, given in values.items() if not _FLAGS.issuperset(map(str.lower, given))]
        created = [name for wanted in _CREATED for name in named if folded[name] == wanted]
        updated = [name for wanted in _UPDATED for name in named if folded[name] == wanted]
        order = {name: _day_first(values[name]) for name in named}
        return cls(tuple(created), (*updated, *created), order)

    def moment(self, cells: Cells, columns: Sequence[str]) -> float | None:
        """That of the first of these columns in which a date can be read."""
        for name in columns:
            found = _date(str(cells.get(name, "")).strip(), day_first=self.day_first[name])
            if found is not None:
                return found
        return None


def _day_first(values: Iterable[str]) -> bool | None:
    """By the dates of a column in which one number is too large to be a month."""
    found = [dated for value in values if (dated := _EITHER_WAY.fullmatch(value))]
    days, months = (any(int(dated[i]) > 12 for dated in found) for i in (1, 3))
    return days if days != months else None


def _date(text: str, *, day_first: bool | None) -> float | None:
    """As people and programs write them: ISO, that of mails, 31.12.2026, 2026/12/31, 31/12/2026,
    31 Dec 2026, December 31, 2026, seconds."""
    if _EPOCH.fullmatch(text):
        seconds = float(text)
        return seconds / 1000 if seconds > 1e11 else seconds
    try:
        return timestamp(_iso(text, day_first))
    except InputError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


def _iso(text: str, day_first: bool | None) -> str:
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = found.groups()
    elif found := _SLASHED.fullmatch(text):
        year, month, day, rest = found.groups()
    elif found := _EITHER_WAY.fullmatch(text):
        one, _, two, year, rest = found.groups()
        own = _day_first([text])
        first = own if own is not None else True if one == two else day_first
        if first is None:
            return text
        day, month = (one, two) if first else (two, one)
    elif found := _DAY_MONTH.fullmatch(text):
        day, word, year, rest = found.groups()
        month = _month(word)
    elif found := _MONTH_DAY.fullmatch(text):
        word, day, year, rest = found.groups()
        month = _month(word)
    else:
        return text
    return f"{year}-{month:>02}-{day:>02}{rest}"


def _month(word: str) -> str:
    """Its number: `Dec`, `Sept` and `December` are names of months; 0: this is none."""
    named = (n for n, name in enumerate(_MONTHS, start=1) if name.startswith(word.lower()))
    return str(next(named, 0))


# ---------------------------------------------------------------- comma, tab and the like


def read_csv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, None, warnings)


def read_tsv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, "\t", warnings)


def _read(text: str, path: str, given: str | None, warnings: tuple[str, ...]) -> Document:
    """`given`: the sign between cells, where the file does not name another one."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    if separator := _SEPARATOR.match(text):  # for Excel: no row, but the lines keep their numbers
        text, given = text[separator.end() :], separator[1]
        text = "\n" * separator[0].count("\n") + text
    text = _without_comments(text, given)
    delimiter = given or _delimiter(text)
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


def _without_comments(text: str, given: str | None) -> str:
    """The text with the lines before its header that begin with # left empty. `#id,name` is one."""
    found = _COMMENTS.match(text)
    if not found or "#" not in found[0] or not (rest := text[found.end() :]).strip():
        return text
    begun = found[0].rstrip().rfind("\n") + 1
    last, delimiter = found[0][begun:].strip(), given or _delimiter(rest)
    width = len(rest.partition("\n")[0].split(delimiter))
    is_header = not last.startswith("# ") and len(last.split(delimiter)) == width > 1
    keep = begun if is_header else found.end()
    return "\n" * text.count("\n", 0, keep) + text[keep:]


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

    What is empty is left out, rows and columns before the table too; what has no column's name goes
    by its number.
    """
    stripped = [(lines, [cell.strip() for cell in row]) for lines, row in rows]
    filled = [(lines, cells) for lines, cells in stripped if any(cells)]
    left = min((next(i for i, c in enumerate(cells) if c) for _, cells in filled), default=0)
    columns: list[str] = []
    if filled and _is_header([cells[left:] for _, cells in filled]):
        columns = _apart(" ".join(cell.split()) for cell in filled[0][1][left:])
    found: list[tuple[tuple[int, int], Cells]] = []
    for lines, cells in filled[1:] if columns else filled:
        names = [*map(str, range(1, left + 1)), *columns]
        names = [names[i] if i < len(names) and names[i] else str(i + 1) for i in range(len(cells))]
        found.append((lines, {n: c for n, c in zip(names, cells, strict=True) if c}))
    return columns, found


def _apart(names: Iterable[str]) -> list[str]:
    """Names of columns, of which a repeated one has its number: note, note_2."""
    given = list(names)
    taken, made = set(given), dict[str, int]()
    for i, name in enumerate(given):
        if name and name in made:
            while f"{name}_{made[name] + 1}" in taken:
                made[name] += 1
            given[i] = f"{name}_{made[name] + 1}"
            taken.add(given[i])
        made.setdefault(name, 1)
    return given


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names and no figures. csv.Sniffer's own guess fails on columns of
    words. Names that are repeated are none where such a cell comes again below."""
    names = list(rows[0])
    while names and not names[-1]:
        names.pop()
    if not names or not all(names) or any(_NUMBER.fullmatch(name) for name in names):
        return False
    counts = Counter(names)
    repeated = [i for i, name in enumerate(names) if counts[name] > 1]
    again = (i < len(row) and row[i] == names[i] for row in rows[1:] for i in repeated)
    return not repeated or (len(counts) > 1 and not any(again))


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
