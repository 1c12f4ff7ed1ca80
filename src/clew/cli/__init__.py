"""The `clew` command. One file per group of commands; render.py draws."""

from __future__ import annotations

import os
import sys

import typer

from clew.cli import index, models, search, upkeep
from clew.errors import ClewError

__all__ = ["app", "main"]

app = typer.Typer(
    name="clew",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Find the right passage among your files: by words, by meaning, and say why.",
    epilog=(
        "Start with: [bold]clew index FOLDER[/bold], then [bold]clew search 'what you look for'"
        "[/bold] inside it."
    ),
)
for group in (index, search, upkeep):
    group.register(app)
app.add_typer(models.app, name="models")


def main() -> None:
    """The command's entry point: errors become one line and an exit code."""
    try:
        app()
    except ClewError as error:
        print(f"clew: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("clew: stopped; what was done is kept, run it again to go on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `clew search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
