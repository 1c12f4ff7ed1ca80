"""Any history of writes, against a plain dictionary that went through the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.filter import Filter
from clew.protocols import Store
from entries import MODEL, chunk_numbers, entry, found, ill, near

WORDS = ["zebra", "walrus", "heron", "otter"]
ids = st.sampled_from("abcde")
chunks = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
tags = st.sampled_from(["", "x", "y"])
puts = st.tuples(
    st.just("put"),
    st.lists(
        st.tuples(ids, chunks, tags, st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda p: p[0],
    ),
)
steps = st.one_of(
    puts,
    puts,
    st.tuples(st.just("delete"), st.lists(ids, min_size=1, max_size=3)),
    st.tuples(st.just("rename"), st.tuples(ids, ids)),
    st.tuples(st.just("embed"), st.none()),
    st.tuples(st.just("search"), st.none()),
    st.tuples(st.just("rebuild"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)


def vector(word: str) -> list[float]:
    return [1.0 if w == word else 0.0 for w in WORDS]


class Model:
    """What must be true, kept in a dictionary: id → (words of its chunks, tag)."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[list[str], str]] = {}
        self.embedded: dict[str, list[bool]] = {}

    def put(self, id: str, words: list[str], tag: str, *, vectors: bool) -> None:
        """A chunk keeps its vector as long as its words stay, wherever in the record."""
        kept = [word for word, has in zip(*self._old(id), strict=True) if has]
        has: list[bool] = []
        for word in words:
            if word in kept:
                kept.remove(word)
                has.append(True)
            else:
                has.append(vectors)
        self.records[id], self.embedded[id] = (words, tag), has

    def _old(self, id: str) -> tuple[list[str], list[bool]]:
        return self.records.get(id, ([], ""))[0], self.embedded.get(id, [])

    def delete(self, id: str) -> None:
        self.records.pop(id, None)
        self.embedded.pop(id, None)

    def rename(self, old: str, new: str) -> None:
        record, has = self.records.pop(old), self.embedded.pop(old)
        self.records[new], self.embedded[new] = record, has


@settings(max_examples=25)
@given(st.lists(steps, min_size=3, max_size=14))
def test_after_any_history_a_store_has_what_the_writes_left(
    fresh: Callable[[], Callable[[], Store]], history: list[tuple[str, Any]]
) -> None:
    opener = fresh()
    store, model = opener(), Model()
    try:
        for step, what in history:
            if step == "put":
                for with_vectors in (True, False):
                    batch = [p for p in what if p[3] == with_vectors]
                    _put(store, model, batch, vectors=with_vectors)
            elif step == "delete":
                assert store.delete(what) == len(set(what) & set(model.records))
                for name in what:
                    model.delete(name)
            elif step == "rename" and what[0] in model.records and what[0] != what[1]:
                words, tag = model.records[what[0]]
                store.rename(what[0], entry(what[1], words, tags=(tag,) if tag else ()))
                model.rename(*what)
            elif step == "embed":
                waiting = store.vectors.texts(store.vectors.pending(MODEL))
                rows = np.array([vector(text) for _, text in waiting], np.float32)
                if waiting:
                    store.vectors.set([number for number, _ in waiting], rows, model=MODEL)
                model.embedded = {name: [True] * len(h) for name, h in model.embedded.items()}
            elif step == "search":
                _compare(store, model)
            elif step == "rebuild":
                store.indexes.rebuild()
            elif step == "reopen":
                store.close()
                store = opener()
        _compare(store, model)
        assert ill(store) == []
    finally:
        store.close()


def _put(store: Store, model: Model, batch: list[Any], *, vectors: bool) -> None:
    entries = [
        entry(
            name,
            words,
            tags=(tag,) if tag else (),
            vectors=[vector(word) for word in words] if vectors else None,
        )
        for name, words, tag, _ in batch
    ]
    statuses = store.put(entries, model=MODEL if vectors else None)
    for (name, words, tag, _), status in zip(batch, statuses, strict=True):
        assert (status == "created") == (name not in model.records)
        if status == "unchanged":
            assert model.records[name] == (words, tag)
        model.put(name, words, tag, vectors=vectors)


def _compare(store: Store, model: Model) -> None:
    everything = {record.id: record for record in store.select(Filter(), limit=99)}
    assert sorted(everything) == sorted(model.records)
    for name, (words, tag) in model.records.items():
        assert everything[name].content == "\n".join(words)
        assert everything[name].tags == ((tag,) if tag else ())
        assert len(chunk_numbers(store, name)) == len(words)
    for word in WORDS:
        having = sorted(name for name, (words, _) in model.records.items() if word in words)
        assert sorted(found(store, word)) == having
        tagged = [name for name in having if model.records[name][1] == "x"]
        assert sorted(found(store, word, tags="x")) == tagged
        close = {
            name
            for name, (words, _) in model.records.items()
            if any(w == word and has for w, has in zip(words, model.embedded[name], strict=True))
        }
        hits = store.nearest(np.array(vector(word), np.float32), Filter(), model=MODEL, limit=99)
        assert {hit.id for hit in hits if hit.score > 0.5} == close
        assert {hit.id for hit in hits} == {
            name for name, has in model.embedded.items() if any(has)
        }
        assert len(hits) == len({hit.id for hit in hits})
    without = {name for name, (words, _) in model.records.items() if "zebra" not in words}
    assert set(near(store, vector("heron"), query="-zebra")) == {
        name for name in without if any(model.embedded[name])
    }
    waiting = sum(has.count(False) for has in model.embedded.values())
    assert len(store.vectors.pending(MODEL)) == waiting
