"""The keyword index under many small writes, as an agent's memories come in."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import word

from clew.filter import Filter
from clew.store import EmbeddedStore
from clew.text import analyser
from entries import entry, found, ill

Opened = Callable[..., EmbeddedStore]


def test_many_small_writes_lose_no_deletion_and_leave_no_crowd_of_files(
    opened: Opened, folder: Path
) -> None:
    rng = random.Random(3)
    store = opened()
    versions: dict[str, int] = {}
    for number in range(80):
        batch = [f"r{number}n{i}" for i in range(rng.randint(1, 6))]
        batch += rng.sample(sorted(versions), min(len(versions), rng.randint(0, 4)))
        for name in batch:
            versions[name] = versions.get(name, -1) + 1
        store.put([entry(name, f"zebra {word(name, versions[name])}") for name in batch])
        if number % 3 == 2:
            gone = rng.sample(sorted(versions), 2)
            store.delete(gone)
            for name in gone:
                version = versions.pop(name)
                assert found(store, word(name, version)) == []
        assert len(found(store, "zebra")) == len(versions)
    for name, version in versions.items():
        assert found(store, word(name, version)) == [name]
        assert version == 0 or found(store, word(name, version - 1)) == []
    assert len(store.select(Filter(), limit=10_000)) == len(versions)
    # A search opens every file of the index; one set of them per write would be 500 by now.
    assert len(list(folder.glob("derived/keyword-*/*"))) < 200
    assert ill(store) == []


def test_a_bulk_load_and_single_writes_give_the_same_index(opened: Opened, folder: Path) -> None:
    """From 5,000 chunks on, another way of writing is taken."""
    store = opened()
    count = 5_200
    days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    store.put([entry(f"r{i:05}", f"zebra {word(f'n{i}')} {days[i % 7]}") for i in range(count)])
    assert len(found(store, "zebra", limit=9_999)) == count
    assert len(found(store, "thursday", limit=9_999)) == len(range(3, count, 7))
    store.put([entry(f"r{i:05}", f"walrus {word(f'n{i}')}") for i in range(0, count, 2)])
    store.delete([f"r{i:05}" for i in range(1, count, 4)])
    assert len(found(store, "walrus", limit=9_999)) == count // 2
    assert len(found(store, "zebra", limit=9_999)) == count // 4
    assert found(store, word("n8")) == ["r00008"]
    assert ill(store) == []


def test_the_first_search_under_a_filter_reads_a_sample_of_its_text(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search waits for it: few long records are as much to read as many short ones."""
    store = opened()
    filler = "ropes and knots " * 1_250
    for name in ("own", "other"):
        store.put([entry(f"{name}{i}", f"zebra {filler}", collection=name) for i in range(40)])
    assert len(found(store, "zebra", limit=99)) == 80
    cut, read = analyser.tokens, 0

    def counting(text: str) -> list[str]:
        nonlocal read
        read += len(text)
        return cut(text)

    monkeypatch.setattr(analyser, "tokens", counting)
    assert len(found(store, "zebra", limit=99, collection="own")) == 40
    assert read < 200_000  # of 800,000


def test_equals_are_cut_by_their_id_however_many_there_are(opened: Opened) -> None:
    store = opened()
    names = [f"r{i:05}" for i in range(3_000)]
    store.put([entry(name, "zebra crossing") for name in random.Random(5).sample(names, 3_000)])
    assert found(store, "zebra", limit=10) == names[:10]
    store.put([entry("r", "zebra crossing")])  # in memory, beside those on disk
    assert found(store, "zebra", limit=10) == ["r", *names[:9]]


def test_an_index_made_anew_ranks_in_the_same_order(opened: Opened) -> None:
    """Words of a passage are added up in another order where its neighbours are others."""
    rng = random.Random(7)
    store, words = opened(), [word(str(i)) for i in range(24)]
    texts = (" ".join(rng.choices(words, k=rng.choice([4, 6, 8]))) for _ in range(6_000))
    store.put([entry(f"r{i:05}", text) for i, text in enumerate(texts)])
    queries = [" ".join(rng.sample(words, rng.randint(1, 4))) for _ in range(40)]
    before = [found(store, query, limit=10) for query in queries]
    for _ in range(3):
        store.indexes.rebuild()
        assert [found(store, query, limit=10) for query in queries] == before
