from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from clew.cli.eval import print_figures
from clew.errors import InputError
from clew.eval import metrics, report
from clew.eval.datasets import Dataset, read
from clew.eval.harness import Run

FOUND = {"q1": ("d1", "d2", "d 5"), "q2": ("d4",), "q3": ("d4", "d3")}
WORSE = {"q1": ("d2",), "q2": (), "q3": ("d4",)}
MS = {"total": (1.0, 2.0, 30.0), "parse": (0.1, 0.2, 0.3)}


@pytest.fixture
def dataset(write: Any) -> Dataset:
    return read(write())


@pytest.fixture
def summary(dataset: Dataset) -> dict[str, Any]:
    runs = [Run("hybrid", FOUND, MS, {"vectors: late": 2}), Run("keyword", WORSE, MS)]
    return report.summarise(dataset, runs, unavailable={"rerank": "no weights"}, model="m")


def test_the_summary_has_the_promised_names(summary: dict[str, Any]) -> None:
    hybrid = summary["modes"]["hybrid"]
    assert summary["dataset"] == "tiny" and summary["queries"] == 3 and summary["documents"] == 5
    names = {"ndcg@10", "mrr@10", "recall@1", "recall@5", "recall@10", "recall@100", "success@1"}
    assert names | {"p50_ms", "p95_ms", "stages", "ci95", "categories"} <= set(hybrid)
    assert set(hybrid["ci95"]) == names
    assert json.loads(json.dumps(summary)) == summary


def test_means_are_over_queries_and_categories(summary: dict[str, Any]) -> None:
    hybrid = summary["modes"]["hybrid"]
    assert hybrid["mrr@10"] == pytest.approx((1 + 0 + 0.5) / 3, abs=1e-4)
    assert hybrid["recall@1"] == pytest.approx((0.5 + 0 + 0) / 3, abs=1e-4)
    assert hybrid["recall@5"] == pytest.approx((1 + 0 + 1) / 3, abs=1e-4)
    assert hybrid["categories"]["boat"]["mrr@10"] == 0.5
    assert hybrid["categories"]["boat"]["queries"] == 2
    assert hybrid["categories"]["food"]["mrr@10"] == 0.5
    assert hybrid["categories"]["food"]["ci95"]["mrr@10"] is None  # one query
    assert (hybrid["p50_ms"], hybrid["stages"]["parse"]["p50_ms"]) == (2.0, 0.2)
    assert hybrid["p95_ms"] == pytest.approx(27.2)


def test_modes_are_compared_pair_by_pair(summary: dict[str, Any]) -> None:
    (row,) = summary["significance"]
    modes = summary["modes"]
    gap = modes["hybrid"]["ndcg@10"] - modes["keyword"]["ndcg@10"]
    assert row["modes"] == ["hybrid", "keyword"] and row["measure"] == "ndcg@10"
    assert row["difference"] == pytest.approx(gap, abs=2e-4) and 0 < row["p"] <= 1


def test_p_is_corrected_for_the_number_of_pairs(dataset: Dataset) -> None:
    runs = [Run("hybrid", FOUND), Run("keyword", WORSE), Run("vector", {"q1": ("d2", "d1")})]
    summary = report.summarise(dataset, runs)
    rows = summary["significance"]
    assert [row["p"] for row in rows] == metrics.holm([row["p_alone"] for row in rows])
    assert rows[0]["p"] > rows[0]["p_alone"]
    out = io.StringIO()
    print_figures(summary, Console(file=out, width=80))
    assert "p corrected for 3 comparisons (Holm)" in out.getvalue()


def test_a_single_pair_needs_no_correction(summary: dict[str, Any]) -> None:
    (row,) = summary["significance"]
    assert row["p"] == row["p_alone"]
    out = io.StringIO()
    print_figures(summary, Console(file=out, width=80))
    assert "Holm" not in out.getvalue()


def test_people_see_all_of_it(summary: dict[str, Any]) -> None:
    out = io.StringIO()
    summary["modes"]["hybrid"]["run"] = "/somewhere/tiny.hybrid.run"
    summary["embedded"] = 0.5
    print_figures(summary, Console(file=out, width=80))
    shown = out.getvalue()
    for text in ("nDCG@10", "R@100", "boat · 2 queries", "parse", "p = ", "tiny.hybrid.run"):
        assert text in shown
    assert "rerank is not available: no weights" in shown
    assert "2 searches: vectors: late" in shown and "50% of the passages" in shown
    assert "hybrid" in shown.splitlines()[2]


def test_nothing_available_is_no_crash(dataset: Dataset) -> None:
    out = io.StringIO()
    nothing = report.summarise(dataset, [], unavailable={"vector": "no weights"})
    print_figures(nothing, Console(file=out, width=80))
    assert "vector is not available" in out.getvalue()


def test_the_plot_is_a_picture(summary: dict[str, Any], tmp_path: Path) -> None:
    report.plot(summary, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="cannot be written"):
        report.plot(summary, tmp_path / "no" / "such" / "bars.png")
