"""clew migrate: one store copied into another."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew import config as settings
from clew.cli import render
from clew.cli.options import as_json, resumable, store_folder
from clew.engine import find_root
from clew.errors import InputError, StoreError
from clew.store import FOLDER, located, open_store
from clew.text.counted import counted

if TYPE_CHECKING:
    from clew.store.migrate import Migrated

__all__ = ["migrate"]


@click.command()
@click.option("--to", required=True, metavar="URL", help="The store to copy into.")
@click.option("--from", "from_", metavar="URL", help="Default: the store in use here.")
@click.option("--merge", is_flag=True, help="Also into one that has records of its own.")
@store_folder
@as_json
def migrate(to: str, from_: str | None, merge: bool, store: Path | None, json: bool) -> None:
    """Copy a store into another, of whichever kind, and compare the two.

    URLs are duckdb:///notes.duckdb or embedded:///folder, from the folder of the store on, or
    absolute. Interrupted, the same command goes on from there. The source stays as it is; to use
    the other from now on, set it: clew config store URL.
    """
    from clew.store.migrate import migrate as copy

    root = store or find_root()
    base = root or Path()
    if root is None and from_ is None:
        raise StoreError("no Clew store here or above: say which one is meant with --from URL")
    options = settings.load(base)
    source, target = located(from_ or options.store, base), located(to, base)
    if source.file.absolute() == target.file.absolute():
        raise InputError("--from and --to are the same store: nothing to do")
    derived = root / FOLDER if root is not None and target.scheme == "duckdb" else None
    busy = options.busy_seconds
    with (
        resumable(f"clew migrate --to {to}"),
        closing(open_store(source.url, base=base, create=False, busy_seconds=busy)) as mine,
        closing(open_store(target.url, base=base, folder=derived, busy_seconds=busy)) as other,
        render.progress(shown=not json) as progress,
    ):
        done = copy(mine, other, origin=source.url, merge=merge, progress=progress)
    if json:
        render.print_json({**asdict(done), "ok": done.well})
    else:
        _say(done, to)
    if not done.well:
        raise SystemExit(1)


def _say(done: Migrated, to: str) -> None:
    what = (
        f"{counted(done.records, 'record')} with {counted(done.passages, 'passage')} and "
        f"{counted(done.vectors, 'vector')}"
    )
    if done.well:
        again = " (an interrupted run was gone on with)" if done.resumed else ""
        render.say(f"{what} copied and compared: the same in both{again}.")
        render.say(f"To use it from now on: clew config store {to}")
        return
    render.say(f"{what} copied, but not all is the same:")
    for name, parts in done.differences.items():
        render.say(f"  {name}: {', '.join(parts)}")
    if done.unlike > len(done.differences):
        render.say(f"  … {counted(done.unlike, 'record')} in all")
    if done.extra:
        render.say(f"  {counted(done.extra, 'record')} in the target only")
    for name in done.rest:
        render.say(f"  {name}")
    render.say("Was the source written to meanwhile? Run it again, or into an empty target.")
