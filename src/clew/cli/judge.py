"""clew judge: mark hits as relevant or not, in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew.cli import answer, render
from clew.cli.options import WordsCommand, open_existing, store_folder
from clew.cli.plain import one_line
from clew.errors import InputError
from clew.types import Hit

if TYPE_CHECKING:
    from clew.eval.datasets import Question

__all__ = ["judge"]

_MARKS = {"y": 1, "n": 0, "0": 0, "1": 1, "2": 2, "3": 3}
_HELP = "y relevant · n not · 0–3 how much · s skip · q quit"


@click.command(cls=WordsCommand)
@click.argument("query", nargs=-1)
@click.option(
    "--queries",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Judge all queries of a file: queries.jsonl, or plain text with one per line.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of queries.jsonl and qrels.tsv.  [default: that of --queries, or clew-eval]",
)
@click.option("--limit", default=10, show_default=True, help="Hits of each mode.")
@click.option("--modes", default="keyword,vector,hybrid", show_default=True)
@click.option("--syntax", is_flag=True, help="Quotes, -word and tag: in queries are syntax.")
@store_folder
def judge(
    query: tuple[str, ...],
    queries: Path | None,
    out: Path | None,
    limit: int,
    modes: str,
    syntax: bool,
    store: Path | None,
) -> None:
    """Show the hits of a search one by one and write down which are relevant.

    \b
    y relevant   n not   0 to 3 how much   s skip this hit   q quit

    Hits of several modes are pooled, so that the judgements favour none of them. Every mark is
    saved at once; what has been marked is not asked again. Then run clew eval on the folder.
    """
    from clew.eval import harness
    from clew.eval.datasets import read_queries
    from clew.eval.judge import Judgements, pool
    from clew.text.lines import lines

    wanted: list[Question | str] = [" ".join(query)] if query else []
    if queries is not None and queries.name.removesuffix(".gz").endswith(".jsonl"):
        wanted += read_queries(queries)
    elif queries is not None:
        wanted += [text.strip() for _, text in lines(queries)]
    if not wanted:
        raise InputError("say what to judge: a query, or --queries FILE")
    beside = queries is not None and queries.name == "queries.jsonl"
    folder = out or (queries.parent if queries is not None and beside else Path("clew-eval"))
    chosen = harness.check_modes(modes.split(","))
    judgements = Judgements.open(folder)
    made, going = 0, True
    with open_existing(store) as engine:
        for number, each in enumerate(wanted, 1):
            if not going:
                break
            question = judgements.question(each)
            found = pool(engine, question, limit=limit, modes=chosen, syntax=syntax)
            hits = judgements.to_judge(question, found)
            _announce(question, number, len(wanted), len(hits))
            for place, hit in enumerate(hits, 1):
                _show(hit, place, len(hits))
                answer = _ask()
                if answer == "q":
                    going = False
                    break
                if answer in _MARKS:
                    judgements.mark(question, hit, _MARKS[answer])
                    made += 1
    render.say(f"{made} judgements added to {judgements.judged}")


def _announce(question: Question, number: int, total: int, hits: int) -> None:
    from rich.text import Text

    out = render.console()
    out.print(Text(f"[{number}/{total}] {question.text}", style="bold cyan"))
    out.print(Text(f"{hits} hits to judge · {_HELP}", style="dim"))


def _show(hit: Hit, place: int, total: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = render.console()
    out.print()
    out.print(
        Text(f"{place}/{total} ", style="dim").append(one_line(hit.title or hit.id), style="bold")
    )
    out.print(Padding(Text(answer.place(hit), style="green"), (0, 0, 0, 4)))
    render.draw(answer.snippet_lines(hit), out=out)


def _ask() -> str:
    """A key from a terminal, a line from a pipe; the end of the input means quit."""
    while True:
        if sys.stdin.isatty():
            click.echo("  relevant? ", nl=False)
            answer = click.getchar(echo=True)
            click.echo()
        else:
            line = sys.stdin.readline()
            if not line:
                return "q"
            answer = line.strip()
        answer = answer.lower()[:1]
        if answer in _MARKS or answer in ("s", "q"):
            return answer
        if answer in ("\x03", "\x04"):
            return "q"
        render.say(_HELP)
