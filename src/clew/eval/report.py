"""Runs into figures: one plain mapping (what --json prints), drawn as tables or as a plot."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import InputError
from clew.eval import metrics
from clew.eval.cases import Outcome, matrix
from clew.eval.datasets import Dataset
from clew.eval.harness import Run
from clew.eval.metrics import HEADLINE, MEASURES

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["plot", "show", "show_cases", "summarise"]


def summarise(
    dataset: Dataset,
    runs: Sequence[Run],
    *,
    unavailable: Mapping[str, str] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """All figures of all runs. `facts` (model, folder…) stand at the top."""
    scores = {run.mode: metrics.per_query(dataset.qrels, run.ranked) for run in runs}
    categories = sorted({q.category for q in dataset.queries if q.category is not None})
    modes: dict[str, Any] = {}
    for run in runs:
        everyone = [q.id for q in dataset.queries]
        modes[run.mode] = {
            **_figures(scores[run.mode], everyone),
            **_times(run.ms),
            "categories": {
                category: _figures(
                    scores[run.mode], [q.id for q in dataset.queries if q.category == category]
                )
                for category in categories
            },
            "degraded": dict(run.degraded),
        }
    for mode, why in (unavailable or {}).items():
        modes[mode] = {"unavailable": why}
    return {
        "dataset": dataset.name,
        "split": dataset.split,
        "documents": None if dataset.records is None else len(dataset.records),
        "queries": len(dataset.queries),
        **facts,
        "modes": modes,
        "significance": _significance(scores),
        "notes": list(dataset.notes),
    }


def _figures(scores: Mapping[str, Mapping[str, float]], queries: Sequence[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"queries": len(queries)}
    intervals: dict[str, list[float] | None] = {}
    for measure in MEASURES:
        values = [scores[measure][query] for query in queries]
        figures[measure] = round(metrics.mean(values), 4)
        found = metrics.interval(values)
        intervals[measure] = None if found is None else [round(bound, 4) for bound in found]
    return {**figures, "ci95": intervals}


def _times(ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    import numpy as np

    def spread(times: Sequence[float]) -> dict[str, float]:
        middle, late = np.percentile(times, [50, 95])
        return {"p50_ms": round(float(middle), 3), "p95_ms": round(float(late), 3)}

    stages = {stage: spread(times) for stage, times in ms.items() if times}
    return {**stages.pop("total", {}), "stages": stages}


def _significance(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Every pair of modes; p is corrected for how many there are, `p_alone` is not."""
    pairs = list(itertools.combinations(scores, 2))
    gaps: list[float] = []
    alone: list[float] = []
    for first, second in pairs:
        a, b = scores[first][HEADLINE], scores[second][HEADLINE]
        gap, p = metrics.difference([a[q] for q in a], [b[q] for q in a])
        gaps.append(gap)
        alone.append(p)
    return [
        {
            "modes": list(pair),
            "measure": HEADLINE,
            "difference": round(gap, 4),
            "p": round(p, 4),
            "p_alone": round(uncorrected, 4),
        }
        for pair, gap, p, uncorrected in zip(pairs, gaps, metrics.holm(alone), alone, strict=True)
    ]


# ---------------------------------------------------------------------- a picture


def plot(summary: Mapping[str, Any], file: Path) -> None:
    """Bars of nDCG@10 with their intervals."""
    matplotlib = metrics.require("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    modes = {name: m for name, m in summary["modes"].items() if "unavailable" not in m}
    heights = [m[HEADLINE] for m in modes.values()]
    bounds = [m["ci95"][HEADLINE] or [m[HEADLINE]] * 2 for m in modes.values()]
    below = [max(0.0, h - low) for h, (low, _) in zip(heights, bounds, strict=True)]
    above = [max(0.0, high - h) for h, (_, high) in zip(heights, bounds, strict=True)]
    figure = Figure(figsize=(1.6 + 1.2 * len(modes), 4), layout="constrained")
    axes = figure.subplots()
    bars = axes.bar(list(modes), heights, yerr=[below, above], capsize=4, color="#4c78a8")
    axes.bar_label(bars, labels=[f"{h:.3f}" for h in heights], label_type="center", color="white")
    axes.set(ylim=(0, 1), ylabel="nDCG@10", title=f"{summary['dataset']} ({summary['queries']})")
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"the plot cannot be written to {file}: {error}") from error


# ---------------------------------------------------------------------- tables


def show(summary: Mapping[str, Any], out: Console) -> None:
    """For people: figures with their intervals, then per category, times, comparisons, notes."""
    from rich.text import Text

    modes = {name: m for name, m in summary["modes"].items() if "unavailable" not in m}
    documents = summary["documents"]
    size = f"{documents:,} documents, " if documents is not None else ""
    title = f"{summary['dataset']} · {summary['split']} · {size}{summary['queries']:,} queries"
    if modes:
        _show_figures(modes, title, out)
        for category in next(iter(modes.values()))["categories"]:
            rows = {name: m["categories"][category] for name, m in modes.items()}
            count = next(iter(rows.values()))["queries"]
            _show_figures(rows, f"{category} · {count:,} queries", out)
        _show_times(modes, out)
        _show_significance(summary["significance"], out)
    for name, mode in summary["modes"].items():
        if "unavailable" in mode:
            out.print(Text(f"! {name} is not available: {mode['unavailable']}", style="yellow"))
        for problem, count in mode.get("degraded", {}).items():
            out.print(Text(f"! {name}: {count} searches: {problem}", style="yellow"))
        if "run" in mode:
            out.print(Text(f"run {name}: {mode['run']}", style="dim"), soft_wrap=True)
    if 0 < summary.get("embedded", 1) < 1:
        share = f"{summary['embedded']:.0%}"
        out.print(Text(f"! only {share} of the passages have vectors", style="yellow"))
    for note in summary["notes"]:
        out.print(Text(f"! {note}", style="yellow"), soft_wrap=True)


def _show_figures(rows: Mapping[str, Mapping[str, Any]], title: str, out: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("mode", style="cyan")
    for measure in MEASURES:
        short = measure.replace("recall", "R").replace("success", "S").replace("ndcg", "nDCG")
        table.add_column(short.replace("mrr", "MRR"), justify="right", no_wrap=True)
    for name, figures in rows.items():
        cells = []
        for measure in MEASURES:
            cell = Text(_short(figures[measure]), style="bold" if measure == HEADLINE else "")
            if bounds := figures["ci95"][measure]:
                cell.append(f"\n{_short(bounds[0])}–{_short(bounds[1])}", style="dim not bold")
            cells.append(cell)
        table.add_row(name, *cells)
    out.print(table)
    out.print()


def _short(figure: float) -> str:
    return "1.00" if figure >= 0.9995 else f"{figure:.3f}".removeprefix("0")


def _show_times(modes: Mapping[str, Mapping[str, Any]], out: Console) -> None:
    from rich.table import Table

    table = Table(title="p50 / p95 in ms", title_justify="left", box=None, pad_edge=False)
    table.add_column("stage", style="cyan")
    for name in modes:
        table.add_column(name, justify="right")
    stages = list(dict.fromkeys(stage for m in modes.values() for stage in m["stages"]))
    for stage in [*stages, "total"]:
        of = [m if stage == "total" else m["stages"].get(stage, {}) for m in modes.values()]
        table.add_row(
            stage, *(f"{t['p50_ms']:.1f} / {t['p95_ms']:.1f}" if "p50_ms" in t else "–" for t in of)
        )
    out.print(table)
    out.print()


def _show_significance(compared: Sequence[Mapping[str, Any]], out: Console) -> None:
    for row in compared:
        first, second = row["modes"]
        verdict = "significant" if row["p"] < 0.05 else "may be chance"
        out.print(
            f"{first} − {second}: {row['difference']:+.3f} nDCG@10, p = {row['p']:.4f} ({verdict})"
        )
    if len(compared) > 1:
        out.print(f"p corrected for {len(compared)} comparisons (Holm)", style="dim")
    if compared:
        out.print()


def show_cases(outcomes: Sequence[Outcome], out: Console, *, verbose: bool) -> None:
    """The matrix of the bundled cases: a category's recall@1 / recall@5 under each scorer."""
    from rich.table import Table
    from rich.text import Text

    marks = matrix(outcomes)
    table = Table(title="recall@1 / recall@5", title_justify="left", box=None, pad_edge=False)
    table.add_column("category", style="cyan")
    table.add_column("cases", justify="right")
    for scorer in marks:
        table.add_column(scorer, justify="right")
    for kind, first in next(iter(marks.values())).items():
        cells = [f"{m[kind]['recall@1']:.2f} / {m[kind]['recall@5']:.2f}" for m in marks.values()]
        style = "bold" if kind == "all" else ""
        table.add_row(kind, str(first["cases"]), *cells, style=style)
    out.print(table)
    if not verbose:
        return
    out.print()
    for outcome in outcomes:
        if not outcome.passed:
            case = outcome.case
            expected = ", ".join(case.expect) or "nothing"
            found = ", ".join(outcome.found[:5]) or "nothing"
            line = Text(f"{outcome.scorer}  {case.kind}: ", style="yellow")
            out.print(line.append(f"{case.query!r} expected {expected}, found {found}", style=""))
