"""Sources of installed packages, which run in a process of their own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.protocols import Source
from entries import ids

PLUGIN = """
    import os, re
    from clew.protocols import Source
    from clew.types import Answer, Candidate, Passage, Record

    def words(root, *, word: str = "keel"):
        def source(query, context):
            print("a source that prints")
            return context.store.keyword(query.terms, query.filter, limit=query.depth)
        return source

    def near(root):
        def source(query, context):
            vector = context.query_vector()
            found = context.store.nearest(
                vector, query.filter, model=context.model, limit=query.depth
            )
            return Answer(found, "looked at the vectors alone", {"dim": len(vector)})
        return source

    def parts(root):
        def source(query, context):
            store = context.store
            store.notes["here"] = "alone"
            told = [
                store.changes.generation() > 0,
                store.files.roots(),
                store.indexes.coverage(context.model),
                store.indexes.behind,
                list(store.vectors.chunks(["a"])),
                list(store.lifecycle.get(["a"])),
            ]
            return Answer([Candidate("a", 1.0)], "", {"told": told})
        return source

    def own(root, *, text: str):
        def source(query, context):
            record = Record("1", text, path="own.md")
            return [Candidate("1", 1.0, None, Passage(0, record, text, (1, 1)))]
        return source

    def endless(root):
        def source(query, context):
            if "stuck" in query.text:
                re.match("(a+)+$", "a" * 64 + "b")  # keeps the interpreter lock for good
            return (Candidate(str(i), 1.0) for i in range(10**12))
        return source

    def ends(root):
        def source(query, context):
            os._exit(7)
        return source

    def raises(root):
        def source(query, context):
            raise ValueError("no such luck")
        return source

    def writes(root):
        def source(query, context):
            context.store.delete(["a"])
        return source

    class Telling(Source):
        def __init__(self, file):
            self.file = file
        def __call__(self, query, context):
            return [Candidate(self.file.read_text().strip(), 1.0)]
        def freshness(self, store):
            return self.file.read_text()

    def telling(root, *, file: str):
        return Telling(root / file)

    def broken(root):
        raise OSError("cannot be made")
"""
KINDS = (
    "words",
    "near",
    "parts",
    "own",
    "endless",
    "ends",
    "raises",
    "writes",
    "telling",
    "broken",
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with kinds of sources, as pip would leave it."""
    site = tmp_path / "site"
    about = site / "moonlight-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "moonlight.py").write_text(textwrap.dedent(PLUGIN))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moonlight\nVersion: 1.0\n")
    points = "".join(f"{kind} = moonlight:{kind}\n" for kind in KINDS)
    (about / "entry_points.txt").write_text(f"[clew.sources]\n{points}")
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("moonlight", None)


Opened = Callable[..., clew.Engine]


@pytest.fixture
def opened(tmp_path: Path, installed: None) -> Iterator[Opened]:
    engines: list[clew.Engine] = []

    def open_engine(sources: dict[str, dict[str, Any]], **settings: Any) -> clew.Engine:
        engine = clew.open(tmp_path / "f", model="none", sources=sources, **settings)
        engines.append(engine)
        engine.add([clew.Record("a", "the keel of a boat"), clew.Record("b", "a mast")])
        return engine

    yield open_engine
    for engine in engines:
        engine.close()


def test_it_answers_from_the_store_as_if_it_were_here(opened: Opened) -> None:
    engine = opened({"words": {}})
    for _ in range(2):
        found = engine.search("keel", sources=["words"])
        assert ids(found) == ["a"] and not found.degraded
        assert found.cache is None  # nobody knows how fresh a function is
    assert ids(engine.search("keel", sources=["words"], filter={"ids": "b"})) == []


def test_the_querys_vector_comes_from_here(opened: Opened) -> None:
    engine = opened({"near": {}})
    engine.add([{"id": "v", "content": "north"}], vectors=[[0.0, 1.0]])
    found = engine.search("x", sources=["near"], vector=[0.0, 1.0])
    assert ids(found) == ["v"]
    assert "near: looked at the vectors alone" in found.degraded
    assert found.trace["sources"]["near"]["how"] == {"dim": 2}


def test_it_reads_every_part_of_the_store(opened: Opened) -> None:
    engine = opened({"parts": {}})
    found = engine.search("keel", sources=["parts"])
    told = [True, {}, engine.store.indexes.coverage("external"), 0, ["a"], ["a"]]
    assert found.trace["sources"]["parts"]["how"] == {"told": told}
    assert "here" not in engine.store.notes  # what it has of them is a copy


def test_records_of_two_sources_never_merge(opened: Opened) -> None:
    engine = opened({n: {"kind": "own", "text": f"keel {n}"} for n in ("one", "two")})
    engine.add([clew.Record("1", "the store has such a record as well: keel")])
    found = engine.search("keel", limit=50)
    assert {"one:1", "two:1", "1"} <= set(ids(found))
    assert {hit.id: hit.content for hit in found}["two:1"] == "keel two"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("ends", "its process ended: with code 7"),
        ("raises", "ValueError: no such luck"),
        ("writes", "reads the store, which has no 'delete'"),
        ("broken", "OSError: cannot be made"),
    ],
)
def test_one_that_fails_is_named_and_the_others_answer(
    opened: Opened, kind: str, problem: str
) -> None:
    engine = opened({kind: {}})
    for _ in range(2):
        found = engine.search("keel")
        assert ids(found) == ["a"]
        (said,) = [each for each in found.degraded if each.startswith(f"{kind}:")]
        assert problem in said
    assert engine.get("a") is not None


def test_one_that_keeps_the_interpreter_lock_is_left_behind_and_started_again(
    opened: Opened,
) -> None:
    engine = opened({"endless": {}}, deadline=60.0, depth=7)
    patient = engine.config
    for _ in range(2):
        found = engine.search("keel", sources=["endless"], limit=5)
        assert found.trace["sources"]["endless"]["count"] == 7  # of as many as anybody could want
        engine.config = replace(patient, deadline=2.0)
        found = engine.search("stuck keel", limit=5)
        assert ids(found) == ["a"]
        assert "endless: no answer within 2 s" in found.degraded
        engine.config = patient


def test_one_that_says_how_fresh_it_is_is_kept_until_that_changes(
    tmp_path: Path, opened: Opened
) -> None:
    engine = opened({"telling": {"file": "which.txt"}})
    file = tmp_path / "f" / "which.txt"
    file.write_text("a")
    for cache in (None, None, "exact"):  # the first starts its process
        found = engine.search("keel", sources=["telling"])
        assert (ids(found), found.cache) == (["a"], cache)
    file.write_text("b")
    assert ids(engine.search("keel", sources=["telling"])) == ["b"]
    file.unlink()
    assert engine.search("keel", sources=["telling"]).degraded


def test_its_options_are_checked_where_the_user_can_act_on_them(
    tmp_path: Path, installed: None
) -> None:
    given: dict[str, Any]
    for given, message in (
        ({"own": {}}, "text must be given"),
        ({"words": {"wort": "x"}}, "did you mean 'word'"),
        ({"words": {"word": 5}}, "expected text"),
    ):
        with pytest.raises(clew.ConfigError, match=message):
            clew.open(tmp_path / "f", model="none", sources=given)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="counts processes")
def test_closing_the_engine_leaves_no_process_behind(opened: Opened) -> None:
    def children() -> set[str]:
        found: set[str] = set()
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # a thread that has ended
                found.update((task / "children").read_text().split())
        return found

    before = children()
    engine = opened({"words": {}})
    engine.search("keel")
    assert len(children() - before) == 1
    engine.close()
    assert not children() - before


def test_every_hook_of_a_source_has_a_default() -> None:
    class Bare(Source):
        def __call__(self, query: Any, context: Any) -> tuple[()]:
            return ()

    bare, anything = Bare(), object()
    assert bare.freshness(anything) is None and bare.reads(anything) is None  # type: ignore[arg-type]
    assert not bare.idle(anything) and bare.alone() is bare  # type: ignore[arg-type]
    bare.leave(anything)  # type: ignore[arg-type]
    bare.close()
