"""clew remember, recall, latest, memories, history: what an agent keeps, and how it comes back.

What a memory says may come from anybody an agent has talked to. It is shown on one line of its own,
where it can neither steer a terminal nor look like a line of ours.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from clew.cli import options, terminal
from clew.cli.terminal import CommandOutput, ReportCommand, ReportWordsCommand
from clew.cli.view import AnswerView, HitView, clean, cut, one_line
from clew.errors import InputError, counted
from clew.filter import Filter
from clew.storage import is_url
from clew.types import FusionName, Hit, MemoryType
from clew.validate import check_whole

if TYPE_CHECKING:
    from clew.memory import Memory, Recalled, Recollection

LONGEST_MEMORY = 600
"""Characters that are shown of a memory where it is one of many."""
LEAST_COLUMN = 20
"""Columns that a memory has in a table, however narrow the terminal is."""
SHORTEST_ID = 4
"""Characters of an id's beginning that are enough, where no other begins with them."""

with_type = click.option(
    "--type",
    "-t",
    "type_filter",
    type=click.Choice(get_args(MemoryType)),
    multiple=True,
    help="Of this type.",
)
with_tag = click.option("--tag", "tags", multiple=True, help="Has this tag; repeat for any of.")
with_metadata = options.metadata_filter("Metadata, as turn=7; repeat for any of its values.")
of_namespaces = click.option(
    "--namespace", multiple=True, help="Whose memories; repeat for several. Default: default."
)
in_namespace = click.option("--namespace", help="Only if it is in this one.")
at_most = click.option("--limit", "-k", default=5, show_default=True, help="How many memories.")


def count_memories(number: int) -> str:
    return counted(number, "memory", "memories")


def narrowing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `recall` and `memories` that say which memories are meant."""
    for option in (
        options.date_option("--as-of", "as_of", "What held then, ended since or not.", end=True),
        options.date_option(
            "--until", "until", "Made then or before; a day counts whole.", end=True
        ),
        options.date_option("--since", "since", "Made then or after."),
        click.option("--importance-min", type=float, metavar="0…1", help="At least so important."),
        with_metadata,
        with_tag,
        with_type,
    ):
        command = option(command)
    return command


def _scope(since: float | None, until: float | None, **given: Any) -> dict[str, Any]:
    empty: tuple[Any, ...] = ((), {})
    wanted = {name: None if value in empty else value for name, value in given.items()}
    return {"time_range": (since, until), **wanted}


# ---------------------------------------------------------------------- commands


@click.command(cls=ReportWordsCommand)
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--type",
    "-t",
    type=click.Choice(get_args(MemoryType)),
    default="semantic",
    show_default=True,
    help="A fact, something that happened, or how something is done.",
)
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@click.option("--tag", "tags", multiple=True, help="Repeat for several.")
@options.pairs_option("--meta", "metadata", "Metadata, as turn=7; repeat for several keys.")
@click.option("--namespace", default="default", show_default=True, help="Whose memory it is.")
@click.option("--id", help="Its name. Default: one is made up.")
@options.date_option("--at", "created_at", "When it was learnt. Default: now.")
@options.date_option("--valid-from", "valid_from", "Since when it is true. Default: since --at.")
@options.date_option("--valid-to", "valid_to", "Till when, that moment not included.")
@click.option("--lines", is_flag=True, help="Each line is a memory of its own.")
@options.memory_file
def remember(text: tuple[str, ...], lines: bool, db: Path | str, **about: Any) -> CommandOutput:
    """Keep a memory. What is known word for word is not kept twice.

    TEXT is one memory, with or without quotes; - reads it from standard input. The file is made if
    need be.

    Example: clew remember Ana is allergic to walnuts --importance 0.9 --tag health
    """
    if lines and about["id"] is not None:
        raise click.UsageError("--id is for one memory, not for --lines")
    whole = "".join(options.read_input()) if text == ("-",) else " ".join(text)
    contents = [each for each in whole.split("\n") if each.strip()] if lines else [whole]
    if not any(content.strip() for content in contents):
        raise InputError("there is nothing to remember: the text is empty")
    items = [{**about, "content": content} for content in contents]
    from clew.memory.record import make_record

    for item in items:  # before a file is made
        make_record(item, now=0.0)
    new = not is_url(db) and not Path(db).expanduser().exists()
    with (
        options.open_memory(db, create=True) as memory,
        terminal.show_progress(shown=lines) as progress,
    ):
        made = memory.remember_many(items, progress=progress)
        config = memory.engine.config
    embedded = all(each.embedded or each.status != "created" for each in made)
    if not embedded and config.model != "none":  # unless it was asked for
        from clew.models import why_missing

        why = why_missing(config.model, base_url=config.model_url or None) or "no vectors were made"
        again = f"then `clew reembed --db {clean(shlex.quote(options.show_memory(db)))}`"
        print(f"clew: found by words only: {why}; {again}", file=sys.stderr)
    if new:
        file = Path(db).expanduser().absolute()
        print(
            f"clew: {clean(str(file))} was begun: --db or $CLEW_MEMORY names another",
            file=sys.stderr,
        )
    if not lines:
        return dict(made[0]), [_STATUSES[made[0].status].format(shorten_id(made[0].id))]
    counts = Counter(each.status for each in made)
    said = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
    data = {"memories": list(map(dict, made))}
    return data, [f"{count_memories(len(made))}: {said}."]


_STATUSES = {
    "created": "Remembered as {}.",
    "duplicate": "Known already, as {}.",
    "updated": "Known already, as {}; what is new beside its words was added.",
}


@click.command(cls=ReportWordsCommand)
@click.argument("query", nargs=-1, required=True)
@at_most
@narrowing
@of_namespaces
@click.option(
    "--recency", "recency_boost", default=0.0, metavar="0…1", help="Newer ones count more."
)
@click.option("--importance-boost", default=0.0, metavar="0…1", help="Important ones count more.")
@click.option(
    "--mmr", type=float, default=0.0, metavar="0…1", help="Variety: less of what is like the first."
)
@options.rerank_option
@click.option(
    "--fusion",
    type=click.Choice(get_args(FusionName)),
    help="How the lists of words and of meaning become one.",
)
@click.option(
    "--floor",
    type=float,
    metavar="0…1",
    help="The chance of being relevant that a memory must have. Default: the setting floor.",
)
@options.memory_file
@click.option("--explain", is_flag=True, help="Show what each list added, and where the time went.")
def recall(
    query: tuple[str, ...],
    limit: int,
    namespace: tuple[str, ...],
    db: Path | str,
    explain: bool,
    **chosen: Any,
) -> CommandOutput:
    """Find memories, by words and by meaning. Each that is found counts as used once more; what is
    off the topic is left out.

    Example: clew recall which nuts must be avoided --tag health --since 2026-01-01
    """
    asked = {"query": query, "limit": limit, "namespace": namespace, **chosen}
    terminal.preload()
    with options.open_memory(db, first_query=" ".join(query)) as memory:
        data, shown = answer_recall(memory, **asked)
    return data, lambda: terminal.print_view(shown, explain=explain)


def answer_recall(
    memory: Memory,
    query: tuple[str, ...],
    limit: int,
    namespace: tuple[str, ...],
    **chosen: Any,
) -> tuple[dict[str, Any], AnswerView]:
    """What was found, as data and as it is shown."""
    wanted = _scope(**chosen)
    found = memory.recall(" ".join(query), k=limit, namespace=namespace or "default", **wanted)
    notes = [] if found else _explain(memory, namespace, wanted)
    return found.to_dict(notes), view_recollection(found, notes)


def _explain(
    memory: Memory, namespace: Sequence[str] | None, wanted: Mapping[str, Any]
) -> list[str]:
    return memory.explain_absence(namespace, wanted["tags"], wanted["metadata"])


@click.command(cls=ReportCommand)
@at_most
@with_type
@with_tag
@with_metadata
@of_namespaces
@options.memory_file
def latest(
    limit: int, namespace: tuple[str, ...], db: Path | str, **narrowed: Any
) -> CommandOutput:
    """The newest memories, however old they are: what a new conversation begins with."""
    wanted = {name: value or None for name, value in narrowed.items()}
    types = wanted.pop("type_filter")
    with options.open_memory(db) as memory:
        found = memory.latest(limit, types, namespace=namespace or "default", **wanted)
        notes = [] if found else _explain(memory, namespace, wanted)
    return _show_memories(found, notes)


@click.command(cls=ReportCommand)
@click.argument("id")
@in_namespace
@options.memory_file
def history(id: str, namespace: str | None, db: Path | str) -> CommandOutput:
    """A memory, whole, and those it took the place of, newest first."""
    with options.open_memory(db) as memory:
        name, space = find_memory(memory, id, namespace)
        found = memory.history(name, namespace=space)
    return _show_memories(found, whole=True)


@click.command(cls=ReportCommand)
@narrowing
@click.option("--namespace", multiple=True, help="Only of this one; repeat for several.")
@click.option("--ended", is_flag=True, help="Those that ended instead, when and why.")
@click.option("--limit", "-n", default=20, show_default=True, help="How many, newest first.")
@options.memory_file
def memories(
    namespace: tuple[str, ...], ended: bool, limit: int, db: Path | str, **narrowed: Any
) -> CommandOutput:
    """List memories in a table, newest first.

    Example: clew memories --type procedural --importance-min 0.8
    """
    check_whole("--limit", limit)
    wanted = _scope(**narrowed)
    if ended and wanted["as_of"] is not None:
        raise click.UsageError("--as-of asks what held then: leave out --ended")
    with options.open_memory(db) as memory:
        from clew.memory.record import make_scope

        allowed = make_scope(namespace or None, active=not ended, **wanted)
        shown, more = memory.list_newest(allowed, limit=limit)
        notes = [] if shown or ended else _explain(memory, namespace or None, wanted)
    data = {"memories": [each.to_dict() for each in shown], "more": more}
    data |= {"notes": notes} if notes else {}
    if not shown:
        none = "No memories." if not ended else "No memories that ended."
        return data, [none, *(f"! {note}" for note in notes)]

    def draw() -> None:
        several = len(namespace) != 1 and any(each.namespace != "default" for each in shown)
        _print_table(shown, ended=ended, namespaces=several)
        if more:
            print(f"The newest {limit:,}; there are more: --limit, or a filter.")

    return data, draw


# ---------------------------------------------------------------------- ids


def find_memory(memory: Memory, given: str, namespace: str | None) -> tuple[str, str]:
    """The id and the namespace of the memory that is meant, by its id or by the beginning of it."""
    from clew.memory.record import check_id, check_namespace, find_records, public_id, unknown_id

    namespace = None if namespace is None else check_namespace(namespace)
    found = find_records(memory.store, [check_id(given)], namespace)
    if not found and len(given) >= SHORTEST_ID:
        near = memory.store.select(Filter(collection=namespace or ()), limit=2, after=given)
        found = [record for record in near if record.id.startswith(given)]
    if len(found) > 1:
        raise InputError(f"several ids begin with {given!r}: give more of it, as --json shows it")
    if not found:
        raise unknown_id(memory.store, given, namespace)
    return public_id(found[0].id, found[0].collection), found[0].collection


def shorten_id(id: str) -> str:
    """An id that was made up here is known by its beginning; commands take that, too."""
    return id[:8] if re.fullmatch(r"[0-9a-f]{32}", id) else one_line(id)


# ---------------------------------------------------------------------- what is shown


def _show_memories(
    found: Sequence[Recalled], notes: Sequence[str] = (), *, whole: bool = False
) -> CommandOutput:
    shown = tuple(view_memory(memory, whole=whole) for memory in found)
    view = AnswerView(shown, summary="", notes=tuple(notes))
    data: dict[str, Any] = {"memories": [each.to_dict() for each in found]}
    data |= {"notes": list(notes)} if notes else {}
    return data, lambda: terminal.print_view(view)


def view_recollection(found: Recollection, notes: Sequence[str]) -> AnswerView:
    """What was found, and how; `notes` are on what was asked for and is not there."""
    about = found.diagnostics
    how = {"hybrid": "by words and meaning", "fts": "by words"}[about["search_type"]]
    left_out = ""
    if off := about["suppressed"]:
        them = "it" if off == 1 else "them"
        left_out = f"{count_memories(off)} off the topic left out: --floor 0 shows {them}"
    ms = about["trace"].get("total_ms", 0)
    return AnswerView(
        hits=tuple(view_memory(memory) for memory in found),
        summary=f"{count_memories(len(found))} {how} in {ms:.0f} ms",
        notes=(*notes, *about["degraded"]),
        held_back=left_out,
        trace=about["trace"],
    )


def view_memory(memory: Recalled, *, whole: bool = False) -> HitView:
    text = one_line(memory.content)
    if not whole and len(text) > LONGEST_MEMORY:
        size = counted(len(memory.content), "character")
        text = f"{cut(text, LONGEST_MEMORY)} ({size}, --json has all)"
    score = memory.score
    hit = Hit(memory.id, "", score, rrf_score=score, title=text, signals=memory.signals)
    return HitView(hit, ((describe_memory(memory), "dim"),))


def describe_memory(memory: Recalled) -> str:
    facts = [
        shorten_id(memory.id),
        memory.type,
        _day(memory.created_at),
        f"importance {memory.importance:g}",
        *([f"since {_day(memory.valid_from)}"] if memory.valid_from != memory.created_at else []),
        *([f"till {_day(memory.valid_to)}"] if memory.valid_to is not None else []),
        *([memory.namespace] if memory.namespace != "default" else []),
        *([counted(memory.accesses, "use")] if memory.accesses else []),
        *(f"#{tag}" for tag in memory.tags),
        *(f"{key}={value}" for key, value in list(memory.metadata.items())[:5]),
    ]
    if memory.ended_at is not None:
        by = f" by {shorten_id(memory.successor)}" if memory.successor else ""
        facts.append(f"{memory.reason or 'ended'} {_day(memory.ended_at)}{by}")
    return one_line(" · ".join(f"{fact:.200}" for fact in facts))


def _day(seconds: float) -> str:
    """The day in local time, as all that is typed. A moment no calendar has is shown as it is."""
    try:
        return dt.datetime.fromtimestamp(seconds).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"


def _print_table(memories: Sequence[Recalled], *, ended: bool, namespaces: bool) -> None:
    """What a narrow terminal cuts first is the text: an id has to be whole to be of use. A pipe has
    lines of any length. So has a terminal that leaves too little: Rich would take from each column
    alike, till some are gone."""
    from rich.cells import cell_len
    from rich.table import Table

    columns: dict[str, tuple[int, int | None, list[str]]] = {
        "id": (8, 40, [shorten_id(memory.id) for memory in memories]),
        "made": (10, None, [_day(memory.created_at) for memory in memories]),
        "type": (10, None, [memory.type for memory in memories]),
        "imp.": (4, None, [f"{memory.importance:g}" for memory in memories]),
        "uses": (4, None, [f"{memory.accesses:,}" for memory in memories]),
    }
    if namespaces:
        columns["namespace"] = (9, 20, [one_line(memory.namespace) for memory in memories])
    if ended:
        when = [f"{_day(m.ended_at or 0.0)} {one_line(m.reason)}" for m in memories]
        columns["ended"] = (21, None, when)
    columns["tags"] = (4, 20, [one_line(" ".join(memory.tags)) for memory in memories])
    columns["memory"] = (10, None, [cut(one_line(m.content), LONGEST_MEMORY) for m in memories])
    out, table, taken = terminal.console(), Table(box=None, pad_edge=False), -2
    for name, (least, most, cells) in columns.items():
        longest = max(cell_len(cell) for cell in cells)
        width = max(least, min(longest, most or longest))
        side: Any = "right" if name == "uses" else "left"
        table.add_column(name, no_wrap=True, min_width=least, max_width=most, justify=side)
        taken += width + 2
    for row in zip(*(cells for _, _, cells in columns.values()), strict=True):
        table.add_row(*row)
    taken -= width
    room = max(out.width - taken, LEAST_COLUMN) if out.is_terminal else width
    table.columns[-1].max_width = room
    out.width = max(out.width, taken + min(room, width))
    out.print(table)
