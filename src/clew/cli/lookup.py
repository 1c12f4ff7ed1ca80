"""clew lookup: one question to several places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clew.cli.options import WordsCommand, as_json, include_personal, store_folder
from clew.cli.search import print_answer
from clew.cli.view import INDENT, AnswerView, HitView, Line, Places, line, view_hit
from clew.errors import counted
from clew.lookup import ExternalLookupResult, Search
from clew.lookup_settings import RANKINGS
from clew.types import Hit

PATIENCE = 60.0
"""Seconds. A command begins with nothing read, and who waits at a terminal wants all of it."""


@click.command(cls=WordsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", default=5, show_default=True, help="How many results.")
@click.option(
    "--folder", "-f", "folders", multiple=True, help="Also look into this folder; repeat for more."
)
@click.option(
    "--repo",
    "-r",
    "repositories",
    multiple=True,
    help="Also into this git repository: files, messages, diffs.",
)
@click.option("--web", metavar="URL", help="Also ask this SearXNG instance.")
@click.option(
    "--backend", "backends", multiple=True, help="Ask only this one: storage_keyword, local_git…"
)
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
@include_personal
@store_folder
@as_json
@click.option("--explain", is_flag=True, help="Show every component, and what each place answered.")
def lookup(
    query: tuple[str, ...],
    limit: int,
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
    settings = {name: value for name, value in options.items() if value}
    with Search(
        store, include_personal=include_personal, deadline=seconds, cache=False, **settings
    ) as search:
        found = search.external_lookup(" ".join(query), limit, return_handles=True)
        assert isinstance(found, ExternalLookupResult)
        view = view_lookup(found, Places(found.storage), explain=explain)
    print_answer(found.to_dict(), view, form="json" if json else "clew", explain=explain)
    if not found and len(found.degraded) >= len(found.by_backend):
        raise SystemExit(1)  # nobody could look


def view_lookup(found: ExternalLookupResult, places: Places, *, explain: bool) -> AnswerView:
    of = counted(len(found.by_backend), "place")
    by = f"by {found.trace['ranking']['by']} in {found.trace['total_ms']:.0f} ms"
    return AnswerView(
        hits=tuple(_view_hit(hit, places, explain=explain) for hit in found),
        summary=f"{counted(len(found), 'result')} from {of} {by}",
        notes=tuple(found.degraded),
        after=tuple(_backend_lines(found)),
    )


def _view_hit(hit: Hit, places: Places, *, explain: bool) -> HitView:
    commit = str(hit.metadata.get("commit", ""))[:10]
    backends = ", ".join(map(str, hit.metadata["backends"]))
    # at its passage's first line, where its path is one of this machine
    at = {"snippet_line": hit.lines[0]} if hit.lines else {}
    bare = replace(hit, metadata={**hit.metadata, **at}, signals={})
    view = view_hit(bare, places, facts=f"  ({backends}{f', {commit}' if commit else ''})")
    return replace(view, more=tuple(_component_lines(hit))) if explain else view


def _component_lines(hit: Hit) -> Iterator[Line]:
    yield line((f"score {hit.score:.4f}, from 0 to 1 in this answer", "dim"), indent=INDENT)
    for name, signal in hit.signals.items():
        if "normalised" in signal:
            sum_ = f"{signal['normalised']:.4f} × {signal['weight']:.2f} = {signal['contrib']:.4f}"
            yield line((f"{name:<12} {signal['score']:>9.4f} → {sum_}", "dim"), indent=INDENT)


def _backend_lines(found: ExternalLookupResult) -> Iterator[Line]:
    for name, told in found.trace["backends"].items():
        notes = "; ".join([*filter(None, [told["problem"]]), *told["notes"]])
        said = f"{name:<16} {counted(told['count'], 'hit')} in {told['ms']:.0f} ms"
        yield line((f"{said}{f': {notes}' if notes else ''}", "dim"))
    for step in found.trace["steps"]:
        yield line((", ".join(f"{key} {value}" for key, value in step.items()), "dim"))
    if why := found.trace["ranking"].get("semantic"):
        yield line((f"meaning took no part: {why}", "dim"))
