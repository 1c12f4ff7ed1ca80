"""clew migrate: one store copied into another."""

from __future__ import annotations

import shlex
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from clew import config as settings
from clew.cli import render
from clew.cli.options import as_json, resumable, store_folder
from clew.engine import find_root
from clew.errors import InputError, StoreError, counted
from clew.storage import FOLDER, Place, home_of, located, open_store, same_file

if TYPE_CHECKING:
    from clew.protocols import Store
    from clew.storage.homes import Homes
    from clew.storage.migrate import Migrated

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
    the other from now on, set it: clew config store URL, or for a memory CLEW_MEMORY=URL.

    What a finished copy made is its own from then on: to copy into it once more, say --merge.
    """
    from clew.storage.migrate import migrate as copy

    root = store or find_root()
    base = root or Path()
    if root is None and from_ is None:
        raise StoreError("no Clew store here or above: say which one is meant with --from URL")
    options = settings.load(base)
    used = located(options.store, base)
    source, target = used if from_ is None else located(from_, base), located(to, base)
    _check(source, target)
    homes = _homes(source, target, root)
    with resumable(_again(to, from_, merge, store)), ExitStack() as stack:
        # Nothing is searched, so no index is made, and no folder for one beside the stores.
        aside = Path(stack.enter_context(TemporaryDirectory(prefix="clew-")))

        def opened(place: Place, name: str, *, create: bool) -> Store:
            made = open_store(
                place.url,
                base=base,
                folder=aside / name,
                create=create,
                busy_seconds=options.busy_seconds,
            )
            return stack.enter_context(closing(made))

        mine = opened(source, "source", create=False)
        other = opened(target, "target", create=True)
        progress = stack.enter_context(render.progress(shown=not json))
        origin = f"{source.scheme}:///{source.file.resolve()}"
        done = copy(mine, other, origin=origin, merge=merge, homes=homes, progress=progress)
        of_memory = not mine.roots() and not same_file(source.file, used.file)
    if json:
        render.print_json({**asdict(done), "ok": done.well})
    else:
        here = to if base.resolve() == Path.cwd() else target.url
        _say(done, f"CLEW_MEMORY={here} (or --db {here})" if of_memory else _use(to, store))
    if not done.well:
        raise SystemExit(1)


def _check(source: Place, target: Place) -> None:
    if same_file(source.file, target.file):
        raise InputError("--from and --to are the same store: nothing to do")
    parent = target.path.absolute().parent
    if target.scheme == "embedded" and not parent.is_dir():  # a DuckDB file's own words
        raise StoreError(f"there is no folder {parent}: make it first, or check the path")


def _homes(source: Place, target: Place, root: Path | None) -> Homes:
    """From where each tells its indexed folders. A target that is going to be used by this folder,
    being in it, may tell them from there; any other has to say where they are on the disk."""
    from clew.storage.homes import Homes

    parent = source.path.absolute().parent
    around = parent.parent if parent.name == FOLDER else parent
    its = home_of(target, root)
    if its is None and root is not None:
        inside = {root.resolve(), (root / FOLDER).resolve()}
        its = root if target.path.absolute().parent.resolve() in inside else None
    return Homes(home_of(source, root) or around, its)


def _again(to: str, from_: str | None, merge: bool, store: Path | None) -> str:
    """The command that goes on with this one."""
    parts = ["clew", "migrate"]
    parts += [] if from_ is None else ["--from", from_]
    parts += ["--to", to]
    parts += ["--merge"] if merge else []
    parts += [] if store is None else ["-C", str(store)]
    return shlex.join(parts)


def _use(to: str, store: Path | None) -> str:
    where = [] if store is None else ["-C", str(store)]
    return shlex.join(["clew", "config", "store", to, *where])


def _say(done: Migrated, use: str) -> None:
    what = (
        f"{counted(done.records, 'record')} with {counted(done.passages, 'passage')} and "
        f"{counted(done.vectors, 'vector')}"
    )
    if done.well:
        if done.already:
            render.say(f"{what}: copied before, and compared again: the same in both.")
        else:
            again = " (an interrupted run was gone on with)" if done.resumed else ""
            render.say(f"{what} copied and compared: the same in both{again}.")
        render.say(f"To use it from now on: {use}")
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
