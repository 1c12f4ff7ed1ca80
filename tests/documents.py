"""Files of other programs, as small as they come."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF as small as they come: one line of Helvetica per line of text."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for page in pages:
        lines = " ".join(f"({line}) Tj 0 -14 Td" for line in page.split("\n"))
        stream = f"BT /F1 12 Tf 72 720 Td {lines} ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R >>"
        )
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    objects.append(f"<< /Title ({title}) >>")
    out, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
    xref = f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}startxref\n{len(out)}\n%%EOF\n"
    return (out + xref).encode("latin-1")


def office() -> dict[str, bytes]:
    """One of each kind, by suffix."""
    import docx
    import openpyxl
    import pptx

    document, deck, book = docx.Document(), pptx.Presentation(), openpyxl.Workbook()
    document.add_heading("Part one", level=1)
    document.add_paragraph("Some text.")
    document.add_table(rows=1, cols=2).cell(0, 0).text = "a"
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "The plan"
    book.active.append(["name", "date"])
    book.active.append(["crane", "2024-01-01"])
    made = {}
    for suffix, each in ((".docx", document), (".pptx", deck), (".xlsx", book)):
        each.save(file := io.BytesIO())
        made[suffix] = file.getvalue()
    return made


def change_part(content: bytes, mark: str, change: Callable[[bytes], bytes]) -> bytes:
    """An office file in which the parts whose names have `mark` in them are others."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            new.writestr(name, change(part) if mark in name else part)
    return made.getvalue()
