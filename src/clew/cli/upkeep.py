"""clew status, remove, doctor, config: look after a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clew import config as settings
from clew.cli import render
from clew.cli.options import AsJson, StoreFolder, open_existing
from clew.engine import find_root
from clew.errors import InputError
from clew.types import Filter

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    for command in (status, remove, doctor, config):
        app.command()(command)


def status(store: StoreFolder = None, json: AsJson = False) -> None:
    """What is indexed, how large it is, which model, how far embedding has come."""
    with open_existing(store) as engine:
        figures = engine.status()
    if json:
        render.print_json(figures)
    else:
        render.status(figures)


def remove(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids or paths of records.")] = None,
    collection: Annotated[
        str | None, typer.Option(help="Forget a whole collection and its folder.")
    ] = None,
    store: StoreFolder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Take records out of the index. Files on disk are never touched.

    A file that is still in an indexed folder comes back with the next clew index (which is also how
    to undo this), unless .clewignore names it.
    """
    if not ids and collection is None:
        raise InputError("say what to remove: ids, paths, or --collection NAME")
    with open_existing(store) as engine:
        names: list[str] = []
        for given in ids or []:
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
        if not (yes or json):
            typer.confirm(f"Remove {count} records from the index?", abort=True)
        removed = engine.remove(names, collection=collection)
    if json:
        render.print_json({"removed": removed})
    else:
        render.say(f"{removed} records removed.")


def doctor(
    store: StoreFolder = None,
    mend: Annotated[
        bool, typer.Option("--mend", help="Make derived indexes anew from the database first.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check that database, indexes and model files are sound, and say how to mend what is not."""
    from clew.models.pull import installed, verify

    with open_existing(store) as engine, render.progress(shown=mend and not json) as progress:
        findings = engine.doctor(mend=mend, progress=progress)
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
        raise typer.Exit(1)


def config(
    key: Annotated[str | None, typer.Argument(help="A setting. Default: show all.")] = None,
    value: Annotated[str | None, typer.Argument(help="Its new value, kept in clew.toml.")] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Go back to the default.")] = False,
    store: StoreFolder = None,
    json: AsJson = False,
) -> None:
    """Show or change settings.

    Defaults < clew.toml < environment (CLEW_MODEL…) < options of a command.
    """
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
