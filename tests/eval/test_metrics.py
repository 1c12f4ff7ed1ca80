from __future__ import annotations

import itertools
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import ConfigError
from clew.eval import metrics

DOCUMENTS = [f"d{i}" for i in range(30)]


def plain(judged: dict[str, int], ranked: list[str]) -> dict[str, float]:
    """The same measures from their definitions."""

    def gain(grades: list[int]) -> float:
        return sum(max(g, 0) / math.log2(i + 2) for i, g in enumerate(grades[:10]))

    relevant = {name for name, grade in judged.items() if grade > 0}
    best = gain(sorted(judged.values(), reverse=True))
    places = [i for i, name in enumerate(ranked[:10], 1) if name in relevant]
    figures = {
        "ndcg@10": gain([judged.get(name, 0) for name in ranked]) / best,
        "mrr@10": 1 / places[0] if places else 0.0,
        "success@1": float(bool(ranked) and ranked[0] in relevant),
    }
    for k in (1, 5, 10, 100):
        figures[f"recall@{k}"] = len(relevant & set(ranked[:k])) / len(relevant)
    return figures


def test_figures_worked_out_by_hand() -> None:
    qrels = {"q": {"a": 3, "b": 1, "c": 1}, "none": {"z": 1}}
    found = metrics.per_query(qrels, {"q": ["x", "a", "b"], "none": []})
    gains = 3 / math.log2(3) + 1 / math.log2(4)
    ideal = 3 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found["ndcg@10"]["q"] == pytest.approx(gains / ideal)  # 0.5787…
    assert found["mrr@10"]["q"] == 0.5
    assert found["recall@1"]["q"] == 0 and found["recall@5"]["q"] == pytest.approx(2 / 3)
    assert found["success@1"]["q"] == 0
    assert all(values["none"] == 0 for values in found.values())
    assert set(found) == set(metrics.MEASURES)


@given(
    st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1).filter(
        lambda judged: any(judged.values())
    ),
    st.permutations(DOCUMENTS),
    st.integers(0, 30),
)
def test_every_measure_is_what_its_definition_says(
    judged: dict[str, int], order: list[str], length: int
) -> None:
    ranked = order[:length]
    found = metrics.per_query({"q": judged}, {"q": ranked})
    for name, value in plain(judged, ranked).items():
        assert found[name]["q"] == pytest.approx(value), name


def test_mrr_looks_at_ten_and_recall_at_a_hundred() -> None:
    ranked = [f"x{i}" for i in range(10)] + ["a"] + [f"y{i}" for i in range(88)] + ["b", "c"]
    found = metrics.per_query({"q": {"a": 1, "b": 1, "c": 1}}, {"q": ranked})
    assert found["mrr@10"]["q"] == 0 and found["recall@10"]["q"] == 0
    assert found["recall@100"]["q"] == pytest.approx(2 / 3)


def test_the_order_given_counts_not_the_ids() -> None:
    found = metrics.per_query({"q": {"z": 1}}, {"q": ["z", "a"]})
    assert found["success@1"]["q"] == 1


def test_an_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [0.0, 0.2, 0.9, 1.0, 0.4, 0.4, 0.7] * 20
    low, high = metrics.interval(values) or (0, 0)
    mean = metrics.mean(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) / len(values))
    assert low < mean < high
    # the normal approximation is good with 140 values
    assert low == pytest.approx(mean - 1.96 * spread, abs=0.01)
    assert high == pytest.approx(mean + 1.96 * spread, abs=0.01)
    assert metrics.interval(values) == (low, high)
    assert metrics.interval([0.5]) is None and metrics.interval([]) is None
    assert metrics.interval([0.5] * 9) == (0.5, 0.5)


def test_p_is_that_of_all_sign_flips() -> None:
    a = [0.9, 0.8, 0.3, 0.7, 0.5, 0.95, 0.6, 0.2]
    b = [0.5, 0.7, 0.4, 0.2, 0.45, 0.9, 0.1, 0.25]
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    observed = abs(sum(gaps))
    flips = list(itertools.product((1, -1), repeat=len(gaps)))
    as_far = sum(
        abs(sum(sign * gap for sign, gap in zip(signs, gaps, strict=True))) >= observed - 1e-12
        for signs in flips
    )
    gap, p = metrics.difference(a, b)
    assert gap == pytest.approx(sum(gaps) / len(gaps))
    assert p == pytest.approx(as_far / len(flips), abs=1e-6)
    assert metrics.difference(b, a) == (pytest.approx(-gap), pytest.approx(p))


def test_equal_runs_do_not_differ_and_clear_ones_do() -> None:
    assert metrics.difference([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == (0.0, 1.0)
    better = [0.6 + 0.001 * i for i in range(200)]
    worse = [0.5 + 0.0011 * i for i in range(200)]
    assert metrics.difference(better, worse)[1] < 0.001
    assert metrics.difference(better, worse) == metrics.difference(better, worse)


def test_holm_worked_out_by_hand() -> None:
    assert metrics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert metrics.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert metrics.holm([0.2]) == [0.2] and metrics.holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_a_corrected_p_is_the_level_at_which_holms_procedure_rejects(
    ps: list[float], level: float
) -> None:
    """The procedure: from the smallest on, reject while p ≤ level / how many are left."""
    rejected = set()
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if ps[i] * (len(ps) - rank) > level:
            break
        rejected.add(i)
    corrected = metrics.holm(ps)
    assert {i for i, p in enumerate(corrected) if p <= level} == rejected
    assert all(p <= q <= 1 for p, q in zip(ps, corrected, strict=True))


def test_without_the_extra_the_error_names_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(ConfigError, match=r"pip install 'clew-search\[eval\]'"):
        metrics.per_query({"q": {"a": 1}}, {"q": ["a"]})
