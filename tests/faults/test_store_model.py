"""Whatever is done to a store, in whatever order, it says what a dictionary would say."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import clew
from clew.filter import Filter
from entries import WORDS, found

from hashing import HashingEmbedder

DIM = 32
MODEL = "hashing@1"
names = st.sampled_from([f"n{i}" for i in range(8)])
words = st.sampled_from(WORDS[:6])
texts = st.lists(words, min_size=1, max_size=4).map(" ".join)
tags = st.sets(st.sampled_from(("red", "green", "blue")), max_size=2).map(sorted)
EXAMPLES = int(os.environ.get("CLEW_MODEL_EXAMPLES", "8"))


@dataclass
class Known:
    """What the model knows of a record."""

    content: str
    tags: tuple[str, ...]
    collection: str
    importance: float
    vector: np.ndarray[Any, Any] | None


def unit(seed: int) -> np.ndarray[Any, Any]:
    row = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return row / np.linalg.norm(row)


class StoreMachine(RuleBasedStateMachine):
    scheme = ""

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.known: dict[str, Known] = {}
        self.embedder = HashingEmbedder(dim=DIM)
        self.open()

    def open(self) -> None:
        url = f"duckdb:///{self.place.name}/store.duckdb" if self.scheme == "duckdb" else ""
        options: dict[str, Any] = {"store": url} if url else {}
        self.engine = clew.open(self.place.name, embedder=self.embedder, **options)
        self.store = self.engine.store

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
            self.place.cleanup()

    # ------------------------------------------------------------------ writing

    @rule(
        name=names,
        content=texts,
        tags=tags,
        collection=st.sampled_from(("notes", "mail")),
        importance=st.sampled_from((0.0, 0.5, 1.0)),
        seed=st.none() | st.integers(0, 9),
    )
    def add(
        self,
        name: str,
        content: str,
        tags: list[str],
        collection: str,
        importance: float,
        seed: int | None,
    ) -> None:
        given = {
            "id": name,
            "content": content,
            "tags": tags,
            "collection": collection,
            "importance": importance,
        }
        vector = None if seed is None else unit(seed)
        rows = None if vector is None else vector[None]
        (status,) = self.engine.add([given], vectors=rows)
        old = self.known.get(name)
        new = Known(content, tuple(tags), collection, importance, vector)
        if old is not None and old.content == content and vector is None:
            new.vector = old.vector  # of the same text
        assert (status == "created") == (old is None)
        self.known[name] = new

    @rule(gone=st.sets(names, min_size=1, max_size=3))
    def remove(self, gone: set[str]) -> None:
        assert self.engine.remove(sorted(gone)) == len(gone & self.known.keys())
        for name in gone:
            self.known.pop(name, None)

    @rule(collection=st.sampled_from(("notes", "mail")))
    def remove_collection(self, collection: str) -> None:
        there = [n for n, each in self.known.items() if each.collection == collection]
        assert self.engine.remove(collection=collection) == len(there)
        for name in there:
            del self.known[name]

    @rule()
    def embed(self) -> None:
        bare = [each for each in self.known.values() if each.vector is None]
        assert self.engine.embed() == len(bare)
        for each in bare:
            each.vector = self.embedder.embed_query(each.content)

    # ------------------------------------------------------------------ upkeep changes nothing

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.open()

    @rule(how=st.sampled_from(("optimise", "vacuum", "mend", "refresh")))
    def upkeep(self, how: str) -> None:
        {
            "optimise": self.engine.optimise,
            "vacuum": self.engine.vacuum,
            "mend": lambda: self.engine.doctor(mend=True),
            "refresh": self.store.indexes.refresh,
        }[how]()

    # ------------------------------------------------------------------ reading

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "engine"):
            return
        there = {record.id: record for record in self.store.select(Filter(), limit=100)}
        assert there.keys() == self.known.keys()
        for name, each in self.known.items():
            record = there[name]
            assert record == self.engine.get(name)
            assert (record.content, record.collection) == (each.content, each.collection)
            assert set(record.tags) == set(each.tags)
            assert record.importance == each.importance

    @rule(
        word=words,
        tag=st.none() | st.sampled_from(("red", "green")),
        collection=st.none() | st.sampled_from(("notes", "mail")),
    )
    def search_words(self, word: str, tag: str | None, collection: str | None) -> None:
        options = {"tags": tag, "collection": collection}
        options = {key: value for key, value in options.items() if value is not None}
        allowed = self._allowed(tag, collection)
        right = sorted(n for n in allowed if word in self.known[n].content.split())
        assert sorted(found(self.store, word, **options)) == right
        hits = self.engine.search(word, sources=["keyword"], filter=options, limit=50)
        assert sorted(hit.id for hit in hits) == right
        assert {hit.content for hit in hits} == {self.known[n].content for n in right}
        assert self.store.count(Filter(**options)) == len(allowed)
        listed = self.store.select(Filter(**options), limit=50)
        assert [record.id for record in listed] == sorted(allowed)

    @rule(word=words, other=words)
    def search_without(self, word: str, other: str) -> None:
        right = {
            n
            for n, each in self.known.items()
            if word in each.content.split() and other not in each.content.split()
        }
        if word != other:
            assert set(found(self.store, f"{word} -{other}")) == right

    @precondition(lambda self: any(e.vector is not None for e in self.known.values()))
    @rule(seed=st.integers(0, 9), tag=st.none() | st.sampled_from(("red", "green")))
    def search_vectors(self, seed: int, tag: str | None) -> None:
        query = unit(seed)
        options = {} if tag is None else {"tags": tag}
        hits = self.store.nearest(query, Filter(**options), model=MODEL, limit=50)
        rows = {n: self.known[n].vector for n in self._allowed(tag, None)}
        scores = {n: float(row @ query) for n, row in rows.items() if row is not None}
        assert {hit.id for hit in hits} == scores.keys()
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            assert abs(hit.score - scores[hit.id]) < 1e-3

    def _allowed(self, tag: str | None, collection: str | None) -> list[str]:
        return [
            n
            for n, each in self.known.items()
            if (tag is None or tag in each.tags) and collection in (None, each.collection)
        ]


class DuckMachine(StoreMachine):
    scheme = "duckdb"


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
TestDuckStore = DuckMachine.TestCase
TestDuckStore.settings = settings(max_examples=max(1, EXAMPLES // 4), stateful_step_count=12)
