"""How records fare: accesses, feedback, their end, what took their place."""

from __future__ import annotations

import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Life
from entries import MODEL, entry, found, near

DAY = 86_400.0


@pytest.fixture
def diary(store: Store) -> Store:
    store.put(
        [
            entry(name, f"zebra {name}", vectors=[[1, 0]], created_at=number * DAY)
            for number, name in enumerate(("one", "two", "three"), start=1)
        ],
        model=MODEL,
    )
    return store


def ids(store: Store, **wanted: object) -> list[str]:
    return [record.id for record in store.select(Filter(**wanted), limit=99)]  # type: ignore[arg-type]


# ---------------------------------------------------------------------- ends


def test_what_has_ended_is_kept_and_only_found_by_who_asks_for_it(diary: Store) -> None:
    before = diary.changes.generation()
    assert diary.lifecycle.end(["two", "nobody"], at=5 * DAY, reason="forgotten") == ["two"]
    assert diary.changes.generation() > before
    (record,) = diary.get(["two"])
    assert record.ended_at == 5 * DAY
    assert diary.lifecycle.get(["two"])["two"].reason == "forgotten"
    for leg in (ids, lambda store, **wanted: sorted(found(store, "zebra", **wanted))):
        assert leg(diary) == ["one", "three", "two"]
        assert leg(diary, active=True) == ["one", "three"]
        assert leg(diary, active=False) == ["two"]
        assert leg(diary, as_of=4 * DAY) == ["one", "three", "two"]
        assert leg(diary, as_of=5 * DAY) == ["one", "three"]  # at that moment it holds no more
        assert leg(diary, as_of=2 * DAY) == ["one", "two"]  # and from its own on it does
        assert leg(diary, as_of=DAY - 1) == []
    assert sorted(near(diary, [1, 0], active=True)) == ["one", "three"]


def test_an_end_comes_once_and_can_be_taken_back(diary: Store) -> None:
    assert diary.lifecycle.end(["one"], at=DAY, reason="superseded", successor="two") == ["one"]
    assert diary.lifecycle.end(["one", "two"], at=2 * DAY, reason="evicted") == ["two"]
    life = diary.lifecycle.get(["one"])["one"]
    assert (life.reason, life.successor) == ("superseded", "two")
    assert diary.get(["one"])[0].ended_at == DAY
    assert sorted(diary.lifecycle.revive(["one", "two", "three", "nobody"])) == ["one", "two"]
    assert diary.get(["one"])[0].ended_at is None
    life = diary.lifecycle.get(["one"])["one"]
    assert (life.reason, life.successor) == ("", None)
    assert sorted(found(diary, "zebra", active=True)) == ["one", "three", "two"]
    assert diary.lifecycle.revive(["one"]) == []


def test_a_search_sees_an_end_and_a_return_at_once(diary: Store) -> None:
    """The same filter before and after: an answer kept from before would show."""
    for _ in range(3):
        assert "one" in found(diary, "zebra", active=True)
        diary.lifecycle.end(["one"], at=9 * DAY, reason="forgotten")
        assert "one" not in found(diary, "zebra", active=True)
        assert "one" not in near(diary, [1, 0], active=True)
        diary.lifecycle.revive(["one"])


def test_nothing_to_end_and_nothing_to_revive_is_no_write(diary: Store) -> None:
    before = diary.changes.edition()
    assert diary.lifecycle.end([], at=1.0, reason="forgotten") == []
    assert diary.lifecycle.end(["nobody"], at=1.0, reason="forgotten") == []
    assert diary.lifecycle.revive(["one"]) == []
    assert diary.changes.edition() == before


def test_predecessors_are_those_it_took_the_place_of_newest_first(diary: Store) -> None:
    diary.lifecycle.end(["one", "two"], at=9 * DAY, reason="superseded", successor="three")
    assert diary.lifecycle.predecessors("three") == ["two", "one"]
    assert diary.lifecycle.predecessors("one") == diary.lifecycle.predecessors("nobody") == []
    diary.delete(["two"])
    assert diary.lifecycle.predecessors("three") == ["one"]
    diary.lifecycle.revive(["one"])
    assert diary.lifecycle.predecessors("three") == []


# ---------------------------------------------------------------------- accesses and feedback


def test_accesses_add_up_and_are_no_change_to_what_is_found(diary: Store) -> None:
    found(diary, "zebra")
    before = diary.changes.generation(), diary.changes.edition()
    diary.lifecycle.count_accesses({"one": 2, "two": 1, "nobody": 5}, at=7 * DAY)
    diary.lifecycle.count_accesses({"one": 1}, at=6 * DAY)
    assert (diary.changes.generation(), diary.changes.edition()) == before
    assert diary.indexes.current()
    lives = diary.lifecycle.get(["one", "two", "three", "nobody"])
    assert lives["one"] == Life(accesses=3, strength=1.5**3, accessed_at=7 * DAY)
    assert lives["two"] == Life(accesses=1, strength=1.5, accessed_at=7 * DAY)
    assert lives["three"] == Life()
    assert "nobody" not in lives


def test_the_strength_of_a_memory_has_a_limit(diary: Store) -> None:
    for _ in range(11):
        diary.lifecycle.count_accesses({"one": 1}, at=1.0)
    assert diary.lifecycle.get(["one"])["one"].strength == pytest.approx(1.5**11)
    diary.lifecycle.count_accesses({"one": 1, "two": 10_000}, at=1.0)
    lives = diary.lifecycle.get(["one", "two"])
    assert lives["one"].strength == lives["two"].strength == 100.0
    assert lives["two"].accesses == 10_000


def test_a_moment_before_1970_is_a_moment_of_access_too(diary: Store) -> None:
    diary.lifecycle.rate("one", useful=1)  # it has a life already, without an access
    diary.lifecycle.count_accesses({"one": 1}, at=-5.0)
    diary.lifecycle.count_accesses({"one": 1}, at=-9.0)
    assert diary.lifecycle.get(["one"])["one"].accessed_at == -5.0


def test_ratings_add_up(diary: Store) -> None:
    before = diary.changes.edition()
    assert diary.lifecycle.rate("one", useful=1)
    assert diary.lifecycle.rate("one", useful=1, useless=2)
    assert not diary.lifecycle.rate("nobody", useful=1)
    assert diary.changes.edition() == before
    life = diary.lifecycle.get(["one"])["one"]
    assert (life.useful, life.useless, life.accesses) == (2, 2, 0)


def test_lives_can_be_written_whole_and_outlive_a_change_of_the_record(diary: Store) -> None:
    life = Life(7, 2.5, 3 * DAY, 1, 2, "consolidated", "two")
    diary.lifecycle.set({"one": life, "nobody": life})
    assert diary.lifecycle.get(["one", "nobody"]) == {"one": life}
    diary.put([entry("one", "zebra anew", vectors=[[0, 1]])], model=MODEL)
    assert diary.lifecycle.get(["one"])["one"] == life
    diary.delete(["one"])
    assert diary.lifecycle.get(["one"]) == {}
    diary.put([entry("one", "zebra once more")])
    assert diary.lifecycle.get(["one"])["one"] == Life()  # nothing of the one before


# ---------------------------------------------------------------------- accounts


def test_the_ledger_has_all_that_match_with_their_lives_by_id(diary: Store) -> None:
    diary.put([entry("four", "zebra", collection="other", importance=0.9, created_at=4 * DAY)])
    diary.lifecycle.count_accesses({"three": 1}, at=8 * DAY)
    diary.lifecycle.end(["one"], at=9 * DAY, reason="evicted")
    assert diary.lifecycle.ledger(Filter(active=True)) == [
        ("four", 0.9, 4 * DAY, Life()),
        ("three", 0.5, 3 * DAY, Life(1, 1.5, 8 * DAY)),
        ("two", 0.5, 2 * DAY, Life()),
    ]
    assert [row[0] for row in diary.lifecycle.ledger(Filter(collection="other"))] == ["four"]
    assert diary.lifecycle.ledger(Filter(collection="none such")) == []


def test_the_tally_tells_what_holds_from_what_has_ended_and_why(diary: Store) -> None:
    diary.put([entry("four", "zebra", collection="other", type="code")])
    diary.put([entry("five", "zebra", ended_at=DAY)])  # ended before it came here
    diary.lifecycle.end(["one"], at=9 * DAY, reason="evicted")
    assert sorted(diary.lifecycle.tally()) == [
        ("default", "text", "", 2),
        ("default", "text", "ended", 1),
        ("default", "text", "evicted", 1),
        ("other", "code", "", 1),
    ]
    diary.lifecycle.revive(["one", "five"])
    assert sorted(diary.lifecycle.tally()) == [("default", "text", "", 4), ("other", "code", "", 1)]


def test_the_newest_come_first_and_those_of_one_moment_by_id(diary: Store) -> None:
    diary.put([entry(name, "zebra", created_at=2 * DAY) for name in ("b", "a")])
    newest = [record.id for record in diary.select(Filter(), limit=99, newest=True)]
    assert newest == ["three", "a", "b", "two", "one"]
    assert [r.id for r in diary.select(Filter(), limit=2, newest=True)] == ["three", "a"]
    diary.lifecycle.end(["three"], at=9 * DAY, reason="forgotten")
    assert [r.id for r in diary.select(Filter(active=True), limit=1, newest=True)] == ["a"]
    assert diary.select(Filter(), limit=0, newest=True) == []


# ---------------------------------------------------------------------- vectors by record


def test_vectors_of_a_record_come_whole_or_not_at_all(store: Store) -> None:
    store.put(
        [
            entry("whole", ["keel", "mast"], vectors=[[1, 0], [0, 1]]),
            entry("none", "sail"),
            entry("part", ["rope", "deck"], vectors=[[1, 0], [0, 1]]),
        ],
        model=MODEL,
    )
    store.put([entry("part", ["rope", "deck", "bolt"])])  # the third has no vector yet
    vectors = store.vectors.of(["whole", "none", "part", "nobody"])
    assert set(vectors) == {"whole"}
    model, rows = vectors["whole"]
    assert model == MODEL
    assert rows.tolist() == [[1, 0], [0, 1]]
    store.put([entry("whole", ["keel", "mast"], vectors=[[1, 0, 0], [0, 1, 0]])], model="other@1")
    assert store.vectors.of(["whole"])["whole"][0] == "other@1"


def test_the_next_moment_at_which_something_begins_or_ceases_to_be_true(store: Store) -> None:
    assert store.lifecycle.next_change(0.0) is None
    store.put(
        [
            entry("a", "x", valid_from=100.0, valid_to=400.0),
            entry("b", "x", valid_to=200.0),
            entry("c", "x"),
            entry("gone", "x", valid_from=120.0, ended_at=1.0),
        ]
    )
    moments = [store.lifecycle.next_change(at) for at in (0.0, 100.0, 199.0, 200.0, 400.0)]
    assert moments == [100.0, 200.0, 200.0, 400.0, None]
    store.lifecycle.end(["a"], at=1.0, reason="forgotten")
    assert store.lifecycle.next_change(0.0) == 200.0
