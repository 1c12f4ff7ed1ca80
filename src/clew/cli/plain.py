"""Search results as plain lines, for a pipe or a file: no colours, no wrapping, and no Rich, whose
import takes as long as the search itself."""

from __future__ import annotations

from clew.text.counted import counted
from clew.types import Hit, SearchResult

__all__ = ["place", "result", "summary"]


def result(found: SearchResult) -> None:
    lines: list[str] = []
    for rank, hit in enumerate(found, 1):
        heading = hit.metadata.get("heading")
        title = (hit.title or hit.id) + (f"  › {heading}" if heading else "")
        lines += [f"{rank:2}. {title}  {hit.score:.3f}", f"    {place(hit)}"]
        lines += [f"    {' '.join(hit.snippet.split())}", ""]
    if not found:
        lines.append("Nothing found.")
    lines += [f"! {problem}" for problem in found.degraded]
    print("\n".join([*lines, summary(found)]))


def place(hit: Hit) -> str:
    """Where to look: `path:line`, as editors take it."""
    return f"{hit.path}:{hit.metadata.get('snippet_line', 1)}" if hit.path else hit.id


def summary(found: SearchResult) -> str:
    ms = found.trace.get("total_ms", 0)
    return f"{counted(len(found), 'result')} in {ms:.0f} ms"
