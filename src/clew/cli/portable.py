"""clew export, import: memories out of their file and into another."""

from __future__ import annotations

import json as javascript
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from clew.cli import render
from clew.cli.options import as_json, memory_file, open_memory, resumable, there
from clew.cli.recollection import MEMORIES
from clew.errors import InputError, counted

__all__ = ["export", "import_"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--namespace", help="Only of this one. Default: of all.")
@click.option("--active", is_flag=True, help="Leave out what has ended.")
@click.option("--no-embeddings", is_flag=True, help="Leave out the vectors.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@memory_file
@as_json
def export(
    file: Path,
    namespace: str | None,
    active: bool,
    no_embeddings: bool,
    force: bool,
    db: Path | str,
    json: bool,
) -> None:
    """Write all memories to FILE, with everything there is to know of them.

    JSON, or one memory a line where FILE ends in .jsonl; packed where it ends in .gz; - is standard
    output, one a line.

    Example: clew export backup.jsonl.gz
    """
    piped = str(file) == "-"
    if file.exists() and not force and not piped:
        raise InputError(f"{file} exists: name another file, or say --force")
    with open_memory(db) as memory:
        from clew.memory.arguments import make_scope
        from clew.memory.portable import export_memories

        if piped:
            wanted = make_scope(namespace, active=True if active else None)
            for each in export_memories(memory.engine, wanted, embeddings=not no_embeddings):
                print(javascript.dumps(each))
            return
        count: Any = memory.export_json(
            file, namespace=namespace, ended=not active, embeddings=not no_embeddings
        )
    if json:
        render.print_json({"exported": count, "file": str(file)})
    else:
        render.say(f"{counted(count, *MEMORIES)} in {file}.")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--from",
    "origin",
    type=click.Choice(["clew", "arriadne", "ariadne"]),
    default="clew",
    show_default=True,
    help="What FILE is: an export of Clew's, or the database of Ariadne (`arriadne`).",
)
@click.option("--namespace", help="Into this one, whatever FILE says. Default: as it says.")
@click.option("--no-embed", is_flag=True, help="Leave what comes without a vector without one.")
@memory_file
@as_json
def import_(
    file: Path, origin: str, namespace: str | None, no_embed: bool, db: Path | str, json: bool
) -> None:
    """Bring memories in from FILE. Doing it twice is the same as once.

    - is standard input, one memory a line, as `clew export -` writes them.

    An export is a backup: a memory that is here under the same id, in the same namespace, becomes
    what the file says. The file of the memory is made if need be.

    Example: clew import --from arriadne old/memory.db
    """
    source: Any = file
    if str(file) == "-":
        if origin != "clew":
            raise click.UsageError("a database is not read from standard input: name its file")
        source = _lines(sys.stdin)
    elif origin != "clew":
        from clew.memory.ariadne import read_ariadne

        source = read_ariadne(file)  # what is wrong with it is said before anything is made
    elif not file.exists():
        raise InputError(f"there is no {file} to import: check the path")
    kind = "" if origin == "clew" else f"--from {origin} "
    into = "" if namespace is None else f" --namespace {shlex.quote(namespace)}"
    again = f"clew import {kind}{file}{into}{there(db)}"
    with (
        open_memory(db, create=True) as memory,
        resumable(again),
        render.progress(shown=not json) as progress,
    ):
        counts = memory.import_json(
            source, namespace=namespace, embed=not no_embed, progress=progress
        )
    if json:
        render.print_json(counts)
        return
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    total = counted(sum(counts.values()), *MEMORIES)
    render.say(f"{total} imported into {db}{f': {said}' if said else ''}.")


def _lines(given: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(given, 1):
        if line.strip():
            try:
                yield javascript.loads(line)
            except ValueError as error:
                raise InputError(f"line {number} of standard input is no JSON: {error}") from error
