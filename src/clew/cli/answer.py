"""The answer to a search, as it is printed: for people and agents in lines, for programs in JSON.

The lines are made once, of pieces with a style; a terminal gets them in colour (render.py), a pipe
gets their text. So both say the same, whoever asks: `clew search` or `run_search`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from clew.cli.plain import BLOCK, clean, one_line, write
from clew.text.counted import counted
from clew.types import Hit, SearchResult

__all__ = [
    "INDENT",
    "Line",
    "block",
    "heading",
    "hit_lines",
    "line",
    "lines",
    "marked",
    "place",
    "reranked",
    "say",
    "show",
]

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
    if json:
        from clew.cli import render

        render.print_json(found.to_dict())
    else:
        say(lines(found, explain=explain))


def say(said: Iterable[Line]) -> None:
    """In colour on a terminal, else as plain text."""
    if sys.stdout.isatty():
        from clew.cli import render

        render.draw(said)
    else:
        write("\n".join(line.text for line in said))


def lines(found: SearchResult, *, explain: bool = False) -> Iterator[Line]:
    """What there is to say: the heading, the block of hits, and how it came about."""
    if explain:
        from clew.cli import explain as explaining
    yield from heading(_how(found), str(found.trace.get("query", "")))
    yield from block(
        [*hit_lines(rank, hit), *(explaining.hit_lines(hit, found) if explain else ())]
        for rank, hit in enumerate(found, 1)
    )
    if explain:
        yield from explaining.trace_lines(found)
        yield Line()
    for problem in found.degraded:
        yield line((f"! {problem}", "yellow"))
    if found.suppressed:
        weaker = counted(found.suppressed, "weaker result")
        yield line((f"{weaker} suppressed by --strict", "yellow"))
    yield line((_summary(found), "dim"))


def line(*pieces: tuple[str, str], indent: int = 0) -> Line:
    """Of words that may come from anywhere."""
    return Line(tuple((clean(text), style) for text, style in pieces), indent)


def heading(how: str, query: str, *, what: str = "🔍 SMART SEARCH") -> Iterator[Line]:
    query = one_line(query)
    query = f'"{query}"' if len(query) <= LONGEST else f'"{query[:LONGEST]}…"'
    yield line((f"{what} ", "bold"), (f"({how}): ", "dim"), (query, "bold"))
    yield line(("=" * 60, "dim"))
    yield Line()


def block(
    hits: Iterable[Sequence[Line]], *, what: tuple[str, str, str] = ("🏆 TOP", "result", "results")
) -> Iterator[Line]:
    """The lines of each hit, between the tags that tell an agent what was found."""
    listed = list(hits)
    yield Line(((f"<{BLOCK}>", "dim"),))
    yield Line()
    top = f"{what[0]} {counted(len(listed), *what[1:]).upper()}:"
    yield line((top, "bold") if listed else ("Nothing found.", ""))
    yield Line()
    for each in listed:
        yield from each
        yield Line()
    yield Line(((f"</{BLOCK}>", "dim"),))
    yield Line()


def hit_lines(rank: int, hit: Hit) -> Iterator[Line]:
    """Title, place and snippet."""
    pieces = [(f"{rank:3}. ", "bold cyan")]
    if hit.confidence:
        pieces.append((f"[{hit.confidence}] ", _STYLES.get(hit.confidence, "")))
    if hit.signals:
        pieces.append((f"[RRF:{hit.rrf_score:.4f}] ", "magenta"))
        if reranked(hit):
            pieces.append((f"[RERANKED:{hit.score:.4f}] ", "magenta"))
        elif hit.score != hit.rrf_score:
            pieces.append((f"[SCORE:{hit.score:.4f}] ", "magenta"))
    pieces.append((one_line(hit.title) or one_line(hit.id), "bold"))
    if trail := hit.metadata.get("heading"):
        pieces.append((f"  › {one_line(str(trail))}", "dim"))
    yield line(*pieces)
    yield line(("📁 ", ""), (place(hit), "green"), indent=INDENT)
    if hit.snippet:
        yield Line(tuple(marked(hit)), INDENT)


_STYLES = {"HIGH": "bold green", "MED": "yellow", "LOW": "dim"}


def place(hit: Hit) -> str:
    """Where to look: `path:line`, as editors take it."""
    if not hit.path:
        return one_line(hit.id)
    if "://" in hit.path:  # a browser wants no line
        return one_line(hit.path)
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
    for said in found.trace.get("sources", {}).values():
        if "slates" in said.get("how", {}):
            return f"Tree, {said['how']['scorer']}"
    if mode != "hybrid":
        return mode.capitalize() or "Listing"
    strategy = found.trace.get("fusion", {}).get("strategy", "")
    return f"Parallel Hybrid {_SHORT.get(strategy, strategy.capitalize())}".rstrip()


_SHORT = {"rrf": "RRF", "weighted_rrf": "RRF", "dbsf": "DBSF"}


def _summary(found: SearchResult) -> str:
    ms = found.trace.get("total_ms", 0)
    cached = f", from the {found.cache} cache" if found.cache else ""
    return f"{counted(len(found), 'result')} in {ms:.0f} ms{cached}"
