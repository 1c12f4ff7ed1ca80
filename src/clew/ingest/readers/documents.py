"""PDF and Office files, through the libraries of the `documents` extra."""

from __future__ import annotations

import datetime as dt
import importlib
import io
import logging
import re
import warnings as python_warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import Any

from clew.errors import InputError, needs_extra
from clew.ingest.readers.tables import make_rows, make_table, name_cells
from clew.ingest.readers.text import fold_tags, title_from
from clew.types import Document, TableRow

_PARAGRAPH = 1  # among the types of styles
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RUN, _LINK = f"{_WORD}r", f"{_WORD}hyperlink"
_IN_RUN = frozenset(_WORD + name for name in ("br", "cr", "noBreakHyphen", "ptab", "t", "tab"))
# A small archive can unpack to more than the memory holds.
_MOST_UNPACKED = 512 * 1024 * 1024
_LONGEST_TITLE = 200
# Of a workbook; every row has them as well.
_LONGEST_KEYWORDS = 2_000
_HEADING_STYLE = re.compile(r"Heading (\d)", re.IGNORECASE)


class _Text:
    """Lines with their numbers (page, slide, paragraph), and the headings among them."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.headings: list[tuple[int, int, str]] = []
        self.warnings: list[str] = []
        self._at = 0

    def add(self, text: str, number: int) -> None:
        for line in text.splitlines() or [""]:
            self.lines.append(line.rstrip())
            self.numbers.append(number)
            self._at += len(self.lines[-1]) + 1

    def head(self, level: int, words: str) -> None:
        """What is added next stands under this heading."""
        if words := " ".join(words.split())[:_LONGEST_TITLE]:
            self.headings.append((self._at, level, words))

    def document(self, title: str, *, tags: str = "") -> Document:
        if not any(line.strip() for line in self.lines):
            self.warnings.append("no text found: it may be made of pictures")
        return Document(
            text="\n".join(self.lines),
            kind="document",
            title=" ".join(title.split()),
            tags=fold_tags(tags),
            headings=tuple(self.headings),
            line_numbers=tuple(self.numbers),
            unit=self.unit,
            warnings=tuple(self.warnings),
        )


def _library(name: str, what: str) -> Any:
    with needs_extra("documents", f"reading {what}", InputError):
        return importlib.import_module(name)


def _unpackable(data: bytes) -> io.BytesIO:
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise InputError("it is encrypted, or of an old format: save a copy without a password")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > _MOST_UNPACKED:
        raise InputError(f"it unpacks to {size // 2**20} MB, more than Clew will hold in memory")
    return io.BytesIO(data)


# ---------------------------------------------------------------- PDF


def read_pdf(data: bytes, path: str) -> Document:
    pypdf = _library("pypdf", "PDF")
    # It tells the log of every flaw it works around; what matters to a reader is raised.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    # Many files are only locked against change, and open without a password.
    if reader.is_encrypted and not _call_or_empty(lambda: reader.decrypt("")):
        raise InputError("the PDF is encrypted: save a copy without a password")
    text = _Text("page")
    for number, page in enumerate(reader.pages, start=1):
        try:
            words = page.extract_text()
        except MemoryError:
            raise
        except Exception as error:  # one damaged page does not take the others down
            text.warnings.append(f"page {number} could not be read: {error}")
            continue
        if words.strip():
            text.add(words, number)
    title = _call_or_empty(lambda: reader.metadata and reader.metadata.title)
    return text.document(str(title).strip() or title_from(path))


def _call_or_empty(function: Callable[[], Any]) -> Any:
    """What it gives, or "": a damaged title, an unknown cipher are not worth a file."""
    try:
        return function() or ""
    except Exception:
        return ""


# ---------------------------------------------------------------- Office


def read_docx(data: bytes, path: str) -> Document:
    docx = _library("docx", "DOCX")
    document = docx.Document(_unpackable(data))
    text = _Text("paragraph")
    title = document.core_properties.title or ""
    styles = _paragraph_styles(document.styles)
    number = 0
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            number += 1
            for cells in _table_rows(block):
                text.add(_join_cells(cells), number)
            text.add("", number)
            continue
        if not (words := _paragraph_text(block._p)).strip():
            continue
        style = styles.get(block._p.style, styles[None])
        level = _HEADING_STYLE.match(style)
        if level or style == "Title":
            text.head(int(level[1]) if level else 1, words)
            title = title or (words if style == "Title" else "")
        number += 1
        text.add(words, number)
        text.add("", number)
    title = title or next((words for _, level, words in text.headings if level == 1), "")
    return text.document(title or title_from(path), tags=document.core_properties.keywords or "")


def _paragraph_text(paragraph: Any) -> str:
    """A paragraph's `text`, less the paths that python-docx looks up anew for each run."""
    runs = chain.from_iterable(each if each.tag == _LINK else (each,) for each in paragraph)
    return "".join(
        str(part) for run in runs if run.tag == _RUN for part in run if part.tag in _IN_RUN
    )


def _paragraph_styles(styles: Any) -> dict[str | None, str]:
    """Names by id; None: of what has no style. To ask each paragraph means to look through all."""
    default = styles.default(_PARAGRAPH)
    named = {style.style_id: style.name or "" for style in styles if style.type == _PARAGRAPH}
    return {**named, None: (default.name or "") if default is not None else ""}


def _table_rows(table: Any) -> Iterator[list[str]]:
    """The texts of each row's cells; one that is joined to that above says the same.

    Not `row.cells`, which has a cell as often as it claims to be wide.
    """
    above: dict[int, str] = {}
    for row in table.rows:
        cells: dict[int, str] = {}
        at = row._tr.grid_before
        for cell in row._tr.tc_lst:
            joined = cell.vMerge == "continue"
            cells[at] = above.get(at, "") if joined else "\n".join(map(_paragraph_text, cell.p_lst))
            at += cell.grid_span or 1
        yield list(cells.values())
        above = cells


def _join_cells(cells: Iterable[str]) -> str:
    # A merged cell comes up once per column that it spans.
    return " | ".join(words for words, _ in groupby(" ".join(cell.split()) for cell in cells))


def read_pptx(data: bytes, path: str) -> Document:
    pptx = _library("pptx", "PPTX")
    deck = pptx.Presentation(_unpackable(data))
    text = _Text("slide")
    for number, slide in enumerate(deck.slides, start=1):
        title = slide.shapes.title
        text.head(1, title.text_frame.text if title is not None else "")
        for words in _shape_texts(slide.shapes):
            text.add(words, number)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            text.add(slide.notes_slide.notes_text_frame.text, number)
        text.add("", number)
    properties = deck.core_properties
    return text.document(properties.title or title_from(path), tags=properties.keywords or "")


def _shape_texts(shapes: Any) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shape_texts(shape.shapes)
        elif shape.has_text_frame and shape.text_frame.text.strip():
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False) and shape.has_table:
            # Not `rows`, which lists all rows anew for each.
            rows = shape.table._tbl.tr_lst
            yield from (_join_cells(cell.text for cell in row.tc_lst) for row in rows)


def read_xlsx(data: bytes, path: str) -> Document:
    openpyxl = _library("openpyxl", "XLSX")
    rows: list[TableRow] = []
    columns: dict[str, None] = {}
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")  # styles and extensions that do not concern us
        book = openpyxl.load_workbook(_unpackable(data), read_only=True, data_only=True)
        title = (book.properties.title or title_from(path))[:_LONGEST_TITLE]
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what the file says of its size is often wrong
            numbered = enumerate(sheet.iter_rows(values_only=True), start=1)
            names, filled = name_cells(
                ((n, n), [*map(_cell, row)])
                for n, row in numbered
                if any(v is not None for v in row)
            )
            columns |= dict.fromkeys([sheet.title, *names])
            rows += make_rows(filled, title=title, sheet=sheet.title)
        keywords = (book.properties.keywords or "")[:_LONGEST_KEYWORDS]
        book.close()
    document = make_table(rows, columns, path)
    return document._replace(title=title, tags=fold_tags(keywords), unit="row")


def _cell(value: Any) -> str:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
