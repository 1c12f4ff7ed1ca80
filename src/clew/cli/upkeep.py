"""clew status, remove, doctor, config: look after a store."""

from __future__ import annotations

from pathlib import Path

import click

from clew import config as settings
from clew.cli import render
from clew.cli.options import (
    as_json,
    existing_root,
    memory_exists,
    memory_path,
    open_existing,
    open_memory,
    store_folder,
)
from clew.engine import Engine, find_root
from clew.errors import InputError, StoreError, counted
from clew.filter import Filter
from clew.storage import has_store

__all__ = ["completion", "config", "doctor", "remove", "status"]


memory_or_folder = click.option(
    "--db", type=memory_path, help="The file or URL of a memory, in place of a folder."
)


def _opened(store: Path | None, db: Path | str | None) -> Engine:
    if db is None:
        return open_existing(store)
    if store is not None:
        raise click.UsageError("a folder (--store) or a memory (--db), not both")
    return open_memory(db).engine


@click.command()
@store_folder
@memory_or_folder
@as_json
def status(store: Path | None, db: Path | str | None, json: bool) -> None:
    """What is indexed, how large it is, which model, how far embedding has come."""
    with _opened(store, db) as engine:
        figures = engine.status()
    if json:
        render.print_json(figures)
    else:
        render.status(figures)


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--collection", help="Forget a whole collection and its folder.")
@store_folder
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@as_json
def remove(
    ids: tuple[str, ...], collection: str | None, store: Path | None, yes: bool, json: bool
) -> None:
    """Take records out of the index. Files on disk are never touched.

    IDS are ids or paths of records. A file that is still in an indexed folder comes back with the
    next clew index (which is also how to undo this), unless .clewignore names it.
    """
    if not ids and collection is None:
        raise InputError("say what to remove: ids, paths, or --collection NAME")
    with open_existing(store) as engine:
        names: list[str] = []
        for given in ids:
            known = engine.get(given)
            found = [known] if known else engine.store.select(Filter(path=given), limit=10_000)
            if not found:
                raise InputError(f"there is no record {given!r}: nothing was removed")
            names += [record.id for record in found]
        count = len(names)
        if collection is not None:
            count += engine.status()["collections"].get(collection, 0)
            if collection not in engine.store.roots() and not count:
                known_names = ", ".join(engine.status()["collections"]) or "none"
                raise InputError(f"there is no collection {collection!r}: there are {known_names}")
        question = f"Remove {counted(count, 'record')} from the index?"
        if not (yes or json or click.confirm(question)):
            raise InputError("nothing was removed")
        removed = engine.remove(names, collection=collection)
    if json:
        render.print_json({"removed": removed})
    else:
        render.say(f"{counted(removed, 'record')} removed.")


def _exists(store: Path | None, db: Path | str | None) -> bool:
    """Whether there is anything to examine."""
    return has_store(existing_root(store)) if db is None else memory_exists(db)


@click.command()
@store_folder
@memory_or_folder
@click.option("--mend", is_flag=True, help="Make derived indexes anew from the database first.")
@as_json
def doctor(store: Path | None, db: Path | str | None, mend: bool, json: bool) -> None:
    """Check that database, indexes and model files are sound, and say how to mend what is not."""
    from clew.models.pull import installed, verify

    try:
        with _opened(store, db) as engine, render.progress(shown=mend and not json) as progress:
            findings = engine.doctor(mend=mend, progress=progress)
    except StoreError as error:
        if not _exists(store, db):
            raise
        findings = [
            {"check": "the store can be opened and read", "ok": False, "advice": str(error)}
        ]
    for name in installed():
        advice = f"run `clew models remove {name}`, then `clew models pull {name}`"
        well = verify(name)
        what = f"model {name} is undamaged"
        findings.append({"check": what, "ok": well, "advice": "" if well else advice})
    if json:
        render.print_json({"findings": findings, "ok": all(f["ok"] for f in findings)})
    else:
        render.findings(findings)
    if not all(f["ok"] for f in findings):
        raise SystemExit(1)


@click.command()
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Go back to the default.")
@store_folder
@as_json
def config(key: str | None, value: str | None, unset: bool, store: Path | None, json: bool) -> None:
    """Show or change settings.

    Defaults < clew.toml < environment (CLEW_MODEL…) < options of a command.
    """
    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes the name of a setting: clew config KEY --unset")
    root = store or find_root() or Path()
    if key is not None and (value is not None or unset):
        render.write_setting(root, key, None if unset else value)
    now = settings.load(root)
    if key is not None:
        settings.about(key)  # an unknown name is said here
        found = getattr(now, key)
        if json:
            render.print_json({key: found})
        else:
            render.say(str(found))
    elif json:
        render.print_json({s.name: getattr(now, s.name) for s in settings.all_settings()})
    else:
        render.config(now, settings.origins(root))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL: commands and options complete with Tab.

    Example: clew completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    from clew.cli import app

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(app, {}, "clew", "_CLEW_COMPLETE").source())
