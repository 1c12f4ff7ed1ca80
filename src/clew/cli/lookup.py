"""clew lookup: one question to several places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clew.cli import answer, render
from clew.cli.answer import INDENT, Line, line
from clew.cli.options import WordsCommand, as_json, store_folder
from clew.errors import counted
from clew.lookup import ExternalLookupResult, Search
from clew.lookup.settings import RANKINGS
from clew.types import Hit

__all__ = ["lookup"]

PATIENCE = 60.0
"""Seconds. A command begins with nothing read, and who waits at a terminal wants all of it."""


@click.command(cls=WordsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", default=5, show_default=True, help="How many results.")
@click.option("--folder", "-f", multiple=True, help="Also look into this folder; repeat for more.")
@click.option(
    "--repo", "-r", multiple=True, help="Also into this git repository: files, messages, diffs."
)
@click.option("--web", metavar="URL", help="Also ask this SearXNG instance.")
@click.option("--backend", multiple=True, help="Ask only this one: storage_keyword, local_git…")
@click.option(
    "--ranking",
    type=click.Choice(RANKINGS),
    help="By all components, or by one alone. Default: the settings', else hybrid.",
)
@click.option(
    "--adaptive-k", is_flag=True, help="Begin with few candidates, ask for more if need be."
)
@click.option("--rewrite", is_flag=True, help="Ask in other words where too little was found.")
@click.option(
    "--seconds", default=PATIENCE, show_default=True, help="How long all places have together."
)
@click.option("--include-personal", is_flag=True, help="Also what is marked as personal.")
@store_folder
@as_json
@click.option("--explain", is_flag=True, help="Show every component, and what each place answered.")
def lookup(
    query: tuple[str, ...],
    limit: int,
    folder: tuple[str, ...],
    repo: tuple[str, ...],
    web: str | None,
    backend: tuple[str, ...],
    seconds: float,
    include_personal: bool,
    store: Path | None,
    json: bool,
    explain: bool,
    **options: Any,
) -> None:
    """Ask several places at once: the store, folders, repositories, the web.

    Nothing has to be indexed: folders and repositories are read for this one question. What all of
    them find is ranked together. The table [lookup] of clew.toml says where to look by default.

    Example: clew lookup --repo . --folder ~/papers why do we retry twice
    """
    given = {"folders": folder, "repositories": repo, "web": web, "backends": backend, **options}
    settings = {name: value for name, value in given.items() if value}
    with Search(
        store, include_personal=include_personal, deadline=seconds, cache=False, **settings
    ) as search:
        found = search.external_lookup(" ".join(query), limit, return_handles=True)
        assert isinstance(found, ExternalLookupResult)
        where = answer.Places(found.storage)
    if json:
        render.print_json(found.to_dict())
    else:
        answer.say(_lines(found, where, explain=explain))
    if not found and len(found.degraded) >= len(found.by_backend):
        raise SystemExit(1)  # nobody could look


def _lines(found: ExternalLookupResult, where: answer.Places, *, explain: bool) -> Iterator[Line]:
    def told(rank: int, hit: Hit) -> Iterator[Line]:
        commit = str(hit.metadata.get("commit", ""))[:10]
        places = ", ".join(map(str, hit.metadata["backends"]))
        facts = f"  ({places}{f', {commit}' if commit else ''})"
        yield from answer.hit_lines(rank, _placed(hit), where, facts=facts)
        if explain:
            yield line((f"score {hit.score:.4f}, from 0 to 1 in this answer", "dim"), indent=INDENT)
            yield from _components(hit)

    yield from answer.listed(list(told(rank, hit)) for rank, hit in enumerate(found, 1))
    if explain:
        yield from _told(found)
        yield Line()
    yield from answer.after_hits(found.degraded)
    places = counted(len(found.by_backend), "place")
    by = f"by {found.trace['ranking']['by']}"
    of = f"{counted(len(found), 'result')} from {places} {by} in {found.trace['total_ms']:.0f} ms"
    yield line((of, "dim"))


def _placed(hit: Hit) -> Hit:
    """At its passage's first line, where its path is one of this machine."""
    at = {"snippet_line": hit.lines[0]} if hit.lines else {}
    return replace(hit, metadata={**hit.metadata, **at})


def _components(hit: Hit) -> Iterator[Line]:
    for name, signal in hit.signals.items():
        if "normalised" in signal:
            sum_ = f"{signal['normalised']:.4f} × {signal['weight']:.2f} = {signal['contrib']:.4f}"
            yield line((f"{name:<12} {signal['score']:>9.4f} → {sum_}", "dim"), indent=INDENT)


def _told(found: ExternalLookupResult) -> Iterator[Line]:
    for name, told in found.trace["backends"].items():
        notes = "; ".join([*filter(None, [told["problem"]]), *told["notes"]])
        said = f"{name:<16} {counted(told['count'], 'hit')} in {told['ms']:.0f} ms"
        yield line((f"{said}{f': {notes}' if notes else ''}", "dim"))
    for step in found.trace["steps"]:
        yield line((", ".join(f"{key} {value}" for key, value in step.items()), "dim"))
    if why := found.trace["ranking"].get("semantic"):
        yield line((f"meaning took no part: {why}", "dim"))
