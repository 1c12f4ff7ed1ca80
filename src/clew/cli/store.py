"""clew status, remove, doctor, sources, cache, backup, migrate: look after a store."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from clew import config as settings
from clew.cli import options, terminal
from clew.cli.terminal import CommandOutput, ReportCommand, print_table, show_progress
from clew.cli.view import Line, one_line
from clew.engine import find_root
from clew.errors import ClewError, InputError, StoreError, counted
from clew.filter import Filter, exact_glob
from clew.storage import FOLDER, StoreLocation, has_store, home_of, locate
from clew.trust import hide_password

if TYPE_CHECKING:
    from clew.cache import SearchCache
    from clew.storage.migrate import Homes, Migrated


# ---------------------------------------------------------------------- status


@click.command(cls=ReportCommand)
@options.store_folder
@options.memory_instead
def status(store: Path | None, db: Path | str | None) -> CommandOutput:
    """What is indexed, how large it is, which model, how far embedding has come."""
    with options.open_existing(store, db=db) as engine:
        figures = engine.status()
    rows = describe_status(figures).items()
    return figures, lambda: print_table(("", ""), rows, header=False, styles=("cyan",), fold=True)


def describe_status(figures: Mapping[str, Any]) -> dict[str, str]:
    vectors = figures["vectors"]
    stage = f"{vectors['stage']}, {counted(vectors['rows'], 'row')}"
    if "lists" in vectors:
        stage += f", {vectors['probes']} of {vectors['lists']} lists probed"
    if "recall" in vectors:
        stage += f", recall@10 {vectors['recall']:.3f} (measured)"
    ready = "" if figures["ready"] else f" (keyword search only: {figures['why_not']})"
    others, tree = _list_counts(figures["other_models"]), figures.get("tree")
    rows = {
        "folder": str(figures["root"] or ""),
        "records": f"{figures['records']:,} in {counted(figures['chunks'], 'passage')}",
        "collections": _list_counts(figures["collections"]),
        "types": _list_counts(figures["types"]),
        "model": f"{figures['model']}{ready}",
        "embedded": f"{figures['embedded']:.1%} of passages",
        "other models": figures["other_models"] and f"{others}; not searched: run clew reembed",
        "vector index": stage,
        "late interaction": _describe_late(figures.get("late_interaction", {})),
        "graph": _describe_graph(figures["graph"], folder=figures["root"] is not None),
        "tree": tree and _describe_tree(tree),
        "generation": f"{figures['generation']:,}",
        "on disk": ", ".join(f"{k} {_describe_size(v)}" for k, v in figures["bytes"].items()),
    }
    return {name: row for name, row in rows.items() if row}


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "–"


def _describe_late(state: Mapping[str, Any]) -> str:
    if state.get("setting", "off") == "off" or "problem" in state:
        return str(state.get("problem", ""))
    size = _describe_size(state["bytes"])
    return f"{state['setting']}, {state['share']:.1%} of passages by {state['model']}, {size}"


def _describe_graph(state: Mapping[str, Any], *, folder: bool) -> str:
    if not state["built"]:  # a memory needs none
        return state["problem"] or ("none: clew graph build" if folder else "")
    late = state["behind"]
    behind = "up to date" if late == 0 else "behind: clew graph build"
    if late:
        behind = f"{counted(late, 'record')} {behind}"
    sizes = f"{counted(state['entities'], 'entity', 'entities')}, {counted(state['links'], 'link')}"
    return f"{sizes}, of generation {state['generation']:,}, {behind}"


def _describe_tree(figures: Mapping[str, Any]) -> str:
    if "problem" in figures:
        return str(figures["problem"])
    said = f"{counted(figures['nodes'], 'node')} over {counted(figures['leaves'], 'record')}"
    said += f", {figures['stale_summaries']:,} summaries stale"
    for name in ("masked", "unplaced", "waiting"):
        said += f", {figures[name]:,} {name}" if figures[name] else ""
    return said


def _describe_size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# ---------------------------------------------------------------------- remove, doctor, sources


@click.command(cls=ReportCommand)
@click.argument("ids", nargs=-1)
@click.option("--collection", help="Forget a whole collection and its folder.")
@options.store_folder
@options.yes_option
def remove(
    ids: tuple[str, ...], collection: str | None, store: Path | None, yes: bool
) -> CommandOutput:
    """Take records out of the index. Files on disk are never touched.

    IDS are ids or paths of records. A file that is still in an indexed folder comes back with the
    next clew index (which is also how to undo this), unless .clewignore names it.
    """
    if not ids and collection is None:
        raise InputError("say what to remove: ids, paths, or --collection NAME")
    with options.open_existing(store) as engine:
        names: list[str] = []
        every = engine.store.lifecycle.ledger
        for given in ids:
            found = [given] if engine.get(given) else []
            for path in (exact_glob(given), given):  # itself with its rows, else all below it
                if given and not found:
                    found = [name for name, *_ in every(Filter(path=path))]
            if not found:
                raise InputError(f"there is no record {given!r}: nothing was removed")
            names += found
        count = len(names)
        if collection is not None:
            collections = engine.status()["collections"]
            count += collections.get(collection, 0)
            if collection not in engine.store.files.roots() and not count:
                there = ", ".join(collections) or "none"
                raise InputError(f"there is no collection {collection!r}: there are {there}")
        if not terminal.confirm(f"Remove {counted(count, 'record')} from the index?", yes=yes):
            raise InputError("nothing was removed")
        removed = engine.remove(names, collection=collection)
    return {"removed": removed}, [f"{counted(removed, 'record')} removed."]


@click.command(cls=ReportCommand)
@options.store_folder
@options.memory_instead
@click.option("--mend", is_flag=True, help="Make derived indexes anew from the database first.")
def doctor(store: Path | None, db: Path | str | None, mend: bool) -> CommandOutput:
    """Check that database, indexes and model files are sound, and say how to mend what is not."""
    from clew.models.download import installed, verify

    try:
        with (
            options.open_existing(store, db=db) as engine,
            show_progress(shown=mend) as progress,
        ):
            findings = engine.doctor(mend=mend, progress=progress)
    except StoreError as error:
        if not (
            has_store(options.existing_root(store)) if db is None else options.memory_exists(db)
        ):
            raise
        findings = [
            {"check": "the store can be opened and read", "ok": False, "advice": str(error)}
        ]
    for name in installed():
        well = verify(name)
        advice = "" if well else f"run `clew models remove {name}`, then `clew models pull {name}`"
        findings.append({"check": f"model {name} is undamaged", "ok": well, "advice": advice})
    bad = sum(not row["ok"] for row in findings)
    said = []
    for row in findings:
        mark, style = ("✓", "green") if row["ok"] else ("✗", "bold red")
        said.append(Line(((f"{mark} {row['check']}", style),)))
        said += [Line(((row["advice"], ""),), 4)] if row["advice"] else []
    failed = f"{bad} of {counted(len(findings), 'check')} failed."
    said.append(Line(((failed if bad else "All is well.", ""),)))
    return {"findings": findings, "ok": not bad}, lambda: terminal.draw(said), bool(bad)


@click.command(cls=ReportCommand)
@options.store_folder
def sources(store: Path | None) -> CommandOutput:
    """List the sources: weight, on or off, time and error of the last search.

    Change them in clew.toml: [sources.tags] weight = 0.5, or enabled = false.
    """
    with options.open_existing(store) as engine:
        states = engine.source_states()
        profile = engine.config.profile
    columns = ("source", "kind", "weight", "state", "last ms", "error")
    rows = [
        (
            *(state["name"], "" if state["kind"] == state["name"] else state["kind"]),
            *(f"{state['weight']:g}", state["state"]),
            *("–" if state["ms"] is None else f"{state['ms']:.1f}", state["problem"] or ""),
        )
        for state in states
    ]
    styles, title = ("",) * 5 + ("yellow",), f"Profile {profile}"
    data = {"profile": profile, "sources": states}
    return data, lambda: print_table(
        columns, rows, right=("weight", "last ms"), title=title, styles=styles
    )


# ---------------------------------------------------------------------- cache


@click.group()
def cache() -> None:
    """Look at the cache of searches, or empty it."""


@cache.command(cls=ReportCommand)
@options.store_folder
def stats(store: Path | None) -> CommandOutput:
    """How much is kept, and how often it answered."""
    with closing(_open_cache(store)) as kept:
        figures = kept.stats()
    hits, oldest = figures["hits"], figures["oldest"]
    lines = {
        "file": figures["file"],
        "answers": f"{figures['entries']:,}, {figures['bytes'] / 1e6:.1f} MB",
        "hits": f"{hits['exact']:,} exact, {hits['semantic']:,} semantic",
        "misses": f"{figures['misses']:,}",
        "oldest": dt.datetime.fromtimestamp(oldest).isoformat(" ", "seconds") if oldest else "–",
    }
    problem = [f"! {figures['problem']}"] if figures["problem"] else []
    return figures, [*(f"{name:<9}{value}" for name, value in lines.items()), *problem]


@cache.command()
@options.store_folder
def clear(store: Path | None) -> None:
    """Forget all answers. The next search of each is made anew."""
    with closing(_open_cache(store)) as kept:
        print(f"{counted(kept.clear(), 'answer')} forgotten.")


def _open_cache(store: Path | None) -> SearchCache:
    from clew.cache import FILE_NAME, SearchCache  # not for every other command

    root = options.existing_root(store)
    if not has_store(root):
        raise StoreError(f"{root} has no Clew store yet: run `clew index {root}` first")
    return SearchCache(root / FOLDER / FILE_NAME)


# ---------------------------------------------------------------------- backup


@click.command(cls=ReportCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Only check FILE, a backup of before.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@options.store_folder
@options.memory_instead
def backup(
    file: Path, verify: bool, force: bool, store: Path | None, db: Path | str | None
) -> CommandOutput:
    """Write all of a store that cannot be derived to FILE, while it is in use.

    That is the database, as it is at this moment, and clew.toml, with checksums; `clew restore
    FILE` brings it back. FILE appears when it is whole. A DuckDB store can be open in one process
    only: use Engine.backup there.

    Example: clew backup notes.clew
    """
    with show_progress() as progress:
        if verify:
            from clew.storage.backup import verify_backup

            manifest = verify_backup(file, progress=progress)
        else:
            with options.open_existing(store, db=db) as engine:
                manifest = engine.backup(file, force=force, progress=progress)
    size, done = _describe_size(file.stat().st_size), "is whole" if verify else "written"
    said = f"{one_line(str(file))} {done}: {describe_backup(manifest)}, {size}."
    return {**manifest, "file": str(file)}, [said]


def describe_backup(manifest: Mapping[str, Any]) -> str:
    return ", ".join(counted(count, name[:-1]) for name, count in manifest["counts"].items())


def restore_file(
    file: Path, store: Path | None, db: Path | str | None, *, memory: Path | str, force: bool
) -> CommandOutput:
    """What `clew restore FILE` does; `memory` is where one goes if `db` does not say."""
    from clew.storage.backup import read_manifest, restore_backup

    if (of_memory := read_manifest(file)["kind"] == "memory") and db is None:
        db = memory
    if store is not None and db is not None:
        raise click.UsageError("a folder (--store) or a memory (--db), not both")
    if db is None:
        store = store or find_root() or Path()
    with show_progress() as progress:
        done = restore_backup(file, store, db=db, force=force, progress=progress)
        with suppress(ClewError):  # else the next search makes them, or says why it cannot
            if db is None or of_memory:
                with options.open_existing(store, db=db) as engine:
                    engine.store.indexes.rebuild(progress=progress)
    said = [f"{one_line(done['into'])} restored: {describe_backup(done)}."]
    if done["aside"]:
        said.append(f"What was there is damaged, and kept as {one_line(done['aside'])}.")
    return done, said


# ---------------------------------------------------------------------- migrate


@click.command(cls=ReportCommand)
@click.option("--to", required=True, metavar="URL", help="The store to copy into.")
@click.option("--from", "from_", metavar="URL", help="Default: the store in use here.")
@click.option("--merge", is_flag=True, help="Also into one that has records of its own.")
@options.store_folder
def migrate(to: str, from_: str | None, merge: bool, store: Path | None) -> CommandOutput:
    """Copy a store into another, of whichever kind, and compare the two.

    URLs are duckdb:///notes.duckdb or embedded:///folder, from the folder of the store on, or
    absolute, postgresql://user@host/database, or qdrant://host:port/name. Interrupted, the same
    command goes on from there. The source stays as it is; to use the other from now on, set it:
    clew config store URL, or for a memory CLEW_MEMORY=URL.

    What a finished copy made is its own from then on: to copy into it once more, say --merge.
    """
    from clew.storage.migrate import migrate as copy
    from clew.store import open_store

    root = store or find_root()
    base = root or Path()
    if root is None and from_ is None:
        raise StoreError("no Clew store here or above: say which one is meant with --from URL")
    loaded = settings.load(base)
    used = locate(loaded.store, base)
    source, target = used if from_ is None else locate(from_, base), locate(to, base)
    if source.same_as(target):
        raise InputError("--from and --to are the same store: nothing to do")
    parent = target.path.absolute().parent
    if target.scheme == "embedded" and not parent.is_dir():  # a DuckDB file's own words
        raise StoreError(f"there is no folder {parent}: make it first, or check the path")
    named = [] if store is None else ["-C", str(store)]
    origin = [] if from_ is None else ["--from", hide_password(from_)]
    shown = hide_password(to)
    again = ["clew", "migrate", *origin, "--to", shown, *["--merge"] * merge, *named]
    with options.resumable(shlex.join(again)), ExitStack() as stack:
        # Nothing is searched, so no index is made, and no folder for one beside the stores.
        aside = Path(stack.enter_context(TemporaryDirectory(prefix="clew-")))
        mine, other = (
            stack.enter_context(
                closing(
                    open_store(
                        place.url,
                        base=base,
                        folder=aside / name,
                        create=place is target,
                        busy_seconds=loaded.busy_seconds,
                    )
                )
            )
            for place, name in ((source, "source"), (target, "target"))
        )
        progress = stack.enter_context(show_progress())
        done = copy(
            mine,
            other,
            origin=source.identity,
            merge=merge,
            homes=_find_homes(source, target, root),
            progress=progress,
        )
        of_memory = not mine.files.roots() and not source.same_as(used)
    here = shown if base.resolve() == Path.cwd() or target.server else target.url
    use = shlex.join(["clew", "config", "store", shown, *named])
    use = f"CLEW_MEMORY={here} (or --db {here})" if of_memory else use
    return {**asdict(done), "ok": done.well}, _describe_copy(done, use), not done.well


def _find_homes(source: StoreLocation, target: StoreLocation, root: Path | None) -> Homes:
    """The places each tells its indexed folders from. A target that this folder is going to use,
    being in it, may tell them from there; any other has to say where they are on the disk."""
    from clew.storage.migrate import Homes

    parent = source.path.absolute().parent
    around = root if source.server else parent.parent if parent.name == FOLDER else parent
    its = home_of(target, root)
    if its is None and root is not None and not target.server:
        inside = {root.resolve(), (root / FOLDER).resolve()}
        its = root if target.path.absolute().parent.resolve() in inside else None
    return Homes(home_of(source, root) or around, its)


def _describe_copy(done: Migrated, use: str) -> Iterator[str]:
    what = (
        f"{counted(done.records, 'record')} with {counted(done.passages, 'passage')} and "
        f"{counted(done.vectors, 'vector')}"
    )
    if done.well:
        if done.already:
            yield f"{what}: copied before, and compared again: the same in both."
        else:
            again = " (an interrupted run was gone on with)" if done.resumed else ""
            yield f"{what} copied and compared: the same in both{again}."
        yield f"To use it from now on: {use}"
        return
    yield f"{what} copied, but not all is the same:"
    yield from (f"  {name}: {', '.join(parts)}" for name, parts in done.differences.items())
    if done.unlike > len(done.differences):
        yield f"  … {counted(done.unlike, 'record')} in all"
    if done.extra:
        yield f"  {counted(done.extra, 'record')} in the target only"
    yield from (f"  {name}" for name in done.rest)
    yield "Was the source written to meanwhile? Run it again, or into an empty target."
