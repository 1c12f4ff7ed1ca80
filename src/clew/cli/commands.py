"""All commands, each in the file of its group, and how one is run.

Click, not Typer: Typer brings pydantic, which takes as long to import as the rest of the command.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from clew import __version__
from clew.cli.options import say_stopped
from clew.errors import ClewError, nearest
from clew.trust import UntrustedError

_FILES = (
    ("index", "init index"),
    ("search", "search get lookup"),
    ("agent", "ask"),
    ("store", "sources status remove"),
    ("index", "reembed"),
    ("store", "doctor"),
    ("config", "config trust"),
    ("store", "backup migrate cache"),
    ("config", "models"),
    ("eval", "eval judge tune"),
    ("index", "exocortex"),
    ("graph", "graph tree"),
    ("memory", "remember recall latest memories history"),
    ("memory_upkeep", "supersede forget restore feedback consolidate evict export import"),
    ("serve", "serve watch"),
    ("agent", "mcp"),
    ("setup", "setup context"),
    ("manual", "completion man"),
)
COMMANDS = {command: file for file, commands in _FILES for command in commands.split()}
"""Each with the file it is in, imported when it is called: a search pays for no other command."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"clew.cli.{COMMANDS[cmd_name]}")
        # `eval` and `import` are words of Python's own, so ours have a line after them.
        own = cmd_name in ("eval", "import")
        command: click.Command = getattr(module, f"{cmd_name}_" if own else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(
                f"No such command {args[0]!r}: {nearest(args[0], COMMANDS)}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `clew index FOLDER`, then `clew search WORDS` inside it; or keep memories: "
    "`clew remember TEXT`, then `clew recall WORDS`.",
)
@click.version_option(__version__, prog_name="clew")
def app() -> None:
    """Find the right passage among your files: by words, by meaning, and say why."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code: errors become one line that says what to do."""
    try:
        code = app(arguments, prog_name="clew", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        # Click's word for Ctrl-C, and for a question that nobody is there to answer
        pressed = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
        return say_stopped() if pressed else _said("no answer, so nothing was done")
    except KeyboardInterrupt:
        return say_stopped()
    except UntrustedError as error:
        code = _said(str(error))
        asked = sys.stdin.isatty() and sys.stderr.isatty()
        if not asked or not click.confirm("Do you trust this folder?", err=True):
            return code
        # it was refused before anything was done
        return run(["trust", str(error.folder)]) or run(arguments)
    except ClewError as error:
        return _said(str(error))
    except BrokenPipeError:
        return 0
    except Exception:
        traceback.print_exc()
        return 1


def _said(what: str) -> int:
    from clew.cli.view import clean_lines

    print(f"clew: {clean_lines(what)}", file=sys.stderr)
    return 1
