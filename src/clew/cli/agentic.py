"""clew search --agentic: which sub-queries were asked, and which of them each hit answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clew.cli import answer, render
from clew.cli.answer import INDENT, Form, Line, Place, line
from clew.engine import Engine
from clew.errors import counted
from clew.types import Hit

__all__ = ["search"]

BY = {"rules": "by rules", "llm": "by the chat model"}


def search(
    engine: Engine,
    words: str,
    *,
    validate: bool,
    form: Form,
    where: Callable[[Hit], Place],
    **options: Any,
) -> None:
    """Ask, and show it: as JSON, drawn, or as plain lines."""
    from clew.engine import agentic_search

    found = agentic_search(words, validate=validate, engine=engine, **options)
    if form == "json":
        render.print_json(found)
    else:
        answer.say(_lines(found, options.get("explain", False), form, where))


def _lines(
    found: Mapping[str, Any], explain: bool, form: Form, where: Callable[[Hit], Place]
) -> Iterator[Line]:
    meta = found["meta"]
    if form == "athena":
        from clew.cli import athena

        yield from athena.heading("Agentic", found["sub_queries"][0])
    if found["decomposed"]:
        yield line((f"Taken apart {BY[meta['decomposer']]}:", "dim"))
        for asked in meta["trace"]:
            of = counted(asked["hits"], "hit")
            ms = f", {asked['ms']:.1f} ms" if explain else ""
            yield line((f"{_named(asked['query'], found)}  ({of}{ms})", "dim"), indent=2)
        yield Line()
    hits = [_hit(result) for result in found["results"]]

    def told(rank: int, hit: Hit) -> Iterator[Line]:
        if form == "athena":
            yield from athena.hit_lines(rank, hit)
        else:
            yield from answer.hit_lines(rank, hit, where)
        if found["decomposed"]:
            queries = found["results"][rank - 1]["found_by"]
            by = " · ".join(_named(query, found) for query in queries)
            yield line((f"found by: {by}", "cyan"), indent=INDENT)
        if explain:
            from clew.cli import explain as explaining

            yield from explaining.hit_lines(hit, hits, score=form == "clew")

    each = [list(told(rank, hit)) for rank, hit in enumerate(hits, 1)]
    yield from athena.block(each) if form == "athena" else answer.listed(each)
    fallback = [f"taken apart by rules: {meta['fallback']}"] if meta["fallback"] else []
    noted = (note["text"] for note in meta["notes"])
    yield from answer.after_hits([*noted, *fallback, *meta["degraded"]])
    yield line((_summary(meta), "dim"))


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
    fields = {name: of for name, of in result.items() if name in Hit.__dataclass_fields__}
    fields["lines"] = tuple(result["lines"]) if result["lines"] else None
    fields["highlights"] = tuple((start, end) for start, end in result["highlights"])
    return Hit(**fields)
