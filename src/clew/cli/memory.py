"""clew remember, recall, latest, memories: what an agent keeps, and how it comes back."""

from __future__ import annotations

import shlex
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli import answer, render
from clew.cli import recollection as drawn
from clew.cli.options import WordsCommand, as_json, memory_file, moment, open_memory, pairs
from clew.errors import InputError, counted

if TYPE_CHECKING:
    from clew.memory import Memory, Remembered

__all__ = ["latest", "memories", "recall", "remember"]

TYPES = ("semantic", "episodic", "procedural")
of_type = click.option(
    "--type", "-t", type=click.Choice(TYPES), multiple=True, help="Of this type."
)
of_namespace = click.option(
    "--namespace", default="default", show_default=True, help="Whose memory it is."
)
of_namespaces = click.option(
    "--namespace", multiple=True, help="Whose memories; repeat for several. Default: default."
)
metadata = click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata, as turn=7.")


def narrowing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `recall` and `memories` that say which memories are meant."""
    for option in (
        click.option("--as-of", metavar="DATE", help="What held then, ended since or not."),
        click.option("--until", metavar="DATE", help="Made then or before; a day counts whole."),
        click.option("--since", metavar="DATE", help="Made then or after."),
        click.option("--importance-min", type=float, metavar="0…1", help="At least so important."),
        metadata,
        click.option("--tag", multiple=True, help="Has this tag; repeat for any of."),
        of_type,
    ):
        command = option(command)
    return command


def _scope(
    type: Sequence[str],
    tag: Sequence[str],
    meta: tuple[str, ...],
    importance_min: float | None,
    since: str | None,
    until: str | None,
    as_of: str | None,
) -> dict[str, Any]:
    """These options by the names that `recall` has for them."""
    return {
        "type_filter": list(type) or None,
        "tags": list(tag) or None,
        "metadata": pairs(meta, "--meta") or None,
        "importance_min": importance_min,
        "time_range": (moment(since, "--since"), moment(until, "--until", end=True)),
        "as_of": moment(as_of, "--as-of", end=True),
    }


@click.command(cls=WordsCommand)
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--type",
    "-t",
    type=click.Choice(TYPES),
    default="semantic",
    show_default=True,
    help="A fact, something that happened, or how something is done.",
)
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@click.option("--tag", multiple=True, help="Repeat for several.")
@metadata
@of_namespace
@click.option("--id", help="Its name. Default: one is made up.")
@click.option("--at", metavar="DATE", help="When it was learnt. Default: now.")
@click.option("--valid-from", metavar="DATE", help="Since when it is true. Default: since --at.")
@click.option("--valid-to", metavar="DATE", help="Till when, that moment not included.")
@click.option("--lines", is_flag=True, help="Each line is a memory of its own.")
@memory_file
@as_json
def remember(
    text: tuple[str, ...],
    type: str,
    importance: float,
    tag: tuple[str, ...],
    meta: tuple[str, ...],
    namespace: str,
    id: str | None,
    at: str | None,
    valid_from: str | None,
    valid_to: str | None,
    lines: bool,
    db: Path | str,
    json: bool,
) -> None:
    """Keep a memory. What is known word for word is not kept twice.

    TEXT is one memory, with or without quotes; - reads it from standard input. The file is made if
    need be.

    Example: clew remember Ana is allergic to walnuts --importance 0.9 --tag health
    """
    if lines and id is not None:
        raise click.UsageError("--id is for one memory, not for --lines")
    whole = sys.stdin.read() if text == ("-",) else " ".join(text)
    contents = [each for each in whole.splitlines() if each.strip()] if lines else [whole]
    about = {
        "type": type,
        "importance": importance,
        "tags": tag,
        "metadata": pairs(meta, "--meta"),
        "namespace": namespace,
        "id": id,
        "created_at": moment(at, "--at"),
        "valid_from": moment(valid_from, "--valid-from"),
        "valid_to": moment(valid_to, "--valid-to"),
    }
    if not any(content.strip() for content in contents):
        raise InputError("there is nothing to remember: the text is empty")
    items = [{**about, "content": content} for content in contents]
    from clew.memory.arguments import make_record

    for item in items:  # before a file is made
        make_record(item, now=0.0)
    with (
        open_memory(db, create=True) as memory,
        render.progress(shown=lines and not json) as progress,
    ):
        made = memory.remember_many(items, progress=progress)
        if json:
            render.print_json({"memories": list(map(dict, made))} if lines else dict(made[0]))
        elif lines:
            counts = Counter(each.status for each in made)
            said = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
            render.say(f"{counted(len(made), *drawn.MEMORIES)}: {said}.")
        else:
            render.say(_SAID[made[0].status].format(drawn.short(made[0].id)))
        _warn(memory, made, db)


_SAID = {
    "created": "Remembered as {}.",
    "duplicate": "Known already, as {}.",
    "updated": "Known already, as {}; what is new beside its words was added.",
}


def _warn(memory: Memory, made: Sequence[Remembered], db: Path | str) -> None:
    """That a memory is found by its words alone is said, unless it was asked for."""
    model = memory.engine.config.model
    if model == "none" or all(each.embedded or each.status != "created" for each in made):
        return
    from clew.models import why_missing

    why = why_missing(model, base_url=memory.engine.config.model_url or None)
    again = f"then `clew reembed --db {shlex.quote(str(db))}`"
    print(f"clew: found by words only: {why or 'no vectors were made'}; {again}", file=sys.stderr)


@click.command(cls=WordsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-k", default=5, show_default=True, help="How many memories.")
@narrowing
@of_namespaces
@click.option("--recency", type=float, default=0.0, metavar="0…1", help="Newer ones count more.")
@click.option(
    "--importance-boost", type=float, default=0.0, metavar="0…1", help="Important ones count more."
)
@click.option(
    "--mmr", type=float, default=0.0, metavar="0…1", help="Variety: less of what is like the first."
)
@click.option("--rerank", is_flag=True, help="Read the head again with a cross-encoder (slower).")
@click.option(
    "--fusion",
    type=click.Choice(["adaptive", "convex", "dbsf", "rrf", "weighted_rrf"]),
    help="How the lists of words and of meaning become one.",
)
@click.option(
    "--floor",
    type=float,
    metavar="0…1",
    help="The chance of being relevant that a memory must have. Default: the setting floor.",
)
@memory_file
@as_json
@click.option("--explain", is_flag=True, help="Show what each list added, and where the time went.")
def recall(
    query: tuple[str, ...],
    limit: int,
    namespace: tuple[str, ...],
    recency: float,
    importance_boost: float,
    mmr: float,
    rerank: bool,
    fusion: str | None,
    floor: float | None,
    db: Path | str,
    json: bool,
    explain: bool,
    **narrowed: Any,
) -> None:
    """Find memories, by words and by meaning. Each that is found counts as used once more; what is
    off the topic is left out.

    Example: clew recall which nuts must be avoided --tag health --since 2026-01-01
    """
    words, scope = " ".join(query), _scope(**narrowed)
    if not json and sys.stdout.isatty():
        threading.Thread(target=render.prepare, daemon=True).start()
    with open_memory(db, first_query=words) as memory:
        found = memory.recall(
            words,
            k=limit,
            namespace=namespace or "default",
            recency_boost=recency,
            importance_boost=importance_boost,
            mmr=mmr,
            rerank=rerank,
            fusion=fusion,
            floor=floor,
            **scope,
        )
        notes = [] if found else _unmet(memory, namespace, scope["tags"])
        if json:
            data = {"results": [drawn.as_data(each) for each in found], **found.diagnostics}
            data |= {"notes": notes} if notes else {}
            render.print_json(data if found else {**data, "message": "nothing found"})
        else:
            answer.say(drawn.recalled(found, explain=explain, notes=notes))


def _unmet(memory: Memory, namespaces: Sequence[str], tags: Sequence[str] | None) -> list[str]:
    """Namespaces and tags that no memory in use has, and what there is instead."""
    from clew.memory.arguments import make_scope
    from clew.search.advice import unknown_namespaces, unmet

    said = unknown_namespaces(namespaces, memory.store)
    if tags and not said:
        within = make_scope(namespaces or "default")
        said = unmet(make_scope(None, tags=tags, active=None), within, memory.store, typed=False)
    return [note.text for note in said]


@click.command()
@click.option("--limit", "-k", default=5, show_default=True, help="How many memories.")
@of_type
@click.option("--tag", multiple=True, help="Has this tag; repeat for any of.")
@metadata
@of_namespaces
@memory_file
@as_json
def latest(
    limit: int,
    type: tuple[str, ...],
    tag: tuple[str, ...],
    meta: tuple[str, ...],
    namespace: tuple[str, ...],
    db: Path | str,
    json: bool,
) -> None:
    """The newest memories, however old they are: what a new conversation begins with."""
    with open_memory(db) as memory:
        found = memory.latest(
            limit,
            list(type) or None,
            namespace=namespace or "default",
            tags=tag or None,
            metadata=pairs(meta, "--meta") or None,
        )
    if json:
        render.print_json({"memories": [drawn.as_data(each) for each in found]})
    else:
        answer.say(drawn.shown(found))


@click.command()
@narrowing
@click.option("--namespace", multiple=True, help="Only of this one; repeat for several.")
@click.option("--ended", is_flag=True, help="Those that ended instead, when and why.")
@click.option("--limit", "-n", default=20, show_default=True, help="How many, newest first.")
@memory_file
@as_json
def memories(
    namespace: tuple[str, ...],
    ended: bool,
    limit: int,
    db: Path | str,
    json: bool,
    **narrowed: Any,
) -> None:
    """List memories in a table, newest first.

    Example: clew memories --type procedural --importance-min 0.8
    """
    if limit < 1:
        raise InputError(f"--limit must be a whole number from 1 on, not {limit}")
    wanted = _scope(**narrowed)
    if ended and wanted["as_of"] is not None:
        raise click.UsageError("--as-of asks what held then: leave out --ended")
    with open_memory(db) as memory:
        from clew.memory import Recalled
        from clew.memory.arguments import make_scope

        allowed = make_scope(namespace or None, active=not ended, **wanted)
        records = memory.store.select(allowed, limit=limit + 1, newest=True)
        lives = memory.store.lives([record.id for record in records])
        found = [Recalled.of(record, lives.get(record.id)) for record in records]
    shown, more = found[:limit], len(found) > limit
    if json:
        render.print_json({"memories": [drawn.as_data(each) for each in shown], "more": more})
        return
    if not shown:
        render.say("No memories." if not ended else "No memories that ended.")
        return
    several = len(namespace) != 1 and any(each.namespace != "default" for each in shown)
    drawn.table(shown, ended=ended, namespaces=several)
    if more:
        render.say(f"The newest {limit:,}; there are more: --limit, or a filter.")
