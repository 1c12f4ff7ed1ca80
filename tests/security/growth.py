"""Inputs made to keep a parser busy, and how its time grows with their size.

python tests/security/growth.py      the exponents of all of them, largest first
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from clew.errors import ClewError
from clew.filter import on_path
from clew.ingest.chunk import chunk
from clew.ingest.readers import read
from clew.models.chat import find_values
from clew.text.analyser import tokens
from clew.text.parse import parse

MOST = 1.3
"""The exponent that no input may exceed: 1 is linear, 2 the square."""
FACTOR = 16
"""How much larger the large input is."""
ENOUGH = 0.001
"""Seconds that the small one takes longer than an empty one, so that its time can be told: it is
made larger, or read more than once."""
SMALLEST, LARGEST = 2_000, 16_000
"""Characters of the small one."""
TRIES = 8


class Crafted(NamedTuple):
    """An input that can be made of any size."""

    parser: str
    piece: str
    run: Callable[[int], object]
    """Have the parser read one of that many characters."""


# ---------------------------------------------------------------------- what they are made of

PIECES = (
    *("[", "![[", "](", "[[a|", "`", "```\n", "<!--", "{{<", "{% comment %}", "\n%%", " ^a", "#a "),
    *(
        "a\n-\n",
        "> ",
        "- ",
        "<a ",
        "<li>a",
        "<ul><li>a\n",
        "<b>",
        "<p>",
        "<h1>",
        "<template>",
        "</head>",
        "<!",
        "<?",
        "&#",
        "<li>",
    ),
    *("<![CDATA[", '"', ",", "1", "a:", "a: b\n", "\n ", "a\n=\n", ".. a\n", ":doc:`", "`a <"),
    *("// copyright\n", "copyright:", "def a(\n", '{"a":1}\n', "[1,", "http://", '"a\n', "date,"),
    *("<pre>", "<table><tr><td>", "</p>", "<div><!--", "\t", "\r", "é", "*a_", "# a\n", "  - a\n"),
)
KINDS = (".md", ".html", ".rst", ".py", ".csv", ".jsonl", ".txt")
IN_FRONT = ("[", "{a: ", "- ", "a: &a [*a]\n", "a:\n ", "<<: ", "a.a.", "'", "? ", "#", "|\n a\n")
QUERIES = (
    *("a ", '"', '"a" ', "path:*", "path:a ", "tag:", "-", "-a ", "(", "a OR ", "type:", "*", "a*"),
    *("after:2020 ", "a:b ", "é", "日", "a-", "A.b_", "aB", "1.", "\\", "'", "~", "^", ":"),
)
ANSWERS = ("[", '{"a":', "<think>", "[1],", '"\\', "```json\n[", "{", "]", "<think></think>")

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAW = "http://schemas.openxmlformats.org/drawingml/2006/main"
SHOW = "http://schemas.openxmlformats.org/presentationml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RUN = "<w:r><w:t>a</w:t></w:r>"
CELL = f"<w:tc><w:p>{RUN}</w:p></w:tc>"
DOCX = {
    "paragraphs": ("", f"<w:p>{RUN}</w:p>", ""),
    "empty paragraphs": ("", "<w:p/>", ""),
    "runs": ("<w:p>", RUN, "</w:p>"),
    "texts": ("<w:p><w:r>", "<w:t>a</w:t>", "</w:r></w:p>"),
    "breaks": ("<w:p><w:r>", "<w:br/><w:tab/>", "</w:r></w:p>"),
    "one text": ("<w:p><w:r><w:t>", "a b ", "</w:t></w:r></w:p>"),
    "links": ("<w:p>", f"<w:hyperlink>{RUN}</w:hyperlink>", "</w:p>"),
    "headings": ("", f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr>{RUN}</w:p>', ""),
    "titles": ("", f'<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr>{RUN}</w:p>', ""),
    "unknown styles": ("", f'<w:p><w:pPr><w:pStyle w:val="x"/></w:pPr>{RUN}</w:p>', ""),
    "tables": ("", f"<w:tbl><w:tr>{CELL}</w:tr></w:tbl>", ""),
    "rows": ("<w:tbl>", f"<w:tr>{CELL}</w:tr>", "</w:tbl>"),
    "cells": ("<w:tbl><w:tr>", CELL, "</w:tr></w:tbl>"),
    "wide cells": (
        "<w:tbl>",
        f'<w:tr><w:tc><w:tcPr><w:gridSpan w:val="999999"/></w:tcPr><w:p>{RUN}</w:p></w:tc></w:tr>',
        "</w:tbl>",
    ),
    "joined cells": (
        f"<w:tbl><w:tr>{CELL}</w:tr>",
        "<w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc></w:tr>",
        "</w:tbl>",
    ),
    "sections": ("", "<w:p><w:pPr><w:sectPr/></w:pPr></w:p>", ""),
    "comments": ("", "<!-- a -->", ""),
    "attributes": ("<w:p><w:r><w:t>", "&#97;", "</w:t></w:r></w:p>"),
    "fields": ("<w:p>", '<w:fldSimple w:instr="a"/>', "</w:p>"),
    "nested tables": ("", "<w:tbl><w:tr><w:tc>", "", "</w:tc></w:tr></w:tbl>"),
    "nested boxes": ("", "<w:sdt><w:sdtContent>", "", "</w:sdtContent></w:sdt>"),
    "boxes": ("", f"<w:sdt><w:sdtContent><w:p>{RUN}</w:p></w:sdtContent></w:sdt>", ""),
}
TEXT = "<p:txBody><a:bodyPr/><a:p><a:r><a:t>a</a:t></a:r></a:p></p:txBody>"
SHAPE = (
    '<p:sp><p:nvSpPr><p:cNvPr id="2" name="a"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>'
    f"{TEXT}</p:sp>"
)
GROUP = (
    '<p:grpSp><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr>'
    "<p:grpSpPr/>"
)
FRAME = (
    '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="4" name="t"/><p:cNvGraphicFramePr/><p:nvPr/>'
    '</p:nvGraphicFramePr><p:xfrm/><a:graphic><a:graphicData uri="'
    'http://schemas.openxmlformats.org/drawingml/2006/table"><a:tbl><a:tblPr/><a:tblGrid/>'
)
END = "</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
BOX = "<a:tc><a:txBody><a:bodyPr/><a:p><a:r><a:t>a</a:t></a:r></a:p></a:txBody></a:tc>"
HEAD, TAIL = SHAPE.split("<a:p>")[0], "</p:txBody></p:sp>"
PPTX = {
    "shapes": ("", SHAPE, ""),
    "paragraphs": (HEAD, "<a:p><a:r><a:t>a</a:t></a:r></a:p>", TAIL),
    "runs": (f"{HEAD}<a:p>", "<a:r><a:t>a</a:t></a:r>", f"</a:p>{TAIL}"),
    "breaks": (f"{HEAD}<a:p>", "<a:br/>", f"</a:p>{TAIL}"),
    "one text": (f"{HEAD}<a:p><a:r><a:t>", "a b ", f"</a:t></a:r></a:p>{TAIL}"),
    "groups": ("", f"{GROUP}{SHAPE}</p:grpSp>", ""),
    "nested groups": ("", GROUP, "", "</p:grpSp>"),
    "rows": (FRAME, f'<a:tr h="1">{BOX}</a:tr>', END),
    "cells": (f'{FRAME}<a:tr h="1">', BOX, f"</a:tr>{END}"),
    "tables": ("", f'{FRAME}<a:tr h="1">{BOX}</a:tr>{END}', ""),
    "titles": ("", SHAPE.replace("<p:nvPr/>", '<p:nvPr><p:ph type="title"/></p:nvPr>'), ""),
    "pictures": ("", "<p:pic/>", ""),
    "connectors": ("", "<p:cxnSp/>", ""),
}
XLSX = {
    "rows": ("", "<row><c><v>1</v></c></row>", ""),
    "cells": ("<row>", "<c><v>1</v></c>", "</row>"),
    "texts": ("", '<row><c t="inlineStr"><is><t>a</t></is></c></row>', ""),
    "one text": ('<row><c t="inlineStr"><is><t>', "a b ", "</t></is></c></row>"),
    "digits": ('<row><c t="inlineStr"><is><t>', "1", "</t></is></c></row><row><c/></row>"),
    "rich text": ('<row><c t="inlineStr"><is>', "<r><t>a</t></r>", "</is></c></row>"),
    "empty rows": ("", "<row/>", ""),
    "far rows": ("", '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>', ""),
    "formulas": ("", "<row><c><f>A1</f><v>1</v></c></row>", ""),
    "errors": ("", '<row><c t="e"><v>#N/A</v></c></row>', ""),
    "truths": ("", '<row><c t="b"><v>1</v></c></row>', ""),
    "shared texts": ("", '<row><c t="s"><v>0</v></c></row>', ""),
    "same names": ("<row>", '<c t="inlineStr"><is><t>a</t></is></c>', "</row><row><c/></row>"),
}
PDF = {
    "texts": "(a) Tj ",
    "long texts": "(a b c d e f g h) Tj ",
    "lines": "0 -1 Td (a) Tj ",
    "rows": "T* (a) Tj ",
    "arrays": "[(a) 1 (b)] TJ ",
    "spaced": "[(a) -999] TJ ",
    "states": "q Q ",
    "open states": "q ",
    "closed states": "Q ",
    "matrices": "1 0 0 1 1 1 cm ",
    "positions": "1 0 0 1 9 9 Tm (a) Tj ",
    "fonts": "/F1 9 Tf ",
    "numbers": "1 ",
    "names": "/a ",
    "hex": "<61> Tj ",
    "open hex": "<",
    "open texts": "(",
    "escapes": "(\\\\) Tj ",
    "octal": "(\\141) Tj ",
    "open arrays": "[",
    "open maps": "<<",
    "closed maps": ">>",
    "comments": "%a\n",
    "paths": "0 0 m 1 1 l S ",
    "pictures": "BI ID a EI ",
    "open pictures": "BI ",
    "marks": "/a BMC EMC ",
    "unknown": "xyz ",
    "blocks": "BT ET ",
    "forms": "/X1 Do ",
    "nested texts": "(() ()) Tj ",
}


# ---------------------------------------------------------------------- documents of them


def pack(parts: dict[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return made.getvalue()


def unpack(data: bytes) -> dict[str, str | bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def repeat(parts: tuple[str, ...], size: int) -> str:
    """What stands before, the piece many times, what stands after; and what ends each piece."""
    before, piece, after, *end = parts
    times = size // len(piece + "".join(end))
    return before + piece * times + "".join(end) * times + after


@cache
def empty_docx() -> dict[str, str | bytes]:
    import docx

    made = io.BytesIO()
    docx.Document().save(made)
    return unpack(made.getvalue())


@cache
def empty_pptx() -> dict[str, str | bytes]:
    import pptx

    deck, made = pptx.Presentation(), io.BytesIO()
    deck.slides.add_slide(deck.slide_layouts[6])
    deck.save(made)
    return unpack(made.getvalue())


@cache
def empty_xlsx() -> dict[str, str | bytes]:
    import openpyxl

    made = io.BytesIO()
    openpyxl.Workbook().save(made)
    return unpack(made.getvalue())


def docx_file(body: str) -> bytes:
    whole = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return pack({**empty_docx(), "word/document.xml": whole})


def pptx_file(shapes: str) -> bytes:
    whole = (
        f'<p:sld xmlns:p="{SHOW}" xmlns:a="{DRAW}"><p:cSld><p:spTree>'
        '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
        f"{shapes}</p:spTree></p:cSld></p:sld>"
    )
    return pack({**empty_pptx(), "ppt/slides/slide1.xml": whole})


def xlsx_file(rows: str) -> bytes:
    whole = f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData></worksheet>'
    return pack({**empty_xlsx(), "xl/worksheets/sheet1.xml": whole})


def pdf_file(content: str, *, pages: int = 1) -> bytes:
    """With `content` on each of its pages."""
    kids = " ".join(f"{n + 5} 0 R" for n in range(pages))
    page = (
        "<</Type/Page/Parent 2 0 R/Contents 3 0 R/MediaBox[0 0 99 99]"
        "/Resources<</Font<</F1 4 0 R>>>>>>"
    )
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {pages}/Kids[{kids}]>>",
        f"<</Length {len(content)}>>stream\n{content}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *([page] * pages),
    ]
    made, places = io.BytesIO(), []
    made.write(b"%PDF-1.4\n")
    for number, each in enumerate(objects, start=1):
        places.append(made.tell())
        made.write(f"{number} 0 obj\n{each}\nendobj\n".encode())
    start = made.tell()
    made.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    made.write("".join(f"{at:010} 00000 n \n" for at in places).encode())
    made.write(f"trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\n".encode())
    made.write(f"startxref\n{start}\n%%EOF\n".encode())
    return made.getvalue()


# ---------------------------------------------------------------------- all of them


def read_file(data: bytes, name: str) -> None:
    with contextlib.suppress(ClewError):  # said at once is well said
        chunk(read(data, name))


def inputs() -> Iterator[Crafted]:
    for kind in KINDS:
        for piece in PIECES:

            def run(size: int, piece: str = piece, kind: str = kind) -> None:
                read_file((piece * (size // len(piece))).encode(), f"a{kind}")

            yield Crafted(kind, piece, run)
    for fence in ("---", "+++"):
        for piece in IN_FRONT:

            def run_front(size: int, piece: str = piece, fence: str = fence) -> None:
                text = f"{fence}\na: {piece * (size // len(piece))}\n{fence}\nwords\n"
                read_file(text.encode(), "a.md")

            yield Crafted(f"front matter {fence}", piece, run_front)
    for form, ending in (
        ("{}x,b\n1,2\n", ".csv"),
        ("a,b\n{},2\n", ".csv"),
        ('{{"a": {}}}\n', ".jsonl"),
    ):
        for piece in ("1", "1.", "a,", '"'):

            def run_cell(size: int, form: str = form, piece: str = piece, to: str = ending) -> None:
                read_file(form.format(piece * (size // len(piece))).encode(), f"a{to}")

            yield Crafted(f"cells {form!r}", piece, run_cell)
    for piece in ("*a", "**a", "**/", "?*", "a**/*", "[", "[a]*"):
        for path in ("a", "a/", "ab/"):

            def run_path(size: int, piece: str = piece, path: str = path) -> None:
                on_path(f"{piece * 9}!", path * (size // len(path)))

            yield Crafted("patterns", f"{piece} on {path}", run_path)
    for piece in QUERIES:
        yield Crafted("queries", piece, lambda size, p=piece: _parse(p * (size // len(p))))  # type: ignore[misc]
    for piece in QUERIES:
        yield Crafted("words", piece, lambda size, p=piece: tokens(p * (size // len(p))))  # type: ignore[misc]
    for piece in ANSWERS:
        yield Crafted(
            "answers of models",
            piece,
            lambda size, p=piece: list(find_values(p * (size // len(p)))),  # type: ignore[misc]
        )
    for name, made, parts in (
        ("a.docx", docx_file, DOCX),
        ("a.pptx", pptx_file, PPTX),
        ("a.xlsx", xlsx_file, XLSX),
        ("a.pdf", pdf_file, {name: ("BT /F1 9 Tf ", piece, " ET") for name, piece in PDF.items()}),
    ):
        for piece, texts in parts.items():
            yield Crafted(name[1:], piece, partial(_read_made, name, made, texts))
    yield Crafted(
        ".pdf",
        "pages",
        lambda size: read_file(pdf_file("BT /F1 9 Tf (a) Tj ET", pages=size // 90), "a.pdf"),
    )


def _read_made(name: str, make: Callable[[str], bytes], texts: tuple[str, ...], size: int) -> None:
    read_file(make(repeat(texts, size)), name)


def _parse(text: str) -> None:
    with contextlib.suppress(ClewError):
        parse(text)


# ---------------------------------------------------------------------- how it grows


def seconds(run: Callable[[int], object], size: int, times: int) -> float:
    """Of the processor's, for reading one so many times."""
    began = time.process_time()
    for _ in range(times):
        run(size)
    return time.process_time() - began


def measure(crafted: Crafted, *, most: float = MOST) -> float:
    """The exponent. A busy machine makes times longer, and each of them by another share: where it
    seems too large, everything is measured again, and the smallest counts. A square stays one."""
    crafted.run(SMALLEST)  # imports
    exponent = math.inf
    for _ in range(TRIES):
        exponent = min(exponent, _measure_once(crafted.run))
        if exponent <= most:
            break
    return exponent


def _measure_once(run: Callable[[int], object]) -> float:
    def took(size: int, times: int) -> float:
        return min(seconds(run, size, times) for _ in range(3))

    size, times, empty = SMALLEST, 1, took(0, 1)
    slow = empty > ENOUGH / 4  # so is opening an archive; then it is made larger instead
    while (small := took(size, times) - empty) < ENOUGH:
        if size < LARGEST * (4 if slow else 1):
            size *= 2
        elif slow or times >= 256:
            break
        else:
            times *= 2
            empty = took(0, times)  # a single call is slower than one of many
    small = max(small, ENOUGH / 4, empty / 4)  # what can be told from the time of nothing
    large = took(FACTOR * size, times) - empty
    return math.log(max(large, ENOUGH) / small, FACTOR)


def measure_all() -> list[tuple[str, str, float]]:
    """Parser, piece and exponent of each."""
    gc.collect()
    gc.disable()  # it goes through all that a process holds, whatever is read
    try:
        return [(each.parser, each.piece, measure(each, most=1.1)) for each in inputs()]
    finally:
        gc.enable()


if __name__ == "__main__":
    found = sorted(measure_all(), key=lambda each: -each[2])
    for parser, piece, exponent in found[:20]:
        print(f"{exponent:.2f} {parser} {piece!r}")
    print(f"{len(found)} inputs, largest exponent {found[0][2]:.2f}")
