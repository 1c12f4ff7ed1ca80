"""Draw the packages of Clew, and the two paths through them: docs/images/packages.svg.

    python docs/packages.py docs/images/packages.svg

Which package may import which is in tests/test_layers.py.
"""

from __future__ import annotations

import argparse
from html import escape
from itertools import pairwise
from pathlib import Path

ROWS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("cli", "commands, pages"), ("serve", "HTTP, MCP, a page")),
    (
        ("adapters", "other frameworks"),
        ("eval", "figures, tuning"),
        ("ask", "answers, cited"),
        ("client", "of a server"),
    ),
    (("memory", "what agents keep"), ("lookup", "clew.Search"), ("engine", "the facade")),
    (("cache", "answers kept"), ("search", "the one pipeline")),
    (("graph", "entities, links"), ("tree", "a hierarchy"), ("sources", "one ranked list each")),
    (("ingest", "files to records"), ("store", "tables and indexes"), ("ranking", "fuse, judge")),
    (("storage", "SQL, change log"), ("index", "Tantivy, FAISS"), ("servers", "that rank")),
    (("text", "the analyser"), ("models", "embed, rerank, chat")),
    (
        ("resident errors validate timestamps", ""),
        ("background filter types protocols", ""),
        ("lookup_settings trust config", ""),
    ),
)
PATHS = {
    "index": ("#2563eb", ("a folder", "ingest", "store", "storage", "index")),
    "query": ("#c2410c", ("a query", "engine", "search", "sources", "store", "ranking", "hits")),
}
WIDTH, HEIGHT, ROW, BOX, MARGIN = 1000, 736, 76, 50, 150
STYLE = "font-family='system-ui, sans-serif' text-anchor='middle'"


def packages() -> list[str]:
    """Every package that is drawn."""
    return [name for row in ROWS for names, _ in row for name in names.split()]


def draw() -> str:
    """The picture as SVG."""
    places: dict[str, tuple[float, float, float]] = {}
    """The middle of each, and half its width."""
    boxes: list[str] = []
    inner = WIDTH - 2 * MARGIN
    for number, row in enumerate(ROWS):
        y, wide = 30 + number * ROW, inner / len(row)
        for column, (name, caption) in enumerate(row):
            x = MARGIN + column * wide
            places[name] = (x + wide / 2, y + BOX / 2, wide / 2 - 8)
            boxes.append(_box(name, caption, x + 8, y, wide - 16))
    lines: list[str] = []
    for number, (path, (colour, steps)) in enumerate(PATHS.items()):
        side = 70 if number == 0 else WIDTH - 70
        first, last = places[steps[1]], places[steps[-2]]
        ends = {steps[0]: first[1]}
        if steps[-1] not in places:
            ends[steps[-1]] = last[1]
        places |= {name: (side, y, 40) for name, y in ends.items()}
        lines += [_word(name, side, y, colour) for name, y in ends.items()]
        lines += [
            _arrow(places[a], places[b], colour, path, 14 * (number * 2 - 1))
            for a, b in pairwise(steps)
        ]
    head = (
        f"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='The packages of Clew'>"
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#fff'/><defs>"
    )
    marks = "".join(
        f"<marker id='{path}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0 0 8 4 0 8z' fill='{colour}'/></marker>"
        for path, (colour, _) in PATHS.items()
    )
    return "\n".join([f"{head}{marks}</defs>", *boxes, *lines, "</svg>", ""])


def _box(name: str, caption: str, x: float, y: float, wide: float) -> str:
    middle, bold = x + wide / 2, y + (22 if caption else 31)
    return (
        f"<rect x='{x:.0f}' y='{y}' width='{wide:.0f}' height='{BOX}' rx='8' fill='#f8fafc' "
        f"stroke='#94a3b8'/><text x='{middle:.0f}' y='{bold}' {STYLE} font-size='15' "
        f"font-weight='600' fill='#0f172a'>{escape(name)}</text><text x='{middle:.0f}' "
        f"y='{y + 40}' {STYLE} font-size='12' fill='#475569'>{escape(caption)}</text>"
    )


def _word(text: str, x: float, y: float, colour: str) -> str:
    return (
        f"<text x='{x:.0f}' y='{y + 5:.0f}' {STYLE} font-size='14' font-weight='600' "
        f"fill='{colour}'>{escape(text)}</text>"
    )


def _arrow(
    start: tuple[float, float, float],
    end: tuple[float, float, float],
    colour: str,
    path: str,
    shift: float,
) -> str:
    """From edge to edge, a little beside the middle, so that both paths can be seen."""
    (x1, y1, half), (x2, y2, other) = start, end
    if y1 == y2:
        ahead = 1 if x2 > x1 else -1
        x1, x2 = x1 + ahead * half, x2 - ahead * other
    else:
        down = 1 if y2 > y1 else -1
        y1, y2 = y1 + down * BOX / 2, y2 - down * BOX / 2
        x1, x2 = x1 + 2 * shift, x2 + 2 * shift
    return (
        f"<line x1='{x1:.0f}' y1='{y1:.0f}' x2='{x2:.0f}' y2='{y2:.0f}' stroke='{colour}' "
        f"stroke-width='2.5' stroke-opacity='.75' marker-end='url(#{path})'/>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the SVG file to write")
    parser.parse_args().out.write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
