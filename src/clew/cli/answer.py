"""The answer to a search, as it is printed: for people and agents in lines, for programs in JSON.

The lines are made once, of pieces with a style; a terminal gets them in colour (render.py), a pipe
gets their text. So both say the same, whoever asks: `clew search` or `run_search`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from clew.cli.plain import BLOCK, clean, one_line, write
from clew.text.counted import counted
from clew.types import Hit, SearchResult

__all__ = ["INDENT", "Line", "lines", "marked", "place", "reranked", "show"]

INDENT = 5
"""Where the lines below a hit's first begin."""
LONGEST = 200
"""What is repeated of a query, in characters."""


class Line(NamedTuple):
    """One line: pieces with their styles, and how far in it and what it wraps to begins."""

    pieces: tuple[tuple[str, str], ...] = ()
    indent: int = 0
    wraps: bool = True
    """Whether a narrow terminal shows the rest below; else it is cut."""

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(text for text, _ in self.pieces).rstrip()


def show(found: SearchResult, *, json: bool = False, explain: bool = False) -> None:
    """Print the answer in the form that suits standard output."""
    if json or sys.stdout.isatty():
        from clew.cli import render

        if json:
            render.print_json(found.to_dict())
        else:
            render.draw(lines(found, explain=explain))
    else:
        write("\n".join(line.text for line in lines(found, explain=explain)))


def lines(found: SearchResult, *, explain: bool = False) -> Iterator[Line]:
    """What there is to say: the heading, the block of hits, and how it came about."""
    yield _line(
        ("🔍 SMART SEARCH ", "bold"), (f"({_how(found)}): ", "dim"), (_asked(found), "bold")
    )
    yield _line(("=" * 60, "dim"))
    yield Line()
    yield Line(((f"<{BLOCK}>", "dim"),))
    yield Line()
    if found:
        yield _line((f"🏆 TOP {counted(len(found), 'result').upper()}:", "bold"))
    else:
        yield _line(("Nothing found.", ""))
    yield Line()
    for rank, hit in enumerate(found, 1):
        yield from _hit(rank, hit)
        if explain:
            from clew.cli import explain as explaining

            yield from explaining.hit_lines(hit, found)
        yield Line()
    yield Line(((f"</{BLOCK}>", "dim"),))
    yield Line()
    if explain:
        from clew.cli import explain as explaining

        yield from explaining.trace_lines(found)
        yield Line()
    for problem in found.degraded:
        yield _line((f"! {problem}", "yellow"))
    if found.suppressed:
        weaker = counted(found.suppressed, "weaker result")
        yield _line((f"{weaker} suppressed by --strict", "yellow"))
    yield _line((_summary(found), "dim"))


def _line(*pieces: tuple[str, str], indent: int = 0) -> Line:
    """Of words that may come from anywhere."""
    return Line(tuple((clean(text), style) for text, style in pieces), indent)


def _hit(rank: int, hit: Hit) -> Iterator[Line]:
    pieces = [(f"{rank:3}. ", "bold cyan")]
    if hit.confidence:
        pieces.append((f"[{hit.confidence}] ", _STYLES.get(hit.confidence, "")))
    if hit.signals:
        pieces.append((f"[RRF:{hit.rrf_score:.4f}] ", "magenta"))
        if reranked(hit):
            pieces.append((f"[RERANKED:{hit.score:.4f}] ", "magenta"))
    pieces.append((one_line(hit.title) or one_line(hit.id), "bold"))
    if heading := hit.metadata.get("heading"):
        pieces.append((f"  › {one_line(str(heading))}", "dim"))
    yield _line(*pieces)
    yield _line(("📁 ", ""), (place(hit), "green"), indent=INDENT)
    if hit.snippet:
        yield Line(tuple(marked(hit)), INDENT)


_STYLES = {"HIGH": "bold green", "MED": "yellow", "LOW": "dim"}


def place(hit: Hit) -> str:
    """Where to look: `path:line`, as editors take it."""
    if not hit.path:
        return one_line(hit.id)
    return f"{one_line(hit.path)}:{hit.metadata.get('snippet_line', 1)}"


def reranked(hit: Hit) -> bool:
    """Whether the score that decides is another than the fused one."""
    return any("part" in signal for signal in hit.signals.values())


def marked(hit: Hit) -> Iterator[tuple[str, str]]:
    """The snippet on one line, its matches in a style of their own."""
    text, end, after = clean(hit.snippet), 0, " "
    ranges = [(a, b, "bold yellow") for a, b in hit.highlights]
    for start, stop, style in [*ranges, (len(text), len(text), "")]:
        for piece, dressed in ((text[end:start], ""), (text[start:stop], style)):
            # White space at the seam of two pieces counts once.
            words = " ".join(piece.split())
            before = " " if piece[:1].isspace() and after != " " else ""
            behind = " " if words and piece[-1:].isspace() else ""
            if said := before + words + behind:
                yield said, dressed
                after = said[-1]
        end = stop


def _how(found: SearchResult) -> str:
    """The mode, and how lists became one."""
    mode = str(found.trace.get("mode", ""))
    if mode != "hybrid":
        return mode.capitalize() or "Listing"
    strategy = found.trace.get("fusion", {}).get("strategy", "")
    return f"Parallel Hybrid {_SHORT.get(strategy, strategy.capitalize())}".rstrip()


_SHORT = {"rrf": "RRF", "weighted_rrf": "RRF", "dbsf": "DBSF"}


def _asked(found: SearchResult) -> str:
    query = one_line(str(found.trace.get("query", "")))
    return f'"{query}"' if len(query) <= LONGEST else f'"{query[:LONGEST]}…"'


def _summary(found: SearchResult) -> str:
    ms = found.trace.get("total_ms", 0)
    cached = f", from the {found.cache} cache" if found.cache else ""
    return f"{counted(len(found), 'result')} in {ms:.0f} ms{cached}"
