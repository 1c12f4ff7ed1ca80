"""clew supersede, forget, restore, feedback, consolidate, evict, export, import: what becomes of
memories."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from clew.cli import options
from clew.cli.memory import count_memories, find_memory, in_namespace, shorten_id
from clew.cli.terminal import CommandOutput, ReportCommand, ReportWordsCommand, show_progress
from clew.cli.view import cut, one_line
from clew.errors import InputError

MOST_LISTED, LONGEST_LISTED = 20, 100
"""How many memories are listed for people, and how much of each."""
MOST_NAMED = 5
"""How many may stand in a line."""
everywhere = click.option("--namespace", help="Only in this one. Default: in all.")
dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.command(cls=ReportWordsCommand)
@click.argument("id")
@click.argument("text", nargs=-1, required=True)
@options.date_option("--valid-from", "since", "When it changed, or will. Default: now.")
@in_namespace
@options.memory_file
def supersede(
    id: str, text: tuple[str, ...], since: float | None, namespace: str | None, db: Path | str
) -> CommandOutput:
    """Say that a memory is no longer true, and what is.

    TEXT takes over type, tags, importance and metadata. The old one is found by --as-of, and by
    clew history.

    Example: clew supersede 3f2a91bc Ana lives in Lisbon
    """
    with options.open_memory(db) as memory:
        old, space = find_memory(memory, id, namespace)
        made = memory.supersede(old, " ".join(text), namespace=space, valid_from=since)
    said = f"{shorten_id(made.id)} takes the place of {shorten_id(old)}."
    return {**made, "superseded": old}, [said]


@click.command(cls=ReportCommand)
@click.argument("ids", nargs=-1)
@click.option("--hard", is_flag=True, help="For good: it cannot be undone.")
@click.option(
    "--vacuum", is_flag=True, help="Leave no trace of what is gone for good in any file (slow)."
)
@options.yes_option
@in_namespace
@options.memory_file
def forget(
    ids: tuple[str, ...], hard: bool, vacuum: bool, yes: bool, namespace: str | None, db: Path | str
) -> CommandOutput:
    """Forget memories: they are kept, but no longer found. `clew restore` undoes it.

    With --hard they are deleted. Their words may stay in unused parts of the files until --vacuum,
    which may also be given alone.
    """
    if not ids and not vacuum:
        raise InputError("say what to forget: ids, as `clew memories` shows them")
    with options.open_memory(db) as memory:
        names = list(dict.fromkeys(find_memory(memory, given, namespace) for given in ids))
        if hard and names and not yes:
            if click.get_current_context().meta["json"]:
                raise InputError("--hard cannot be undone: with --json, say --yes as well")
            found = (memory.get(name, namespace=space) for name, space in names)
            rows = [(shorten_id(one.id), one.content) for one in found if one is not None]
            print(*_list_memories(rows), sep="\n")
            question = f"Forget {count_memories(len(names))} for good? It cannot be undone."
            if not click.confirm(question):
                raise InputError("nothing was forgotten")
        done = [n for n, space in names if memory.forget(n, hard=hard, namespace=space)]
        if vacuum:
            memory.vacuum()
    said = []
    if done:
        some = one_line(" ".join(done) if len(done) <= MOST_NAMED else "ID…")
        undo = (
            " for good." if hard else f"; to undo it: clew restore {some}{options.name_memory(db)}"
        )
        said.append(f"{count_memories(len(done))} forgotten{undo}")
    if len(done) < len(names):
        said.append(f"{count_memories(len(names) - len(done))} had ended already.")
    if vacuum:
        said.append("No trace is left of what is gone for good.")
    return {"forgotten": done, "hard": hard, "vacuumed": vacuum}, said


def _list_memories(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """(what to say first, the text of a memory), one a line."""
    for first, content in rows[:MOST_LISTED]:
        yield f"  {first}  {cut(one_line(content[: 4 * LONGEST_LISTED]), LONGEST_LISTED)}"
    if len(rows) > MOST_LISTED:
        yield f"  … and {len(rows) - MOST_LISTED:,} more; --json lists all"


@click.command(cls=ReportCommand)
@click.argument("ids", nargs=-1, required=True, metavar="ID… | FILE")
@in_namespace
@options.memory_file
@options.store_folder
@click.option("--force", is_flag=True, help="Of a backup: replace the store that is there.")
def restore(
    ids: tuple[str, ...], namespace: str | None, db: Path | str, store: Path | None, force: bool
) -> CommandOutput:
    """Bring back memories that were forgotten, evicted, superseded or consolidated, by their ids;
    or a whole store from the FILE that `clew backup` wrote.

    FILE is checked before anything is touched. A folder's store goes into the folder of --store, or
    this one where there is none; a memory, or with --db also a folder's database alone, to --db.

    Example: clew restore notes.clew -C notes
    """
    from clew.storage.backup import is_backup

    file = Path(ids[0]).expanduser()
    if len(ids) == 1 and file.is_file() and (file.suffix or is_backup(file)):
        from clew.cli.store import restore_file

        named = click.get_current_context().get_parameter_source("db")
        said = db if named is click.core.ParameterSource.COMMANDLINE else None
        return restore_file(file, store, said, memory=db, force=force)
    unknown = len(ids) == 1 and file.suffix and not options.memory_exists(db)
    if force or store is not None or unknown:
        if file.exists():
            raise InputError(f"{one_line(ids[0])} is no backup: give the file of `clew backup`")
        raise InputError(f"there is no backup {one_line(ids[0])}: check the path")
    with options.open_memory(db) as memory:
        names = list(dict.fromkeys(find_memory(memory, given, namespace) for given in ids))
        count = sum(memory.restore(name, namespace=space) for name, space in names)
    active = f"; {len(names) - count:,} had not ended" if count < len(names) else ""
    return {"restored": count}, [f"{count_memories(count)} restored{active}."]


@click.command(cls=ReportCommand)
@click.argument("id")
@click.option(
    "--useful/--useless", default=None, help="Whether it helped when it was found: say which."
)
@in_namespace
@options.memory_file
def feedback(id: str, useful: bool | None, namespace: str | None, db: Path | str) -> CommandOutput:
    """Say whether a memory helped: its importance moves a little."""
    if useful is None:
        raise click.UsageError("say --useful or --useless")
    with options.open_memory(db) as memory:
        name, space = find_memory(memory, id, namespace)
        said = memory.feedback(name, useful, namespace=space)
    counts = f"useful {said['useful']:,}, useless {said['useless']:,}"
    now = f"importance now {said['importance']:g}."
    return said, [f"{shorten_id(said['id'])}: {counts}, {now}"]


@click.command(cls=ReportCommand)
@everywhere
@click.option("--ignore", multiple=True, metavar="KEY", help="Metadata that may differ.")
@dry_run
@options.memory_file
def consolidate(
    namespace: str | None, ignore: tuple[str, ...], dry_run: bool, db: Path | str
) -> CommandOutput:
    """Make one of memories that say the same.

    What differs in a number, a name, a date or a negation stays apart. The most important is kept,
    else the oldest, with the others' tags and metadata; those end, and `clew restore` brings them
    back.
    """
    with options.open_memory(db) as memory:
        done = memory.consolidate(namespace, ignore=ignore, dry_run=dry_run)
    rows = []
    for each in done:
        rows.append((f"keep {shorten_id(each['id'])}", each["content"]))
        rows += [(f" end {shorten_id(other['id'])}", other["content"]) for other in each["ended"]]
    ended = sum(len(each["ended"]) for each in done)
    data = {"consolidated": done, "ended": ended, "dry_run": dry_run}
    said = _describe_ending(ended, "consolidated", db, dry_run=dry_run)
    return data, [*_list_memories(rows), said]


@click.command(cls=ReportCommand)
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="How many may stay. Default: 100,000."
)
@everywhere
@dry_run
@options.memory_file
def evict(keep: int | None, namespace: str | None, dry_run: bool, db: Path | str) -> CommandOutput:
    """Give up what is above a limit, lowest priority first: they end, and can be restored.

    The limit is for the whole file, or with --namespace for that one alone.

    Priority is made of importance, age, use, and how far a memory has faded: docs/memory.md has the
    formula.

    Example: clew evict --keep 5000 --dry-run
    """
    with options.open_memory(db) as memory:
        done: list[dict[str, Any]] = memory.evict(keep, namespace=namespace, dry_run=dry_run)
    rows = [(f"{each['priority']:.3f} {shorten_id(each['id'])}", each["content"]) for each in done]
    said = _describe_ending(len(done), "evicted", db, dry_run=dry_run)
    return {"evicted": done, "dry_run": dry_run}, [*_list_memories(rows), said]


def _describe_ending(count: int, what: str, db: Path | str, *, dry_run: bool) -> str:
    if dry_run:
        return f"{count_memories(count)} would be {what}; nothing was done."
    undo = f"; `clew restore ID{options.name_memory(db)}` brings one back"
    return f"{count_memories(count)} {what}{undo if count else ''}."


# ---------------------------------------------------------------------- out and in


@click.command(cls=ReportCommand)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--namespace", help="Only of this one. Default: of all.")
@click.option("--active", is_flag=True, help="Leave out what has ended.")
@click.option("--no-embeddings", is_flag=True, help="Leave out the vectors.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@options.memory_file
def export(
    file: Path,
    namespace: str | None,
    active: bool,
    no_embeddings: bool,
    force: bool,
    db: Path | str,
) -> CommandOutput | None:
    """Write all memories to FILE, with everything there is to know of them.

    JSON, or one memory a line where FILE ends in .jsonl; packed where it ends in .gz; - is standard
    output, one a line.

    Example: clew export backup.jsonl.gz
    """
    piped = str(file) == "-"
    if file.exists() and not force and not piped:
        raise InputError(f"{file} exists: name another file, or say --force")
    with options.open_memory(db) as memory:
        from clew.memory.portable import export_memories
        from clew.memory.record import make_scope

        if piped:
            wanted = make_scope(namespace, active=True if active else None)
            for each in export_memories(memory.engine, wanted, embeddings=not no_embeddings):
                print(json.dumps(each))
            return None
        count: Any = memory.export_json(
            file, namespace=namespace, ended=not active, embeddings=not no_embeddings
        )
    return {"exported": count, "file": str(file)}, [f"{count_memories(count)} in {file}."]


@click.command("import", cls=ReportCommand)
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
@options.memory_file
def import_(
    file: Path, origin: str, namespace: str | None, no_embed: bool, db: Path | str
) -> CommandOutput:
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
        source = _read_json_lines(options.read_input())
    elif origin != "clew":
        from clew.memory.ariadne import read_ariadne

        source = read_ariadne(file)  # what is wrong with it is said before anything is made
    elif not file.exists():
        raise InputError(f"there is no {file} to import: check the path")
    kind = "" if origin == "clew" else f"--from {origin} "
    space = "" if namespace is None else f" --namespace {shlex.quote(namespace)}"
    with (
        options.open_memory(db, create=True) as memory,
        options.resumable(
            f"clew import {kind}{shlex.quote(str(file))}{space}{options.name_memory(db)}"
        ),
        show_progress() as progress,
    ):
        counts = memory.import_json(
            source, namespace=namespace, embed=not no_embed, progress=progress
        )
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    total = count_memories(sum(counts.values()))
    into = options.show_memory(db)
    return counts, [f"{total} imported into {into}{f': {said}' if said else ''}."]


def _read_json_lines(given: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(given, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise InputError(f"line {number} of standard input is no JSON: {error}") from error
