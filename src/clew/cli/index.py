"""clew init, index, reembed: files become records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clew.cli import render
from clew.cli.options import (
    as_json,
    memory_path,
    open_existing,
    open_memory,
    resumable,
    store_folder,
)
from clew.config import FILE_NAME
from clew.engine import FOLDER, Engine, find_root, open_engine
from clew.errors import InputError, counted
from clew.storage import has_store

__all__ = ["index", "init", "reembed"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--profile",
    type=click.Choice(["default", "athena"]),
    help="What the settings start from: athena is for that workspace layout.",
)
@as_json
def init(folder: Path, profile: str | None, json: bool) -> None:
    """Make a store in FOLDER, with a clew.toml that explains every setting.

    Nothing is indexed yet. To undo it, delete .clew and clew.toml.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: make it first")
    existed = has_store(folder)
    open_engine(folder).close()
    settings = folder / FILE_NAME
    if not settings.exists():
        settings.write_text(render.settings_template(profile or "default"), "utf-8")
    elif profile:
        render.write_setting(folder, "profile", profile)
    ignore = folder / FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", "utf-8")  # an index does not belong into version control
    if json:
        render.print_json({"store": str(folder / FOLDER), "config": str(settings)})
    else:
        verb = "is there already" if existed else "made"
        render.say(f"Store {verb}: {folder / FOLDER}. Settings: {settings}.")
        render.say(f"Next: clew index {folder}")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@store_folder
@click.option("--embed/--no-embed", default=True, help="Also make vectors (the slow part).")
@click.option("--force", is_flag=True, help="Read files again that have not changed.")
@click.option("--offline", is_flag=True, help="Never try to fetch model weights.")
@click.option("--model", help="Embedder for this run; see clew models list.")
@as_json
@click.option("--quiet", "-q", is_flag=True, help="No progress, no report.")
def index(
    paths: tuple[Path, ...],
    store: Path | None,
    embed: bool,
    force: bool,
    offline: bool,
    model: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Bring the index up to date with the files.

    PATHS are folders or files; without them, all folders the store knows. Text comes first, so
    keyword search works within seconds; vectors follow. Only what changed is
    read again, and an interrupted run goes on where it stopped. .gitignore and .clewignore hold;
    links out of a folder are not followed.

    Example: clew index ~/notes ~/projects/docs
    """
    given = list(paths)
    for path in given:
        if not path.exists():
            raise InputError(f"there is no {str(path)!r} to index: check the path")
    overrides: dict[str, Any] = {"offline": True} if offline else {}
    if model:
        overrides["model"] = model
    with open_engine(_store_for(store, given), **overrides) as engine:
        _keep_out_of_git(engine)
        with resumable("clew index"), render.progress(shown=not (json or quiet)) as progress:
            report = engine.index(given, embed=embed, force=force, progress=progress)
        if json:
            render.print_json(report.to_dict())
        elif not quiet:
            render.report(report, engine)


@click.command()
@click.argument("model", required=False)
@store_folder
@click.option("--db", type=memory_path, help="The file or URL of a memory, in place of a folder.")
@as_json
def reembed(model: str | None, store: Path | None, db: Path | str | None, json: bool) -> None:
    """Make vectors anew with another model, and use it from now on.

    Vectors of different models are never mixed: until a record has been migrated, only its words
    are searched. The run can be interrupted and goes on when called again.

    A memory (--db) has no settings of its own: name the model in CLEW_MODEL from then on.
    """
    if store is not None and db is not None:
        raise click.UsageError("a folder (--store) or a memory (--db), not both")
    chosen: dict[str, Any] = {"model": model} if model else {}
    opened = open_existing(store, **chosen) if db is None else open_memory(db, **chosen).engine
    with opened as engine:
        again = f"clew reembed {model or ''}{f' --db {db}' if db else ''}".rstrip()
        with resumable(again), render.progress(shown=not json) as progress:
            count = engine.embed(progress=progress)
        if model and engine.root is not None:
            render.write_setting(engine.root, "model", model)
        if json:
            render.print_json({"embedded": count, "model": engine.embedder.model})
        else:
            render.say(f"{counted(count, 'passage')} embedded with {engine.embedder.model}.")


def _store_for(store: Path | None, paths: list[Path]) -> Path:
    """The store a call of `index` means: the one named, one that is there, or a new one."""
    if store is not None:
        return store
    for start in [*paths, Path()]:
        if (root := find_root(start if start.is_dir() else start.parent)) is not None:
            return root
    if not paths:
        return Path()
    return paths[0] if paths[0].is_dir() else paths[0].parent


def _keep_out_of_git(engine: Engine) -> None:
    if engine.root is not None:
        ignore = engine.root / FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
