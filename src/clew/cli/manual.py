"""clew completion, man: what a shell and `man` know of the commands. The list of all options in
docs/cli.md is made from here, too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from clew import __version__
from clew.errors import ConfigError, InputError

SHELLS = ("bash", "zsh", "fish")
_PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/clew"),
    "zsh": ("ZDOTDIR", "", ".zfunc/_clew"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/clew.fish"),
}
"""Where each looks for scripts: below a folder that a variable names, or that is usual at home."""
EXIT_CODES = {
    0: "It was done; a search that finds nothing has been done, too.",
    1: "It was not done: the line on standard error says why and what to do. Also where a report "
    "has something to say (`clew doctor`).",
    2: "The command was not understood: an unknown option, a missing argument.",
    3: "`clew ask` found no answer: it is not in the files.",
    130: "Ctrl-C.",
}


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Put it where the shell looks for such scripts.")
def completion(shell: str | None, install: bool) -> None:
    """Print the completion script of a SHELL: commands and options complete with Tab.

    Without SHELL it is that of $SHELL.

    Example: clew completion --install
    """
    from click.shell_completion import get_completion_class

    from clew.cli import app

    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise InputError(f"which shell? Say one of {', '.join(SHELLS)}")
    found = get_completion_class(shell)
    assert found is not None
    script = found(app, {}, "clew", "_CLEW_COMPLETE").source()
    if not install:
        click.echo(script)
        return
    variable, usual, below = _PLACES[shell]
    base = os.environ.get(variable)
    file = (Path(base) if base else Path.home() / usual) / below
    _write(file, script)
    print(f"Wrote {file}: new shells complete `clew` with Tab.")
    if shell == "zsh":
        print(f"If not, put this before compinit in .zshrc: fpath+=({file.parent})")


@click.command()
@click.argument("command", nargs=-1)
@click.option("--install", is_flag=True, help="Write all of them to ~/.local/share/man instead.")
def man(command: tuple[str, ...], install: bool) -> None:
    """Print the manual page of a COMMAND, or of clew itself, in the form of man.

    Example: clew man search | man -l -
    """
    pages = {words: (found, context) for words, found, context in list_commands()}
    if install:
        base = os.environ.get("XDG_DATA_HOME")
        folder = (Path(base) if base else Path.home() / ".local" / "share") / "man" / "man1"
        for words, (found, context) in pages.items():
            _write(folder / f"{words.replace(' ', '-')}.1", draw_page(words, found, context))
        print(f"Wrote {len(pages)} pages to {folder}: man clew")
        return
    wanted = " ".join(("clew", *command))
    if wanted not in pages:
        raise InputError(f"there is no command `{wanted}`: `clew --help` lists them")
    click.echo(draw_page(wanted, *pages[wanted]), nl=False)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; print it instead") from error


# ---------------------------------------------------------------------- what there is


def list_commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command by its words, `clew` itself first."""
    from clew.cli import app

    yield from _list_below("clew", app, None)


def _list_below(
    words: str, command: click.Command, above: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(
        command,
        parent=above,
        info_name=words.split()[-1],
        terminal_width=100,
        **{"max_content_width": 100, **command.context_settings},  # names of --help are kept
    )
    yield words, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _list_below(f"{words} {name}", found, context)


def describe_commands() -> str:
    """The options of all commands, as Markdown: the last part of docs/cli.md."""
    codes = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    parts = ["## Exit codes", "", "| code | |", "|--:|---|", *codes, "", "## All options", ""]
    for words, command, context in list_commands():
        if isinstance(command, click.Group):
            continue
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f"**{words}** {_escaped(usage)}", ""]
        for left, right in _options(command, context):
            parts.append(f"- `{left}`: {_escaped(right)}")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record: Any = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in parameter.opts:
            yield record[0], record[1]


def _escaped(text: str) -> str:
    return re.sub(r"([*_<|])", r"\\\1", " ".join(text.split()))


def draw_page(words: str, command: click.Command, context: click.Context) -> str:
    """The page of one command, in roff."""
    name = words.replace(" ", "-")
    short = command.get_short_help_str(200)
    lines = [
        f'.TH "{name.upper()}" 1 "" "clew {__version__}" "Clew"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(short)}",
        ".SH SYNOPSIS",
        f".B {_roff(words)}",
        _roff(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
    ]
    for paragraph in (command.help or "").split("\n\n"):
        kept = paragraph.startswith("\b") or paragraph.lstrip().startswith("\b")
        text = paragraph.replace("\b", "").strip()
        lines += [".PP", *([".nf", *map(_roff, text.splitlines()), ".fi"] if kept else [])]
        lines += [] if kept else [_roff(" ".join(text.split()))]
    if options := list(_options(command, context)):
        lines.append(".SH OPTIONS")
        for left, right in options:
            lines += [".TP", f"\\fB{_roff(left)}\\fR", _roff(" ".join(right.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            about = found.get_short_help_str(200) if found is not None else ""
            lines += [".TP", f"\\fB{_roff(below)}\\fR", _roff(about)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", str(code), _roff(meaning)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
