"""clew history, supersede, forget, restore, feedback, consolidate, evict: what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli import answer, render
from clew.cli import recollection as drawn
from clew.cli.options import WordsCommand, as_json, memory_file, moment, open_memory, there
from clew.cli.plain import one_line
from clew.errors import InputError, counted
from clew.filter import Filter

if TYPE_CHECKING:
    from clew.memory import Memory

__all__ = ["consolidate", "evict", "feedback", "forget", "history", "restore", "supersede"]

SHORTEST = 4
"""Characters of an id's beginning that are enough, where no other begins with them."""
LISTED, LENGTH, SEVERAL = 20, 100, 5
"""How many are listed for people, how much of each, and how many may stand in a line."""
Named = tuple[str, str]
"""A memory's id and its namespace."""
within = click.option("--namespace", help="Only if it is in this one.")
everywhere = click.option("--namespace", help="Only in this one. Default: in all.")
dry = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


def _meant(memory: Memory, given: str, namespace: str | None) -> Named:
    """The memory that is meant, by its id or by the beginning of it; and its namespace."""
    from clew.memory.arguments import check_id, check_namespace
    from clew.memory.record import find_records, public_id, unknown_id

    namespace = None if namespace is None else check_namespace(namespace)
    scope = Filter(collection=namespace or ())
    found = find_records(memory.store, [check_id(given)], namespace)
    if not found and len(given) >= SHORTEST:
        near = memory.store.select(scope, limit=2, after=given)
        found = [record for record in near if record.id.startswith(given)]
    if len(found) > 1:
        raise InputError(f"several ids begin with {given!r}: give more of it, as --json shows it")
    if not found:
        raise unknown_id(memory.store, given, namespace)
    return public_id(found[0].id, found[0].collection), found[0].collection


def _listed(rows: Sequence[tuple[str, str]]) -> None:
    """(what to say first, the text of a memory), one a line."""
    for first, content in rows[:LISTED]:
        text = one_line(content[: 4 * LENGTH])
        render.say(f"  {first}  {text if len(text) <= LENGTH else f'{text[:LENGTH]}…'}")
    if len(rows) > LISTED:
        render.say(f"  … and {len(rows) - LISTED:,} more; --json lists all")


@click.command()
@click.argument("id")
@within
@memory_file
@as_json
def history(id: str, namespace: str | None, db: Path | str, json: bool) -> None:
    """A memory, whole, and those it took the place of, newest first."""
    with open_memory(db) as memory:
        name, space = _meant(memory, id, namespace)
        found = memory.history(name, namespace=space)
    if json:
        render.print_json({"memories": [drawn.as_data(each) for each in found]})
    else:
        answer.say(drawn.shown(found, whole=True))


@click.command(cls=WordsCommand)
@click.argument("id")
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--valid-from", "since", metavar="DATE", help="When it changed, or will. Default: now."
)
@within
@memory_file
@as_json
def supersede(
    id: str,
    text: tuple[str, ...],
    since: str | None,
    namespace: str | None,
    db: Path | str,
    json: bool,
) -> None:
    """Say that a memory is no longer true, and what is.

    TEXT takes over type, tags, importance and metadata. The old one is found by --as-of, and by
    clew history.

    Example: clew supersede 3f2a91bc Ana lives in Lisbon
    """
    with open_memory(db) as memory:
        old, space = _meant(memory, id, namespace)
        made = memory.supersede(
            old, " ".join(text), namespace=space, valid_from=moment(since, "--valid-from")
        )
    if json:
        render.print_json({**made, "superseded": old})
    else:
        render.say(f"{drawn.short(made.id)} takes the place of {drawn.short(old)}.")


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--hard", is_flag=True, help="For good: it cannot be undone.")
@click.option(
    "--vacuum", is_flag=True, help="Leave no trace of what is gone for good in any file (slow)."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@within
@memory_file
@as_json
def forget(
    ids: tuple[str, ...],
    hard: bool,
    vacuum: bool,
    yes: bool,
    namespace: str | None,
    db: Path | str,
    json: bool,
) -> None:
    """Forget memories: they are kept, but no longer found. `clew restore` undoes it.

    With --hard they are deleted. Their words may stay in unused parts of the files until --vacuum,
    which may also be given alone.
    """
    if not ids and not vacuum:
        raise InputError("say what to forget: ids, as `clew memories` shows them")
    with open_memory(db) as memory:
        names = list(dict.fromkeys(_meant(memory, given, namespace) for given in ids))
        if hard and names and not yes:
            _ask(memory, names, json=json)
        done = [n for n, space in names if memory.forget(n, hard=hard, namespace=space)]
        if vacuum:
            memory.vacuum()
    if json:
        render.print_json({"forgotten": done, "hard": hard, "vacuumed": vacuum})
        return
    if done:
        some = " ".join(done) if len(done) <= SEVERAL else "ID…"
        undo = " for good." if hard else f"; to undo it: clew restore {one_line(some)}{there(db)}"
        render.say(f"{counted(len(done), *drawn.MEMORIES)} forgotten{undo}")
    if len(done) < len(names):
        render.say(f"{counted(len(names) - len(done), *drawn.MEMORIES)} had ended already.")
    if vacuum:
        render.say("No trace is left of what is gone for good.")


def _ask(memory: Memory, names: Sequence[Named], *, json: bool) -> None:
    if json:
        raise InputError("--hard cannot be undone: with --json, say --yes as well")
    found = (memory.get(name, namespace=space) for name, space in names)
    _listed([(drawn.short(one.id), one.content) for one in found if one is not None])
    question = f"Forget {counted(len(names), *drawn.MEMORIES)} for good? It cannot be undone."
    if not click.confirm(question):
        raise InputError("nothing was forgotten")


@click.command()
@click.argument("ids", nargs=-1, required=True)
@within
@memory_file
@as_json
def restore(ids: tuple[str, ...], namespace: str | None, db: Path | str, json: bool) -> None:
    """Bring back what was forgotten, evicted, superseded or consolidated."""
    with open_memory(db) as memory:
        names = list(dict.fromkeys(_meant(memory, given, namespace) for given in ids))
        count = sum(memory.restore(name, namespace=space) for name, space in names)
    if json:
        render.print_json({"restored": count})
        return
    active = f"; {len(names) - count:,} had not ended" if count < len(names) else ""
    render.say(f"{counted(count, *drawn.MEMORIES)} restored{active}.")


@click.command()
@click.argument("id")
@click.option(
    "--useful/--useless", default=None, help="Whether it helped when it was found: say which."
)
@within
@memory_file
@as_json
def feedback(
    id: str, useful: bool | None, namespace: str | None, db: Path | str, json: bool
) -> None:
    """Say whether a memory helped: its importance moves a little."""
    if useful is None:
        raise click.UsageError("say --useful or --useless")
    with open_memory(db) as memory:
        name, space = _meant(memory, id, namespace)
        said = memory.feedback(name, useful, namespace=space)
    if json:
        render.print_json(said)
    else:
        render.say(
            f"{drawn.short(said['id'])}: useful {said['useful']:,}, useless {said['useless']:,}, "
            f"importance now {said['importance']:g}."
        )


@click.command()
@everywhere
@click.option("--ignore", multiple=True, metavar="KEY", help="Metadata that may differ.")
@dry
@memory_file
@as_json
def consolidate(
    namespace: str | None, ignore: tuple[str, ...], dry_run: bool, db: Path | str, json: bool
) -> None:
    """Make one of memories that say the same.

    What differs in a number, a name, a date or a negation stays apart. The most important is kept,
    else the oldest, with the others' tags and metadata; those end, and `clew restore` brings them
    back.
    """
    with open_memory(db) as memory:
        done = memory.consolidate(namespace, ignore=ignore, dry_run=dry_run)
    ended = sum(len(each["ended"]) for each in done)
    if json:
        render.print_json({"consolidated": done, "ended": ended, "dry_run": dry_run})
        return
    rows = []
    for each in done:
        rows.append((f"keep {drawn.short(each['id'])}", each["content"]))
        rows += [(f" end {drawn.short(other['id'])}", other["content"]) for other in each["ended"]]
    _listed(rows)
    render.say(_ending(ended, "consolidated", db, dry_run=dry_run))


@click.command()
@click.option("--keep", type=int, metavar="N", help="How many may stay. Default: 100,000.")
@everywhere
@dry
@memory_file
@as_json
def evict(
    keep: int | None, namespace: str | None, dry_run: bool, db: Path | str, json: bool
) -> None:
    """Give up what is above a limit, lowest priority first: they end, and can be restored.

    The limit is for the whole file, or with --namespace for that one alone.

    Priority is made of importance, age, use, and how far a memory has faded: docs/memory.md has the
    formula.

    Example: clew evict --keep 5000 --dry-run
    """
    with open_memory(db) as memory:
        done: list[dict[str, Any]] = memory.evict(keep, namespace=namespace, dry_run=dry_run)
    if json:
        render.print_json({"evicted": done, "dry_run": dry_run})
        return
    _listed([(f"{e['priority']:.3f} {drawn.short(e['id'])}", e["content"]) for e in done])
    render.say(_ending(len(done), "evicted", db, dry_run=dry_run))


def _ending(count: int, what: str, db: Path | str, *, dry_run: bool) -> str:
    said = counted(count, *drawn.MEMORIES)
    if dry_run:
        return f"{said} would be {what}; nothing was done."
    undo = f"; `clew restore ID{there(db)}` brings one back"
    return f"{said} {what}{undo if count else ''}."
