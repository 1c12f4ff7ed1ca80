"""clew search --agentic: which sub-queries were asked, and which of them each hit answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clew.cli import answer, render
from clew.cli.answer import INDENT, Line, line
from clew.engine import Engine
from clew.text.counted import counted
from clew.types import Hit

__all__ = ["search"]

BY = {"rules": "by rules", "llm": "by the chat model"}


def search(engine: Engine, words: str, *, validate: bool, json: bool, **options: Any) -> None:
    """Ask, and show it: as JSON, drawn, or as plain lines."""
    from clew.query.agentic import agentic_search

    found = agentic_search(words, validate=validate, engine=engine, **options)
    if json:
        render.print_json(found)
    else:
        answer.say(_lines(found, options.get("explain", False)))


def _lines(found: Mapping[str, Any], explain: bool) -> Iterator[Line]:
    meta = found["meta"]
    yield from answer.heading("Agentic", found["sub_queries"][0])
    if found["decomposed"]:
        yield line((f"Taken apart {BY[meta['decomposer']]}:", "dim"))
        for asked in meta["trace"]:
            of = counted(asked["hits"], "hit")
            ms = f", {asked['ms']:.1f} ms" if explain else ""
            yield line((f"{_named(asked['query'], found)}  ({of}{ms})", "dim"), indent=2)
        yield Line()
    hits = [_hit(result) for result in found["results"]]
    yield from answer.block(
        list(_hit_lines(rank, hit, hits, found, explain)) for rank, hit in enumerate(hits, 1)
    )
    if meta["fallback"]:
        yield line((f"! taken apart by rules: {meta['fallback']}", "yellow"))
    for problem in meta["degraded"]:
        yield line((f"! {problem}", "yellow"))
    yield line((_summary(meta), "dim"))


def _hit_lines(
    rank: int, hit: Hit, hits: list[Hit], found: Mapping[str, Any], explain: bool
) -> Iterator[Line]:
    yield from answer.hit_lines(rank, hit)
    if found["decomposed"]:
        by = " · ".join(_named(query, found) for query in found["results"][rank - 1]["found_by"])
        yield line((f"found by: {by}", "cyan"), indent=INDENT)
    if explain:
        from clew.cli import explain as explaining

        yield from explaining.hit_lines(hit, hits)


def _named(query: str, found: Mapping[str, Any]) -> str:
    return "the whole query" if query == found["sub_queries"][0] else query


def _summary(meta: Mapping[str, Any]) -> str:
    of = counted(meta["total_candidates"], "candidate")
    text = f"{counted(meta['returned'], 'result')} of {of} in {meta['total_ms']:.0f} ms"
    if meta["dropped"]:
        text += f", {meta['dropped']} left out as too far from the query"
    return text


def _hit(result: Mapping[str, Any]) -> Hit:
    """As it was before it became plain data."""
    fields = {name: result[name] for name in Hit.__dataclass_fields__}
    fields["lines"] = tuple(result["lines"]) if result["lines"] else None
    fields["highlights"] = tuple((start, end) for start, end in result["highlights"])
    return Hit(**fields)
