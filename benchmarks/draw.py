"""Draws what quality.py, speed.py and tree.py measured. Run by them, where matplotlib is.

python benchmarks/draw.py NUMBERS.json PLOT.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CLEW, INK = "#c0392b", "#333333"
COLOURS = (
    *("#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2"),
    *("#7f7f7f", "#bcbd22", "#17becf", "#ff7f0e", "#222222"),
)
MARKS = "osv^<>DPXp"
SPREAD = 0.05
"""Marks of one line stand a little above each other, so that equal ones are seen."""


def quality(numbers: dict[str, Any], plt: Any) -> Any:
    """A line for each set, a mark for each system on it."""
    sets, rows = numbers["sets"], numbers["rows"]
    figure, axes = plt.subplots(figsize=(9, 1.8 + 0.5 * len(sets)))
    for place, _ in enumerate(sets):
        found = [scores[place] for scores in rows.values() if scores[place] is not None]
        if found:
            axes.plot([min(found), max(found)], [place, place], color="#dddddd", lw=5, zorder=1)
    for number, (name, scores) in enumerate(rows.items()):
        points = [(score, place) for place, score in enumerate(scores) if score is not None]
        first = number == 0  # Clew
        lift = 0 if first else SPREAD * (number - len(rows) / 2)
        axes.scatter(
            [x for x, _ in points],
            [y + lift for _, y in points],
            s=420 if first else 48,
            marker="|" if first else MARKS[number % len(MARKS)],
            linewidths=4 if first else 0.5,
            color=CLEW if first else COLOURS[number % len(COLOURS)],
            edgecolors=None if first else "white",
            alpha=1 if first else 0.85,
            label=name,
            zorder=3 if first else 2,
        )
    axes.set_yticks(range(len(sets)), sets)
    axes.invert_yaxis()
    axes.set_xlabel("nDCG@10, the same texts, vectors and queries for all")
    axes.grid(axis="x", color="#eeeeee")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def speed(numbers: dict[str, Any], plt: Any) -> Any:
    """Bars for the median, a line up to p95, recall beside it."""
    rows = numbers["rows"]
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.45 * len(rows)))
    for place, row in enumerate(rows):
        if row["p50"] is None:
            why = row["failure"] or "no answers"
            axes.text(0.02, place, why, va="center", transform=axes.get_yaxis_transform())
            continue
        axes.barh(place, row["p50"], color=CLEW if place == 0 else COLOURS[0], height=0.6)
        axes.plot([row["p50"], row["p95"]], [place, place], color=INK, lw=1.5)
        recall = "" if row["recall"] is None else f", recall {row['recall']:.3f}"
        axes.text(row["p95"] * 1.08, place, f"{row['p50']:.3g} ms{recall}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    fastest = min((row["p50"] for row in rows if row["p50"] is not None), default=1)
    axes.set_xlim(fastest / 2, axes.get_xlim()[1] * 8)  # room for the words
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"ms per query at {numbers['records']:,} records (bar: p50, line: to p95)")
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    return figure


def tree(numbers: dict[str, Any], plt: Any) -> Any:
    """Scorings of a walk by the size of the corpus, beside what a flat scan takes."""
    rows = numbers["growth"]
    sizes = [row["records"] for row in rows]
    figure, axes = plt.subplots(figsize=(8, 4.5))
    axes.plot(sizes, sizes, color="#999999", ls="--", label="flat: every record")
    for key, name, colour in (
        ("scored", "the whole walk", CLEW),
        ("until", "until it meets the nearest record (median)", COLOURS[0]),
        ("one_path", "one way down", COLOURS[1]),
    ):
        axes.plot(sizes, [row[key] for row in rows], "o-", color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("records")
    axes.set_ylabel("scorings per query")
    axes.grid(color="#eeeeee")
    axes.legend(frameon=False)
    return figure


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    numbers = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    figure = {"quality": quality, "speed": speed, "tree": tree}[numbers["kind"]](numbers, plt)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(sys.argv[2], dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
