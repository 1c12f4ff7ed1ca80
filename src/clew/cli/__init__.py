"""The `clew` command: commands.py has all of them, each in the file of its group; view.py is what
is shown of an answer, terminal.py and page.py print it.

A resident process (`clew serve`) is asked first: then nothing else has to be imported.
"""

from __future__ import annotations

import os
import sys

from clew.resident import answer_command

TYPE_CHECKING = False  # as in typing, which takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

    from clew.cli.commands import COMMANDS, app, run

__all__ = ["COMMANDS", "app", "main", "run"]


def __getattr__(name: str) -> Any:
    if name not in ("COMMANDS", "app", "run"):
        raise AttributeError(f"module 'clew.cli' has no attribute {name!r}")
    from clew.cli import commands

    return getattr(commands, name)


def main() -> None:
    """The command's entry point.

    It ends without Python's own clean-up: stores are closed by now, and a source that is late may
    still be at work in a thread, which that clean-up would abort on.
    """
    code = _ask_resident()
    if code is None:
        from clew.cli.commands import run

        code = run()
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib takes a while as well
            stream.flush()
        except OSError:  # a closed pipe: `clew search … | head`
            pass
    os._exit(code)


def _ask_resident() -> int | None:
    try:
        return answer_command(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
