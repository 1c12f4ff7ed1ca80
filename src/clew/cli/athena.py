"""The printed form of Athena's search, for those who read that: a heading, and a block of hits
between tags that tell an agent what was found. `run_search`, the athena profile and
`--format athena` print it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clew.cli.answer import INDENT, STYLES, Line, line, place, reranked
from clew.cli.plain import BLOCK, clean, one_line
from clew.errors import counted
from clew.types import Hit, SearchResult

__all__ = ["block", "heading", "hit_lines", "lines", "marked"]

LONGEST = 200
"""What is repeated of a query, in characters."""


def lines(found: SearchResult, hits: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """The heading of a search, and the block of what is said of its hits."""
    yield from heading(_how(found), str(found.trace.get("query", "")))
    yield from block(hits)


def heading(how: str, query: str) -> Iterator[Line]:
    query = one_line(query)
    query = f'"{query}"' if len(query) <= LONGEST else f'"{query[:LONGEST]}…"'
    yield line(("🔍 SMART SEARCH ", "bold"), (f"({how}): ", "dim"), (query, "bold"))
    yield line(("=" * 60, "dim"))
    yield Line()


def block(hits: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """The lines of each hit between the tags."""
    listed = list(hits)
    yield Line(((f"<{BLOCK}>", "dim"),))
    yield Line()
    top = f"🏆 TOP {counted(len(listed), 'result').upper()}:"
    yield line((top, "bold") if listed else ("Nothing found.", ""))
    yield Line()
    for each in listed:
        yield from each
        yield Line()
    yield Line(((f"</{BLOCK}>", "dim"),))
    yield Line()


def hit_lines(rank: int, hit: Hit) -> Iterator[Line]:
    """Scores and title, place, and the snippet on one line."""
    pieces = [(f"{rank:3}. ", "bold cyan")]
    if hit.confidence:
        pieces.append((f"[{hit.confidence}] ", STYLES.get(hit.confidence, "")))
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
