"""The `clew` command. One file per group of commands; render.py draws.

Click, not Typer: Typer brings pydantic, which takes as long to import as the rest of the command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

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
    """The command's entry point: errors become one line and an exit code.

    It ends without Python's own clean-up: stores are closed by now, and a source that is late may
    still be at work in a thread, which that clean-up would abort on.
    """
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a closed pipe: `clew search … | head`
            stream.flush()
    os._exit(code)


def _run() -> int:
    try:
        app(prog_name="clew")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    except ClewError as error:
        print(f"clew: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("clew: stopped; what was done is kept, run it again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception:
        traceback.print_exc()
        return 1
    return 0
