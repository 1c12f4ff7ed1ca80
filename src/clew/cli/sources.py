"""clew sources: which lists a search is made of, and how they do."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli import render
from clew.cli.options import as_json, open_existing, store_folder

__all__ = ["sources"]


@click.command()
@store_folder
@as_json
def sources(store: Path | None, json: bool) -> None:
    """List the sources: weight, on or off, time and error of the last search.

    Change them in clew.toml: [sources.tags] weight = 0.5, or enabled = false.
    """
    with open_existing(store) as engine:
        states = engine.source_states()
        profile = engine.config.profile
    if json:
        render.print_json({"profile": profile, "sources": states})
    else:
        render.sources(states, profile)
