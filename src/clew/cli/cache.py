"""clew cache: the answers that are kept."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew.cli import render
from clew.cli.options import as_json, existing_root, store_folder
from clew.engine import FOLDER
from clew.errors import StoreError, counted
from clew.storage import has_store

if TYPE_CHECKING:
    from clew.cache import SearchCache

__all__ = ["cache"]


@click.group()
def cache() -> None:
    """Look at the cache of searches, or empty it."""


@cache.command()
@store_folder
@as_json
def stats(store: Path | None, json: bool) -> None:
    """How much is kept, and how often it answered."""
    kept = _opened(store)
    figures = kept.stats()
    kept.close()
    if json:
        render.print_json(figures)
        return
    hits, oldest = figures["hits"], figures["oldest"]
    lines = {
        "file": figures["file"],
        "answers": f"{figures['entries']:,}, {figures['bytes'] / 1e6:.1f} MB",
        "hits": f"{hits['exact']:,} exact, {hits['semantic']:,} semantic",
        "misses": f"{figures['misses']:,}",
        "oldest": dt.datetime.fromtimestamp(oldest).isoformat(" ", "seconds") if oldest else "–",
    }
    for name, value in lines.items():
        render.say(f"{name:<9}{value}")
    if figures["problem"]:
        render.say(f"! {figures['problem']}")


@cache.command()
@store_folder
def clear(store: Path | None) -> None:
    """Forget all answers. The next search of each is made anew."""
    kept = _opened(store)
    count = kept.clear()
    kept.close()
    render.say(f"{counted(count, 'answer')} forgotten.")


def _opened(store: Path | None) -> SearchCache:
    from clew.cache import FILE_NAME, SearchCache  # not for every other command

    root = existing_root(store)
    if not has_store(root):
        raise StoreError(f"{root} has no Clew store yet: run `clew index {root}` first")
    return SearchCache(root / FOLDER / FILE_NAME)
