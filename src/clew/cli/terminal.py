"""Print to a terminal or a pipe: answers as lines of text, tables, progress, JSON.

A terminal gets lines in colour, by Rich; a pipe gets their text without it, since importing Rich
takes as long as a search.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import click

from clew.cli import view
from clew.cli.options import WordsCommand
from clew.cli.view import INDENT, AnswerView, HitView, Line, cut, line, one_line
from clew.errors import counted
from clew.protocols import Progress
from clew.validate import escape_unprintable

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, OverflowMethod, RenderableType
    from rich.text import Text

Form = Literal["clew", "athena", "json"]
CONFIDENCE = {"HIGH": "bold green", "MED": "yellow", "LOW": "dim"}
SCORE_NOTE = (
    "Scores ({kind}) compare hits of this answer and nothing else; how far one may be trusted is "
    "HIGH, MED or LOW, by its chance of being relevant."
)
LONGEST_QUERY = 200
"""What is repeated of a query, in characters."""
SHOWN_NODES = 5
"""Nodes of a slate that are named, the best first."""
BAR = 24
"""Columns of a bar of text."""
EIGHTHS = " ▏▎▍▌▋▊▉█"
PIPE_WIDTH = 1000
"""Columns of what is no terminal: nothing is cut or broken for a program."""
TELL_EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


# ---------------------------------------------------------------------- print


def preload() -> None:
    """Import what drawing on a terminal needs while something else is being waited for."""

    def load() -> None:
        import rich.console
        import rich.padding
        import rich.text  # noqa: F401

    if sys.stdout.isatty():
        threading.Thread(target=load, daemon=True).start()


def console(**options: Any) -> Console:
    """Texts of anybody go through it, so nothing in them is markup, and nothing is obeyed.
    `options` are Rich's."""
    from rich.console import Console

    if not (sys.stdout.isatty() or "file" in options or "COLUMNS" in os.environ):
        options.setdefault("width", PIPE_WIDTH)

    class CleanConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(view.clean_lines(text), **options)

    return CleanConsole(highlight=False, markup=False, emoji=False, **options)


def print_json(data: Any) -> None:
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    print(dump_json(data, unicode=unicode))


def dump_json(data: Any, *, unicode: bool = True) -> str:
    return escape_unprintable(json.dumps(data, ensure_ascii=not unicode, indent=2, default=str))


CommandLines = Iterable[str] | Callable[[], None]
CommandOutput = tuple[Any, CommandLines] | tuple[Any, CommandLines, bool]
"""What a command did: data for programs, lines for people, or what draws them, and whether the
command has failed."""


class ReportCommand(click.Command):
    """A command with the option --json, whose outcome is printed."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.params.append(click.Option(["--json"], is_flag=True, help="Print JSON for programs."))

    def invoke(self, ctx: click.Context) -> None:
        as_json = ctx.meta["json"] = ctx.params.pop("json")
        outcome: CommandOutput | None = super().invoke(ctx)
        if outcome is None:
            return
        data, said, *failed = outcome
        if as_json:
            print_json(data)
        elif callable(said):
            said()
        else:
            for text in said:
                print(view.clean_lines(text))
        if any(failed):
            raise SystemExit(1)


class ReportWordsCommand(ReportCommand, WordsCommand):
    """The same with words that may begin with a hyphen."""


def print_view(answer: AnswerView, *, form: Form = "clew", explain: bool = False) -> None:
    """Print an answer, in colour on a terminal, else as plain text."""
    lines = answer_lines(answer, form=form, explain=explain)
    if sys.stdout.isatty():
        draw(lines)
        return
    text = "\n".join(each.text for each in lines)
    try:
        print(text)
    except UnicodeEncodeError:  # a pipe that cannot take every character gets the others
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "replace").decode(encoding))


def draw(lines: Iterable[Line], *, out: Console | None = None) -> None:
    """Draw lines in colour, wrapped to the terminal below where each begins."""
    from rich.padding import Padding
    from rich.text import Text

    out = out or console()
    for each in lines:
        text = Text.assemble(*each.pieces)
        drawn = Padding(text, (0, 0, 0, each.indent), expand=False) if each.indent else text
        out.print(drawn, no_wrap=not each.wraps, overflow="fold" if each.wraps else "ellipsis")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    right: Collection[str] = (),
    header: bool = True,
    title: str | None = None,
    styles: Sequence[str] = (),
    fold: bool = False,
    gap: int = 2,
    out: Console | None = None,
) -> None:
    """A table without lines. Columns on the `right` are of numbers; `styles` are those of the
    columns, from the first on."""
    from rich.table import Table

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, gap - 1),
        show_header=header,
        title=title,
        title_justify="left",
    )
    for name, style in zip_longest(columns, styles, fillvalue=""):
        side: JustifyMethod = "right" if name in right else "left"
        overflow: OverflowMethod = "fold" if fold else "ellipsis"
        table.add_column(name, justify=side, style=style, overflow=overflow, no_wrap=name in right)
    for row in rows:
        table.add_row(*row)
    out = out or console()
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:  # the last column is as wide as its longest cell
        out.print(table)
    out.file.write("".join(f"{text.rstrip()}\n" for text in captured.get().splitlines()))


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on with what can be undone: programs and who says so are not asked."""
    return yes or click.get_current_context().meta["json"] or click.confirm(question)


@contextmanager
def show_progress(*, shown: bool = True) -> Iterator[Progress | None]:
    """A bar per stage, with rate and time left, on standard error; where that is no terminal, a
    line now and then of what takes long. Programs get nothing."""
    if not shown or _is_for_programs():
        yield None
        return
    if not sys.stderr.isatty():
        yield _tell_lines()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description:<16}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(compact=True),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None, rate="")
            task = tasks[stage]
            speed = bars.tasks[task].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            bars.update(task, completed=done, total=total or None, rate=rate)

        yield tell


def show_waiting(text: str) -> AbstractContextManager[object]:
    """Something that moves, for people, while nobody can say how far it is."""
    if not sys.stderr.isatty() or _is_for_programs():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def _is_for_programs() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get("json"))


def _tell_lines() -> Progress:
    told = time.monotonic()

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY:
            told = time.monotonic()
            of = f" of {total:,}" if total else ""
            print(f"{stage}: {done:,}{of}", file=sys.stderr, flush=True)

    return tell


# ---------------------------------------------------------------------- an answer as lines


def answer_lines(
    answer: AnswerView, *, form: Form = "clew", explain: bool = False
) -> Iterator[Line]:
    """What there is to say: the hits, and how they came about.

    Athena's form is a heading, and a block of hits between tags that tell an agent what was found.
    """
    athena = form == "athena"
    if athena:
        query = f'"{cut(one_line(answer.query), LONGEST_QUERY)}"'
        yield line(("🔍 SMART SEARCH ", "bold"), (f"({answer.how}): ", "dim"), (query, "bold"))
        yield line(("=" * 60, "dim"))
        yield Line()
    yield from answer.before
    if athena:
        yield Line(((f"<{view.BLOCK}>", "dim"),))
        yield Line()
    if not answer.hits:
        yield line(("Nothing found.", ""))
        yield Line()
    elif athena:
        yield line((f"🏆 TOP {counted(len(answer.hits), 'result').upper()}:", "bold"))
        yield Line()
    for rank, hit in enumerate(answer.hits, 1):
        yield from athena_hit_lines(rank, hit) if athena else hit_lines(rank, hit)
        yield from hit.more
        if explain:
            yield from why_lines(hit, answer.heaviest, score=not athena)
        yield Line()
    if athena:
        yield Line(((f"</{view.BLOCK}>", "dim"),))
        yield Line()
    if explain and not athena and answer.score_kind:
        yield line((SCORE_NOTE.format(kind=answer.score_kind), "dim"))
        yield Line()
    if explain and (answer.after or answer.trace is not None):
        yield from answer.after or trace_lines(answer)
        yield Line()
    yield from (line((f"! {note}", "yellow")) for note in answer.notes)
    if answer.held_back:
        yield line((answer.held_back, "yellow"))
    if answer.summary:
        yield line((answer.summary, "dim"))


def hit_lines(rank: int, shown: HitView) -> Iterator[Line]:
    hit = shown.hit
    pieces = [(f"{rank:3}. ", "bold cyan"), (shown.title, "bold")]
    if shown.heading:
        pieces.append((f" › {shown.heading}", "dim"))
    if hit.confidence:
        pieces.append((f"  [{hit.confidence}]", CONFIDENCE.get(hit.confidence, "")))
    if hit.metadata.get("stale") is True:
        pieces.append(("  changed since it was indexed", "yellow"))
    yield line(*pieces)
    yield line(*shown.where, indent=INDENT)
    yield from (Line(pieces, INDENT) for pieces in view.mark_lines(hit))


def athena_hit_lines(rank: int, shown: HitView) -> Iterator[Line]:
    hit = shown.hit
    pieces = [(f"{rank:3}. ", "bold cyan")]
    if hit.confidence:
        pieces.append((f"[{hit.confidence}] ", CONFIDENCE.get(hit.confidence, "")))
    if shown.parts:
        pieces.append((f"[RRF:{hit.rrf_score:.4f}] ", "magenta"))
        if shown.reranked or hit.score != hit.rrf_score:
            name = "RERANKED" if shown.reranked else "SCORE"
            pieces.append((f"[{name}:{hit.score:.4f}] ", "magenta"))
    pieces.append((shown.title, "bold"))
    if shown.heading:
        pieces.append((f"  › {shown.heading}", "dim"))
    yield line(*pieces)
    yield line(("📁 ", ""), (view.place_of(hit), "green"), indent=INDENT)
    if words := tuple(view.mark_words(hit)):
        yield Line(words, INDENT)


def why_lines(shown: HitView, heaviest: float, *, score: bool) -> Iterator[Line]:
    """Rank, score, weight and contribution of every source, and the sum; and, with `score`, what is
    to be thought of it."""
    hit, parts = shown.hit, shown.parts
    if not parts:
        return
    if score:
        sure = "" if hit.chance is None else f" · relevant with a chance of {hit.chance:.2f}"
        yield Line(((f"score {hit.score:.4f}{sure}", "dim"),), INDENT)
    wide = max(9, *(len(one_line(part.source)) for part in parts))
    total = math.fsum(part.part for part in parts)
    raised = not math.isclose(total, hit.score, rel_tol=1e-9, abs_tol=1e-9)
    total = total if raised else hit.score
    known = any(part.weight is not None for part in parts)
    for part, fused, add in shown.round_shares(parts, total):
        weight = "–" if part.weight is None else f"{part.weight:.2f}"
        weight = f"  weight {weight:>5}" if known else ""
        of = f"  fused {fused:>7}" if shown.reranked else ""
        # what was added for being new or important has no rank
        said = f" rank {part.rank or '–':>3}  score {part.score:>8.4f}{weight}{of}  adds {add:>7}  "
        bar = _bar(abs(part.part) / heaviest if heaviest else 0.0)
        pieces = ((f"{one_line(part.source):<{wide}}", "cyan"), (said, "dim"), (bar, "cyan"))
        yield Line(pieces, INDENT, wraps=False)
    if len(parts) > 1:
        gap = wide + len(" rank 123  score 1234.5678") + len(weight)
        of = f"  fused {hit.rrf_score:>7.4f}" if shown.reranked else ""
        yield Line(((f"{'':{gap}}{of}  sum  {total:>7.4f}", "dim"),), INDENT, wraps=False)
    if raised and total:
        times = f"× {hit.score / total:.2f}, found by several parts of the query: {hit.score:.4f}"
        yield Line(((times, "dim"),), INDENT)


def trace_lines(answer: AnswerView) -> Iterator[Line]:
    """The waterfall, and what decided the fusion."""
    trace = answer.trace or {}
    spans, total = view.measure_spans(trace)
    wide = max([len(one_line(span.name)) + 2 * span.inside for span in spans], default=0)
    yield line(("How this came about", "bold"))
    for span in spans:
        name = f"{'  ' * span.inside}{one_line(span.name)}"
        bar = _bar(span.ms / total, skip=span.start / total) if total else ""
        pieces = (
            (f"{name:<{wide}}  ", "dim cyan" if span.inside else "cyan"),
            (f"{bar:<{BAR + 1}}", "blue" if span.inside else "magenta"),
            (f"{span.ms:>8.1f} ms", ""),
            (f"  {one_line(span.note)}", "dim"),
        )
        yield Line(pieces, indent=2, wraps=False)
    fusion = trace.get("fusion", {})
    if because := fusion.get("because"):
        signs = ", ".join(f"{name.replace('_', ' ')} {sign:.2f}" for name, sign in because.items())
        share = fusion.get("share_of_vectors")  # other fusions have none
        told = "" if share is None else f"{share:.0%} of the say is the vectors': "
        yield line((f"{told}{signs}", ""))
    for said in view.describe_late(trace):
        yield line((one_line(said), ""))
    if again := view.describe_reranking(trace):
        yield line((one_line(again), ""))
    for walk in view.find_walks(trace):
        yield from _walk_lines(walk)
    facts = (
        f"fusion {fusion.get('strategy', '–')}",
        f"model {one_line(str(trace.get('model', '–')))}",
        f"{trace.get('embedded', 0):.0%} embedded",
        f"generation {trace.get('generation', '–')}",
        view.name_cache(answer),
    )
    yield line((" · ".join(facts), "dim"))


def _walk_lines(walk: Mapping[str, Any]) -> Iterator[Line]:
    """What was counted, the path to the best leaf, and each slate's best."""
    yield Line((("How the tree was walked", "bold"),))
    yield Line(((one_line(view.describe_walk(walk)), ""),), 2)
    if fallback := walk.get("fallback"):
        note = f" ({fallback['note']})" if fallback["note"] else ""
        yield Line(((one_line(f"{fallback['to'] or 'nobody'} answered{note}"), "yellow"),), 2)
    if walk.get("path"):
        steps = [f"{one_line(p['name'])} ({p['relevance']:.2f})" for p in walk["path"]]
        yield Line((("path ", "cyan"), (" › ".join(steps), "")), 2)
    for step in walk.get("steps") or ():
        masked = f", {step['masked']} masked" if step["masked"] else ""
        head = f"{step['iteration']:>3}. {one_line(step['label'])}"
        facts = f"  {len(step['nodes'])} nodes{masked}, bias {step['bias']:+.3f}"
        yield Line(((head, "cyan"), (facts, "dim")), 2, wraps=False)
        if step["problem"]:
            yield Line(((f"by {step['scorer']}: {one_line(step['problem'])}", "yellow"),), 7)
        for node in view.rank_nodes(step)[:SHOWN_NODES]:
            figures = (
                f"{'·' if node['leaf'] else '▸'} {node['score']:>8.3f} → "
                f"{node['calibrated']:>6.3f}, path {node['relevance']:>6.3f}  "
            )
            kind = " (to compare)" if node["other"] else ""
            yield Line(((figures, "dim"), (one_line(node["name"]) + kind, "")), 7, wraps=False)


def _bar(share: float, *, skip: float = 0.0) -> str:
    """A bar in eighths of a column; what is not nothing is seen."""
    skipped = min(BAR, int(skip * BAR))
    eighths = max(1 if share > 0 else 0, round(min(1.0, share) * BAR * 8))
    full, rest = divmod(min(eighths, (BAR - skipped + 1) * 8), 8)
    return " " * skipped + "█" * full + EIGHTHS[rest].rstrip()
