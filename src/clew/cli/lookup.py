"""clew lookup: one question to several places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from clew.cli import answer, render
from clew.cli.answer import INDENT, Line, line
from clew.cli.options import WordsCommand, as_json, store_folder
from clew.cli.plain import one_line
from clew.lookup import ExternalLookupResult, Search
from clew.lookup.settings import RANKINGS
from clew.text.counted import counted
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
    if json:
        render.print_json(found.to_dict())
    else:
        answer.say(_lines(found, explain=explain))
    if not found and len(found.degraded) >= len(found.by_backend):
        raise SystemExit(1)  # nobody could look


def _lines(found: ExternalLookupResult, *, explain: bool) -> Iterator[Line]:
    by = str(found.trace["ranking"]["by"])
    yield from answer.heading(by, found.raw_query, what="🔭 LOOKUP")
    yield from answer.block(
        [*_hit(rank, hit), *(_components(hit) if explain else ())]
        for rank, hit in enumerate(found, 1)
    )
    if explain:
        yield from _told(found)
        yield Line()
    for problem in found.degraded:
        yield line((f"! {problem}", "yellow"))
    places = counted(len(found.by_backend), "place")
    summary = f"{counted(len(found), 'result')} from {places} in {found.trace['total_ms']:.0f} ms"
    yield line((summary, "dim"))


def _hit(rank: int, hit: Hit) -> Iterator[Line]:
    pieces = [(f"{rank:3}. ", "bold cyan"), (f"[{hit.score:.4f}] ", "magenta")]
    pieces.append((one_line(hit.title) or one_line(hit.id), "bold"))
    if trail := hit.metadata.get("heading"):
        pieces.append((f"  › {one_line(str(trail))}", "dim"))
    yield line(*pieces)
    commit = str(hit.metadata.get("commit", ""))[:10]
    places = ", ".join(map(str, hit.metadata["backends"]))
    facts = f"  ({places}{f', {commit}' if commit else ''})"
    yield line(("📁 ", ""), (_place(hit), "green"), (facts, "dim"), indent=INDENT)
    if hit.snippet:
        yield Line(tuple(answer.marked(hit)), INDENT)


def _place(hit: Hit) -> str:
    """The passage's first line, where its path is one of this machine."""
    if not hit.path or "://" in hit.path or hit.lines is None:
        return one_line(hit.path or hit.id)
    return f"{one_line(hit.path)}:{hit.lines[0]}"


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
