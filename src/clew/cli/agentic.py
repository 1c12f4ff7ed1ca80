"""clew search --agentic: which sub-queries were asked, and which of them each hit answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clew.cli import render
from clew.engine import Engine
from clew.text.counted import counted
from clew.types import Hit

__all__ = ["search"]

# Documents and chat models may write what a terminal would obey, or what looks like another line.
# One character for one: what is marked stays where it is.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BY = {"rules": "by rules", "llm": "by the chat model"}


def search(engine: Engine, words: str, *, validate: bool, json: bool, **options: Any) -> None:
    """Ask, and show it: as JSON, drawn, or as plain lines."""
    from clew.query.agentic import agentic_search

    found = agentic_search(words, validate=validate, engine=engine, **options)
    if json:
        render.print_json(found)
        return
    explain = options.get("explain", False)
    lines = [line._replace(text=_UNSAFE.sub(" ", line.text)) for line in _lines(found, explain)]
    if explain or sys.stdout.isatty():
        _draw(lines)
    else:
        print("\n".join(" " * line.indent + line.text for line in lines))


class _Line(NamedTuple):
    text: str = ""
    style: str = ""
    indent: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    """What of it matches the query."""


def _lines(found: Mapping[str, Any], explain: bool) -> Iterator[_Line]:
    meta = found["meta"]
    if found["decomposed"]:
        yield _Line(f"Taken apart {BY[meta['decomposer']]}:", "dim")
        for asked in meta["trace"]:
            hits = counted(asked["hits"], "hit")
            ms = f", {asked['ms']:.1f} ms" if explain else ""
            yield _Line(f"{_named(asked['query'], found)}  ({hits}{ms})", "dim", 2)
        yield _Line()
    for rank, result in enumerate(found["results"], 1):
        hit = _hit(result)
        heading = hit.metadata.get("heading")
        title = (hit.title or hit.id) + (f"  › {heading}" if heading else "")
        sure = f"[{hit.confidence}] " if hit.confidence else ""
        place = f"{hit.path}:{hit.metadata.get('snippet_line', 1)}" if hit.path else hit.id
        yield _Line(f"{rank:2}. {sure}{title}  {hit.score:.3f}", "bold")
        yield _Line(place, "green", 4)
        yield _Line(hit.snippet, "", 4, hit.highlights)
        if found["decomposed"]:
            by = " · ".join(_named(query, found) for query in result["found_by"])
            yield _Line(f"found by: {by}", "cyan", 4)
        if explain:
            yield from _signals(hit)
        yield _Line()
    if not found["results"]:
        yield _Line("Nothing found.")
    if meta["fallback"]:
        yield _Line(f"! taken apart by rules: {meta['fallback']}", "yellow")
    for problem in meta["degraded"]:
        yield _Line(f"! {problem}", "yellow")
    yield _Line(_summary(meta), "dim")


def _named(query: str, found: Mapping[str, Any]) -> str:
    return "the whole query" if query == found["sub_queries"][0] else query


def _signals(hit: Hit) -> Iterator[_Line]:
    for source, signal in sorted(hit.signals.items()):
        rank, score, part = signal["rank"], signal["score"], signal["contrib"]
        text = f"{source:<9} rank {rank:>3}  score {score:>9.4f}  adds {part:.4f}"
        yield _Line(text, "dim", 4)


def _summary(meta: Mapping[str, Any]) -> str:
    of = counted(meta["total_candidates"], "candidate")
    text = f"{counted(meta['returned'], 'result')} of {of} in {meta['total_ms']:.0f} ms"
    if meta["dropped"]:
        text += f", {meta['dropped']} left out as too far from the query"
    return text


def _draw(lines: Iterable[_Line]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = render.console()
    for line in lines:
        text = Text(line.text, style=line.style)
        for start, end in line.marks:
            text.stylize("bold yellow", start, end)
        out.print(Padding(text, (0, 0, 0, line.indent), expand=False))


def _hit(result: Mapping[str, Any]) -> Hit:
    """As it was before it became plain data."""
    fields = {name: value for name, value in result.items() if name != "found_by"}
    fields["lines"] = tuple(result["lines"]) if result["lines"] else None
    fields["highlights"] = tuple((start, end) for start, end in result["highlights"])
    return Hit(**fields)
