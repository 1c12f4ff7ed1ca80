"""clew search, get: records come back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from clew.cli import render
from clew.cli.options import AsJson, StoreFolder, open_existing, pairs
from clew.errors import InputError
from clew.types import Filter

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    for command in (search, get):
        app.command()(command)


class Mode(StrEnum):
    hybrid = "hybrid"
    keyword = "keyword"
    vector = "vector"


def search(
    query: Annotated[list[str], typer.Argument(help="What to look for.")],
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many results.")] = 10,
    mode: Annotated[Mode, typer.Option(help="By words, by meaning, or both.")] = Mode.hybrid,
    tag: Annotated[list[str] | None, typer.Option(help="Has this tag; repeat for any of.")] = None,
    path: Annotated[
        list[str] | None, typer.Option(help="Below this path, or matching this glob.")
    ] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Of this type: markdown, code, html, table…")
    ] = None,
    collection: Annotated[list[str] | None, typer.Option(help="In this collection.")] = None,
    after: Annotated[str | None, typer.Option(help="Changed at or after this date.")] = None,
    before: Annotated[str | None, typer.Option(help="Changed before this date.")] = None,
    meta: Annotated[
        list[str] | None, typer.Option(help="Metadata KEY=VALUE, such as status=open.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Ask only this source: keyword, vectors.")
    ] = None,
    store: StoreFolder = None,
    json: AsJson = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every source's rank, score and contribution.")
    ] = False,
) -> None:
    """Search the index.

    Query syntax: "exact phrase", -without, tag:risk, path:projects/, type:markdown,
    after:2026-01-01, before:2026-07-01. Everything else is words.

    Example: clew search 'epoxy cure time' --tag workshop --explain
    """
    asked: dict[str, Any] = {
        "tags": tag,
        "path": path,
        "type": type,
        "collection": collection,
        "after": after,
        "before": before,
        "metadata": pairs(meta, "--meta") if meta else None,
    }
    wanted = Filter(**{name: value for name, value in asked.items() if value})
    with open_existing(store) as engine:
        result = engine.search(
            " ".join(query),
            limit=limit,
            mode=mode.value,
            filter=wanted,
            sources=source,
            explain=explain,
        )
        if json:
            render.print_json(result.to_dict())
        else:
            render.result(result, explain=explain)


def get(
    id: Annotated[str, typer.Argument(help="A record's id, or a file's path in the folder.")],
    store: StoreFolder = None,
    json: AsJson = False,
) -> None:
    """Print one record, whole."""
    with open_existing(store) as engine:
        record = engine.get(id)
        if record is None:
            named = [r for r in engine.store.select(Filter(path=id), limit=2) if r.path == id]
            record = engine.get(named[0].id) if named else None
        if record is None:
            raise InputError(f"there is no record {id!r}: `clew search` shows ids with --json")
        render.record(record, as_json=json)
