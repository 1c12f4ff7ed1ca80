"""Badges: by the chance of being relevant; Athena's fusion has thresholds of its own."""

from __future__ import annotations

import math
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew import config as settings
from clew.ranking.adaptive import Facts
from clew.ranking.confidence import Chance, Evidence, Judge, confidence, coverage
from clew.text.parse import parse
from clew.text.snippet import matcher
from clew.types import Candidate, Query

from hashing import HashingEmbedder

ROOT = Path(__file__).parents[2]
BGE = Facts(reach=20.0, unrelated=0.57)
PROFILE = settings.profile("default")
HIGH, MED = PROFILE["confidence_high"], PROFILE["confidence_med"]


def judged(
    query: str,
    text: str,
    cosine: float | None,
    *,
    facts: Facts = BGE,
    keyword: Mapping[str, float] | None = None,
    cosines: Mapping[str, float] | None = None,
    labels: str = "",
) -> Chance:
    """Of the record `it`, with this cosine if it is in no list."""
    terms = parse(query, limit=10).terms
    judge = Judge(terms, facts, matcher(terms), keyword=keyword, cosines=cosines)
    return judge("it", text, labels, cosine)


# ---------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    ("score", "badge"),
    [
        (0.03, "HIGH"),
        (math.nextafter(0.03, 0), "MED"),
        (0.02, "MED"),
        (math.nextafter(0.02, 0), "LOW"),
        (0.0, "LOW"),
        (2.5, "HIGH"),
    ],
)
def test_a_threshold_is_the_first_score_that_passes(score: float, badge: str) -> None:
    assert confidence(score, high=0.03, med=0.02) == badge


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_score_never_has_a_worse_badge(a: float, b: float, c: float, d: float) -> None:
    med, high = sorted((a, b))
    worse, better = sorted((c, d))
    order = ("LOW", "MED", "HIGH")
    badges = [confidence(score, high=high, med=med) for score in (worse, better)]
    assert order.index(badges[0]) <= order.index(badges[1])


# ---------------------------------------------------------------- the chance


def test_coverage_counts_words_and_parts_of_compounds() -> None:
    words = parse("keel getUserName 2026", limit=1).terms.words
    assert coverage(words, {"keel", "getusernam", "2026"}) == 1.0
    assert coverage(words, {"keel", "get", "user", "name", "2026"}) == 1.0
    assert coverage(words, {"keel", "user"}) == pytest.approx((1 + 1 / 3) / 3)
    assert coverage(words, set()) == 0.0


def test_near_and_with_the_words_is_likelier_than_either() -> None:
    words = judged("zinc anode", "the zinc anode is gone", 0.60).value
    near = judged("zinc anode", "sacrificial metal on the hull", 0.80).value
    both = judged("zinc anode", "the zinc anode is gone", 0.80).value
    neither = judged("zinc anode", "a recipe for bread", 0.52).value
    assert neither < MED < min(words, near) <= max(words, near) < both


def test_words_of_title_heading_tags_and_file_name_count() -> None:
    with_labels = judged("zinc anode", "replace it each spring", 0.6, labels="Zinc\nanode.md")
    assert with_labels.coverage == 1.0
    assert with_labels.value > judged("zinc anode", "replace it each spring", 0.6).value


def test_a_passage_without_a_vector_is_judged_by_words_alone() -> None:
    found = judged("zinc anode", "the zinc anode", None)
    assert (found.by, found.coverage, found.nearness) == ("words", 1.0, None)
    assert judged("zinc anode", "bread", None).value < MED <= found.value


def test_a_query_without_words_is_judged_by_vectors_alone() -> None:
    close, far = judged("", "zinc", 0.9), judged("", "zinc", 0.5)
    assert (close.by, close.coverage) == ("vectors", None)
    assert far.value < MED <= close.value


def test_in_a_script_that_the_model_does_not_know_words_decide() -> None:
    foreign = BGE._replace(known=0.0)
    found = judged("出汁", "昆布の出汁を取る", 0.9, facts=foreign)
    assert found.by == "words"
    assert found.value == judged("出汁", "昆布の出汁を取る", None).value
    assert judged("出汁", "味噌", 0.9, facts=foreign).value < MED


def test_standing_above_the_rest_makes_surer_and_never_less_sure() -> None:
    text, rest = "the zinc anode", {f"other{i}": 0.70 - i / 100 for i in range(40)}
    words = {f"other{i}": 6.0 - i / 10 for i in range(40)}
    alone = judged("zinc anode", text, 0.80).value
    among = judged("zinc anode", text, None, keyword=words, cosines={**rest, "it": 0.80})
    above = judged(
        "zinc anode", text, None, keyword={**words, "it": 18.0}, cosines={**rest, "it": 0.80}
    )
    crowd = {name: 0.80 - i / 1000 for i, name in enumerate(rest)}
    level = judged(
        "zinc anode", text, None, keyword={**words, "it": 6.0}, cosines={**crowd, "it": 0.80}
    )
    assert (among.lead, among.value) == (0.0, alone)  # in one leg only
    assert level.lead == pytest.approx(0.0, abs=0.02)
    assert alone <= level.value < above.value
    assert above.value >= HIGH


scores = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 20), max_size=8)
cosines = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-1, 1), max_size=8)


@given(scores, cosines, st.floats(0, 20), st.floats(-1, 1))
def test_copies_and_two_more_good_answers_take_nothing_away(
    words: dict[str, float], near: dict[str, float], score: float, cosine: float
) -> None:
    def chance(*more: str) -> float:
        keyword = {**words, "it": score, **dict.fromkeys(more, score)}
        listed = {**near, "it": cosine, **dict.fromkeys(more, cosine)}
        return judged("zinc anode", "zinc", None, keyword=keyword, cosines=listed).value

    assert chance("copy") == chance("copy", "another", "third") == chance()


@given(st.floats(0, 20), st.floats(0, 20), st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_what_is_better_in_both_legs_is_at_least_as_sure(
    a: float, b: float, c: float, d: float, known: float
) -> None:
    facts = BGE._replace(known=known)
    values = [
        judged(
            "zinc anode",
            text,
            None,
            facts=facts,
            keyword={"it": score, "x": 4.0, "y": 3.0, "z": 2.0},
            cosines={"it": cosine, "x": 0.7, "y": 0.65, "z": 0.6},
        ).value
        for text, score, cosine in zip(
            ("zinc", "zinc anode"), sorted((a, b)), sorted((c, d)), strict=True
        )
    ]
    assert 0.0 <= values[0] <= values[1] <= 1.0


# ---------------------------------------------------------------- through the engine

Giving = Callable[[Query, Any], Sequence[Candidate]]


def giving(*pairs: tuple[str, float]) -> Giving:
    return lambda query, context: [Candidate(name, score) for name, score in pairs]


def only(tmp_path: Path, pairs: Sequence[tuple[str, float]], **set: Any) -> clew.Engine:
    """An engine with one made-up source, of weight 1.22: its first hit of score 1 has 0.03."""
    engine = clew.open(tmp_path, model="none", cache=False, **set)
    engine.add([clew.Record(name, f"the keel of {name}") for name in "abcd"])
    engine.sources.clear()
    engine.sources["one"] = giving(*pairs)
    return engine


@pytest.mark.parametrize(
    ("own", "rrf_score", "badge"),
    [
        (1.0, 0.03, "HIGH"),
        (1.0 - 1e-12, None, "MED"),
        (0.5, 0.02, "MED"),
        (0.5 - 1e-12, None, "LOW"),
    ],
)
def test_weighted_rrf_has_athenas_thresholds_to_the_last_digit(
    tmp_path: Path, own: float, rrf_score: float | None, badge: str
) -> None:
    with only(tmp_path, [("a", own)], fusion="weighted_rrf") as engine:
        found = engine.search("keel", weights={"one": 1.22})
    assert found[0].confidence == badge
    assert rrf_score is None or found[0].rrf_score == rrf_score
    said = found.trace["confidence"]
    assert (said["by"], said["high"], said["med"]) == ("rrf_score", 0.03, 0.02)


@pytest.mark.parametrize("fusion", ["adaptive", "convex", "dbsf", "rrf", "weighted_rrf"])
@pytest.mark.parametrize("profile", ["athena", "default"])
def test_the_chance_and_its_reasons_are_always_there_and_the_same(
    tmp_path: Path, fusion: str, profile: str
) -> None:
    records = [clew.Record(f"note{i}", f"rope and anchor {i}") for i in range(8)]
    options: dict[str, Any] = {"fusion": fusion, "profile": profile, "cache": False}
    with clew.open(tmp_path, embedder=HashingEmbedder(), **options) as engine:
        engine.add([*records, clew.Record("it", "zinc anode replaced before winter")])
        engine.embed()
        found = engine.search("zinc anode replaced")
    said = found.trace["confidence"]
    assert set(said["because"]) == {hit.id for hit in found}
    because = said["because"]["it"]
    assert found[0].id == "it" and found[0].chance == because["value"]
    assert (because["by"], because["coverage"]) == ("both", 1.0)
    assert because["nearness"] > 0.5 and because["lead"] > 0
    by = "rrf_score" if fusion == "weighted_rrf" else "chance"
    assert said["by"] == by
    for hit in found:
        score = hit.chance if by == "chance" else hit.rrf_score
        assert hit.confidence == confidence(score or 0.0, high=said["high"], med=said["med"])
    assert found.to_dict()["results"][0]["chance"] == found[0].chance


def test_strict_drops_what_is_below_medium_and_counts_it(tmp_path: Path) -> None:
    pairs = [("a", 1.0), ("b", 0.6), ("c", 0.4), ("d", 0.1)]
    with only(tmp_path, pairs, fusion="weighted_rrf") as engine:
        usual = engine.search("keel", weights={"one": 1.22})
        strict = engine.search("keel", weights={"one": 1.22}, strict=True)
    assert [hit.confidence for hit in usual] == ["HIGH", "MED", "LOW", "LOW"]
    assert usual.suppressed == 0
    assert [hit.id for hit in strict] == ["a", "b"]
    assert strict.suppressed == 2
    assert strict.to_dict()["suppressed"] == 2


def test_strict_may_leave_nothing_and_says_how_much_there_was(tmp_path: Path) -> None:
    with only(tmp_path, [("a", 0.1), ("b", 0.1)], fusion="rrf") as engine:
        found = engine.search("payroll", strict=True)
    assert (len(found), found.suppressed) == (0, 2)
    assert found.to_dict()["message"]


def test_thresholds_are_settings(tmp_path: Path) -> None:
    with only(tmp_path, [("a", 3)]) as engine:
        chance = engine.search("keel")[0].chance
    assert chance is not None
    for high, med, badge in (
        (chance, 0.0, "HIGH"),
        (1.0, chance, "MED"),
        (1.0, chance + 0.001, "LOW"),
    ):
        own = {"confidence_high": high, "confidence_med": med}
        with only(tmp_path / badge, [("a", 3)], **own) as engine:
            assert engine.search("keel")[0].confidence == badge


WORDS = ("mast", "rope", "anchor", "harbour", "lamp", "coffee", "kettle", "saw", "paint", "glue")


@pytest.fixture
def folder(tmp_path: Path) -> clew.Engine:
    """Sixty notes of the same few words, and one that is like no other."""
    engine = clew.open(tmp_path, embedder=HashingEmbedder(), cache=False)
    notes = [
        clew.Record(f"note{i:02}", " ".join(WORDS[(i * k) % 10] for k in (1, 3, 7)))
        for i in range(60)
    ]
    engine.add([*notes, clew.Record("it", "zinc anode replaced before winter")])
    engine.embed()
    return engine


def test_a_copy_of_a_record_lowers_no_badge(folder: clew.Engine) -> None:
    query = "zinc anode replaced"
    with folder as engine:
        before = {hit.id: hit for hit in engine.search(query)}
        engine.add(clew.Record(f"copy{i}", "zinc anode replaced before winter") for i in range(4))
        engine.embed()
        after = {hit.id: hit for hit in engine.search(query)}
    assert before["it"].confidence == after["it"].confidence == "HIGH"
    assert {after[f"copy{i}"].confidence for i in range(4)} == {"HIGH"}


def test_what_nothing_answers_gets_no_high(folder: clew.Engine) -> None:
    with folder as engine:
        found = engine.search("quarterly payroll deadline rope")
    assert len(found) == 10
    assert "HIGH" not in {hit.confidence for hit in found}


def test_the_same_memory_is_as_likely_among_four_as_among_four_hundred(tmp_path: Path) -> None:
    query, chances = "who is allergic to walnuts", []
    for count in (3, 400):
        with clew.open(tmp_path / str(count), embedder=HashingEmbedder(), cache=False) as engine:
            others = (clew.Record(f"r{i}", f"{WORDS[i % 10]} number {i}") for i in range(count))
            engine.add([clew.Record("it", "Ana is allergic to walnuts"), *others])
            engine.embed()
            found = engine.search(query)
            assert found[0].id == "it"
            chances.append(found.trace["confidence"]["because"]["it"])
    small, large = chances
    assert small["coverage"] == large["coverage"] == 1.0
    assert small["nearness"] == large["nearness"]
    assert small["value"] == pytest.approx(large["value"], abs=0.05)


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
@pytest.mark.parametrize("query", ["zinc anode", "anchor rope", "coffee", "payroll"])
def test_strict_is_the_same_answer_without_what_is_low(
    folder: clew.Engine, query: str, mode: Any
) -> None:
    with folder as engine:
        usual = engine.search(query, mode=mode)
        strict = engine.search(query, mode=mode, strict=True)
    assert [hit.id for hit in strict] == [hit.id for hit in usual if hit.confidence != "LOW"]
    assert strict.suppressed == len(usual) - len(strict)


def test_what_no_list_by_meaning_names_is_judged_by_its_vector_all_the_same(
    folder: clew.Engine,
) -> None:
    with folder as engine:
        engine.sources["row"] = lambda query, context: [
            Candidate("it", 1.0, context.store.keyword(query.terms, query.filter, limit=1)[0].chunk)
        ]
        listed = engine.search("zinc anode", sources=["keyword", "vectors"])
        alone = engine.search("zinc anode", sources=["row", "vectors"], least={"vectors": 2.0})
        by_words = engine.search("zinc anode", sources=["row"])
    near = [f.trace["confidence"]["because"]["it"]["nearness"] for f in (listed, alone, by_words)]
    assert near[0] == pytest.approx(near[1], abs=1e-4)
    assert near[2] is None  # nothing is embedded for a search of words


class Backwards:
    """A cross-encoder that likes best what came last."""

    model = "backwards@1"

    def __init__(self) -> None:
        self.read = 0

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.read += len(passages)
        return [float(self.read + i) for i in range(len(passages))]


def test_reranking_changes_the_order_and_no_badge(tmp_path: Path, folder: clew.Engine) -> None:
    with folder as plain:
        engine = clew.Engine(
            plain.store,
            config=clew.config.load(None, {"cache": False, "rerank_blend": 1.0}),
            embedder=HashingEmbedder(),
            reranker=Backwards(),
        )
        usual = plain.search("zinc anode rope", limit=25)
        again = engine.search("zinc anode rope", limit=25, rerank=True)
    assert [hit.id for hit in again] != [hit.id for hit in usual]
    badges = {hit.id: (hit.confidence, hit.chance) for hit in usual}
    assert {hit.id: (hit.confidence, hit.chance) for hit in again} == badges


def test_a_list_of_what_matches_a_filter_has_no_badges(folder: clew.Engine) -> None:
    with folder as engine:
        found = engine.search("collection:default", strict=True)
    assert len(found) == 10
    assert {(hit.confidence, hit.chance) for hit in found} == {(None, None)}
    assert found.suppressed == 0


# ---------------------------------------------------------------- the floor


def test_a_floor_leaves_out_what_is_unlikely_unless_the_scale_is_a_guess(tmp_path: Path) -> None:
    known, unknown = HashingEmbedder(model="bge-small@test"), HashingEmbedder()
    for embedder, left in ((known, 1), (unknown, 9)):
        with clew.open(tmp_path / embedder.model, embedder=embedder, cache=False) as engine:
            engine.add(clew.Record(f"note{i}", f"rope and anchor {i}") for i in range(8))
            engine.add([clew.Record("it", "zinc anode replaced")])
            engine.embed()
            assert len(engine.search("zinc anode")) == 9
            found = engine.search("zinc anode", mode="vector")
            assert (len(found), found.suppressed) == (left, 9 - left)
            assert found[0].id == "it"
            assert len(engine.search("zinc anode", mode="vector", floor=0)) == 9
            assert len(engine.search("zinc anode", floor=0.5)) == left
            assert found.trace["confidence"]["floor"] == engine.config.floor


def test_the_floor_is_a_setting_and_must_make_sense(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder(model="bge-small@test"), floor=0) as engine:
        engine.add([clew.Record("a", "rope"), clew.Record("b", "anchor")])
        engine.embed()
        assert len(engine.search("rope", mode="vector")) == 2
        assert len(engine.search("rope", mode="vector", floor=0.01)) == 1
        assert len(engine.search("rope", mode="vector")) == 2  # and not what was kept
        with pytest.raises(clew.ClewError, match="floor"):
            engine.search("rope", floor=2)


# ---------------------------------------------------------------- the sample, by the real model


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> clew.Engine:
    folder = tmp_path_factory.mktemp("home") / "sample"
    # its README holds the words of the searches
    ignored = shutil.ignore_patterns(".clew", "README.md")
    shutil.copytree(ROOT / "sample", folder, ignore=ignored)
    engine = clew.open(folder, cache=False)
    engine.index()
    return engine


def test_strict_keeps_right_answers_of_the_sample_and_drops_those_to_off_topic_questions(
    sample: clew.Engine,
) -> None:
    questions = tomllib.loads((ROOT / "benchmarks" / "sample_questions.toml").read_text("utf-8"))
    right = [
        found[0].confidence
        for query, files in questions["about"].items()
        if (found := sample.search(query)) and found[0].path in files
    ]
    assert len(right) >= 45
    assert right.count("LOW") <= 0.05 * len(right)
    off_topic = questions["off_topic"]["questions"]
    answered = [query for query in off_topic if len(sample.search(query, strict=True))]
    assert len(answered) <= 0.1 * len(off_topic), answered


def test_two_good_answers_do_not_cancel_each_other(sample: clew.Engine) -> None:
    found = sample.search("keel bolt torque", strict=True)
    assert {"protocols/keel-bolts-kestrel-28.md", "protocols/keel-bolts-kestrel-32.md"} <= {
        hit.path for hit in found
    }


def test_a_copy_of_a_file_lowers_no_badge(sample: clew.Engine) -> None:
    queries = (
        "amine blush",
        "squeaking coffee roaster",
        "TX-4471-B",
        "electric fuse keeps blowing",
    )
    order = ("LOW", "MED", "HIGH")
    before = {query: sample.search(query)[0] for query in queries}
    root = sample.root or Path()
    for hit in {hit.path: hit for hit in before.values()}.values():
        assert hit.path is not None
        shutil.copy(root / hit.path, root / f"copy-of-{Path(hit.path).name}")
    sample.index()
    for query, hit in before.items():
        again = {each.path: each for each in sample.search(query, group_by="record")}
        found = again[hit.path].confidence
        assert order.index(found or "LOW") >= order.index(hit.confidence or "LOW"), query
        assert again[f"copy-of-{Path(hit.path or '').name}"].confidence == found


def test_a_code_that_is_written_there_is_what_was_meant(sample: clew.Engine) -> None:
    found = sample.search("TX-4471-B")
    for hit in found:
        assert (hit.confidence == "HIGH") == ("TX-4471-B" in hit.content)
    assert found.trace["confidence"]["because"][found[0].id]["by"] == "words"
    assert sample.search("TX-4471-C")[0].confidence != "HIGH"
    assert sample.search("journal/2025-05-30")[0].confidence != "HIGH"  # a path is no code
    assert sample.search("TX-4471-B quantum chromodynamics")[0].confidence != "HIGH"


def test_a_page_that_is_found_by_its_alias_is_kept(tmp_path: Path) -> None:
    (tmp_path / "Bike.md").write_text("---\naliases: [velocipede]\n---\nTwo wheels and a saddle.\n")
    (tmp_path / "Bread.md").write_text("Flour, water, salt and time.\n")
    with clew.open(tmp_path, cache=False) as engine:
        engine.index()
        assert [hit.path for hit in engine.search("velocipede", strict=True)] == ["Bike.md"]


# ---------------------------------------------------------------- late interaction


def match_of(match: float | None, cosine: float | None = 0.7, text: str = "zinc anode") -> Chance:
    terms = parse("zinc anode", limit=10).terms
    return Judge(terms, BGE, matcher(terms))("it", text, "", cosine, match)


def test_without_late_interaction_the_chance_is_that_of_words_and_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = match_of(None)
    assert before == judged("zinc anode", "zinc anode", 0.7)
    monkeypatch.setattr("clew.ranking.confidence.TOKENS", Evidence(-34.25, 0.67, 36.69))
    assert match_of(None) == before


def test_a_match_is_told_and_shifts_the_logit_by_its_coefficient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert match_of(0.9).match == 0.9
    monkeypatch.setattr("clew.ranking.confidence.TOKENS", Evidence(-9.0, 1.0, 10.0))
    assert match_of(0.8).value < match_of(None).value
    assert match_of(0.9).value == pytest.approx(match_of(None).value, abs=1e-4)
    assert match_of(0.9).value < match_of(1.0).value


def test_a_match_says_nothing_where_words_judge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.ranking.confidence.TOKENS", Evidence(-34.25, 0.67, 36.69))
    assert match_of(0.99, cosine=None) == match_of(None, cosine=None)
