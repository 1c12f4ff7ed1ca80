"""Tables: each row becomes one line that explains itself, "column: value; column: value"."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clew.ingest.readers.text import decode, title_from
from clew.types import Document

__all__ = ["read_csv", "read_jsonl", "read_tsv", "table_lines"]

_DELIMITERS = ",;\t|"
# csv keeps one limit for the process; it is a C long, which may have 32 bits.
_LONGEST_FIELD = 2**31 - 1
_SAMPLE = 8192
# A cell of more lines than this is no cell: a quote was opened and never closed.
_LONGEST_CELL = 100
_MOST_WARNINGS = 5
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?%?|[\d:/.-]+(?:[T ][\d:.Z+-]+)?")


def read_csv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, _delimiter(text), warnings)


def read_tsv(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return _read(text, path, "\t", warnings)


def _read(text: str, path: str, delimiter: str, warnings: tuple[str, ...]) -> Document:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    rows = list(_rows(text, delimiter, csv.QUOTE_MINIMAL))
    odd = next((at for at, row in rows if any(c.count("\n") > _LONGEST_CELL for c in row)), None)
    if odd is not None:
        warnings = (*warnings, f"line {odd}: a quote is never closed; read without quoting")
        rows = list(_rows(text, delimiter, csv.QUOTE_NONE))
    columns, lines = table_lines(rows)
    return _table(lines, path, {"columns": columns} if columns else {}, warnings)


def _table(
    lines: list[tuple[int, str]], path: str, metadata: dict[str, Any], warnings: tuple[str, ...]
) -> Document:
    return Document(
        text="\n".join(line for _, line in lines),
        kind="table",
        title=title_from(path),
        metadata={**metadata, "rows": len(lines)},
        line_numbers=tuple(at for at, _ in lines),
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


def _rows(text: str, delimiter: str, quoting: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line that it begins on."""
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, quoting=quoting)
    at = 1
    for row in reader:
        if any(cell.strip() for cell in row):
            yield at, row
        at = reader.line_num + 1


def table_lines(
    rows: Iterable[tuple[int, Sequence[str]]],
) -> tuple[list[str], list[tuple[int, str]]]:
    """The names of the columns, where the first row has them, and each further row in a line.

    What is empty is left out; what has no column's name stands alone.
    """
    columns: list[str] = []
    lines: list[tuple[int, str]] = []
    first = True
    for at, row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if first and _is_header(cells):
            columns = cells
            # A table of nothing but its header is still found by its columns.
            lines.append((at, "; ".join(filter(None, cells))))
        else:
            names = (columns[i] if i < len(columns) else "" for i in range(len(cells)))
            named = ((name, cell) for name, cell in zip(names, cells, strict=True) if cell)
            lines.append((at, "; ".join(f"{n}: {c}" if n else c for n, c in named)))
        first = False
    if columns and len(lines) > 1:
        del lines[0]
    return columns, [(at, line) for at, line in lines if line]


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


def read_jsonl(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    lines: list[tuple[int, str]] = []
    bad: list[int] = []
    for at, source in enumerate(text.split("\n"), start=1):
        if not source.strip():
            continue
        try:
            line = "; ".join(_flat(json.loads(source), ""))
        except (ValueError, RecursionError):
            bad.append(at)
            line = " ".join(source.split())
        if line:
            lines.append((at, line))
    troubles = [f"line {at} is not JSON and counts as text" for at in bad[:_MOST_WARNINGS]]
    if len(bad) > _MOST_WARNINGS:
        troubles.append(f"{len(bad) - _MOST_WARNINGS} more lines are not JSON and count as text")
    return _table(lines, path, {}, (*warnings, *troubles))


def _flat(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        plain = [_word(v) for v in value if not isinstance(v, (dict, list))]
        if words := ", ".join(word for word in plain if word):
            yield f"{name}: {words}" if name else words
        for inner in value:
            if isinstance(inner, (dict, list)):
                yield from _flat(inner, name)
    elif word := _word(value):
        name = " ".join(name.split())
        yield f"{name}: {word}" if name else word


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else " ".join(str(value).split())
