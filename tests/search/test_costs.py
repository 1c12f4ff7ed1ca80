"""One search reads the log's head once, parses once, computes each allowed set once, and makes
snippets only for what it returns."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clew
from clew.ranking.fusion import Fused, fuse
from clew.search import hits
from clew.search.collect import Outcome
from clew.storage import log, rows
from clew.storage.filters import FilterCache
from clew.text import parse
from clew.types import Candidate, Passage, Query, Record, SearchRequest

from hashing import HashingEmbedder

WORDS = ("keel", "bolts", "crane", "paint", "rope", "mast", "sail", "oar")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder(dim=64), cache=False) as opened:
        opened.add(
            Record(
                id=f"r{i}",
                content=f"{WORDS[i % 8]} {WORDS[(i + 3) % 8]} number {i}",
                path=f"notes/{WORDS[i % 8]}-{i}.md",
                tags=(WORDS[i % 5],),
            )
            for i in range(60)
        )
        opened.embed()
        opened.search("keel bolts")  # opens the indexes
        yield opened


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of the steps that cost something was taken."""
    counted: Counter[str] = Counter()

    def count(place: Any, name: str, key: Callable[..., str] | None = None) -> None:
        function = getattr(place, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[name if key is None else f"{name} {key(*args, **kwargs)}"] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(place, name, counting)

    count(log, "head")
    count(parse, "parse")
    count(hits, "snippet")
    count(rows, "passages")
    count(rows, "get")
    count(FilterCache, "_asked", key=lambda self, asked, *_: repr(asked))
    return counted


OPTIONS: list[dict[str, Any]] = [
    {},
    {"filter": {"tags": "keel"}},
    {"strict": True},
    {"limit": 3, "group_by": "record"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_search_does_nothing_twice(
    engine: clew.Engine, calls: Counter[str], options: dict[str, Any]
) -> None:
    engine.search("keel bolts", **options)  # embeds the query, and learns the filter
    calls.clear()
    found = engine.search("keel bolts", **options)
    assert len(found) > 0
    assert calls.pop("head") == 1
    assert calls.pop("parse") == 1
    assert calls.pop("snippet") == len(found)
    assert calls.pop("passages") == 1
    assert not calls, "a filter that was answered before is not asked for again"


def test_a_filter_is_answered_once_after_a_write(engine: clew.Engine, calls: Counter[str]) -> None:
    engine.add([Record(id="new", content="keel bolts again", tags=("keel",))])
    calls.clear()
    found = engine.search("keel bolts", filter={"tags": "keel"})
    assert "new" in [hit.id for hit in found]
    assert all(times == 1 for name, times in calls.items() if name.startswith("_asked"))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder(dim=64)) as opened:
        opened.remember_many(
            {"content": f"the {word} is in the shed", "tags": [word], "type": kind}
            for word in WORDS
            for kind in ("semantic", "episodic")
        )
        yield opened


def test_a_recall_reads_each_memory_once(memory: clew.Memory, calls: Counter[str]) -> None:
    for options in ({}, {"tags": WORDS[:5]}):
        memory.recall("where is the keel", **options)  # learns the filter
        calls.clear()
        assert len(memory.recall("where is the keel", **options)) > 0
        assert calls == {"head": 1, "parse": 1, "passages": 1}


def test_a_turn_of_a_conversation_costs_two_recalls(
    memory: clew.Memory, calls: Counter[str]
) -> None:
    memory.working_memory("where is the keel")
    calls.clear()
    assert {each["type"] for each in memory.working_memory("where is the keel")} == {
        "semantic",
        "episodic",
    }
    # and one look at how many memories there are
    assert calls == {"head": 3, "parse": 2, "passages": 2}


class Read(SimpleNamespace):
    """A record, or a candidate, that counts how often its id is read."""

    count = 0

    @property
    def id(self) -> str:
        Read.count += 1
        return f"r{self.number}"


def test_many_passages_of_many_records_are_fused_by_a_look_at_each() -> None:
    def reads(count: int) -> int:
        Read.count = 0
        some = [
            Read(number=i, score=1.0 / (i + 1), chunk=2 * i + side, passage=None)
            for i in range(count)
            for side in (0, 1)
        ]
        assert len(fuse("rrf", {"keyword": some}, further=0.6)) == 2 * count  # type: ignore[arg-type]
        return Read.count

    assert reads(800) < 6 * reads(200)


def test_many_passages_are_shown_by_a_look_at_each() -> None:
    context: Any = SimpleNamespace(
        store=SimpleNamespace(passages=lambda some: []),
        files=SimpleNamespace(states=lambda named: [None] * len(named)),
    )

    def reads(count: int) -> int:
        found = []
        for i in range(count):
            record: Any = Read(number=i, path=None, domain="", collection="c")
            found.append(Candidate(f"r{i}", 1.0, i, Passage(i, record, "", (1, 1))))
        ranked = [Fused(each.id, 1.0, "keyword", {}) for each in found]
        Read.count = 0
        query = Query("", "", limit=count)
        shown = hits.choose_passages(ranked, [Outcome("keyword", tuple(found))], query, context)
        assert len(shown) == count
        return Read.count

    assert reads(800) < 6 * reads(200)


def test_the_arguments_of_a_search_are_the_fields_of_a_request() -> None:
    arguments = inspect.signature(clew.Engine.search).parameters
    asked = {name: of.default for name, of in arguments.items() if name != "self"}
    assert asked == {"query": inspect.Parameter.empty, **SearchRequest._field_defaults}
    assert tuple(asked) == SearchRequest._fields
