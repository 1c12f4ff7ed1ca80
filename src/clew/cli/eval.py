"""clew eval, judge: how well a search finds what it should."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clew.cli import terminal
from clew.cli.options import (
    WordsCommand,
    as_json,
    open_existing,
    pairs_option,
    resumable,
    store_folder,
)
from clew.cli.view import INDENT, Line, mark_lines, one_line, place_of
from clew.engine import Engine
from clew.errors import InputError
from clew.protocols import Progress
from clew.types import Hit

if TYPE_CHECKING:
    from clew.eval.datasets import Dataset, Question

model_option = click.option("--model", help="Embedder; see clew models list.")
_MARKS = {"y": 1, "n": 0, "0": 0, "1": 1, "2": 2, "3": 3}
_KEYS = "y relevant · n not · 0–3 how much · s skip · q quit"


class _OrRun(click.Group):
    """`clew eval DATASET` means `clew eval run DATASET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_OrRun)
def eval_() -> None:
    """Measure how well a search finds what it should.

    \b
    clew eval DATASET   is short for clew eval run DATASET (clew eval run --help: all options)
    clew eval           the bundled cases, every scorer
    clew eval init      a template of queries about your own documents
    """


@eval_.command()
@click.argument("dataset", required=False, type=click.Path(path_type=Path))
@click.option("--modes", help="Of keyword, vector, hybrid, rerank.  [default: the first three]")
@click.option(
    "--mode",
    "scorer",
    type=click.Choice(["token-only", "vector", "hybrid"]),
    help="Without DATASET: the bundled cases with this scorer; hybrid shows all three.",
)
@store_folder
@click.option("--split", default="test", show_default=True, help="Or train, dev: for tuning.")
@click.option("--limit-queries", type=click.IntRange(min=1), help="The first N only.")
@model_option
@pairs_option("--set", "settings", "Any setting.")
@click.option("--syntax", is_flag=True, help="Quotes, -word and tag: in queries are syntax.")
@click.option("--skip-bad", is_flag=True, help="Leave flawed rows out instead of stopping.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run files.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Bars as a picture.")
@click.option("--verbose", "-v", is_flag=True, help="List each bundled case that failed.")
@as_json
def run(
    dataset: Path | None,
    modes: str | None,
    scorer: str | None,
    model: str | None,
    settings: dict[str, Any],
    verbose: bool,
    json: bool,
    **options: Any,
) -> None:
    """Ask the queries of DATASET in each mode and compare with its judgements.

    DATASET is a folder in BEIR's form. It is indexed once; the index is kept in the cache. With
    --store, or without a corpus file, the judgements are about a store that is there already.

    Without DATASET the bundled hand-made cases are run: a matrix of scorer and category.

    Example: clew eval ~/data/scifact --modes keyword,hybrid --plot scifact.png
    """
    if model:
        settings["model"] = model
    if dataset is None:
        refused = [f"--{name.replace('_', '-')}" for name in _DATASET_ONLY if options[name]]
        if modes or refused:
            raise InputError(f"{', '.join(refused or ['--modes'])} needs a DATASET")
        _run_cases(scorer, settings, verbose=verbose, json=json)
    elif scorer:
        raise InputError("--mode is for the bundled cases: with a DATASET write --modes")
    else:
        _run_dataset(dataset, modes, settings, json=json, **options)


_DATASET_ONLY = ("store", "limit_queries", "syntax", "skip_bad", "out", "plot")


def _run_dataset(
    folder: Path,
    modes: str | None,
    settings: dict[str, Any],
    *,
    store: Path | None,
    split: str,
    limit_queries: int | None,
    syntax: bool,
    skip_bad: bool,
    out: Path | None,
    plot: Path | None,
    json: bool,
) -> None:
    from clew.eval import datasets, harness, metrics, report, runs

    wanted = harness.check_modes(modes.split(",") if modes is not None else harness.DEFAULT_MODES)
    for needed in ("ir_measures", "scipy.stats", *(("matplotlib",) if plot else ())):
        metrics.require(needed)  # before an hour of indexing, not after it
    dataset = datasets.read(folder, split=split, limit=limit_queries, skip_bad=skip_bad)
    vectors = any(harness.MODES[mode]["mode"] != "keyword" for mode in wanted)
    with resumable(f"clew eval {folder}"), terminal.show_progress(shown=not json) as progress:
        engine, dataset, no_vectors, own = opened(
            dataset, store, settings, vectors=vectors, skip_bad=skip_bad, progress=progress
        )
        with engine:
            made, unavailable = harness.run_modes(
                engine,
                dataset.queries,
                wanted,
                no_vectors=no_vectors,
                syntax=syntax,
                progress=progress,
            )
            place, config = engine.root, engine.config
            facts: dict[str, Any] = {"model": config.model, "store": str(place)}
            if vectors:
                facts["embedded"] = round(engine.store.indexes.coverage(engine.embedder.model), 4)
    summary = report.summarise(dataset, made, unavailable=unavailable, **facts)
    runs_in = out or (harness.cache_folder() / "runs" if own or place is None else place / "runs")
    name = runs.run_name(
        dataset, config, limit=limit_queries, syntax=syntax, store=place if own else None
    )
    for each in made:
        file = runs.write_run(each, runs_in / f"{name}.{each.mode}.run")
        summary["modes"][each.mode]["run"] = str(file)
    if plot:
        report.plot(summary, plot)
    if json:
        terminal.print_json(summary)
    else:
        report.show(summary, terminal.console())


class Opened(NamedTuple):
    """What to ask, and with which judgements."""

    engine: Engine
    dataset: Dataset
    no_vectors: str | None
    """Why not."""
    own: bool
    """Whether it is somebody's own store."""


def opened(
    dataset: Dataset,
    store: Path | None,
    settings: Mapping[str, Any],
    *,
    vectors: bool = True,
    also: Dataset | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Opened:
    """The index of a collection, or somebody's own store.

    Judgements about that must name what is in it: those of `dataset`, and of another split `also`.
    With `skip_bad` those of `dataset` that do not are left out.
    """
    from clew.eval import harness

    if dataset.records is not None and (store is None or not harness.is_own(store)):
        engine, no_vectors = harness.open_indexed(
            dataset, folder=store, vectors=vectors, overrides=settings, progress=progress
        )
        return Opened(engine, dataset, no_vectors, False)
    engine = open_existing(store, **settings)
    try:
        if also is not None:
            harness.check_store(also, engine)
        dataset = harness.check_store(dataset, engine, skip_bad=skip_bad)
        return Opened(engine, dataset, harness.why_no_vectors(engine), True)
    except BaseException:
        engine.close()
        raise


def _run_cases(scorer: str | None, settings: dict[str, Any], *, verbose: bool, json: bool) -> None:
    """Hybrid needs both others' lists anyway, so it is shown beside them."""
    from clew.config import load
    from clew.eval import cases, report
    from clew.models import load_configured

    wanted = cases.SCORERS if scorer in (None, "hybrid") else (scorer,)
    embedder = None
    if wanted != ("token-only",):
        config = load(None, settings)
        embedder = load_configured(config, offline=config.offline)
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
    outcomes = cases.run_cases([str(name) for name in wanted], embedder)
    if json:
        failed = [
            {"scorer": o.scorer, "kind": o.case.kind, "query": o.case.query}
            | {"expected": list(o.case.expect), "found": list(o.found)}
            for o in outcomes
            if not o.passed
        ]
        model = embedder.model if embedder else None
        terminal.print_json(
            {"cases": len(cases.cases()), "model": model, "scorers": cases.matrix(outcomes)}
            | ({"failed": failed} if verbose else {})
        )
    else:
        report.show_cases(outcomes, terminal.console(), verbose=verbose)


@eval_.command()
@store_folder
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("clew-eval"),
    show_default=True,
    help="Folder to write queries.jsonl, qrels.tsv and README.txt into.",
)
@click.option("-n", "--number", type=click.IntRange(min=1), default=20, show_default=True)
@as_json
def init(store: Path | None, out: Path, number: int, json: bool) -> None:
    """Write a template of queries about your own documents, to be corrected by you.

    Documents are taken evenly from the store; each gets a suggested query. Rewrite the queries as
    you would ask them, then run clew eval on the folder. Files that exist are not overwritten.
    """
    from clew.eval.template import write_template

    with open_existing(store) as engine:
        written = write_template(engine.store, out, number=number)
        place = engine.root
    if json:
        terminal.print_json({"folder": str(out), "queries": written})
        return
    print(f"{written} queries written to {out}: read {out / 'README.txt'}, correct them,")
    print(f"then run: clew eval {out} --store {place}")


# ---------------------------------------------------------------------- judge


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
    print(f"{made} judgements added to {judgements.judged}")


def _announce(question: Question, number: int, total: int, hits: int) -> None:
    from rich.text import Text

    out = terminal.console()
    out.print(Text(f"[{number}/{total}] {question.text}", style="bold cyan"))
    out.print(Text(f"{hits} hits to judge · {_KEYS}", style="dim"))


def _show(hit: Hit, place: int, total: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = terminal.console()
    out.print()
    out.print(
        Text(f"{place}/{total} ", style="dim").append(one_line(hit.title or hit.id), style="bold")
    )
    out.print(Padding(Text(place_of(hit), style="green"), (0, 0, 0, 4)))
    terminal.draw((Line(pieces, INDENT) for pieces in mark_lines(hit)), out=out)


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
        print(_KEYS)
