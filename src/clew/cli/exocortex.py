"""clew exocortex: Wikipedia's abstracts as a source beside one's own files."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli import render
from clew.cli.options import as_json, store_folder
from clew.engine import find_root
from clew.errors import StoreError, counted

__all__ = ["exocortex"]


@click.group()
def exocortex() -> None:
    """Search Wikipedia's abstracts as well: build the file that takes, and look at it."""


@exocortex.command()
@click.argument("dump")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to make. Default: .clew/exocortex.db."
)
@store_folder
@as_json
def build(dump: str, out: Path | None, store: Path | None, json: bool) -> None:
    """Make an exocortex from DUMP, a dump of Wikipedia abstracts.

    XML (enwiki-…-abstract.xml) or JSON lines with title, abstract and url; plain, .gz or .bz2; or
    - for standard input. The old file stays in place until the new one is whole. Of articles with
    the same title the last one counts.

    Example: clew exocortex build enwiki-latest-abstract.xml.gz
    """
    from clew.ingest.wikipedia import build_exocortex

    with render.progress(shown=not json) as progress:
        report = build_exocortex(dump, out or _default(store), progress=progress)
    if json:
        render.print_json(report.to_dict())
        return
    render.say(f"{counted(report.articles, 'article')} in {report.file}, {_mb(report.bytes)}.")
    if report.replaced:
        render.say(f"{counted(report.replaced, 'article')} replaced by a later one of that title.")
    if report.skipped:
        render.say(f"{report.skipped:,} skipped; the first:")
        for example in report.examples:
            render.say(f"  {example}")


@exocortex.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@store_folder
@as_json
def status(file: Path | None, store: Path | None, json: bool) -> None:
    """How many articles there are, from which dump, built when."""
    from clew.sources.sqlite import describe_exocortex

    facts = describe_exocortex(file or _default(store))
    if json:
        render.print_json(facts)
        return
    render.say(f"{counted(facts['articles'], 'article')} in {facts['file']}")
    render.say(f"from {facts['from']}, built {facts['built']}, {_mb(facts['bytes'])}")


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _default(store: Path | None) -> Path:
    root = store or find_root()
    if root is None:
        raise StoreError("no Clew store here or above: name a file, or run `clew index` first")
    from clew.sources.sqlite import EXOCORTEX  # not for every other command

    return root / EXOCORTEX
