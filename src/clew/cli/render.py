"""What people see: results, reports, tables and progress, drawn with Rich."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew import config as settings
from clew.cli.plain import clean
from clew.errors import ConfigError, counted
from clew.protocols import Progress
from clew.types import Record

if TYPE_CHECKING:
    from rich.console import Console

    from clew.cli.answer import Line
    from clew.engine import Engine
    from clew.ingest.sync import IndexReport


def prepare() -> None:
    """Import what drawing needs while something else is being waited for."""
    import rich.console
    import rich.padding
    import rich.text  # noqa: F401


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def print_json(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=not _takes_unicode(), indent=2, default=str)
    # JSON lets these stand for themselves, but a terminal obeys some and UTF-8 has no others.
    print(re.sub(r"[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def say(text: str) -> None:
    print(text)


# ---------------------------------------------------------------------- search


def draw(lines: Iterable[Line], *, out: Console | None = None) -> None:
    """In colour, wrapped to the terminal below where a line begins."""
    from rich.padding import Padding
    from rich.text import Text

    out = out or console()
    for line in lines:
        text = Text.assemble(*line.pieces)
        drawn = Padding(text, (0, 0, 0, line.indent), expand=False) if line.indent else text
        out.print(drawn, no_wrap=not line.wraps, overflow="fold" if line.wraps else "ellipsis")


def record(found: Record, *, as_json: bool) -> None:
    if as_json:
        print_json({name: getattr(found, name) for name in found.__slots__})
        return
    from rich.text import Text

    out = console()
    out.print(Text(found.title or found.id, style="bold"))
    facts = [found.id, found.type, *(f"#{tag}" for tag in found.tags)]
    out.print(Text(" · ".join(facts), style="dim"))
    # A terminal obeys what a document may hold; a pipe gets it as it is.
    safe = sys.stdout.isatty()
    print("\n".join(map(clean, found.content.split("\n"))) if safe else found.content)


# ---------------------------------------------------------------------- index


@contextmanager
def progress(*, shown: bool) -> Iterator[Progress | None]:
    """A bar per stage, with rate and time left; on standard error, and only for people."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None, rate="")
            task = tasks[stage]
            speed = bars.tasks[task].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            bars.update(task, completed=done, total=total or None, rate=rate)

        yield tell


def _named_store(engine: Engine) -> str:
    """The option by which a command from here finds this store; "" where it does without."""
    import os
    import shlex

    from clew.engine import find_root

    root, found = engine.root, find_root()
    if root is None or (found is not None and found.samefile(root)):
        return ""
    try:
        short = min(os.path.relpath(root), str(root.absolute()), key=len)
    except ValueError:  # on another drive
        short = str(root.absolute())
    return f"--store {shlex.quote(short)} "


def report(done: IndexReport, engine: Engine) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("added", "changed", "moved", "removed"):
        table.add_row(name, f"{len(getattr(done, name)):,}")
    table.add_row("unchanged", f"{done.unchanged:,}")
    table.add_row("skipped", f"{len(done.skipped):,}")
    if done.rows:
        table.add_row("rows", f"{done.rows:,}, each a record of its own")
    table.add_row("embedded", counted(done.embedded, "passage"))
    if done.unread:
        kinds = sorted(done.unread.items(), key=lambda kind: (-kind[1], kind[0]))
        named = ", ".join(f"{suffix} {count:,}" for suffix, count in kinds[:8])
        table.add_row("not text", named + (" …" if len(kinds) > 8 else ""))
    out.print(table)
    for title, rows, style in (
        ("skipped", done.skipped, "yellow"),
        ("warning", done.warnings, "dim"),
    ):
        for path, why in rows[:10]:
            out.print(Text(f"{title}: {path}: {why}", style=style), overflow="fold")
        if len(rows) > 10:
            out.print(Text(f"… and {len(rows) - 10} more; --json lists all", style=style))
    for note in done.notes:
        out.print(Text(f"! {note}", style="yellow"))
    seconds = ", ".join(f"{stage} {s:.1f} s" for stage, s in done.seconds.items())
    where = _named_store(engine)
    next_step = "" if done.empty else f" · search it with: clew search {where}WORDS"
    out.print(Text(seconds + next_step, style="dim"))


# ---------------------------------------------------------------------- upkeep


def status(figures: Mapping[str, Any]) -> None:
    from rich.table import Table

    def grouped(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "–"

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan")
    table.add_column(overflow="fold")
    table.add_row("folder", str(figures["root"]))
    table.add_row("records", f"{figures['records']:,} in {counted(figures['chunks'], 'passage')}")
    table.add_row("collections", grouped(figures["collections"]))
    table.add_row("types", grouped(figures["types"]))
    ready = "" if figures["ready"] else f" (keyword search only: {figures['why_not']})"
    table.add_row("model", f"{figures['model']}{ready}")
    table.add_row("embedded", f"{figures['embedded']:.1%} of passages")
    if figures["other_models"]:
        others = grouped(figures["other_models"])
        table.add_row("other models", f"{others}; not searched: run clew reembed")
    vectors = figures["vectors"]
    stage = f"{vectors['stage']}, {counted(vectors['rows'], 'row')}"
    if "lists" in vectors:
        stage += f", {vectors['probes']} of {vectors['lists']} lists probed"
    if "recall" in vectors:
        stage += f", recall@10 {vectors['recall']:.3f} (measured)"
    table.add_row("vector index", stage)
    table.add_row("graph", _graph(figures["graph"]))
    if figures.get("tree"):
        table.add_row("tree", _tree(figures["tree"]))
    table.add_row("generation", f"{figures['generation']:,}")
    table.add_row("on disk", ", ".join(f"{k} {_bytes(v)}" for k, v in figures["bytes"].items()))
    console().print(table)


def _graph(state: Mapping[str, Any]) -> str:
    if not state["built"]:
        return state["problem"] or "none: clew graph build"
    late = state["behind"]
    behind = "up to date" if late == 0 else "behind: clew graph build"
    if late:
        behind = f"{counted(late, 'record')} {behind}"
    sizes = f"{counted(state['entities'], 'entity', 'entities')}, {counted(state['links'], 'link')}"
    return f"{sizes}, of generation {state['generation']:,}, {behind}"


def _tree(figures: Mapping[str, Any]) -> str:
    if "problem" in figures:
        return str(figures["problem"])
    said = f"{counted(figures['nodes'], 'node')} over {counted(figures['leaves'], 'record')}"
    said += f", {figures['stale_summaries']:,} summaries stale"
    for name in ("masked", "unplaced", "waiting"):
        said += f", {figures[name]:,} {name}" if figures[name] else ""
    return said


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def findings(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.text import Text

    out = console()
    for row in rows:
        mark, style = ("✓", "green") if row["ok"] else ("✗", "bold red")
        out.print(Text(f"{mark} {row['check']}", style=style))
        if row["advice"]:
            out.print(Text(f"    {row['advice']}"), overflow="fold")
    bad = sum(not row["ok"] for row in rows)
    out.print("All is well." if not bad else f"{bad} of {counted(len(rows), 'check')} failed.")


def models(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("model", "here", "task", "dim", "MB", "licence", "about"):
        table.add_column(column)
    for row in rows:
        here = "yes" if row["installed"] else "–"
        numbers = (str(row["dim"] or "–"), f"{row['mb']:.0f}")
        table.add_row(row["id"], here, row["task"], *numbers, row["licence"], row["about"])
    console().print(table)


def sources(states: Sequence[Mapping[str, Any]], profile: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"Profile {profile}", title_justify="left", box=None, pad_edge=False)
    for column in ("source", "kind", "weight", "state", "last ms", "error"):
        table.add_column(column, justify="right" if column in ("weight", "last ms") else "left")
    for state in states:
        ms = "–" if state["ms"] is None else f"{state['ms']:.1f}"
        error = Text(state["problem"] or "", style="yellow")
        kind = "" if state["kind"] == state["name"] else state["kind"]
        table.add_row(state["name"], kind, f"{state['weight']:g}", state["state"], ms, error)
    console().print(table)


def config(now: settings.Config, origins: Mapping[str, str]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("setting", "value", "from", "what it is for"):
        table.add_column(column)
    for setting in settings.all_settings():
        value = getattr(now, setting.name)
        origin = origins.get(setting.name, "default")
        table.add_row(setting.name, str(value), origin, setting.metadata["about"])
    console().print(table)


def settings_template(profile: str = "default") -> str:
    """A clew.toml in which every setting stands with its default, commented out."""
    import tomlkit

    lines = ["# Settings of this folder's Clew store. Take away a # to change one.", ""]
    if profile != "default":
        lines += [f'profile = "{profile}"', ""]
    for setting in settings.all_settings():
        if setting.default is MISSING:
            continue  # a table: those have to come last
        lines.append(f"# {setting.metadata['about']}")
        lines.append(f"# {setting.name} = {tomlkit.item(setting.default).as_string()}")
        lines.append("")
    return "\n".join(lines) + TABLES


TABLES = """\
# What a source counts, over what the profile says (`clew sources` lists them).
# [weights]
# keyword = 1.0

# More of a source: off, slower, of another kind, with options of its own.
# [sources.tags]
# enabled = false

# Collection = folders. Run `clew index` after a change.
# [collections]
# journal = ["journal/"]

# What is personal is found only with --include-personal.
# [domains]
# personal = ["diary/"]
"""


def write_setting(root: Path, key: str, value: str | None) -> None:
    """Change one line of clew.toml and leave the rest as it was written."""
    import tomlkit

    checked = settings.about(key) if value is None else settings.coerce(key, value, "clew.toml")
    file = root / settings.FILE_NAME
    try:
        document = tomlkit.parse(file.read_text("utf-8")) if file.exists() else tomlkit.document()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}; correct it or delete it") from error
    if value is None:
        document.pop(key, None)
    else:
        document[key] = checked
    file.write_text(tomlkit.dumps(document), "utf-8")
