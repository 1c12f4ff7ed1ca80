"""What a cache of searches gives back, and what it forgets."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cached import keep, key, result, same
from hypothesis import given
from hypothesis import strategies as st

from clew.cache import SearchCache, search_cache
from clew.cache.search_cache import LentList
from clew.types import Candidate, Hit, SearchResult

HOUR = 3600.0
Opened = Callable[..., SearchCache]


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A cache on the test's file, as another process would open it; closed in the end."""
    caches: list[SearchCache] = []

    def open_cache(**options: Any) -> SearchCache:
        caches.append(SearchCache(tmp_path / "cache.db", **options))
        return caches[-1]

    yield open_cache
    for cache in caches:
        cache.close()


def names(cache: SearchCache, *candidates: str) -> list[str]:
    """Which of these it has, each with its own answer."""
    found = [name for name in candidates if cache.get(key(name)) is not None]
    assert all(same(cache.get(key(name)), result(name)) for name in found)
    return found


# ---------------------------------------------------------------- exact


def test_the_same_search_gets_the_same_answer(opened: Opened) -> None:
    cache = opened()
    assert cache.get(key("a")) is None
    keep(cache, "a")
    found = cache.get(key("a"))
    assert found is not None and found.cache == "exact"
    assert found.trace["cache"]["answered"] == "exact"
    assert same(found, result("a"))
    assert cache.get(key("b")) is None


def test_another_process_finds_it_in_the_file(opened: Opened) -> None:
    first = opened()
    keep(first, "a")
    assert first.flush()
    assert names(opened(), "a", "b") == ["a"]


def test_what_a_cache_is_closed_with_is_in_the_file(opened: Opened) -> None:
    first = opened()
    for i in range(100):
        keep(first, f"n{i}")
    first.close()
    assert len(names(opened(), *(f"n{i}" for i in range(100)))) == 100


def test_a_closed_cache_still_fails_no_search(opened: Opened) -> None:
    cache = opened()
    keep(cache, "a")
    cache.close()
    cache.close()
    keep(cache, "b")
    assert names(cache, "a", "b") == ["a", "b"]
    assert names(opened(), "a", "b") == ["a"]


@pytest.mark.parametrize("through_the_file", [False, True])
def test_what_a_caller_does_to_an_answer_stays_with_the_caller(
    opened: Opened, through_the_file: bool
) -> None:
    cache = opened()
    given = result("a")
    cache.put(key("a"), given)
    if through_the_file:
        cache.flush()
        cache = opened()
    for answer in (given, cache.get(key("a"))):
        assert answer is not None
        answer[0].metadata["tags"].append("mine")
        answer[0].signals["keyword"]["rank"] = 99  # type: ignore[index]
        answer.trace["stages_ms"]["parse"] = 0  # type: ignore[index]
        assert same(cache.get(key("a")), result("a"))


def test_an_answer_with_something_missing_is_not_kept(opened: Opened) -> None:
    cache = opened()
    cache.put(key("a"), replace(result("a"), degraded=("x: late",)))
    assert cache.get(key("a")) is None


def test_an_answer_that_is_no_plain_data_is_not_kept(opened: Opened) -> None:
    cache = opened()
    odd = SearchResult((Hit("a", "b", metadata={"day": dt.date(2026, 1, 1)}),))
    cycle: list[Any] = []
    cycle.append(cycle)
    for answer in (odd, SearchResult(trace={"cycle": cycle})):
        cache.put(key("a"), answer)
        assert cache.get(key("a")) is None
    assert cache.stats()["refused"] == 2


def test_an_answer_without_hits_is_an_answer(opened: Opened) -> None:
    cache = opened()
    cache.put(key("a"), SearchResult())
    assert same(cache.get(key("a")), SearchResult())


def test_any_words_can_be_kept(opened: Opened) -> None:
    words = "\ud800 \0 \"';-- 京都 \U0001f600"
    first = opened()
    first.put(key("a"), result(words))
    first.flush()
    assert same(opened().get(key("a")), result(words))


# ---------------------------------------------------------------- lists that are lent


def lent(name: str) -> LentList:
    return LentList(name, np.zeros(4, np.float32), (Candidate(name, 1.0),))


@given(st.lists(st.tuples(st.sampled_from("gh"), st.sampled_from("abc"), st.integers(1, 3))))
def test_a_list_is_lent_in_its_own_place_and_generation_alone(
    kept: list[tuple[str, str, int]],
) -> None:
    cache = SearchCache(None)
    newest = 0
    for group, source, generation in kept:
        place = (f"{generation}.{group}", source, ("keel",))
        cache.lend([(place, lent(f"{group}{source}{generation}"))])
        cache.get(key("x", generation))
        newest = max(newest, generation)
    for generation in (1, 2, 3):
        for group in "gh":
            for source in "abc":
                found = cache.borrow((f"{generation}.{group}", source, ("keel",)))
                assert cache.borrow((f"{generation}.{group}", source, ("sail",))) is None
                assert found is None or found.text == f"{group}{source}{generation}"
                assert (found is not None) >= (
                    bool(kept)
                    and kept[-1] == (group, source, generation) == (group, source, newest)
                )


def test_only_so_many_lists_are_kept_those_used_last() -> None:
    cache = SearchCache(None, entries=3)
    for name in "abc":
        cache.lend([(("1.g", name, None), lent(name))])
    assert cache.borrow(("1.g", "a", None)) is not None
    cache.lend([(("1.g", "d", None), lent("d"))])
    assert [n for n in "abcd" if cache.borrow(("1.g", n, None))] == ["a", "c", "d"]
    cache.clear()
    assert cache.borrow(("1.g", "a", None)) is None


# ---------------------------------------------------------------- what is forgotten


def test_a_newer_generation_makes_all_older_answers_dead(opened: Opened) -> None:
    cache = opened()
    for name in ("a", "b", "c"):
        keep(cache, name, generation=1)
    assert cache.stats()["entries"] == 3
    assert cache.get(key("a", 2)) is None
    keep(cache, "a", generation=2)
    assert cache.stats()["entries"] == 1  # purged in passing
    assert same(opened().get(key("a", 2)), result("a"))


@pytest.mark.parametrize("step", ["get", "put"])
def test_memory_does_not_keep_the_dead(step: str) -> None:
    cache = SearchCache(None)
    for name in ("a", "b", "c"):
        keep(cache, name, generation=1)
    assert cache.stats()["entries"] == 3
    if step == "get":
        assert cache.get(key("x", 2)) is None
    else:
        keep(cache, "x", generation=2)
    assert cache.stats()["entries"] == (step == "put")


def test_a_late_answer_of_an_older_generation_harms_nothing(opened: Opened) -> None:
    cache = opened()
    keep(cache, "a", generation=2)
    keep(cache, "b", generation=1)
    cache.flush()
    other = opened()
    assert same(other.get(key("a", 2)), result("a"))
    assert other.get(key("b", 2)) is None


def bytes_in(folder: Path) -> bytes:
    """Of the cache's file, its log included."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("cache.db*")))


def test_a_purge_leaves_no_trace_of_older_generations(opened: Opened, tmp_path: Path) -> None:
    cache, other = opened(), opened()
    keep(cache, "secret", generation=1)
    cache.lend([(("1.g", "keyword", None), lent("secret"))])
    cache.flush()
    assert other.get(key("secret", 1)) is not None
    keep(cache, "later", generation=2)
    cache.flush()
    keep(cache, "secretive", generation=1)  # waiting to be written
    assert b"secret" in bytes_in(tmp_path)
    cache.purge(2)
    assert b"secret" not in bytes_in(tmp_path)
    assert cache.get(key("secret", 1)) is None and cache.borrow(("1.g", "keyword", None)) is None
    assert same(cache.get(key("later", 2)), result("later"))
    keep(other, "secret", generation=1)  # by a search that had begun before
    other.flush()
    assert b"secret" not in bytes_in(tmp_path)


def test_an_answer_is_given_for_so_many_hours(opened: Opened, clock: Clock) -> None:
    cache = opened(clock=clock, hours=24)
    keep(cache, "a")
    clock.now += 23.9 * HOUR
    assert names(cache, "a") == ["a"]
    cache.flush()
    clock.now += 0.2 * HOUR
    assert names(cache, "a") == []
    assert names(opened(clock=clock), "a") == []
    keep(cache, "b")
    assert cache.stats()["entries"] == 1


def test_an_answer_from_the_future_is_dead(opened: Opened, clock: Clock) -> None:
    """The clock was put back: what was made before that would live too long."""
    cache = opened(clock=clock)
    keep(cache, "a")
    cache.flush()
    clock.now -= 30
    assert names(cache, "a") == ["a"]  # a small correction
    clock.now -= 5 * HOUR
    for each in (cache, opened(clock=clock)):
        assert each.get(key("a")) is None
    keep(cache, "b")
    assert cache.stats()["entries"] == 1


def test_the_least_recently_used_goes_first(opened: Opened) -> None:
    cache = opened(entries=3)
    for name in ("a", "b", "c"):
        keep(cache, name)
    cache.flush()
    assert names(cache, "a") == ["a"]
    keep(cache, "d")
    assert names(cache, "a", "c", "d") == ["a", "c", "d"]
    assert cache.stats()["entries"] == 3
    assert cache.get(key("b")) is None
    assert names(opened(), "a", "b", "c", "d") == ["a", "c", "d"]


def test_a_use_by_one_process_counts_for_all(opened: Opened) -> None:
    first, second = opened(entries=2), opened(entries=2)
    keep(first, "a")
    keep(first, "b")
    first.flush()
    assert names(second, "a") == ["a"]
    second.flush()
    keep(first, "c")
    first.flush()
    assert names(opened(), "a", "b", "c") == ["a", "c"]


def test_no_more_bytes_are_kept_than_allowed(opened: Opened) -> None:
    cache = opened(megabytes=0.05)
    for i in range(60):
        keep(cache, f"n{i}")
        cache.flush()
        assert cache.stats()["bytes"] <= 50_000
    kept = names(opened(), *(f"n{i}" for i in range(60)))
    assert 3 < len(kept) < 60
    assert kept == [f"n{i}" for i in range(60 - len(kept), 60)]


def test_an_answer_larger_than_the_cache_is_not_kept(opened: Opened) -> None:
    cache = opened(megabytes=0.02)
    keep(cache, "a")
    cache.put(key("vast"), result("vast", hits=50, words=500))
    assert cache.get(key("vast")) is None
    cache.flush()
    assert names(cache, "a") == names(opened(), "a", "vast") == ["a"]


@pytest.mark.parametrize("limits", [{"entries": 0}, {"hours": 0}, {"megabytes": 0}], ids=str)
def test_a_cache_of_no_size_keeps_nothing(opened: Opened, limits: dict[str, Any]) -> None:
    cache = opened(**limits)
    keep(cache, "a")
    assert cache.get(key("a")) is None
    cache.flush()
    assert opened(**limits).get(key("a")) is None


def test_clearing_forgets_everything_and_counts_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_cache, "OTHERS_SECONDS", 0.0)
    first, second = opened(), opened()
    keep(first, "a")
    first.flush()
    assert names(second, "a") == ["a"]  # in its memory now
    keep(second, "b")
    second.flush()
    assert first.clear() == 2
    assert names(first, "a", "b") == names(second, "a", "b") == names(opened(), "a", "b") == []
    assert first.stats()["entries"] == 0
    keep(first, "c")
    assert names(first, "c") == ["c"]


def test_nothing_of_what_was_cleared_is_left_in_the_file(opened: Opened, tmp_path: Path) -> None:
    cache = opened()
    for i in range(20):
        keep(cache, f"secret{i}")
    cache.flush()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert cache.clear() == 20
    cache.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < size / 2
    for file in tmp_path.iterdir():
        assert b"secret" not in file.read_bytes()


# ---------------------------------------------------------------- figures


def test_stats_count_hits_and_misses_over_all_processes(opened: Opened, clock: Clock) -> None:
    first = opened(clock=clock)
    keep(first, "a")
    clock.now += 10
    keep(first, "b")
    for name in ("a", "a", "b", "nothing", "else"):
        first.get(key(name))
    first.note_lent()  # so "else" was no miss
    first.close()
    second = opened(clock=clock)
    second.get(key("a"))
    figures = second.stats()
    assert figures["hits"] == {"exact": 4, "semantic": 1}
    assert figures["misses"] == 1
    assert figures["entries"] == 2
    assert figures["bytes"] > 2000
    assert figures["oldest"] == clock.now - 10
    assert figures["problem"] is None
    assert Path(figures["file"]).name == "cache.db"


def test_a_cache_without_a_file_lives_in_memory() -> None:
    cache = SearchCache(None)
    keep(cache, "a")
    assert names(cache, "a") == ["a"]
    figures = cache.stats()
    assert (figures["file"], figures["entries"], figures["problem"]) == (None, 1, None)
    assert figures["oldest"] is not None and figures["bytes"] > 0
    assert cache.clear() == 1
    assert names(cache, "a") == []
    cache.close()


def test_looking_does_not_make_a_file(opened: Opened, tmp_path: Path) -> None:
    cache = opened()
    assert cache.stats()["entries"] == 0
    assert cache.clear() == 0
    assert cache.sources() == {}
    cache.close()
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- sources


def test_the_last_outcome_of_each_source_is_known_to_all(opened: Opened, clock: Clock) -> None:
    first, second = opened(clock=clock), opened(clock=clock)
    first.note_sources({"keyword": (1.5, None), "graph": (5000.0, "no answer within 5 s")})
    assert first.flush()
    expected = {
        "graph": {"ms": 5000.0, "problem": "no answer within 5 s", "at": clock.now},
        "keyword": {"ms": 1.5, "problem": None, "at": clock.now},
    }
    assert first.sources() == second.sources() == expected
    clock.now += 1
    second.note_sources({"graph": (20.0, None)})
    assert second.sources()["graph"] == {"ms": 20.0, "problem": None, "at": clock.now}
    second.flush()
    assert first.sources() == second.sources()
    assert first.sources()["keyword"] == expected["keyword"]


def test_outcomes_are_written_now_and_then_and_problems_at_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = opened()
    woken: list[str] = []
    monkeypatch.setattr(cache._writer, "wake", lambda: woken.append("woken"))
    cache.note_sources({"keyword": (1.0, None)})
    assert len(woken) == 1
    for ms in range(50):
        cache.note_sources({"keyword": (float(ms), None)})
    assert len(woken) == 1
    for problem in ("late", "late", None, None):
        cache.note_sources({"keyword": (1.0, problem)})
    assert len(woken) == 3
    monkeypatch.setattr(search_cache, "NOTE_SECONDS", 0.0)
    cache.note_sources({"keyword": (1.0, None)})
    assert len(woken) == 4


def test_outcomes_survive_clearing(opened: Opened) -> None:
    cache = opened()
    cache.note_sources({"keyword": (1.0, None)})
    cache.clear()
    assert list(opened().sources()) == ["keyword"]


# ---------------------------------------------------------------- threads


def test_eight_threads_at_once_get_only_right_answers(opened: Opened) -> None:
    cache = opened(entries=40)
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(150):
            name = f"n{'abcdefghij'[rng.integers(10)]}{'abcdefghij'[rng.integers(10)]}"
            found = cache.get(key(name))
            if found is None:
                keep(cache, name)
            else:
                assert same(found, result(name))
            if rng.integers(40) == 0:
                cache.stats()
            if rng.integers(80) == 0:
                cache.clear()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    figures = cache.stats()
    assert figures["entries"] <= 40
    assert figures["problem"] is None
