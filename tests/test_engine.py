"""Engine: what `clew.open` gives, through its public names."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.engine import find_root
from clew.ranking.adaptive import COEFFICIENTS
from clew.types import Query
from entries import ids

from hashing import HashingEmbedder

TEXTS = {
    "fuse": "The fuse in the hallway blows whenever the sauna is on.",
    "keel": "Keel bolts of the Kestrel are tightened to 120 Nm.",
    "crane": "The crane lifts boats on Saturday from eight to noon.",
    "miso": "味噌汁は昆布の出汁で作る。",
    "name": "def getUserName(user): return user.full_name",
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as opened:
        opened.add(clew.Record(id=name, content=text) for name, text in TEXTS.items())
        opened.embed()
        yield opened


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_every_mode_finds_it(engine: clew.Engine, mode: str) -> None:
    assert ids(engine.search("keel bolts kestrel", mode=mode))[0] == "keel"  # type: ignore[arg-type]


def test_a_hit_says_where_it_stands_and_why(engine: clew.Engine) -> None:
    hit = engine.search("crane saturday")[0]
    assert hit.id == "crane" and hit["content"] == TEXTS["crane"]
    assert hit.lines == (1, 1) and hit.snippet == TEXTS["crane"]
    marked = [hit.snippet[start:end] for start, end in hit.highlights]
    assert marked == ["crane", "Saturday"]
    assert set(hit.signals) == {"keyword", "vectors"}
    for signal in hit.signals.values():
        assert set(signal) == {"rank", "score", "weight", "contrib"}
    assert sum(s["contrib"] for s in hit.signals.values()) == pytest.approx(hit.score)


def test_scores_fall_and_ties_go_by_id(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record(id=f"r{i}", content="same words here") for i in (3, 1, 2)])
        found = engine.search("words", mode="keyword")
        assert ids(found) == ["r1", "r2", "r3"]
        assert sorted((h.score for h in found), reverse=True) == [h.score for h in found]


def test_the_same_search_gives_the_same_list(engine: clew.Engine) -> None:
    first = engine.search("boats in the hallway", now=1_700_000_000)
    again = engine.search("boats in the hallway", now=1_700_000_000)
    assert first.hits == again.hits


def test_the_trace_tells_stages_sources_and_the_share_embedded(engine: clew.Engine) -> None:
    found = engine.search("  Keel   BOLTS ", explain=True)
    trace = found.trace
    assert trace["canonical"] == "keel bolts"
    assert set(trace["sources"]) == {"keyword", "vectors", "tags", "filenames", "canonical"}
    assert trace["embedded"] == 1.0 and trace["generation"] == engine.store.changes.generation()
    assert trace["lists"]["keyword"][0]["id"] == "keel"
    assert trace["fusion"]["strategy"] == "adaptive"
    assert 0 < trace["fusion"]["share_of_vectors"] < 1
    assert set(trace["fusion"]["because"]) == set(COEFFICIENTS)
    assert json.loads(json.dumps(found.to_dict()))["results"][0]["id"] == "keel"
    assert engine.search("keel", mode="keyword").trace["embedded"] == 1.0


def test_sources_and_weights_decide_who_votes(engine: clew.Engine) -> None:
    only = engine.search("crane", sources=["keyword"])
    assert set(only.trace["sources"]) == {"keyword"}
    muted = engine.search("crane", weights={"vectors": 0.0})
    assert muted[0].signals["vectors"]["contrib"] == 0
    with pytest.raises(clew.InputError, match="vectors"):
        engine.search("crane", sources=["vector"])
    with pytest.raises(clew.InputError, match="no source is named"):
        engine.search("crane", sources=[])
    with pytest.raises(clew.ConfigError, match="vectors"):
        engine.search("crane", weights={"vectors": float("nan")})
    with pytest.raises(clew.InputError, match="'vector' to weigh: did you mean 'vectors'"):
        engine.search("crane", weights={"keyword": 1, "vector": 2})
    with pytest.raises(clew.InputError, match=r"valid: .*keyword, tags, vectors"):
        engine.search("crane", weights={"nope": 1})


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_what_is_not_embedded_yet_is_said_until_it_is(engine: clew.Engine, mode: Any) -> None:
    assert engine.search("keel", mode=mode).degraded == ()
    engine.add(clew.Record(id=f"new{i}", content=f"a new keel {i}") for i in range(3))
    found = engine.search("keel", mode=mode)
    assert found.trace["embedded"] == 0.625
    assert found.degraded == (
        "vectors: 62 % of passages are embedded so far: run `clew index` or call `embed()`",
    )
    assert engine.search("keel", mode="keyword").degraded == ()
    assert engine.search("keel", sources=["keyword"]).degraded == ()
    engine.embed()
    assert engine.search("keel", mode=mode).degraded == ()


def test_records_added_and_never_embedded_are_found_by_their_words(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([clew.Record(id="a", content="still here")])
        found = engine.search("still")
        assert ids(found) == ["a"]
        (problem,) = found.degraded
        assert "no passage is embedded yet" in problem and "embed()" in problem


def test_without_a_model_only_its_absence_is_said(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record(id="a", content="given a vector")], vectors=[[1.0, 0.0]])
        engine.add([clew.Record(id="b", content="given none")])
        (problem,) = engine.search("given").degraded
        assert "no embedding model" in problem
        # embed() could not help: whoever brings vectors knows which records have none
        assert engine.search("given", vector=[1.0, 0.0]).degraded == ()


def test_a_source_that_fails_or_hangs_is_named_and_takes_nothing_down(tmp_path: Path) -> None:
    release = threading.Event()

    def broken(query: Query, context: object) -> list[object]:
        raise RuntimeError("no such luck")

    def asleep(query: Query, context: object) -> list[object]:
        release.wait(60)
        return []

    with clew.open(tmp_path, embedder=HashingEmbedder(), deadline=2) as engine:
        engine.add([clew.Record(id="a", content="still here")])
        engine.sources |= {"broken": broken, "asleep": asleep}  # type: ignore[dict-item]
        found = engine.search("still")
        release.set()
        assert ids(found) == ["a"]
        problems = " ".join(found.degraded)
        assert "broken: RuntimeError: no such luck" in problems and "asleep: no answer" in problems


def test_limit_is_met_also_past_the_usual_depth(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add(clew.Record(id=f"{i:04}", content=f"pebble number {i}") for i in range(400))
        assert len(engine.search("pebble", limit=250)) == 250


@pytest.mark.parametrize("limit", [2**32, 2**63, 10**30])
def test_no_limit_is_too_large(engine: clew.Engine, limit: int) -> None:
    every: list[dict[str, Any]] = [{}, {"group_by": "record"}, {"mode": "keyword"}]
    for options in every:
        whole = engine.search("boats", limit=100, **options)
        assert ids(engine.search("boats", limit=limit, **options)) == ids(whole) != []
    assert ids(engine.search("", filter={"collection": "default"}, limit=limit))
    own = {"own": lambda query, limit: [{"id": "x", "text": query}]}
    with clew.Search(engine, backends=own) as lookups:
        assert {"x", "crane"} <= {hit.id for hit in lookups.external_lookup("crane", limit)}


def test_syntax_narrows_in_every_mode(engine: clew.Engine) -> None:
    for mode in ("hybrid", "keyword", "vector"):
        without = engine.search("the boats -crane", mode=mode)  # type: ignore[arg-type]
        assert "crane" not in ids(without)
        phrase = engine.search('"keel bolts" boats', mode=mode)  # type: ignore[arg-type]
        assert ids(phrase) == ["keel"]


@pytest.mark.parametrize("query", ["getUserName", "user name", "full_name", "昆布", "味噌汁", "汁"])
def test_identifiers_and_substrings_are_found(engine: clew.Engine, query: str) -> None:
    expected = "name" if query.isascii() else "miso"
    assert ids(engine.search(query, mode="keyword")) == [expected]


def test_filters_alone_list_what_matches(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="t", content="tagged", tags=("Blue",))])
    assert ids(engine.search("tag:blue")) == ["t"]
    for query in ("", "  "):
        found = engine.search(query, filter={"tags": ["blue"]})
        assert ids(found) == ["t"] and found.degraded == ()


def test_filters_list_what_has_none_of_the_excluded_words(engine: clew.Engine) -> None:
    engine.add(
        clew.Record(f"t{i:02}", "a boat" if i % 10 == 9 else "drafts of a boat", tags=("yard",))
        for i in range(40)
    )
    assert ids(engine.search("tag:yard -draft")) == ["t09", "t19", "t29", "t39"]
    assert ids(engine.search("-draft", filter={"tags": "yard"}, limit=2)) == ["t09", "t19"]
    assert ids(engine.search('tag:yard -"a boat"')) == []


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_an_empty_query_is_an_error(engine: clew.Engine, query: str) -> None:
    with pytest.raises(clew.InputError, match="empty"):
        engine.search(query)


@pytest.mark.parametrize("query", ["?!", "\0\0", "-", '""', "-boat", "🎉"])
def test_a_query_without_words_finds_nothing_and_says_so(engine: clew.Engine, query: str) -> None:
    found = engine.search(query)
    assert len(found) == 0 and found.degraded


def test_only_stopwords_still_search(engine: clew.Engine) -> None:
    assert ids(engine.search("the is", mode="keyword"))


def test_given_vectors_are_used_and_wrong_ones_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 16))
    records = [clew.Record(id=f"{i:02}", content=f"text {i}") for i in range(50)]
    with clew.open(tmp_path, model="none") as engine:
        assert engine.add(records, vectors=vectors) == ["created"] * 50
        found = engine.search("text", mode="vector", vector=vectors[7], limit=5)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        best = np.argsort(-(unit @ unit[7]))[:5]
        assert ids(found) == [f"{i:02}" for i in best]
        for wrong, says in (
            (np.ones(15), "15 dimensions"),
            (np.full(16, np.nan), "finite"),
            (np.ones((2, 16)), "one row"),
            ("sixteen numbers", "one row"),
            ([[1.0], [1.0, 2.0]], "one row"),
        ):
            with pytest.raises(clew.InputError, match=says):
                engine.search("text", vector=wrong)  # type: ignore[arg-type]
        for rows, says in (
            (np.ones((1, 15)), "15"),
            (np.ones((2, 16)), "2 vectors"),
            (np.full((1, 16), np.inf), "infinity"),
            (np.ones(16), "table"),
        ):
            with pytest.raises(clew.InputError, match=says):
                engine.add([clew.Record(id="new", content="new")], vectors=rows)
        assert engine.get("new") is None


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        ([[1.0, 2.0], [1.0]], "rows differ in length, row 0 has 2, row 1 has 1"),
        ([[1.0, 2.0], 3.0], r"row 1 is 3\.0"),
        ("abc", "a table of numbers, not of text"),
        ("1.5", "a table of numbers, not of text"),
        ([["1", "2"], ["3", "4"]], "a table of numbers, not of text"),
        ([[1.0, None], [1.0, 2.0]], "NaN"),
        ([[1j, 1.0], [1.0, 1.0]], "a table of numbers, not of complex"),
        ([[10**400], [1]], "a table of numbers: "),
        ([["a"], "b"], "row 1 is 'b'"),
        (object(), "a table of numbers: <object"),
    ],
)
def test_vectors_that_are_no_table_of_numbers_are_refused_whole(
    engine: clew.Engine, vectors: Any, says: str
) -> None:
    before = engine.store.changes.generation()
    with pytest.raises(clew.InputError, match=says) as caught:
        engine.add([{"id": "a", "content": "a"}, {"id": "b", "content": "b"}], vectors=vectors)
    assert "\n" not in str(caught.value)
    assert engine.store.changes.generation() == before and engine.get("a") is None


@pytest.mark.parametrize(
    "record",
    [
        {"id": "", "content": "x"},
        {"id": "x", "content": "  "},
        {"id": "x", "content": "x", "importance": 7},
        {"id": "x", "content": "x", "colour": "red"},
        {"id": "x", "content": "x", "tgas": ("a",)},
        {"id": "x", "content": None},
        {"id": "x"},
        {"content": "x"},
        {"id": " ", "content": "x"},
        {"id": "x", "content": "x", 5: 6},
        "x",
        None,
        {"id": "x", "content": "x", "metadata": {"a": {1, 2}}},
        {"id": "x", "content": "x", "metadata": {"a": float("nan")}},
    ],
)
def test_a_record_that_makes_no_sense_is_refused_whole(
    engine: clew.Engine, record: dict[str, object]
) -> None:
    before = engine.store.changes.generation()
    with pytest.raises(clew.InputError):
        engine.add([{"id": "fine", "content": "fine"}, record])
    assert engine.store.changes.generation() == before and engine.get("fine") is None


def test_what_is_wrong_with_a_record_is_said_by_name(engine: clew.Engine) -> None:
    for record, says in (
        ({"id": "x", "content": "x", "tgas": ()}, "did you mean 'tags'"),
        ({"id": "x", "text": "x"}, "unknown record field 'text'"),
        ({"id": "x"}, "needs 'content'"),
        ({"id": "x", "content": None}, "record 'x': content must be text, not None"),
        ({"id": "x", "content": " "}, "content must not be empty"),
        (["x", "y"], "a mapping"),
    ):
        with pytest.raises(clew.InputError, match=says):
            engine.add([record])  # type: ignore[list-item]


def test_one_tag_may_be_given_as_a_string(engine: clew.Engine) -> None:
    engine.add([{"id": "t", "content": "tagged", "tags": "Case Study"}])
    assert ids(engine.search('tag:"case study"')) == ["t"]


def test_many_threads_write_and_search_at_once(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder(), deadline=60) as engine:

        def work(worker: int) -> None:
            for i in range(15):
                name = f"w{worker}-{i}"
                engine.add([clew.Record(id=name, content=f"token{worker}x{i} shared")])
                found = engine.search(f"token{worker}x{i}", mode="keyword")
                assert name in ids(found)

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(work, n) for n in range(8)]:
                future.result()
        assert len(engine.search("shared", mode="keyword", limit=500)) == 120


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = clew.open(tmp_path, model="none")
    engine.close()
    with pytest.raises(clew.StoreError, match="closed"):
        engine.add([clew.Record(id="a", content="b")])
    with pytest.raises(clew.StoreError, match="closed"):
        engine.get("a")


def test_opening_makes_the_folder_if_need_be(tmp_path: Path) -> None:
    with clew.open(tmp_path / "new" / "notes", model="none") as engine:
        engine.add([clew.Record(id="a", content="b")])
    assert (tmp_path / "new" / "notes" / ".clew" / "clew.db").exists()


def test_opening_what_is_not_a_folder_or_has_no_store_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(clew.StoreError, match="is a file"):
        clew.open(file)
    with pytest.raises(clew.StoreError, match="clew index"):
        clew.open(tmp_path, create=False)
    with pytest.raises(clew.StoreError, match="no folder"):
        clew.open(tmp_path / "tpyo", create=False)
    assert not (tmp_path / "tpyo").exists()
    (tmp_path / "clew.toml").write_text("colour = 'red'\n")
    with pytest.raises(clew.ConfigError, match="colour"):
        clew.open(tmp_path)


def test_long_records_are_cut_and_are_one_hit_if_that_is_wanted(tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {i} about granite and slate." * 8 for i in range(40))
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([clew.Record(id="long", content=text), clew.Record(id="s", content="slate")])
        engine.embed()
        assert engine.status()["chunks"] > 5
        for mode in ("keyword", "vector", "hybrid"):
            found = engine.search("granite slate", mode=mode, group_by="record")  # type: ignore[arg-type]
            assert sorted(ids(found)) == ["long", "s"]


def test_a_query_vector_needs_no_words(engine: clew.Engine) -> None:
    vector = HashingEmbedder().embed_query("keel bolts kestrel")
    assert ids(engine.search("🚀", vector=vector))[0] == "keel"


def test_a_tag_can_be_excluded(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([{"id": "a", "content": "boat"}, {"id": "b", "content": "boat", "tags": ("x",)}])
        engine.embed()
        for mode in ("keyword", "vector", "hybrid"):
            assert ids(engine.search("boat -tag:X", mode=mode)) == ["a"]  # type: ignore[arg-type]
        assert ids(engine.search("-tag:x")) == ["a"]


def test_an_option_of_a_program_is_not_an_exclusion(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="git", content="git push --force is dangerous")])
    assert ids(engine.search("git push --force", mode="keyword"))[0] == "git"


def test_optimise_brings_the_lists_up_to_date(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((16_000, 8)).astype(np.float32)
    records = [clew.Record(f"r{i}", f"record {i}") for i in range(len(rows))]
    with clew.open(tmp_path, ivf_threshold=5_000) as engine:
        engine.add(records[:10_000], vectors=rows[:10_000])
        engine.add(records[10_000:], vectors=rows[10_000:])  # less than half: no need to seal yet
        engine.optimise()
        assert engine.status()["vectors"]["sealed"] == 16_000


# ---------------------------------------------------------------------- folders as people have them


def _written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def test_a_translation_is_not_found_by_the_original_in_its_comments(tmp_path: Path) -> None:
    original = "Pods are the smallest deployable units of computing."
    files = {
        "en/pods.md": f"---\ntitle: Pods\n---\n\n{original}\n",
        "zh/pods.md": f"---\ntitle: 豆荚\n---\n\n<!--\n{original}\n-->\n最小的可部署计算单元。\n",
        "main.go": "/* Copyright 2020 Ana. All rights reserved. */\n\npackage units\n",
    }
    with clew.open(_written(tmp_path, files), embedder=HashingEmbedder()) as engine:
        engine.index()
        for mode in ("keyword", "hybrid"):
            found = engine.search("smallest deployable units", mode=mode, limit=2)  # type: ignore[arg-type]
            assert found[0].path == "en/pods.md"
            assert "zh/pods.md" not in {
                hit.path for hit in engine.search("pods computing", mode="keyword")
            }
        (chinese,) = engine.search("计算单元", mode="keyword")
        assert chinese.snippet == "最小的可部署计算单元。" and chinese.metadata["snippet_line"] == 8
        assert chinese.lines == (8, 8) and "<!--" not in chinese.content
        assert not engine.search("copyright reserved", mode="keyword")


def test_a_vault_is_searched_as_its_owner_means_it(tmp_path: Path) -> None:
    vault = {
        "Velosolex.md": "---\nalias:\n - Mofa\n - pedelec ancestor\n---\n#project/bike\nEngine.\n",
        "Shed.md": "A mofa beside a mofa, and no pedelec ancestor. #project\n",
        "Bridge.md": "How it was settled: [[2025-09-03-pricing|September]].\n",
    }
    with clew.open(_written(tmp_path, vault), embedder=HashingEmbedder()) as engine:
        engine.index()

        def first(query: str, **options: Any) -> str:
            return engine.search(query, **options)[0].title

        assert first("pedelec ancestor", mode="keyword") == "Velosolex"
        assert first("mofa pedelec ancestor", mode="vector") == "Velosolex"
        assert first("september", mode="keyword") == first("pricing", mode="keyword") == "Bridge"
        assert engine.search("settled")[0].snippet == "How it was settled: September."
        assert {hit.title for hit in engine.search("tag:project")} == {"Velosolex", "Shed"}
        assert {hit.title for hit in engine.search("tag:project/bike")} == {"Velosolex"}
        assert "Velosolex" in {hit.title for hit in engine.search("project", sources=["tags"])}


def test_an_id_with_half_a_character_is_of_no_record(engine: clew.Engine) -> None:
    assert engine.get("\ud800") is None
    assert engine.remove("\ud800") == 0
    assert engine.get("keel") is not None


def test_the_store_above_a_folder_beside_is_not_that_of_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    clew.open(tmp_path / "here", model="none").close()
    monkeypatch.chdir(tmp_path / "here")
    assert find_root("../other") is None
    assert find_root("..") is None
    assert find_root(".") == tmp_path / "here"
