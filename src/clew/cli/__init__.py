"""The `clew` command. One file per group of commands; render.py draws.

Click, not Typer: Typer brings pydantic, which takes as long to import as the rest of the command.
"""

from __future__ import annotations

import os
import sys

import click

from clew import __version__
from clew.cli import index, models, search, upkeep
from clew.errors import ClewError

__all__ = ["app", "main"]


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `clew index FOLDER`, then `clew search WORDS` inside it.",
)
@click.version_option(__version__, prog_name="clew")
def app() -> None:
    """Find the right passage among your files: by words, by meaning, and say why."""


for command in (
    index.init,
    index.index,
    search.search,
    search.get,
    upkeep.status,
    upkeep.remove,
    index.reembed,
    upkeep.doctor,
    upkeep.config,
    models.models,
):
    app.add_command(command)


def main() -> None:
    """The command's entry point: errors become one line and an exit code."""
    try:
        app(prog_name="clew")
    except ClewError as error:
        print(f"clew: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("clew: stopped; what was done is kept, run it again to go on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `clew search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
