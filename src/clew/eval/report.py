"""Runs into figures: one plain mapping (what --json prints), a plot, and files in TREC's form."""

from __future__ import annotations

import itertools
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clew.config import Config, all_settings, profile
from clew.errors import InputError
from clew.eval import metrics
from clew.eval.datasets import Dataset
from clew.eval.harness import Run
from clew.eval.metrics import HEADLINE, MEASURES

LONGEST_SETTINGS = 80
"""Bytes of settings in a name: of more, a hash must do."""
_WITHOUT_EFFECT = frozenset(
    {"threads", "offline", "model_url", "keys", "busy_seconds", "synchronous", "max_file_mb"}
)
"""Settings that decide nothing about what is found in a store that is there, or are nobody's
business: an address may hold a password."""


def summarise(
    dataset: Dataset,
    runs: Sequence[Run],
    *,
    unavailable: Mapping[str, str] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """All figures of all runs. `facts` (model, folder…) stand at the top."""
    import numpy as np

    scores = {run.mode: metrics.per_query(dataset.qrels, run.ranked) for run in runs}
    categories: dict[str, list[str]] = {}
    for question in dataset.queries:
        if question.category is not None:
            categories.setdefault(question.category, []).append(question.id)
    modes: dict[str, Any] = {}
    for run in runs:
        of = scores[run.mode]
        percentiles = {stage: np.percentile(ms, [50, 95]) for stage, ms in run.ms.items() if ms}
        stages = {
            stage: {"p50_ms": round(float(middle), 3), "p95_ms": round(float(late), 3)}
            for stage, (middle, late) in percentiles.items()
        }
        modes[run.mode] = {
            **_average(of, [q.id for q in dataset.queries]),
            **stages.pop("total", {}),
            "stages": stages,
            "categories": {name: _average(of, ids) for name, ids in sorted(categories.items())},
            "degraded": dict(run.degraded),
        }
    pairs = list(itertools.combinations(scores, 2))
    differences = []
    for first, second in pairs:
        a, b = scores[first][HEADLINE], scores[second][HEADLINE]
        differences.append(metrics.difference(list(a.values()), [b[query] for query in a]))
    corrected = metrics.holm([p for _, p in differences])  # for how many pairs there are
    significance = [
        {
            "modes": list(pair),
            "measure": HEADLINE,
            "difference": round(gap, 4),
            "p": round(p, 4),
            "p_alone": round(alone, 4),
        }
        for pair, (gap, alone), p in zip(pairs, differences, corrected, strict=True)
    ]
    modes |= {mode: {"unavailable": why} for mode, why in (unavailable or {}).items()}
    return {
        "dataset": dataset.name,
        "split": dataset.split,
        "documents": None if dataset.records is None else len(dataset.records),
        "queries": len(dataset.queries),
        **facts,
        "modes": modes,
        "significance": significance,
        "notes": list(dataset.notes),
    }


def _average(scores: Mapping[str, Mapping[str, float]], queries: Sequence[str]) -> dict[str, Any]:
    values = {measure: [scores[measure][query] for query in queries] for measure in MEASURES}
    figures = {measure: round(metrics.mean(of), 4) for measure, of in values.items()}
    intervals = {measure: metrics.round_interval(of) for measure, of in values.items()}
    return {"queries": len(queries), **figures, "ci95": intervals}


def plot(summary: Mapping[str, Any], file: Path) -> None:
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


# ---------------------------------------------------------------------- run files


def run_name(
    dataset: Dataset,
    config: Config,
    *,
    limit: int | None = None,
    syntax: bool = False,
    store: Path | None = None,
) -> str:
    """What a run is of, but for its mode: `scifact-train-first100-rerank_blend=1`.

    The collection, its split, how many queries, somebody's own `store`, every setting that is not
    the default.
    """
    parts = [dataset.name]
    if dataset.split != "test":
        parts.append(dataset.split)
    if limit is not None:
        parts.append(f"first{limit}")
    if syntax:
        parts.append("syntax")
    if store is not None:
        place = store.resolve()
        parts.append(f"{place.name}-{_digest(str(place))}")  # many a folder is called notes
    default, shipped = Config(), profile(config.profile)
    values = {s.name: getattr(config, s.name) for s in all_settings()}
    changed = "-".join(
        f"{name}={_write_value(value)}"
        for name, value in values.items()
        if name not in _WITHOUT_EFFECT
        and value != getattr(default, name)
        and not (name in shipped and value == shipped[name])
    )
    if changed:
        short = len(changed.encode()) <= LONGEST_SETTINGS
        parts.append(changed if short else f"settings-{_digest(changed)}")
    return re.sub(r"[^\w.,=+@-]+", "_", "-".join(parts))


def _write_value(value: Any) -> str:
    """A table of anything but numbers is a hash: what a source is told may hold a password too."""
    if isinstance(value, Mapping):
        if all(isinstance(number, (int, float)) for number in value.values()):
            return ",".join(f"{key}={_write_value(value[key])}" for key in sorted(value))
        return _digest(repr(sorted(value.items())))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def write_run(run: Run, file: Path) -> Path:
    """A run in TREC's form: query Q0 document rank score tag; and the file it is in.

    Columns are parted by blanks, so blanks (and %) in ids are written as %20 and the like. Scores
    fall with the rank and say nothing else: evaluators sort by them. Another run of this name is
    never overwritten: the new one gets a number.
    """
    text = "".join(
        f"{_quote(query)} Q0 {_quote(name)} {rank} {1 / rank:.8f} clew-{run.mode}\n"
        for query, ids in run.ranked.items()
        for rank, name in enumerate(ids, 1)
    )
    stem = file.name.removesuffix(".run")
    others = (file.with_name(f"{stem}.{number}.run") for number in itertools.count(2))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return next(place for place in itertools.chain([file], others) if _holds(place, text))
    except OSError as error:
        raise InputError(f"the run cannot be written to {file}: {error}") from error


def _holds(file: Path, text: str) -> bool:
    """Whether the file holds this text, now at the latest."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        return file.read_bytes() == text.encode()
    return True


def _quote(id: str) -> str:
    return re.sub(r"[\s%]", lambda blank: urllib.parse.quote(blank[0]), id)
