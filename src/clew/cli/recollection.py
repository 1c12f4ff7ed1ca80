"""Memories as people see them: lines with what is known of each, and a table.

What a memory says may come from anybody an agent has talked to. It is shown on one line of its own,
where it can neither steer a terminal nor look like a line of ours.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clew.cli import answer
from clew.cli.answer import INDENT, Line, line
from clew.cli.plain import one_line
from clew.errors import counted
from clew.types import Hit, SearchResult

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from clew.memory import Recalled, Recollection

__all__ = ["MEMORIES", "as_data", "day", "recalled", "short", "shown", "table", "told"]

LONGEST = 600
"""Characters that are shown of a memory where it is one of many."""
LEAST = 20
"""Columns that a memory has in a table, however narrow the terminal is."""
MEMORIES = "memory", "memories"
CUT = re.compile(r"[0-9a-f]{32}")


def short(id: str) -> str:
    """An id that was made up here is known by its beginning; commands take that, too."""
    return id[:8] if CUT.fullmatch(id) else one_line(id)


def day(seconds: float) -> str:
    """In local time, as everything that is typed. A moment no calendar has is shown as it is."""
    try:
        return dt.datetime.fromtimestamp(seconds).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"


def as_data(memory: Recalled) -> dict[str, Any]:
    """As plain data, ready for JSON."""
    return {**memory, "tags": list(memory.tags), "metadata": dict(memory.metadata)}


# ---------------------------------------------------------------------- lines


def recalled(found: Recollection, *, explain: bool, notes: Sequence[str] = ()) -> Iterator[Line]:
    """What was found, and how; `notes` are on what was asked for and is not there."""
    how = {"hybrid": "by words and meaning", "fts": "by words"}[found.diagnostics["search_type"]]
    result = _result(found)
    if explain:
        from clew.cli import explain as explaining
    listed = (
        [
            *_lines(memory, rank=rank),
            *(explaining.hit_lines(hit, result, score=True) if explain else ()),
        ]
        for rank, (memory, hit) in enumerate(zip(found, result, strict=True), 1)
    )
    yield from answer.listed(listed)
    if explain:
        yield from explaining.trace_lines(result)
        yield Line()
    yield from answer.after_hits([*notes, *result.degraded])
    if off := found.diagnostics["suppressed"]:
        left = f"{counted(off, *MEMORIES)} off the topic left out: --floor 0 shows"
        yield line((f"{left} {'it' if off == 1 else 'them'}", "yellow"))
    ms = result.trace.get("total_ms", 0)
    yield line((f"{counted(len(found), *MEMORIES)} {how} in {ms:.0f} ms", "dim"))


def _result(found: Recollection) -> SearchResult:
    """The same as a search's answer, for what explains those."""
    unranked = {"rank": 0, "score": 0.0}
    hits = (
        Hit(
            memory.id,
            memory.content,
            score=memory.score,
            rrf_score=memory.score,
            signals={name: {**unranked, **signal} for name, signal in memory.signals.items()},
        )
        for memory in found
    )
    diagnostics = found.diagnostics
    return SearchResult(
        tuple(hits), degraded=tuple(diagnostics["degraded"]), trace=diagnostics["trace"]
    )


def shown(memories: Sequence[Recalled], *, whole: bool = False) -> Iterator[Line]:
    """One after the other."""
    yield from answer.listed(_lines(m, rank=n, whole=whole) for n, m in enumerate(memories, 1))


def _lines(memory: Recalled, *, rank: int, whole: bool = False) -> list[Line]:
    text = one_line(memory.content)
    if not whole and len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({counted(len(memory.content), 'character')}, --json has all)"
    first = Line(((f"{rank:3}. ", "bold cyan"), (text, "bold")))
    return [first, line((told(memory), "dim"), indent=INDENT)]


def told(memory: Recalled) -> str:
    """What is known beside the text."""
    facts = [
        short(memory.id),
        memory.type,
        day(memory.created_at),
        f"importance {memory.importance:g}",
        *([f"since {day(memory.valid_from)}"] if memory.valid_from != memory.created_at else []),
        *([f"till {day(memory.valid_to)}"] if memory.valid_to is not None else []),
        *([memory.namespace] if memory.namespace != "default" else []),
        *([counted(memory.accesses, "use")] if memory.accesses else []),
        *(f"#{tag}" for tag in memory.tags),
        *(f"{key}={value}" for key, value in list(memory.metadata.items())[:5]),
    ]
    if memory.ended_at is not None:
        by = f" by {short(memory.successor)}" if memory.successor else ""
        facts.append(f"{memory.reason or 'ended'} {day(memory.ended_at)}{by}")
    return one_line(" · ".join(f"{fact:.200}" for fact in facts))


# ---------------------------------------------------------------------- a table


def table(memories: Iterable[Recalled], *, ended: bool, namespaces: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)

    def column(name: str, least: int, most: int | None = None, **options: Any) -> None:
        drawn.add_column(
            name, min_width=least, max_width=most, no_wrap=True, overflow="ellipsis", **options
        )

    # What a narrow terminal cuts first is the text: an id has to be whole to be of use.
    column("id", 8, 40)
    column("made", 10)
    column("type", 10)
    column("imp.", 4)
    column("uses", 4, justify="right")
    if namespaces:
        column("namespace", 9, 20)
    if ended:
        column("ended", 21)
    column("tags", 4, 20)
    column("memory", 10)
    rows = []
    for memory in memories:
        cells = [short(memory.id), day(memory.created_at), memory.type, f"{memory.importance:g}"]
        cells.append(f"{memory.accesses:,}")
        if namespaces:
            cells.append(one_line(memory.namespace))
        if ended:
            cells.append(f"{day(memory.ended_at or 0.0)} {one_line(memory.reason)}")
        cells += [one_line(" ".join(memory.tags)), _beginning(memory.content)]
        rows.append([Text(cell) for cell in cells])
        drawn.add_row(*rows[-1])
    _print_whole(drawn, rows)


def _beginning(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _print_whole(drawn: Table, rows: Sequence[Sequence[Text]]) -> None:
    """On a terminal the last column is cut, by "…", to what the others leave of the line; a pipe
    has lines of any length. So are they where that is too little: Rich would take from each column
    alike, till some are gone."""
    from clew.cli import render

    widths = []
    for column, cells in zip(drawn.columns, zip(*rows, strict=True), strict=True):
        most = max(cell.cell_len for cell in cells)
        widths.append(max(column.min_width or 0, min(most, column.max_width or most)))
    out, gaps = render.console(), 2 * (len(widths) - 1)
    room = max(out.width - sum(widths[:-1]) - gaps, LEAST) if out.is_terminal else widths[-1]
    drawn.columns[-1].max_width = room
    out.width = max(out.width, sum(widths[:-1]) + gaps + min(room, widths[-1]))
    out.print(drawn)
