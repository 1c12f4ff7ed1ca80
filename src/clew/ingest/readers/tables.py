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
from functools import partial
from typing import Any, NamedTuple

from clew.errors import InputError
from clew.ingest.readers.text import decode, fold_tags, title_from, whole
from clew.timestamps import timestamp
from clew.types import Document, TableRow

Cells = dict[str, Any]
"""The columns of one row that have something in them, each a text or a number."""
Lines = tuple[int, int]
"""The first and the last line that a row stands on."""

# A value of more characters than this is text, which filters have no use for.
_LONGEST_VALUE = 200
_LONGEST_KEY = 120
# A column's name comes again in every row: a long one would fill the memory.
_LONGEST_NAME = 500
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")

# What columns are commonly called, folded to letters and figures.
_KEYS = ("id", "key", "uuid", "guid", "messageid", "docid", "recordid", "rowid")
_TITLES = ("title", "subject", "name", "headline", "label")
_TAGS = ("tags", "tag", "labels", "keywords", "categories")
_UPDATED = ("updated", "updatedat", "modified", "modifiedat", "lastmodified", "changed")
_CREATED = (
    *("date", "datetime", "timestamp", "created", "createdat", "sent", "sentat", "datesent"),
    *("received", "receivedat", "published", "publishedat", "time", "day", "when"),
)


def make_table(
    rows: Sequence[TableRow], columns: Iterable[str], path: str, warnings: tuple[str, ...] = ()
) -> Document:
    named = list(filter(None, columns))
    return Document(
        text="; ".join(named),
        kind="table",
        title=title_from(path),
        metadata={**({"columns": named} if named else {}), "rows": len(rows)},
        rows=tuple(rows),
        warnings=warnings,
    )


def make_rows(
    rows: Sequence[tuple[Lines, Cells]], *, title: str, sheet: str = ""
) -> list[TableRow]:
    """A record's parts of each row, whose cells go by the columns' names ("" and figures: none).

    A row is named by its key column, if the table has one and no two rows agree in it, else by its
    number.
    """
    table = [cells for _, cells in rows]
    folded = {name: re.sub(r"[\W_]+", "", name).casefold() for cells in table for name in cells}
    dates = _Dates.of(table, folded)
    keys = _find_keys(table, folded)
    made: list[TableRow] = []
    for number, (lines, cells) in enumerate(rows, start=1):
        key = keys[number - 1] if keys else str(lines[0] if sheet else number)
        by_name = {folded[name]: value for name, value in cells.items()}
        titles, tags = (
            next((by_name[name] for name in names if name in by_name), "")
            for names in (_TITLES, _TAGS)
        )
        metadata = {"sheet": sheet} if sheet else {}
        metadata |= {
            name: _number_or_text(value)
            for name, value in cells.items()
            if _is_name(name) and not (isinstance(value, str) and len(value) > _LONGEST_VALUE)
        }
        made.append(
            TableRow(
                key=f"{sheet}!{key}" if sheet else key,
                text="\n".join(
                    f"{name}: {value}" if _is_name(name) else str(value)
                    for name, value in cells.items()
                ),
                lines=lines,
                title=_one_line(titles) or title,
                tags=fold_tags(tags),
                created_at=dates.find(cells, dates.created),
                updated_at=dates.find(cells, dates.updated),
                of_dates=(bool(dates.created), bool(dates.updated)),
                metadata=metadata,
            )
        )
    return made


def _is_name(column: str) -> bool:
    return bool(column) and not column.isdigit()


def _number_or_text(cell: Any) -> Any:
    """A number where it is written as one and nothing is lost by that: 007 is a name."""
    if isinstance(cell, str) and len(cell) <= 18 and _PLAIN_NUMBER.fullmatch(cell):
        return float(cell) if "." in cell else int(cell)
    return cell


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:_LONGEST_VALUE]


def _find_keys(rows: Sequence[Cells], folded: Mapping[str, str]) -> list[str] | None:
    columns: dict[str, list[Any]] = {}
    for cells in rows:
        for name, value in cells.items():
            if folded[name] in _KEYS:
                columns.setdefault(name, []).append(value)
    for name in sorted(columns, key=lambda name: _KEYS.index(folded[name])):
        # As a store will have them: what differs only in half characters is the same there.
        keys = [whole(_one_line(value)) for value in columns[name]]
        if len({*keys}) == len(rows) and all(0 < len(key) <= _LONGEST_KEY for key in keys):
            return keys
    return None


# ---------------------------------------------------------------- dates

_EPOCH = re.compile(r"\d{9,10}(?:\.\d+)?|\d{12,13}")
# 31/12/2019 or 12/31/2019: which, the column tells.
_EITHER_WAY = re.compile(
    r"(?P<one>\d{1,2})([/-])(?P<two>\d{1,2})\2(?P<year>\d{4})\b(?P<rest>.*)", re.DOTALL
)
_WEEKDAY = r"(?:[A-Za-z]{2,9}\.?,?\s+)?"
_DATE_FORMS = (
    re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})\b(?P<rest>.*)", re.DOTALL),
    re.compile(r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})\b(?P<rest>.*)", re.DOTALL),
    _EITHER_WAY,
    re.compile(
        rf"{_WEEKDAY}(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?[\s-]+(?P<month>[A-Za-z]{{3,9}})\.?,?"
        r"[\s-]+(?P<year>\d{4})\b,?(?P<rest>.*)",
        re.DOTALL,
    ),
    re.compile(
        rf"{_WEEKDAY}(?P<month>[A-Za-z]{{3,9}})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+"
        r"(?P<year>\d{4})\b,?(?P<rest>.*)",
        re.DOTALL,
    ),
)
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
# A column of that name that holds nothing else says whether, and not when.
_FLAGS = frozenset({"true", "false", "yes", "no", "y", "n", "0", "1"})


class _Dates(NamedTuple):
    created: Mapping[str, int]
    updated: Mapping[str, int]
    """By name, the first to be asked first."""
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
        first, then = (
            {name: i for i, name in enumerate(dict.fromkeys(some))}
            for some in (created, updated + created)
        )
        return cls(first, then, order)

    def find(self, cells: Cells, columns: Mapping[str, int]) -> float | None:
        for name in sorted(cells.keys() & columns, key=columns.__getitem__):
            date = _read_date(str(cells[name]).strip(), day_first=self.day_first[name])
            if date is not None:
                return date
        return None


def _day_first(values: Iterable[str]) -> bool | None:
    """Whether days come first, by dates in which one number is too large to be a month."""
    found = [dated for value in values if (dated := _EITHER_WAY.fullmatch(value))]
    days, months = (any(int(dated[i]) > 12 for dated in found) for i in ("one", "two"))
    return days if days != months else None


def _read_date(text: str, *, day_first: bool | None) -> float | None:
    """Read what people and programs write: ISO, dates of mails, 31.12.2026, 2026/12/31, 31/12/2026,
    31 Dec 2026, December 31, 2026, seconds."""
    if _EPOCH.fullmatch(text):
        seconds = float(text)
        return seconds / 1000 if seconds > 1e11 else seconds
    try:
        return timestamp(_to_iso(text, day_first))
    except InputError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None


def _to_iso(text: str, day_first: bool | None) -> str:
    found = next((found for form in _DATE_FORMS if (found := form.fullmatch(text))), None)
    if found is None:
        return text
    parts = found.groupdict()
    if one := parts.get("one"):
        own = _day_first([text])
        first = own if own is not None else one == parts["two"] or day_first
        if first is None:
            return text
        day, month = (one, parts["two"]) if first else (parts["two"], one)
    else:
        day, month = parts["day"], parts["month"].lower()
    if not month.isdigit():  # Dec, Sept and December are names of months; 0: this is none
        numbers = (n for n, name in enumerate(_MONTHS, start=1) if name.startswith(month))
        month = str(next(numbers, 0))
    return f"{parts['year']}-{month:>02}-{day:>02}{parts['rest']}"


# ---------------------------------------------------------------- comma, tab and the like

_DELIMITERS = ",;\t|"
# csv keeps one limit for the process; it is a C long, which may have 32 bits.
_LONGEST_FIELD = 2**31 - 1
_SAMPLE = 8192
# A cell of more lines than this is no cell (a mail may have hundreds): a quote was never closed.
_LONGEST_CELL = 1000
_NUMBER = re.compile(r"[-+]?(?=[.,]*\d)[\d.,]++(?:[eE][-+]?\d++)?%?|[\d:/.-]++(?:[T ][\d:.Z+-]++)?")
_SEPARATOR = re.compile(r"""\s*"?sep=([^\w\s"]|\t)"?[ \t]*(?=\n)""", re.IGNORECASE)
_COMMENTS = re.compile(r"(?:[ \t]*(?:#.*)?\n)*")


def _read_delimited(data: bytes, path: str, *, delimiter: str | None) -> Document:
    """`delimiter`: the sign between cells, where the file does not name another one."""
    text, warnings = decode(data)
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    if separator := _SEPARATOR.match(text):  # for Excel: no row, but the lines keep their numbers
        text = "\n" * separator[0].count("\n") + text[separator.end() :]
        delimiter = separator[1]
    text = _blank_comments(text, delimiter)
    delimiter = delimiter or _find_delimiter(text)
    rows = list(_split_rows(text, delimiter, csv.QUOTE_MINIMAL))
    if (line := _find_unclosed(rows, quotes=text.count('"'))) is not None:
        warnings = (*warnings, f"line {line}: a quote is never closed; read without quoting")
        rows = list(_split_rows(text, delimiter, csv.QUOTE_NONE))
    columns, cells = name_cells(rows)
    return make_table(make_rows(cells, title=title_from(path)), columns, path, warnings)


read_csv = partial(_read_delimited, delimiter=None)
read_tsv = partial(_read_delimited, delimiter="\t")


def _blank_comments(text: str, delimiter: str | None) -> str:
    """The text with the lines before its header that begin with # left empty. `#id,name` is one."""
    found = _COMMENTS.match(text)
    if not found or "#" not in found[0] or not (rest := text[found.end() :]).strip():
        return text
    begun = found[0].rstrip().rfind("\n") + 1
    last, delimiter = found[0][begun:].strip(), delimiter or _find_delimiter(rest)
    width = len(rest.partition("\n")[0].split(delimiter))
    is_header = not last.startswith("# ") and len(last.split(delimiter)) == width > 1
    keep = begun if is_header else found.end()
    return "\n" * text.count("\n", 0, keep) + text[keep:]


def _find_delimiter(text: str) -> str:
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


def _split_rows(text: str, delimiter: str, quoting: Any) -> Iterator[tuple[Lines, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, quoting=quoting)
    at = 1
    for row in reader:
        if any(cell.strip() for cell in row):
            yield (at, reader.line_num), row
        at = reader.line_num + 1


def _find_unclosed(rows: Sequence[tuple[Lines, list[str]]], *, quotes: int) -> int | None:
    """The line of a quote that takes the rest of the file, or far too much of it, into one cell."""
    last = rows[-1:] if quotes % 2 else []
    for some, most in ((rows, _LONGEST_CELL), (last, 0)):
        for (line, _), row in some:
            if any(cell.count("\n") > most for cell in row):
                return line
    return None


def name_cells(
    rows: Iterable[tuple[Lines, Sequence[str]]],
) -> tuple[list[str], list[tuple[Lines, Cells]]]:
    """The names of the columns, where the first row has them, and the cells of each further row.

    What is empty is left out, rows and columns before the table too; what has no column's name goes
    by its number.
    """
    stripped = [(lines, [cell.strip() for cell in row]) for lines, row in rows]
    filled = [(lines, cells) for lines, cells in stripped if any(cells)]
    left = min((next(i for i, c in enumerate(cells) if c) for _, cells in filled), default=0)
    columns: list[str] = []
    if filled and _is_header([cells[left:] for _, cells in filled]):
        columns = _number_repeats([_column(cell) for cell in filled.pop(0)[1][left:]])
    names = dict(enumerate(columns, start=left))
    named = [
        (lines, {names.get(i) or str(i + 1): cell for i, cell in enumerate(cells) if cell})
        for lines, cells in filled
    ]
    return columns, named


def _column(name: str) -> str:
    return " ".join(name.split())[:_LONGEST_NAME]


def _number_repeats(names: list[str]) -> list[str]:
    """Names of columns, of which a repeated one has its number: note, note_2."""
    taken, made = set(names), dict[str, int]()
    for i, name in enumerate(names):
        if name and name in made:
            while f"{name}_{made[name] + 1}" in taken:
                made[name] += 1
            names[i] = f"{name}_{made[name] + 1}"
            taken.add(names[i])
        made.setdefault(name, 1)
    return names


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

_MOST_WARNINGS = 5


def read_jsonl(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    rows: list[tuple[Lines, Cells]] = []
    bad: list[int] = []
    for at, source in enumerate(text.split("\n"), start=1):
        if not source.strip():
            continue
        try:
            cells = dict(_flatten(json.loads(source), ""))
        except (ValueError, RecursionError):
            bad.append(at)
            cells = {"": source.strip()}
        if cells:
            rows.append(((at, at), cells))
    troubles = [f"line {at} is not JSON and counts as text" for at in bad[:_MOST_WARNINGS]]
    if len(bad) > _MOST_WARNINGS:
        troubles.append(f"{len(bad) - _MOST_WARNINGS} more lines are not JSON and count as text")
    columns = dict.fromkeys(name for _, cells in rows for name in cells)
    made = make_rows(rows, title=title_from(path))
    return make_table(made, columns, path, (*warnings, *troubles))


def _flatten(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Scalars by the names that lead to them; plain ones of a list together."""
    if isinstance(value, (dict, list)) and len(name) > _LONGEST_NAME:
        yield name[:_LONGEST_NAME], json.dumps(value, ensure_ascii=False)
    elif isinstance(value, dict):
        for key, inner in value.items():
            column = _column(str(key))
            yield from _flatten(inner, f"{name}.{column}" if name else column)
    elif isinstance(value, list):
        plain = [_plain_value(v) for v in value if not isinstance(v, (dict, list))]
        if words := ", ".join(str(word) for word in plain if word != ""):
            yield name, words
        for i, inner in enumerate(value, start=1):
            if isinstance(inner, (dict, list)):
                yield from _flatten(inner, f"{name}.{i}" if name else str(i))
    elif (word := _plain_value(value)) != "":
        yield name, word


def _plain_value(value: Any) -> str | int | float:
    if isinstance(value, bool):
        return str(value).lower()
    # A store keeps whole numbers in 64 bits.
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return "" if value is None else str(value).strip()
