"""What is off the topic does not come back, and does not count as used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

from hashing import HashingEmbedder

FACTS = (
    "Ana is allergic to walnuts",
    "Tom moved to Lisbon in March",
    "The deploy runs every Tuesday at nine",
    "Maria prefers tea over coffee",
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clew.Memory]:
    """With the real model: what is near is what the floor is about."""
    with clew.Memory(tmp_path_factory.mktemp("memory") / "memory.db") as memory:
        memory.remember_many([{"content": fact} for fact in FACTS])
        yield memory


def accesses(memory: clew.Memory) -> int:
    memory._accesses.flush()
    return sum(each.accesses for each in memory.latest(k=10))


def test_an_off_topic_question_recalls_nothing_and_uses_nothing(memory: clew.Memory) -> None:
    before = accesses(memory)
    found = memory.recall("quantum chromodynamics")
    assert found == []
    assert found.diagnostics["suppressed"] == 4
    assert memory.context_pack("quantum chromodynamics") == ""
    assert accesses(memory) == before


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("which nuts must be avoided?", "Ana is allergic to walnuts"),
        ("where does Tom live now", "Tom moved to Lisbon in March"),
        ("Tuesday", "The deploy runs every Tuesday at nine"),
        ("what does Maria like to drink", "Maria prefers tea over coffee"),
    ],
)
def test_a_paraphrase_recalls_the_fact_and_only_that_is_used(
    memory: clew.Memory, query: str, fact: str
) -> None:
    before = accesses(memory)
    found = memory.recall(query)
    assert found[0].content == fact
    assert accesses(memory) == before + len(found) < before + 4


def test_the_floor_can_be_taken_away_for_a_call_or_for_good(
    memory: clew.Memory, tmp_path: Path
) -> None:
    assert len(memory.recall("quantum chromodynamics", floor=0, record_access=False)) == 4
    assert not memory.recall("which nuts must be avoided?", floor=1)
    with clew.Memory(tmp_path / "memory.db", floor=0) as without:
        without.remember_many([{"content": fact} for fact in FACTS])
        assert len(without.recall("quantum chromodynamics")) == 4


def test_exact_searches_have_no_floor(tmp_path: Path) -> None:
    known = HashingEmbedder(model="bge-small@test")
    with clew.Memory(tmp_path / "memory.db", embedder=known) as memory:
        memory.remember_many([{"content": fact} for fact in FACTS])
        assert not memory.recall("quantum chromodynamics")
        assert len(memory.vector_search(known.embed_query("quantum chromodynamics"), k=4)) == 4
        assert len(memory.hybrid_search("quantum chromodynamics", k=4)) == 4
        assert len(memory.fts_search("walnuts moved", k=4)) == 2


def test_an_embedder_of_whose_cosines_nothing_is_known_drops_nothing(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        memory.remember_many([{"content": fact} for fact in FACTS])
        assert len(memory.recall("quantum chromodynamics", k=4)) == 4
        assert len(memory.recall("quantum chromodynamics", k=4, floor=0.9)) == 4


@pytest.mark.parametrize(
    "query", ["量子力学", "квантовая хромодинамика", "كرة القدم", "θεωρία χορδών"]
)
def test_in_a_script_the_model_does_not_know_shared_words_decide(
    memory: clew.Memory, query: str
) -> None:
    assert memory.recall(query) == []
    assert memory.recall(f"{query} walnuts")[0].content == "Ana is allergic to walnuts"
