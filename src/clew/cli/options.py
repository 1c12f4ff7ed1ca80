"""Options that several commands share, and how a command finds its store."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.config import check_url
from clew.engine import Engine, find_root, open_engine
from clew.errors import ConfigError, InputError, StoreError
from clew.filter import Filter
from clew.storage import FOLDER, is_url, locate
from clew.timestamps import timestamp
from clew.trust import hide_password
from clew.validate import read_conditions, read_pairs

if TYPE_CHECKING:
    from clew.memory import Memory

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _check_folder(ctx: click.Context, _: click.Parameter, folder: Path | None) -> Path | None:
    """The folder whose store is meant. A mistyped one must not become a new folder."""
    if folder is None:
        return None
    # who asks a resident process stands elsewhere than it does
    folder = Path(ctx.obj or "", folder.expanduser())
    if not folder.is_dir():
        if ":/" in str(folder):  # a path keeps one of two slashes
            raise StoreError(
                "--store is the folder a store is for; where the store itself is, say with `clew "
                "config store URL` in that folder, or with CLEW_STORE=URL"
            )
        said = hide_password(str(folder))
        raise StoreError(f"there is no folder {said!r}: check --store, or make it first")
    return folder.absolute().parent if folder.absolute().name == FOLDER else folder


class MemoryPath(click.Path):
    """A path, or the URL of a store, whose slashes count."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        if is_url(value):
            check_url(value)
            return str(value)
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        return path


store_folder = click.option(
    "--store",
    "-C",
    type=click.Path(path_type=Path),
    callback=_check_folder,
    help=f"Folder whose {FOLDER}/ is meant. Default: the nearest one at or above this folder.",
)
memory_file = click.option(
    "--db",
    type=MemoryPath(path_type=Path),
    envvar="CLEW_MEMORY",
    default="memory.db",
    help="The memory's file or URL. Default: $CLEW_MEMORY, or memory.db in this folder.",
)
memory_instead = click.option(
    "--db",
    type=MemoryPath(path_type=Path),
    help="The file or URL of a memory, in place of a folder.",
)
include_personal = click.option(
    "--include-personal", is_flag=True, help="Also what is marked as personal."
)
rerank_option = click.option(
    "--rerank", is_flag=True, help="Read the head again with a cross-encoder (slower)."
)
token_option = click.option(
    "--token", envvar="CLEW_TOKEN", help="What clients have to say. Default: $CLEW_TOKEN."
)
token_file = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file that has the token: other users cannot see it in the list of processes.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def pairs_option(
    name: str,
    dest: str,
    help: str,
    *,
    read: Callable[[str, Iterable[str]], dict[str, Any]] = read_pairs,
) -> Decorator:
    """An option of KEY=VALUE that may be repeated; its value is the mapping."""

    def read_all(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Any:
        return read(name, given)

    return click.option(
        name, dest, multiple=True, metavar="KEY=VALUE", callback=read_all, help=help
    )


def metadata_filter(help: str) -> Decorator:
    return pairs_option("--meta", "metadata", help, read=read_conditions)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which records may be found: see `take_filter`."""
    for option in (
        metadata_filter("Metadata, as status=open; repeat for any of its values."),
        click.option("--before", metavar="DATE", help="Changed before this date."),
        click.option("--after", metavar="DATE", help="Changed at or after this date."),
        click.option("--collection", multiple=True, help="In this collection."),
        click.option("--type", multiple=True, help="Of this type: markdown, code, html, table…"),
        click.option("--path", multiple=True, help="Below this path, or matching this glob."),
        click.option("--tag", "tags", multiple=True, help="Has this tag; repeat for any of."),
    ):
        command = option(command)
    return command


def take_filter(chosen: dict[str, Any]) -> Filter:
    """The filter that is among the values of a command's options, which is left the others."""
    fields = ("tags", "path", "type", "collection", "after", "before", "metadata")
    given = {name: chosen.pop(name) for name in fields}
    return Filter.of({name: value for name, value in given.items() if value})


def date_option(name: str, dest: str, help: str, *, end: bool = False) -> Decorator:
    """An option whose value is in seconds since the epoch, of local time unless a zone is said. A
    day is meant from its beginning, or, with `end`, to its end."""

    def read(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
        if given is None:
            return None
        seconds = timestamp(given, name=name)
        if not end or len(given.strip()) > len("2026-03-14"):
            return seconds
        import datetime as dt

        day = dt.date.fromisoformat(given.strip())
        if day == dt.date.max:  # for ever
            return seconds
        return math.nextafter(timestamp(day + dt.timedelta(days=1)), 0)

    return click.option(name, dest, metavar="DATE", callback=read, help=help)


class WordsCommand(click.Command):
    """A command whose words may begin with a hyphen, as `-draft` in a query does.

    Click would read `-draft` as -d -r -a -f -t. Here a single hyphen makes an option of one letter
    only (with its value beside it, as in -n5); anything longer is a word. Two hyphens make an
    option always, so that a mistyped one is said.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks how the line could go on
            return super().parse_args(ctx, args)
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        known = {name for option in options for name in option.opts}
        valued = {name for option in options if not option.is_flag for name in option.opts}
        chosen: list[str] = []
        words: list[str] = []
        rest = iter(args)
        for token in rest:
            beside = token[:2] in valued and not token[2:3].isalpha()
            if token == "--":
                words.extend(rest)
            elif token in valued:
                if (value := next(rest, None)) is None:
                    raise click.BadOptionUsage(
                        token, f"Option {token!r} requires an argument.", ctx
                    )
                chosen += (token, value)
            elif token.startswith("--") or token in known or beside:
                chosen.append(token)
            else:
                words.append(token)
                short = ", ".join(sorted(name for name in known if len(name) == 2))
                if f"-{token}" in known:
                    said = f"the option is -{token}"
                elif len(token) == 2 and token[0] == "-" and token[1].isalpha():
                    said = f"short options are {short}"
                else:
                    continue
                note = f"clew: {token} was read as one of the words: {said}\n"
                ctx.meta.setdefault("notes", []).append(note)
        return super().parse_args(ctx, [*chosen, "--", *words])

    def invoke(self, ctx: click.Context) -> Any:
        sys.stderr.writelines(ctx.meta.get("notes", ()))
        return super().invoke(ctx)


# ---------------------------------------------------------------------- stores

_opened: list[Engine] = []
"""Closed engines are not taken apart as well: with a model loaded that takes a while, and the
process ends anyway (see `main`)."""


def read_token(token: str | None, file: Path | None) -> str | None:
    """What clients have to say, from the file if there is one."""
    if file is None:
        return token
    try:
        token = file.expanduser().read_text("utf-8-sig").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the token in {file}: {error}") from error
    if not token:
        raise ConfigError(f"{file} is empty: it should have the token on its first line")
    return token


def existing_root(folder: Path | None) -> Path:
    """The folder that was named, or the nearest one with a store."""
    root = folder if folder is not None else find_root()
    if root is None:
        raise StoreError("no Clew store here or above: run `clew index` in the folder to search")
    return root


def open_existing(folder: Path | None, *, db: Path | str | None = None, **overrides: Any) -> Engine:
    """The engine of a store that is there already, or of the memory `db` in its place."""
    if db is None:
        _opened.append(open_engine(existing_root(folder), create=False, **overrides))
        return _opened[-1]
    if folder is not None:
        raise click.UsageError("a folder (--store) or a memory (--db), not both")
    return open_memory(db, **overrides).engine


def open_memory(db: Path | str, *, create: bool = False, **options: Any) -> Memory:
    """The memory in this file. Who only reads makes none."""
    if isinstance(db, Path):
        db = db.expanduser()
    if not create and not memory_exists(db):
        raise StoreError(
            f"there is no memory {hide_password(str(db))} yet: begin one with `clew remember "
            "TEXT`, or name another with --db or CLEW_MEMORY"
        )
    from clew.memory import Memory

    memory = Memory(db, create=create, **options)
    _opened.append(memory.engine)
    return memory


def memory_exists(db: Path | str) -> bool:
    return locate(db, Path()).exists() if isinstance(db, str) else db.expanduser().exists()


def name_memory(db: Path | str) -> str:
    """The option that names this memory again in a command, unless it is meant without one."""
    import shlex

    usual = os.environ.get("CLEW_MEMORY", "memory.db")
    return "" if str(db) == usual else f" --db {shlex.quote(show_memory(db))}"


def show_memory(db: Path | str) -> str:
    """Its file, or its URL without the password."""
    return hide_password(db) if isinstance(db, str) else str(db)


def list_places(engine: Engine, given: str) -> Iterator[tuple[str, str]]:
    """(root, path) of what may be meant: a path as it is given, and as a search prints it, which is
    how it is seen from where one stands."""
    yield "", given
    here, base = Path(os.path.normpath(Path.cwd() / given)), engine.root or Path()
    for name, folder in engine.store.files.roots().items():
        root = (base / folder).resolve()
        if root in here.parents:
            yield name, here.relative_to(root).as_posix()


def read_input() -> Iterator[str]:
    """The lines of standard input, which is UTF-8 whatever this machine is set to."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig")
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 ({error.reason}): convert it") from error


# ---------------------------------------------------------------------- Ctrl-C


@contextlib.contextmanager
def resumable(command: str) -> Iterator[None]:
    """Work that Ctrl-C may end at any time, because `command` goes on from there."""
    try:
        yield
    except KeyboardInterrupt:
        again = f"what was done so far is kept and can be searched, `{command}` goes on from there"
        print(file=sys.stderr)  # past the ^C that terminals show
        raise SystemExit(say_stopped(again)) from None


def say_stopped(what: str = "") -> int:
    """Say that Ctrl-C was heard; the exit code that shells expect of it."""
    print(f"clew: stopped{': ' if what else ''}{what}", file=sys.stderr)
    return 130
