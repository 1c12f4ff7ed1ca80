"""clew tune: which way of fusing suits a collection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from clew.cli import terminal
from clew.cli.eval import model_option, open_collection
from clew.cli.options import pairs_option, resumable, store_folder
from clew.errors import InputError

PATIENCE = 60.0
"""Seconds the sources have: a list that came late must not decide a setting."""


@click.command(cls=terminal.ReportCommand)
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
) -> terminal.CommandOutput:
    """Find the fusion, weights and k that suit DATASET, and measure them on other queries.

    So are the weights of words and meaning in lookups (clew.Search).

    DATASET is a folder as for clew eval. Its training queries choose, by cross-validation; its test
    queries say what that is worth. A collection with a single split is divided. The answer is a
    piece of clew.toml; where nothing is significantly better than the default, it is the default.

    Example: clew tune ~/data/scifact --out scifact.toml
    """
    from clew.eval import metrics, tune
    from clew.eval.datasets import read_halves

    settings |= {"model": model} if model else {}
    if tuned_anyway := sorted({"fusion", "rrf_k", "weights"} & set(settings)):
        raise InputError(f"{tuned_anyway[0]} is what is searched for: leave it out of --set")
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists: give another --out, or --force to replace it")
    for needed in ("ir_measures", "scipy.stats"):
        metrics.require(needed)  # before an hour of indexing, not after it
    parts = read_halves(dataset, train=train, test=test)
    with resumable(f"clew tune {dataset}"), terminal.show_progress() as progress:
        engine, _, no_vectors, _ = open_collection(
            parts.train,
            store,
            {"deadline": PATIENCE, **settings},
            also=parts.test,
            progress=progress,
        )
        with engine:
            if no_vectors:
                raise InputError(f"without vectors there is nothing to weigh: {no_vectors}")
            asked, late = tune.ask(engine, parts.train.queries, progress=progress)
            tuned = tune.tune(parts.train, asked, engine.config, progress=progress)
            asked, later = tune.ask(engine, parts.test.queries, progress=progress)
            pools = [
                tune.ask_lookups(engine, half.queries, progress=progress)
                for half in (parts.train, parts.test)
            ]
            about = {"model": engine.config.model, "store": str(engine.root)}
    figures = tune.compare(tuned, parts.test, asked)
    lookups = tune.tune_lookups(parts.train, pools[0], parts.test, pools[1])
    problems = {what: late.get(what, 0) + later.get(what, 0) for what in {**late, **later}}
    summary = {
        "dataset": parts.test.name,
        **about,
        **tune.summarise(tuned, parts, figures),
        "lookup": lookups,
        "notes": [*parts.notes, *(f"{what} ({count} queries)" for what, count in problems.items())],
    }
    summary["toml"] += tune.write_lookup_fragment(lookups)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(summary["toml"], "utf-8")
        summary["written"] = str(out)
    return summary, lambda: _show(summary)


# ---------------------------------------------------------------------- for people


def _show(summary: Mapping[str, Any]) -> None:
    from rich.text import Text

    out = terminal.console()
    _show_trials(summary)
    out.print()
    _show_held_out(summary)
    out.print()
    for note in summary["notes"]:
        out.print(Text(f"! {note}", style="yellow"), soft_wrap=True)
    out.print(Text(summary["toml"].rstrip(), style="green"), soft_wrap=True)
    if "written" in summary:
        out.print(Text(f"written to {summary['written']}", style="dim"), soft_wrap=True)


def _show_trials(summary: Mapping[str, Any]) -> None:
    from rich.table import Table

    train = summary["train"]
    print(f"{summary['dataset']} · {train['split']} · {train['queries']:,} queries to tune on")
    table = Table(box=None, pad_edge=False)
    for name in ("fusion", "keyword : vectors", "k"):
        table.add_column(name, style="cyan", no_wrap=True)
    for name in ("nDCG@10", "± folds", "gain", "± folds"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in summary["trials"]:
        weights = trial["weights"]
        marks = ", ".join(word for word in ("chosen", "default") if trial[word])
        table.add_row(
            f"{trial['fusion']}{f' ({marks})' if marks else ''}",
            f"{weights['keyword']:g} : {weights['vectors']:g}" if weights else "1 : 1",
            "–" if trial["rrf_k"] is None else str(trial["rrf_k"]),
            f"{trial['ndcg@10']:.4f}",
            f"{trial['spread']:.4f}",
            "" if trial["default"] else f"{trial['gain']:+.4f}",
            "" if trial["default"] else f"{trial['gain_spread']:.4f}",
            style="bold" if trial["chosen"] else "",
        )
    terminal.console().print(table)
    unseen = summary["cross_validation"]
    print(
        f"{summary['configurations']} configurations. Chosen by four folds, measured on the fifth: "
        f"{unseen['chosen']:.4f}, the default {unseen['default']:.4f}"
    )


def _show_held_out(summary: Mapping[str, Any]) -> None:
    test, figures = summary["test"], summary["held_out"]
    print(f"{test['split']} · {test['queries']:,} queries that had no part in it")
    rows = []
    for name in ("default", "chosen"):
        bounds = figures[name]["ci95"]
        between = f"{bounds[0]:.4f}–{bounds[1]:.4f}" if bounds else "–"
        rows.append((name, f"{figures[name]['ndcg@10']:.4f}", between))
    columns = ("settings", "nDCG@10", "95 %")
    terminal.print_table(columns, rows, right=columns[1:], style="cyan")
    if summary["chosen_is_default"]:
        print("the default was chosen")
        return
    p = figures["p"]
    said = "significant" if p < 0.05 else "may be chance"
    print(f"chosen − default: {figures['difference']:+.4f} nDCG@10, p = {p:.4f} ({said})")
