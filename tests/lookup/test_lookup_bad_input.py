"""What is wrong with a lookup is said; what is wrong with a backend is said beside the others."""

from __future__ import annotations

import gc
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from handles import look_up

import clew
from clew import ExternalLookupResult, Hit, Search
from clew.cache import build_cache_key
from clew.lookup import Found, Partial

GOOD = [{"id": "good", "text": "keel torque"}]


def lookup(
    backends: dict[str, Any], query: str = "keel torque", **settings: Any
) -> ExternalLookupResult:
    with Search(backends=backends, **settings) as search:
        return look_up(search, query)


def good(query: str, limit: int) -> list[dict[str, str]]:
    return GOOD


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\u3000"])
def test_a_query_of_white_space_is_an_error(search: Search, query: str) -> None:
    with pytest.raises(clew.InputError, match="empty"):
        search.external_lookup(query)


@pytest.mark.parametrize("query", [None, 5, b"keel", ["keel"]])
def test_a_query_that_is_no_text_is_an_error(search: Search, query: Any) -> None:
    with pytest.raises(clew.InputError, match="a query is text"):
        search.external_lookup(query)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "5", None])
def test_a_number_of_results_that_is_none_is_an_error(search: Search, count: Any) -> None:
    for ask in (
        lambda: search.external_lookup("keel", count),
        lambda: search.embedding_lookup([1.0] * 64, count),
    ):
        with pytest.raises(clew.InputError, match="max_results"):
            ask()


@pytest.mark.parametrize(
    "query",
    ['"', "-keel", "a AND (b", "tag:x", "'; DROP TABLE x", "%", "\0", "\ud800", "x" * 10_000],
)
def test_no_character_of_a_query_is_special(search: Search, query: str) -> None:
    search.external_lookup(query)


@pytest.mark.parametrize(
    "weights",
    [
        {"bm25": 0.3, "semantic": 0.3, "credibility": 0.3},
        {"bm25": 1.5, "semantic": -0.5},
        {"bm25": float("nan")},
        {"words": 1.0},
        "bm25",
    ],
)
def test_weights_that_make_no_sense_are_an_error_at_once(weights: Any) -> None:
    with pytest.raises(clew.ConfigError):
        Search(weights=weights)


def test_weights_that_are_all_nought_count_all_alike() -> None:
    found = lookup({"good": good}, weights={"bm25": 0, "semantic": 0, "credibility": 0})
    assert found.trace["ranking"]["weights"] == {"bm25": 0.5, "credibility": 0.5}


def test_an_unknown_backend_is_an_error_that_names_the_nearest(storage: clew.Engine) -> None:
    hint = pytest.raises(clew.ConfigError, match="did you mean 'storage_keyword'")
    with Search(storage, backends=["storage_keywrd"]) as search, hint:
        search.external_lookup("keel")


@pytest.mark.parametrize(
    "setting",
    [
        {"deadline": 0},
        {"deadline": float("inf")},
        {"depth": 0},
        {"ranking": "best"},
        {"folders": [5]},
        {"cache": "yes"},
        {"coverage_gap": 2},
        {"credibility": {"a.org": 2}},
        {"colour": "blue"},
    ],
)
def test_a_setting_that_makes_no_sense_is_an_error(setting: dict[str, Any]) -> None:
    with pytest.raises(clew.ConfigError):
        Search(**setting)


def raises(query: str, limit: int) -> Any:
    raise RuntimeError("out of order")


def exits(query: str, limit: int) -> Any:
    raise SystemExit(3)


def refuses(query: str, limit: int) -> Any:
    raise clew.SourceError("the key has expired: renew it")


def breaks_off(query: str, limit: int) -> Iterator[Any]:
    yield {"id": "first", "text": "keel"}
    raise OSError("connection lost")


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (raises, "RuntimeError: out of order"),
        (exits, "SystemExit: 3"),
        (refuses, "the key has expired"),
        (breaks_off, "connection lost"),
        (lambda query, limit: None, "gave NoneType"),
        (lambda query, limit: "keel", "gave str"),
        (lambda query, limit: {"id": "a", "text": "b"}, "gave dict"),
        (lambda query, limit: 5, "gave int"),
        (lambda query: [], "TypeError"),
    ],
)
def test_a_backend_that_fails_is_named_beside_the_others_results(
    backend: Callable[..., Any], said: str
) -> None:
    found = lookup({"bad": backend, "good": good})
    assert [hit.id for hit in found] == ["good"]
    assert found.by_backend["bad"] == () and len(found.by_backend["good"]) == 1
    (problem,) = found.degraded
    assert problem.startswith("bad: ") and said in problem


def test_without_handles_the_log_names_it(caplog: pytest.LogCaptureFixture) -> None:
    with Search(backends={"bad": raises, "good": good}) as search:
        assert [hit.id for hit in search.external_lookup("keel")] == ["good"]
    assert "out of order" in caplog.text


def test_where_all_fail_nothing_is_made_up() -> None:
    found = lookup({"bad": raises, "worse": exits})
    assert list(found) == [] and len(found.degraded) == 2


@pytest.mark.parametrize(
    "entry",
    [
        None,
        5,
        "text",
        [],
        {},
        {"id": "x"},
        {"id": "", "text": "keel"},
        {"text": "no id"},
        {"id": 5, "text": "keel"},
        {"id": "x", "text": 5},
        {"id": "x", "text": "keel", "score": float("nan")},
        {"id": "x", "text": "keel", "score": "high"},
        {"id": "x", "text": "keel", "lines": 5},
        Hit("", "keel"),
        Hit("x", None),  # type: ignore[arg-type]
        Hit("x", "keel", score=float("inf")),
        Found(Hit("x", "", title=" ")),
    ],
)
def test_an_entry_that_is_garbage_is_counted_and_left_out(entry: Any) -> None:
    found = lookup({"bad": lambda query, limit: [entry, *GOOD]})
    assert [hit.id for hit in found] == ["good"]
    assert found.degraded == ("bad: 1 entry made no sense",)


def test_a_backend_without_end_is_cut() -> None:
    def endless(query: str, limit: int) -> Iterator[Any]:
        number = 0
        while True:
            number += 1
            yield {"id": f"r{number}", "text": f"keel {number}"}

    found = lookup({"endless": endless}, depth=10)
    assert len(found) == 5 and found.trace["backends"]["endless"]["count"] <= 40


def test_a_backend_that_hangs_does_not_delay_the_others() -> None:
    over = threading.Event()

    def hangs(query: str, limit: int) -> Any:
        over.wait(60)
        return GOOD

    try:
        with Search(backends={"slow": hangs, "good": good}, deadline=1.0) as search:
            for _ in range(6):
                found = look_up(search, "keel")
                assert [hit.id for hit in found] == ["good"]
                assert found.degraded[0].startswith("slow: ")
            assert "still busy" in found.degraded[0]  # and it is not asked for ever
    finally:
        over.set()


def test_what_a_late_backend_gives_is_in_no_later_answer() -> None:
    begun, over = threading.Event(), threading.Event()

    def late(query: str, limit: int) -> Any:
        if not begun.is_set():
            begun.set()
            over.wait(60)
            return [{"id": "late", "text": query}]
        return GOOD

    with Search(backends={"late": late}, deadline=1.0, cache=False) as search:
        assert search.external_lookup("first") == []
        over.set()
        time.sleep(0.5)
        assert [hit.id for hit in search.external_lookup("second")] == ["good"]


def test_a_model_that_fails_leaves_the_ranking_to_words(storage: clew.Engine) -> None:
    class Broken:
        model, dim = "broken@1", 8

        def embed_query(self, text: str) -> Any:
            raise RuntimeError("no memory")

        def embed_documents(self, texts: Any) -> Any:
            raise RuntimeError("no memory")

    with Search(backends={"good": good}, embedder=Broken()) as search:
        found = look_up(search, "keel")
        assert [hit.id for hit in found] == ["good"] and "no memory" in found.degraded[0]


def test_a_problem_in_part_is_told_with_what_there_is() -> None:
    found = lookup({"half": lambda query, limit: Partial(GOOD, "one shard is down", ("note",))})
    assert [hit.id for hit in found] == ["good"]
    assert found.degraded == ("half: one shard is down",)
    assert found.trace["backends"]["half"]["notes"] == ["note"]


def test_results_are_deduplicated_and_cut() -> None:
    same = [{"id": f"r{i % 3}", "text": f"keel {i % 3}"} for i in range(30)]
    other = [{"id": "elsewhere", "text": "keel 1"}, {"url": "https://a.org/x", "text": "one"}]
    third = [{"url": "https://A.org/x/#top", "text": "two"}]
    backends = {
        "number one": lambda query, limit: same,
        "two": lambda query, limit: other,
        "three": lambda query, limit: third,
    }
    found = lookup(backends)
    ids = [hit.id for hit in found]
    assert sorted(ids) == ["https://a.org/x", "r0", "r1", "r2"]
    (twice,) = [hit for hit in found if hit.id == "r1"]
    assert twice.metadata["backends"] == ["number one", "two"]
    assert twice.metadata["also"] == ["elsewhere"]
    with Search(backends=backends) as search:
        assert len(search.external_lookup("keel", 2)) == 2


def test_one_id_of_two_backends_is_two_things_unless_it_says_the_same() -> None:
    backends = {
        "mails": lambda query, limit: [{"id": "1", "text": "keel mail"}, {"id": "2", "text": "k"}],
        "notes": lambda query, limit: [{"id": "1", "text": "keel note"}, {"id": "2", "text": "k"}],
    }
    found = lookup(backends)
    assert {hit.id: hit.content for hit in found} == {
        "1": "keel mail",
        "notes:1": "keel note",
        "2": "k",
    }
    assert {hit.id for hit in found.by_backend["notes"]} == {"notes:1", "2"}


@pytest.mark.parametrize("vector", [[], [float("nan")] * 64, [[1.0] * 64], "text", None, [1.0] * 3])
def test_a_vector_that_is_none_is_an_error(search: Search, vector: Any) -> None:
    with pytest.raises(clew.InputError):
        search.embedding_lookup(vector)


def test_documents_that_cannot_be_embedded_are_an_error(search: Search) -> None:
    with pytest.raises(clew.InputError, match="needs text"):
        search.add_embeddings([{"id": "x"}])
    with pytest.raises(clew.InputError, match="dimensions"):
        search.add_embeddings([{"text": "x", "embedding": [1.0]}], [1.0, 2.0])


@pytest.mark.parametrize(("name", "backend"), [("", good), (5, good), ("x", None), ("x", "text")])
def test_a_backend_is_a_name_and_a_function(search: Search, name: Any, backend: Any) -> None:
    with pytest.raises(clew.ConfigError, match="a name and a function"):
        search.register(name, backend)


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "x", "text": "keel", "path": 7},
        {"id": "x", "text": "keel", "url": 8},
        {"id": "x", "text": "keel", "score": 10**400},
        {"id": "x", "text": "keel", "lines": [1]},
        Hit("x", "keel", path=5),  # type: ignore[arg-type]
        Hit("x", "keel", lines=3),  # type: ignore[arg-type]
        Hit("x", "keel", signals={"x": 3}),  # type: ignore[dict-item]
        Found(Hit("x", "keel"), vector="x"),  # type: ignore[arg-type]
        Found(Hit("x", "keel"), similarity="x"),  # type: ignore[arg-type]
        Found(Hit("x", "keel"), similarity=float("nan")),
    ],
)
def test_an_entry_with_a_field_of_another_kind_is_left_out(entry: Any) -> None:
    found = lookup({"odd": lambda query, limit: [entry, *GOOD]})
    assert [hit.id for hit in found] == ["good"]
    assert found.degraded == ("odd: 1 entry made no sense",)
    found.to_dict()


def test_a_backend_that_does_not_say_how_fresh_it_is_takes_no_time_from_the_others() -> None:
    release = threading.Event()

    def silent(query: str, limit: int) -> list[dict[str, str]]:
        return [{"id": "silent", "text": "keel torque silent"}]

    silent.freshness = release.wait  # type: ignore[attr-defined]

    def slow(query: str, limit: int) -> list[dict[str, str]]:
        time.sleep(0.3)
        return GOOD

    try:
        found = lookup({"silent": silent, "slow": slow}, deadline=3.0)
    finally:
        release.set()
    assert {hit.id for hit in found} == {"silent", "good"} and not found.degraded
    assert "silent" in found.trace["cache"]["why_not"]


def test_a_backend_that_hangs_leaves_time_to_compare_meanings(storage: clew.Engine) -> None:
    release = threading.Event()
    with Search(storage, backends={"hangs": lambda q, n: release.wait() or []}, deadline=2.0) as s:
        found = s.external_lookup("keel torque", return_handles=True)
    release.set()
    assert isinstance(found, ExternalLookupResult)
    assert [problem.split(":")[0] for problem in found.degraded] == ["hangs"]
    assert found.trace["ranking"]["weights"]["semantic"] == 0.5


def test_a_ranking_by_meaning_without_any_says_what_it_did() -> None:
    found = lookup({"good": good}, ranking="semantic")
    assert found.trace["ranking"]["by"] == "bm25" and found.trace["ranking"]["semantic"]


@pytest.mark.parametrize("documents", [None, 5, ["abc"], [5], [None]])
def test_documents_that_are_none_are_an_error(search: Search, documents: Any) -> None:
    with pytest.raises(clew.InputError, match="document"):
        search.add_embeddings(documents)


@pytest.mark.parametrize("flags", [None, 5, [1, 2], [None, "a"], "flags"])
def test_keys_are_made_of_texts(flags: Any) -> None:
    with pytest.raises(clew.InputError, match="expected"):
        build_cache_key(query="keel", backend="b", hybrid_flags=flags)


def test_a_snapshot_from_before_answers_where_no_backend_says_how_fresh_it_is(
    tmp_path: Path,
) -> None:
    old = {
        "query": "Keel  torque",
        "backend": "b",
        "results": [{"url": "http://a/", "title": "Old"}],
    }
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"_default": {"1": old}}))
    with Search(backends={"b": good}, cache_file=str(file)) as search:
        found = look_up(search, "keel torque")
        assert [hit.title for hit in found] == ["Old"] and found.trace["cache"]["slot"] == "legacy"


def test_a_search_that_nobody_closes_lets_go_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.md").write_text("keel")
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    search = Search(folders=[tmp_path / "papers"], deadline=60.0, keep=False)
    assert search.external_lookup("keel")
    assert list(aside.iterdir())
    del search
    gc.collect()
    assert not list(aside.iterdir())
