"""clew eval, judge, tune: how well a search finds what it should, and how it finds more."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli import terminal
from clew.cli.options import WordsCommand, open_existing, pairs_option, resumable, store_folder
from clew.cli.terminal import CommandOutput, ReportCommand, show_progress
from clew.cli.view import INDENT, Line, mark_lines, one_line, place_of
from clew.engine import Engine
from clew.errors import InputError
from clew.protocols import Progress
from clew.types import Hit

if TYPE_CHECKING:
    from rich.console import Console

    from clew.eval.datasets import Dataset, Question

model_option = click.option("--model", help="Embedder; see clew models list.")
syntax_option = click.option(
    "--syntax", is_flag=True, help="Quotes, -word and tag: in queries are syntax."
)
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


@eval_.command(cls=ReportCommand)
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
@syntax_option
@click.option("--skip-bad", is_flag=True, help="Leave flawed rows out instead of stopping.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run files.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Bars as a picture.")
@click.option("--verbose", "-v", is_flag=True, help="List each bundled case that failed.")
def run(
    dataset: Path | None,
    modes: str | None,
    store: Path | None,
    split: str,
    limit_queries: int | None,
    model: str | None,
    settings: dict[str, Any],
    syntax: bool,
    skip_bad: bool,
    out: Path | None,
    plot: Path | None,
    **bundled: Any,
) -> CommandOutput:
    """Ask the queries of DATASET in each mode and compare with its judgements.

    DATASET is a folder in BEIR's form. It is indexed once; the index is kept in the cache. With
    --store, or without a corpus file, the judgements are about a store that is there already.

    Without DATASET the bundled hand-made cases are run: a matrix of scorer and category.

    Example: clew eval ~/data/scifact --modes keyword,hybrid --plot scifact.png
    """
    settings |= {"model": model} if model else {}
    if dataset is None:
        needing = {"--store": store, "--limit-queries": limit_queries, "--syntax": syntax}
        needing |= {"--skip-bad": skip_bad, "--out": out, "--plot": plot}
        needing |= {"--split": split != "test"}
        refused = [name for name, given in needing.items() if given]
        if modes or refused:
            raise InputError(f"{', '.join(refused or ['--modes'])} needs a DATASET")
        return _run_cases(settings, **bundled)
    if any(bundled.values()):
        said = "--mode and --verbose are for the bundled cases: with a DATASET write --modes"
        raise InputError(said)
    from clew.eval import datasets, harness, metrics, report

    wanted = harness.check_modes(modes.split(",") if modes is not None else harness.DEFAULT_MODES)
    metrics.require("ir_measures", "scipy.stats", *(["matplotlib"] if plot else []))
    asked = datasets.read(dataset, split=split, limit=limit_queries, skip_bad=skip_bad)
    vectors = any(harness.MODES[mode]["mode"] != "keyword" for mode in wanted)
    with resumable(f"clew eval {dataset}"), show_progress() as progress:
        engine, no_vectors, own = _open_collection(asked, store, settings, vectors, progress)
        with engine:
            if own:
                asked = harness.check_store(asked, engine, skip_bad=skip_bad)
            made, unavailable = harness.run_modes(
                engine,
                asked.queries,
                wanted,
                no_vectors=no_vectors,
                syntax=syntax,
                progress=progress,
            )
            place, config = engine.root, engine.config
            facts: dict[str, Any] = {"model": config.model, "store": str(place)}
            if vectors:
                facts["embedded"] = round(engine.store.indexes.coverage(engine.embedder.model), 4)
    summary = report.summarise(asked, made, unavailable=unavailable, **facts)
    runs_in = out or (harness.cache_folder() / "runs" if own or place is None else place / "runs")
    name = report.run_name(
        asked, config, limit=limit_queries, syntax=syntax, store=place if own else None
    )
    for each in made:
        file = report.write_run(each, runs_in / f"{name}.{each.mode}.run")
        summary["modes"][each.mode]["run"] = str(file)
    if plot:
        report.plot(summary, plot)
    return summary, lambda: print_figures(summary, terminal.console())


def _open_collection(
    dataset: Dataset,
    store: Path | None,
    settings: Mapping[str, Any],
    vectors: bool,
    progress: Progress | None,
) -> tuple[Engine, str | None, bool]:
    """The index of a collection, or somebody's own store; why it has no vectors; and whether it is
    an own store, about which judgements may be wrong."""
    from clew.eval import harness

    if dataset.records is not None and (store is None or not harness.is_own(store)):
        made = harness.open_indexed(
            dataset, folder=store, vectors=vectors, overrides=settings, progress=progress
        )
        return *made, False
    engine = open_existing(store, **settings)
    return engine, harness.why_no_vectors(engine), True


def _run_cases(settings: dict[str, Any], *, scorer: str | None, verbose: bool) -> CommandOutput:
    """Hybrid needs both others' lists anyway, so it is shown beside them."""
    from clew.config import load
    from clew.eval import cases
    from clew.models import load_configured

    wanted = cases.SCORERS if scorer in (None, "hybrid") else (scorer,)
    embedder = None
    if wanted != ("token-only",):
        config = load(None, settings)
        embedder = load_configured(config, offline=config.offline)
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
    outcomes = cases.run_cases([str(name) for name in wanted], embedder)
    failed = [
        {"scorer": o.scorer, "kind": o.case.kind, "query": o.case.query}
        | {"expected": list(o.case.expect), "found": list(o.found)}
        for o in outcomes
        if not o.passed
    ]
    model = embedder.model if embedder else None
    marks = cases.summarise_cases(outcomes)
    data: dict[str, Any] = {"cases": len(cases.read_cases()), "model": model, "scorers": marks}
    data |= {"failed": failed} if verbose else {}
    return data, lambda: _print_cases(marks, failed if verbose else None)


@eval_.command(cls=ReportCommand)
@store_folder
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("clew-eval"),
    show_default=True,
    help="Folder to write queries.jsonl, qrels.tsv and README.txt into.",
)
@click.option("-n", "--number", type=click.IntRange(min=1), default=20, show_default=True)
def init(store: Path | None, out: Path, number: int) -> CommandOutput:
    """Write a template of queries about your own documents, to be corrected by you.

    Documents are taken evenly from the store; each gets a suggested query. Rewrite the queries as
    you would ask them, then run clew eval on the folder. Files that exist are not overwritten.
    """
    from clew.eval.judgements import write_template

    with open_existing(store) as engine:
        written = write_template(engine.store, out, number=number)
    first = f"{written} queries written to {out}: read {out / 'README.txt'}, correct them,"
    then = "then run: " + shlex.join(["clew", "eval", str(out), "--store", str(engine.root)])
    return {"folder": str(out), "queries": written}, [first, then]


# ---------------------------------------------------------------------- tables


def print_figures(summary: Mapping[str, Any], out: Console) -> None:
    """Figures with their intervals, then per category, times, comparisons, notes."""
    modes = {name: m for name, m in summary["modes"].items() if "unavailable" not in m}
    documents = summary["documents"]
    size = f"{documents:,} documents, " if documents is not None else ""
    title = f"{summary['dataset']} · {summary['split']} · {size}{summary['queries']:,} queries"
    if modes:
        _print_measures(modes, title, out)
        for category in next(iter(modes.values()))["categories"]:
            rows = {name: m["categories"][category] for name, m in modes.items()}
            count = next(iter(rows.values()))["queries"]
            _print_measures(rows, f"{category} · {count:,} queries", out)
        _print_times(modes, out)
    compared = summary["significance"]
    for row in compared:
        (first, second), gap, p = row["modes"], row["difference"], row["p"]
        out.print(f"{first} − {second}: {gap:+.3f} nDCG@10, p = {p:.4f} ({_judge_chance(p)})")
    if len(compared) > 1:
        out.print(f"p corrected for {len(compared)} comparisons (Holm)", style="dim")
    if compared:
        out.print()
    for name, mode in summary["modes"].items():
        if "unavailable" in mode:
            _say(out, f"! {name} is not available: {mode['unavailable']}", "yellow")
        for problem, count in mode.get("degraded", {}).items():
            _say(out, f"! {name}: {count} searches: {problem}", "yellow")
        if "run" in mode:
            _say(out, f"run {name}: {mode['run']}", "dim")
    if 0 < summary.get("embedded", 1) < 1:
        _say(out, f"! only {summary['embedded']:.0%} of the passages have vectors", "yellow")
    for note in summary["notes"]:
        _say(out, f"! {note}", "yellow")


def _say(out: Console, text: str, style: str) -> None:
    """A line of any length: paths in it are to be copied."""
    out.print(text, style=style, soft_wrap=True)


def _print_measures(rows: Mapping[str, Mapping[str, Any]], title: str, out: Console) -> None:
    from rich.text import Text

    from clew.eval.metrics import HEADLINE, MEASURES

    def shorten(figure: float) -> str:
        return "1.00" if figure >= 0.9995 else f"{figure:.3f}".removeprefix("0")

    def cell(figures: Mapping[str, Any], measure: str) -> Text:
        made = Text(shorten(figures[measure]), style="bold" if measure == HEADLINE else "")
        if bounds := figures["ci95"][measure]:
            made.append(f"\n{'–'.join(map(shorten, bounds))}", style="dim not bold")
        return made

    # R@5 and the like, as ir-measures calls them but for two
    titles = [name.replace("RR", "MRR").replace("Success", "S") for name in MEASURES.values()]
    table = [[Text(name), *(cell(of, m) for m in MEASURES)] for name, of in rows.items()]
    terminal.print_table(
        ("mode", *titles), table, right=titles, title=title, styles=("cyan",), gap=1, out=out
    )
    out.print()


def _print_times(modes: Mapping[str, Mapping[str, Any]], out: Console) -> None:
    def cell(times: Mapping[str, float]) -> str:
        return f"{times['p50_ms']:.1f} / {times['p95_ms']:.1f}" if "p50_ms" in times else "–"

    stages = dict.fromkeys(stage for m in modes.values() for stage in m["stages"])
    rows = [(s, *(cell(m["stages"].get(s, {})) for m in modes.values())) for s in stages]
    rows.append(("total", *map(cell, modes.values())))
    title = "p50 / p95 in ms"
    terminal.print_table(
        ("stage", *modes), rows, right=[*modes], title=title, styles=("cyan",), out=out
    )
    out.print()


def _judge_chance(p: float) -> str:
    return "significant" if p < 0.05 else "may be chance"


def _print_cases(
    marks: Mapping[str, Mapping[str, Any]], failed: Sequence[Mapping[str, Any]] | None
) -> None:
    """The matrix of the bundled cases: a category's recall@1 / recall@5 under each scorer."""
    from rich.text import Text

    rows = []
    for kind, first in next(iter(marks.values())).items():
        cells = [f"{m[kind]['recall@1']:.2f} / {m[kind]['recall@5']:.2f}" for m in marks.values()]
        style = "bold" if kind == "all" else ""
        rows.append([Text(cell, style=style) for cell in (kind, str(first["cases"]), *cells)])
    columns, title = ("category", "cases", *marks), "recall@1 / recall@5"
    terminal.print_table(columns, rows, right=columns[1:], title=title, styles=("cyan",))
    if failed is None:
        return
    out = terminal.console()
    out.print()
    for case in failed:
        expected = ", ".join(case["expected"]) or "nothing"
        found = ", ".join(case["found"][:5]) or "nothing"
        line = Text(f"{case['scorer']}  {case['kind']}: ", style="yellow")
        out.print(line.append(f"{case['query']!r} expected {expected}, found {found}", style=""))


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
@syntax_option
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
    from clew.eval.judgements import Judgements, pool_hits
    from clew.validate import read_lines

    wanted: list[Question | str] = [" ".join(query)] if query else []
    if queries is not None and queries.name.removesuffix(".gz").endswith(".jsonl"):
        wanted += read_queries(queries)
    elif queries is not None:
        wanted += [text.strip() for _, text in read_lines(queries)]
    if not wanted:
        raise InputError("say what to judge: a query, or --queries FILE")
    beside = queries is not None and queries.name == "queries.jsonl"
    folder = out or (queries.parent if queries is not None and beside else Path("clew-eval"))
    chosen = harness.check_modes(modes.split(","))
    judgements = Judgements(folder)

    def judge_all() -> int:
        made = 0
        for number, each in enumerate(wanted, 1):
            question = judgements.question(each)
            found = pool_hits(engine, question, limit=limit, modes=chosen, syntax=syntax)
            hits = judgements.to_judge(question, found)
            title = one_line(f"[{number}/{len(wanted)}] {question.text}")
            keys = f"{len(hits)} hits to judge · {_KEYS}"
            terminal.draw([Line(((title, "bold cyan"),)), Line(((keys, "dim"),))])
            for place, hit in enumerate(hits, 1):
                _show_hit(hit, f"{place}/{len(hits)} ")
                key = _read_key()
                if key == "q":
                    return made
                if key in _MARKS:
                    judgements.mark(question, hit, _MARKS[key])
                    made += 1
        return made

    with open_existing(store) as engine:
        made = judge_all()
    print(f"{made} judgements added to {judgements.judged}")


def _show_hit(hit: Hit, number: str) -> None:
    title = Line(((number, "dim"), (one_line(hit.title or hit.id), "bold")))
    place = Line(((place_of(hit), "green"),), indent=4)
    terminal.draw([Line(), title, place, *(Line(pieces, INDENT) for pieces in mark_lines(hit))])


def _read_key() -> str:
    """A key from a terminal, a line from a pipe; the end of the input means quit."""
    while True:
        if sys.stdin.isatty():
            click.echo("  relevant? ", nl=False)
            answer = click.getchar(echo=True)
            click.echo()
        else:
            answer = sys.stdin.readline() or "q"
        answer = answer.strip(" \t\r\n").lower()[:1]
        if answer in ("\x03", "\x04"):
            return "q"
        if answer and (answer in _MARKS or answer in "sq"):
            return answer
        print(_KEYS)


# ---------------------------------------------------------------------- tune


@click.command(cls=ReportCommand)
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--train", help="Split to tune on.  [default: train, else dev]")
@click.option("--test", help="Split to report on, another one.  [default: test]")
@store_folder
@model_option
@pairs_option("--set", "settings", "Any other setting.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the lines of settings."
)
@click.option("--force", is_flag=True, help="Overwrite the file of --out.")
def tune(
    dataset: Path,
    train: str | None,
    test: str | None,
    store: Path | None,
    model: str | None,
    settings: dict[str, Any],
    out: Path | None,
    force: bool,
) -> CommandOutput:
    """Find the fusion, weights and k that suit DATASET, and measure them on other queries.

    So are the weights of words and meaning in lookups (clew.Search).

    DATASET is a folder as for clew eval. Its training queries choose, by cross-validation; its test
    queries say what that is worth. A collection with a single split is divided. The answer is a
    piece of clew.toml; where nothing is significantly better than the default, it is the default.

    Example: clew tune ~/data/scifact --out scifact.toml
    """
    from clew.eval import harness, metrics
    from clew.eval.datasets import read_halves
    from clew.eval.tune import PATIENCE, tune_collection

    settings |= {"model": model} if model else {}
    if tuned_anyway := sorted({"fusion", "rrf_k", "weights"} & set(settings)):
        raise InputError(f"{tuned_anyway[0]} is what is searched for: leave it out of --set")
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists: give another --out, or --force to replace it")
    metrics.require("ir_measures", "scipy.stats")
    parts = read_halves(dataset, train=train, test=test)
    settings = {"deadline": PATIENCE, **settings}
    with resumable(f"clew tune {dataset}"), show_progress() as progress:
        engine, no_vectors, own = _open_collection(parts.train, store, settings, True, progress)
        with engine:
            for half in (parts.test, parts.train) if own else ():
                harness.check_store(half, engine)
            if no_vectors:
                raise InputError(f"without vectors there is nothing to weigh: {no_vectors}")
            summary = tune_collection(engine, parts, progress=progress)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(summary["toml"], "utf-8")
        summary["written"] = str(out)
    return summary, lambda: _print_tuned(summary)


def _print_tuned(summary: Mapping[str, Any]) -> None:
    from rich.text import Text

    train = summary["train"]
    print(f"{summary['dataset']} · {train['split']} · {train['queries']:,} queries to tune on")
    rows = []
    for trial in summary["trials"]:
        weights, usual = trial["weights"], trial["default"]
        marks = ", ".join(word for word in ("chosen", "default") if trial[word])
        cells = (
            f"{trial['fusion']}{f' ({marks})' if marks else ''}",
            f"{weights['keyword']:g} : {weights['vectors']:g}" if weights else "1 : 1",
            "–" if trial["rrf_k"] is None else str(trial["rrf_k"]),
            f"{trial['ndcg@10']:.4f}",
            f"{trial['spread']:.4f}",
            "" if usual else f"{trial['gain']:+.4f}",
            "" if usual else f"{trial['gain_spread']:.4f}",
        )
        rows.append([Text(cell, style="bold" if trial["chosen"] else "") for cell in cells])
    columns = ("fusion", "keyword : vectors", "k", "nDCG@10", "± folds", "gain", "± folds")
    terminal.print_table(columns, rows, right=columns[3:], styles=("cyan",) * 3)
    unseen = summary["cross_validation"]
    print(
        f"{summary['configurations']} configurations. Chosen by four folds, measured on the fifth: "
        f"{unseen['chosen']:.4f}, the default {unseen['default']:.4f}"
    )
    print()
    test, figures = summary["test"], summary["held_out"]
    print(f"{test['split']} · {test['queries']:,} queries that had no part in it")
    settings = []
    for name in ("default", "chosen"):
        bounds = figures[name]["ci95"]
        between = f"{bounds[0]:.4f}–{bounds[1]:.4f}" if bounds else "–"
        settings.append((name, f"{figures[name]['ndcg@10']:.4f}", between))
    numbers = ("nDCG@10", "95 %")
    terminal.print_table(("settings", *numbers), settings, right=numbers, styles=("cyan",))
    gap, p = figures["difference"], figures["p"]
    gain = f"chosen − default: {gap:+.4f} nDCG@10, p = {p:.4f} ({_judge_chance(p)})"
    print("the default was chosen" if summary["chosen_is_default"] else gain)
    print()
    out = terminal.console()
    for note in summary["notes"]:
        _say(out, f"! {note}", "yellow")
    _say(out, summary["toml"].rstrip(), "green")
    if "written" in summary:
        _say(out, f"written to {summary['written']}", "dim")
