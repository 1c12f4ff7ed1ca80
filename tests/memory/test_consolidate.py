"""Near-duplicates become one memory, and nothing that tells two apart is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import InputError, Memory
from clew.memory.consolidate import group_records, merge_lives, merge_records
from clew.models import load_embedder
from clew.text.equivalence import same_fact
from clew.types import Life, Record
from statements import APART, FACTS, TYPICAL

DARK = ("User prefers dark mode", "The user prefers dark mode.", "user prefers the dark mode!")


def told(memory: Memory, *texts: str, **fields: object) -> list[str]:
    return [memory.remember(text, **fields).id for text in texts]  # type: ignore[arg-type]


def left(memory: Memory, **fields: object) -> set[str]:
    return {found.content for found in memory.latest(100, **fields)}  # type: ignore[arg-type]


# ---------------------------------------------------------------- values


def test_the_most_important_is_kept_else_the_oldest_else_the_first_by_id() -> None:
    some = [
        Record("d", DARK[0], importance=0.5, created_at=1.0),
        Record("c", DARK[1], importance=0.9, created_at=3.0),
        Record("b", DARK[2], importance=0.9, created_at=2.0),
        Record("a", DARK[0], importance=0.9, created_at=2.0),
    ]
    ((kept, *others),) = group_records(some)
    assert kept.id == "a"
    assert [other.id for other in others] == ["b", "c", "d"]


def test_the_kept_one_takes_over_what_the_others_have_beside_their_text() -> None:
    kept = Record("a", DARK[0], importance=0.4, created_at=5.0, tags=("ui",), metadata={"x": 1})
    other = Record(
        *("b", DARK[1]), importance=0.3, created_at=2.0, tags=("taste", "ui"), metadata={"y": 2}
    )
    third = Record("c", DARK[2], importance=0.6, created_at=9.0, metadata={"x": 7, "y": 8, "z": 3})
    assert merge_records([kept, other, third]) == Record(
        *("a", DARK[0]), importance=0.6, created_at=2.0, tags=("ui", "taste"),
        metadata={"x": 1, "y": 2, "z": 3},
    )  # fmt: skip


def test_lives_add_up() -> None:
    lives = [
        Life(accesses=2, strength=2.25, accessed_at=10.0, useful=1),
        Life(accesses=3, strength=3.4, accessed_at=7.0, useless=2),
        Life(),
    ]
    assert merge_lives(lives) == Life(
        accesses=5, strength=3.4, accessed_at=10.0, useful=1, useless=2
    )
    assert merge_lives([Life(), Life()]) == Life()


TEXTS = (
    *DARK,
    "User prefers light mode",
    "User does not prefer dark mode",
    "Please remember that Anna owns 2 cats",
    "Anna owns 2 cats.",
    "Anna owns 3 cats.",
    "anna owns 2 cats",
    "Hanna owns 2 cats.",
)
records = st.builds(
    Record,
    id=st.integers(0, 10**6).map("{:06}".format),
    content=st.sampled_from(TEXTS),
    collection=st.sampled_from(["mine", "yours"]),
    type=st.sampled_from(["semantic", "episodic"]),
    importance=st.sampled_from([0.2, 0.5, 0.5, 0.9]),
    created_at=st.sampled_from([1.0, 2.0, 86_400.0]),
    metadata=st.dictionaries(st.sampled_from("ab"), st.integers(1, 2), max_size=2),
)


@given(st.lists(records, unique_by=lambda record: record.id, max_size=25), st.randoms())
def test_groups_are_the_same_in_any_order_and_hold_only_what_says_the_same(
    some: list[Record], chance: random.Random
) -> None:
    found = group_records(some)
    shuffled = list(some)
    chance.shuffle(shuffled)
    by_id = sorted(found, key=lambda group: group[0].id)
    assert sorted(group_records(shuffled), key=lambda group: group[0].id) == by_id
    names = [record.id for group in found for record in group]
    assert len(names) == len(set(names))
    for group in found:
        assert len(group) > 1
        for one, other in pairwise(group):
            assert same_fact(one.content, other.content)
            assert (one.collection, one.type) == (other.collection, other.type)
        for one in group:
            for other in group:
                shared = one.metadata.keys() & other.metadata.keys()
                assert all(one.metadata[key] == other.metadata[key] for key in shared)


@given(st.lists(records, unique_by=lambda record: record.id, max_size=25))
def test_what_is_left_after_grouping_has_nothing_more_to_group(some: list[Record]) -> None:
    found = group_records(some)
    gone = {record.id for group in found for record in group}
    whole = [merge_records(group) for group in found]
    rest = [record for record in some if record.id not in gone]
    assert group_records([*whole, *rest]) == []


# ---------------------------------------------------------------- memories


def test_what_says_the_same_becomes_one_memory_that_has_all_of_them(memory: Memory) -> None:
    first, second, third = (
        memory.remember(text, importance=weight, tags=tags, metadata=data, created_at=at).id
        for text, weight, tags, data, at in zip(
            DARK, (0.5, 0.7, 0.5), (["ui"], ["taste"], []), ({"a": 1}, {"b": 2}, {}),
            (3_000.0, 2_000.0, 1_000.0), strict=True,
        )
    )  # fmt: skip
    memory.recall("dark mode", k=3)
    (group,) = memory.consolidate()
    assert group["id"] == second
    assert {other["id"] for other in group["ended"]} == {first, third}
    kept = memory.get(second)
    assert kept is not None
    assert kept.importance == 0.7
    assert set(kept.tags) == {"ui", "taste"}
    assert kept.metadata == {"a": 1, "b": 2}
    assert kept.created_at == 1_000
    assert kept.accesses == 3
    assert left(memory) == {DARK[1]}
    assert [found.id for found in memory.recall("dark mode")] == [second]
    ended = memory.get(first)
    assert ended is not None
    assert (ended.reason, ended.successor) == ("consolidated", second)


@pytest.mark.parametrize(
    "other",
    [
        "Anna takes 10 mg of aspirin on Monday",
        "Anna takes 5 g of aspirin on Monday",
        "Hanna takes 5 mg of aspirin on Monday",
        "Anna takes 5 mg of ibuprofen on Monday",
        "Anna takes 5 mg of aspirin on Sunday",
        "Anna never takes 5 mg of aspirin on Monday",
        "Anna took 5 mg of aspirin on Monday",
    ],
)
def test_a_near_duplicate_that_differs_in_a_fact_is_kept(memory: Memory, other: str) -> None:
    told(memory, "Anna takes 5 mg of aspirin on Monday", other)
    assert memory.consolidate() == []
    assert memory.consolidate(threshold=0.0) == []
    assert len(left(memory)) == 2


def test_namespaces_and_types_never_meet(memory: Memory) -> None:
    told(memory, DARK[0], namespace="mine")
    told(memory, DARK[1], namespace="yours")
    told(memory, DARK[2], namespace="mine", type="procedural")
    assert memory.consolidate() == []
    told(memory, DARK[1], namespace="mine")
    told(memory, DARK[0], namespace="yours")
    (group,) = memory.consolidate("mine")
    assert (group["namespace"], group["type"]) == ("mine", "semantic")
    assert left(memory, namespace="yours") == set(DARK[:2])
    assert len(memory.consolidate()) == 1


def test_an_episode_of_another_day_is_another_episode(memory: Memory) -> None:
    day = 86_400.0
    at = ((0.0, "Anna called."), (60.0, "anna called"), (day, "Anna called"))
    for moment, text in at:
        memory.remember(text, type="episodic", created_at=moment)
    (group,) = memory.consolidate()
    assert [other["content"] for other in group["ended"]] == ["anna called"]
    assert left(memory) == {"Anna called.", "Anna called"}


def test_two_values_of_one_key_are_a_difference_unless_it_is_to_be_ignored(memory: Memory) -> None:
    memory.remember(DARK[0], importance=0.9, metadata={"speaker": "Anna", "turn": 1})
    memory.remember(DARK[1], metadata={"speaker": "Ben", "turn": 2})
    memory.remember(DARK[2], metadata={"speaker": "Anna", "turn": 3})
    assert memory.consolidate() == []
    (group,) = memory.consolidate(ignore="turn")
    assert [other["content"] for other in group["ended"]] == [DARK[2]]
    kept = memory.get(group["id"])
    assert kept is not None
    assert kept.metadata == {"speaker": "Anna", "turn": 1}


def test_a_dry_run_says_what_would_be_and_changes_nothing(memory: Memory) -> None:
    told(memory, *DARK)
    planned = memory.consolidate(dry_run=True)
    assert left(memory) == set(DARK)
    assert memory.consolidate() == planned
    assert len(planned[0]["ended"]) == 2


def test_it_is_done_once_and_can_be_taken_back(memory: Memory) -> None:
    told(memory, *DARK)
    (group,) = memory.consolidate()
    generation = memory.stats()["generation"]
    assert memory.consolidate() == []
    assert memory.stats()["generation"] == generation
    assert memory.restore([other["id"] for other in group["ended"]]) == 2
    assert left(memory) == set(DARK)


def test_what_has_ended_already_takes_no_part(memory: Memory) -> None:
    first, second = told(memory, *DARK[:2])
    memory.forget(first)
    assert memory.consolidate() == []
    memory.restore(first)
    memory.supersede(first, "User prefers light mode")
    assert memory.consolidate() == []
    assert left(memory) == {DARK[1], "User prefers light mode"}
    assert memory.get(second) is not None


def test_vectors_far_apart_object(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory.db", embedding_dim=2) as memory:
        for text, angle in zip(DARK, (0.0, 0.1, 1.5), strict=True):
            memory.remember(text, embedding=[np.cos(angle), np.sin(angle)])
        assert memory.consolidate(threshold=0.999) == []
        (group,) = memory.consolidate()
        assert [other["content"] for other in group["ended"]] == [DARK[1]]


def test_without_vectors_words_are_enough(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory.db", model="none") as memory:
        told(memory, *DARK, "User prefers light mode")
        (group,) = memory.consolidate(threshold=1.0)
        assert len(group["ended"]) == 2
        assert len(left(memory)) == 2


def test_a_long_memory_with_a_vector_of_its_own_keeps_it(tmp_path: Path) -> None:
    text = "User prefers dark mode. " + "It rests the eyes at night. " * 200
    with Memory(tmp_path / "memory.db", embedding_dim=2) as memory:
        kept = memory.remember(text, embedding=[1.0, 0.0], importance=0.9).id
        memory.remember(text.replace("User", "user"), tags=["ui"], embedding=[1.0, 0.0])
        assert len(memory.consolidate()) == 1
        assert [found.id for found in memory.vector_search([1.0, 0.0])] == [kept]


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "0.9", True])
def test_a_threshold_is_a_number_from_0_to_1(memory: Memory, threshold: object) -> None:
    with pytest.raises(InputError, match="threshold"):
        memory.consolidate(threshold=threshold)  # type: ignore[arg-type]


def test_many_are_looked_at_in_pages(memory: Memory) -> None:
    memory.remember_many({"content": f"Room {n} has {n % 7} chairs"} for n in range(1_500))
    memory.remember_many({"content": f"room {n} has {n % 7} chairs."} for n in range(0, 1_500, 3))
    assert len(memory.consolidate()) == 500
    assert memory.stats()["memories"] == 1_500
    assert memory.stats()["ended"] == {"consolidated": 500}


def test_several_at_once_do_it_once(memory: Memory) -> None:
    for n in range(20):
        told(
            memory,
            *(f"{text} in room {n}" for text in ("The user prefers tea", "user prefers tea")),
        )
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: memory.consolidate(), range(4)))
    assert sum(len(groups) for groups in done) == 20
    assert memory.stats()["memories"] == 20


# ---------------------------------------------------------------- in other words


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """With the real model, which is the point here."""
    if not load_embedder("bge-small").dim:
        pytest.skip("the weights of bge-small are not here")
    with Memory(tmp_path_factory.mktemp("model") / "memory.db") as opened:
        yield opened


def test_twenty_two_sentences_of_seven_facts_become_seven(model: Memory) -> None:
    texts = [sentence for fact in TYPICAL for sentence in fact]
    model.remember_many({"content": text, "namespace": "facts"} for text in texts)
    done = model.consolidate("facts")
    kept = {found.content for found in model.latest(99, namespace="facts")}
    assert len(texts) == 22 and len(kept) == 7
    assert all(len(kept & set(fact)) == 1 for fact in TYPICAL)
    names = [other["id"] for group in done for other in group["ended"]]
    assert model.restore(names, namespace="facts") == 15


def test_what_only_seems_to_say_the_same_stays_with_any_vectors(model: Memory) -> None:
    texts = dict.fromkeys(text for pair in APART for text in pair)
    model.remember_many({"content": text, "namespace": "apart"} for text in texts)
    done = model.consolidate("apart", threshold=0.0)
    merged = {(group["content"], o["content"]) for group in done for o in group["ended"]}
    assert not merged & {(a, b) for one, other in APART for a, b in ((one, other), (other, one))}


def test_other_words_need_vectors_that_are_near(tmp_path: Path) -> None:
    pair = "The user lives in Berlin", "User resides in Berlin"
    with Memory(tmp_path / "words.db", model="none") as words:
        told(words, *pair)
        assert words.consolidate() == []
    with Memory(tmp_path / "given.db", embedding_dim=2) as given_vectors:
        for text, angle in zip(pair, (0.0, 1.0), strict=True):
            given_vectors.remember(text, embedding=[np.cos(angle), np.sin(angle)])
        assert given_vectors.consolidate() == []
        given_vectors.remember("User's home is in Berlin", embedding=[1.0, 0.1])
        (group,) = given_vectors.consolidate()
        assert [other["content"] for other in group["ended"]] == ["User's home is in Berlin"]


def test_variety_lists_no_five_paraphrases_of_one_fact(model: Memory) -> None:
    others = ("The editor font is Fira Code", "User works at night", "User's screen is broken")
    for text in (*TYPICAL[0], *FACTS[0], *TYPICAL[1], *others):
        model.remember(text, namespace="variety")
    dark = {*TYPICAL[0], *FACTS[0]}
    options: dict[str, Any] = {"namespace": "variety", "record_access": False, "k": 5}
    plain = model.recall("which mode does the user prefer?", **options)
    assert len(dark & {found.content for found in plain}) == 5
    varied = model.recall("which mode does the user prefer?", mmr=0.5, **options)
    assert len(dark & {found.content for found in varied}) <= 2
    assert varied[0].content == plain[0].content
