from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clew.errors import SourceError
from clew.protocols import Source
from clew.search.collect import STUCK_AT_MOST, Collector, Outcome
from clew.search.plan import PlannedSource
from clew.sources import FunctionSource, Listing
from clew.types import Answer, Candidate, Query

QUERY = Query("keel", "keel")
CONTEXT: Any = object()
AMPLE = 30.0
"""Seconds no test ever waits when all is well."""
SHORT = 0.05
"""Seconds a test does wait for a source that will not come."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def giving(*ids: str) -> Listing:
    def source(query: Query, context: Any) -> Sequence[Candidate]:
        return [Candidate(name, 1.0 / rank) for rank, name in enumerate(ids, 1)]

    return source


def calling(act: Callable[[], Any]) -> Listing:
    def source(query: Query, context: Any) -> Sequence[Candidate]:
        return act()  # type: ignore[no-any-return]

    return source


def asking(sources: dict[str, Listing], *, quick: str = "") -> list[PlannedSource]:
    return [
        PlannedSource(name, FunctionSource.of(source), QUERY, kind=name, quick=name == quick)
        for name, source in sources.items()
    ]


def ids(outcome: Outcome) -> list[str]:
    return [candidate.id for candidate in outcome.candidates]


class Stuck:
    """A source that answers only after the test lets it."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.calls = 0

    def __call__(self, query: Query, context: Any) -> Sequence[Candidate]:
        self.calls += 1
        self.release.wait(AMPLE)
        return [Candidate("late", 1.0)]


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    source = Stuck()
    yield source
    source.release.set()


# ---------------------------------------------------------------- answers


def test_outcomes_come_in_the_given_order_whoever_answers_first(collector: Collector) -> None:
    second_is_done = threading.Event()

    def first(query: Query, context: Any) -> Sequence[Candidate]:
        assert second_is_done.wait(AMPLE)
        return [Candidate("a", 1.0)]

    def second(query: Query, context: Any) -> Sequence[Candidate]:
        second_is_done.set()
        return [Candidate("b", 1.0)]

    outcomes = collector.collect(
        asking({"first": first, "second": second}), CONTEXT, deadline=AMPLE
    )
    assert [(o.source, ids(o)) for o in outcomes] == [("first", ["a"]), ("second", ["b"])]


def test_each_source_gets_the_query_and_the_context(collector: Collector) -> None:
    seen: list[tuple[Query, Any]] = []

    def source(query: Query, context: Any) -> Sequence[Candidate]:
        seen.append((query, context))
        return ()

    collector.collect(asking({"a": source}), CONTEXT, deadline=AMPLE)
    assert seen == [(QUERY, CONTEXT)]


@pytest.mark.parametrize("shape", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_candidates_are_a_tuple_in_the_order_of_the_source(
    collector: Collector, shape: Callable[[Any], Any]
) -> None:
    given = [Candidate("b", 0.2, 7), Candidate("a", 0.9)]
    source = calling(lambda: shape(given))
    (outcome,) = collector.collect(asking({"a": source}), CONTEXT, deadline=AMPLE)
    assert outcome.candidates == tuple(given)
    assert outcome.problem is None
    assert outcome.ms >= 0


def test_no_more_is_taken_of_a_source_than_was_asked_for(collector: Collector) -> None:
    def endless() -> Iterator[Candidate]:
        for number in range(QUERY.depth):
            yield Candidate(str(number), 1.0)
        raise AssertionError("asked for more than its depth")

    for given in (endless, lambda: Answer(endless()), lambda: [Candidate("a", 1.0)] * 20_000):
        (outcome,) = collector.collect(asking({"a": calling(given)}), CONTEXT, deadline=AMPLE)
        assert (len(outcome.candidates), outcome.problem) == (QUERY.depth, None)


def test_who_is_left_behind_is_told(collector: Collector, stuck: Stuck) -> None:
    left: list[Query] = []

    class Telling(Source):
        def __call__(self, query: Query, context: Any) -> Sequence[Candidate]:
            return stuck(query, context)

        def leave(self, query: Query) -> None:
            left.append(query)

    collector.collect(asking({"a": Telling(), "b": giving("b")}), CONTEXT, deadline=SHORT)
    assert left == [QUERY]


def test_no_sources_no_outcomes(collector: Collector) -> None:
    assert collector.collect(asking({}), CONTEXT, deadline=AMPLE) == []


def test_sources_run_at_the_same_time(collector: Collector) -> None:
    # Each waits for the others: one after the other they would never meet.
    meeting = threading.Barrier(5)

    def meet() -> list[Candidate]:
        meeting.wait(10)
        return [Candidate("met", 1.0)]

    sources = {f"s{i}": calling(meet) for i in range(5)}
    outcomes = collector.collect(asking(sources), CONTEXT, deadline=AMPLE)
    assert [ids(o) for o in outcomes] == [["met"]] * 5


# ---------------------------------------------------------------- failures


def _raise(error: BaseException) -> Any:
    raise error


def _breaks_half_way() -> Iterator[Candidate]:
    yield Candidate("a", 1.0)
    raise RuntimeError("half way")


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda: _raise(SourceError("the file is gone: name another")), "the file is gone"),
        (lambda: _raise(RuntimeError("boom")), "RuntimeError: boom"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: _raise(SystemExit(3)), "SystemExit"),
        (lambda: _raise(asyncio.CancelledError()), "CancelledError"),
        (_breaks_half_way, "half way"),
        (lambda: None, "NoneType"),
        (lambda: 5, "int"),
    ],
    ids=["clew", "other", "arithmetic", "exit", "cancelled", "half way", "none", "number"],
)
def test_a_failing_source_is_named_and_the_others_answer(
    collector: Collector, act: Callable[[], Any], problem: str
) -> None:
    sources = {"good": giving("a"), "bad": calling(act), "fine": giving("b")}
    # Long enough for any answer, short enough to sit out should none come.
    good, bad, fine = collector.collect(asking(sources), CONTEXT, deadline=3)
    assert (ids(good), ids(fine)) == (["a"], ["b"])
    assert good.problem is fine.problem is None
    assert bad.source == "bad"
    assert bad.candidates == ()
    assert problem in str(bad.problem)


def test_a_source_that_failed_is_asked_again(collector: Collector) -> None:
    answers: Iterator[Callable[[], Any]] = iter([lambda: 1 / 0, lambda: [Candidate("a", 1.0)]])
    source = calling(lambda: next(answers)())
    (first,) = collector.collect(asking({"s": source}), CONTEXT, deadline=AMPLE)
    (second,) = collector.collect(asking({"s": source}), CONTEXT, deadline=AMPLE)
    assert first.problem is not None
    assert (second.problem, ids(second)) == (None, ["a"])


# ---------------------------------------------------------------- the deadline


def test_a_late_source_is_named_and_not_waited_for(collector: Collector, stuck: Stuck) -> None:
    sources = {"stuck": stuck, "good": giving("a")}
    late, good = collector.collect(asking(sources), CONTEXT, deadline=SHORT)
    assert not stuck.release.is_set()  # it is still asleep, and here is the answer
    assert late.problem == "no answer within 0.05 s"
    assert late.candidates == ()
    assert late.ms == pytest.approx(50)
    assert ids(good) == ["a"]


def test_a_late_answer_does_not_leak_into_a_later_search(collector: Collector) -> None:
    release, returning = threading.Event(), threading.Event()
    calls = iter(["first", "second"])

    def source(query: Query, context: Any) -> Sequence[Candidate]:
        call = next(calls)
        if call == "first":
            release.wait(AMPLE)
            returning.set()
        else:
            release.set()
            returning.wait(AMPLE)
            time.sleep(0.05)  # room for the first answer to arrive where it should not
        return [Candidate(call, 1.0)]

    (first,) = collector.collect(asking({"s": source}), CONTEXT, deadline=SHORT)
    (second,) = collector.collect(asking({"s": source}), CONTEXT, deadline=AMPLE)
    (third,) = collector.collect(asking({"s": giving("third")}), CONTEXT, deadline=AMPLE)
    assert ids(first) == []
    assert ids(second) == ["second"]
    assert ids(third) == ["third"]


def test_a_source_that_is_always_late_is_left_in_peace(collector: Collector, stuck: Stuck) -> None:
    for _ in range(STUCK_AT_MOST):
        (late,) = collector.collect(asking({"stuck": stuck}), CONTEXT, deadline=SHORT)
        assert "no answer" in str(late.problem)
    sources = {"stuck": stuck, "good": giving("a")}
    spared, good = collector.collect(asking(sources), CONTEXT, deadline=AMPLE)
    assert spared.problem == "still busy with earlier searches"
    assert stuck.calls == STUCK_AT_MOST
    assert ids(good) == ["a"]


def test_a_source_that_came_back_is_asked_again(collector: Collector, stuck: Stuck) -> None:
    for _ in range(STUCK_AT_MOST):
        collector.collect(asking({"stuck": stuck}), CONTEXT, deadline=SHORT)
    stuck.release.set()
    for _ in range(500):  # its threads need a moment to note that they are free
        (outcome,) = collector.collect(asking({"stuck": stuck}), CONTEXT, deadline=AMPLE)
        if outcome.problem is None:
            break
        time.sleep(0.01)
    assert ids(outcome) == ["late"]


def test_many_searches_at_once_do_not_look_stuck(collector: Collector) -> None:
    # A busy source is not a stuck one: nobody here is late.
    many = 2 * STUCK_AT_MOST
    meeting = threading.Barrier(many)

    def meet() -> list[Candidate]:
        meeting.wait(10)
        return [Candidate("met", 1.0)]

    def search(_: int) -> Outcome:
        return collector.collect(asking({"s": calling(meet)}), CONTEXT, deadline=AMPLE)[0]

    with ThreadPoolExecutor(many) as pool:
        outcomes = list(pool.map(search, range(many)))
    assert [(o.problem, ids(o)) for o in outcomes] == [(None, ["met"])] * many


def test_threads_are_kept_for_the_next_search(collector: Collector) -> None:
    names: set[int] = set()
    source = calling(lambda: names.add(threading.get_ident()) or [])
    for _ in range(20):
        collector.collect(asking({"s": source}), CONTEXT, deadline=AMPLE)
    assert len(names) == 1


def test_threads_end_when_they_were_idle_for_long(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.search.collect.IDLE", 0.01)
    used: set[threading.Thread] = set()
    source = calling(lambda: used.add(threading.current_thread()) or [])
    for _ in range(3):
        collector.collect(asking(dict.fromkeys("abcd", source)), CONTEXT, deadline=AMPLE)
        for thread in used:
            thread.join(AMPLE)
        assert not any(thread.is_alive() for thread in used)


def test_a_stuck_source_does_not_keep_the_process_alive(collector: Collector, stuck: Stuck) -> None:
    collector.collect(asking({"stuck": stuck}), CONTEXT, deadline=SHORT)
    workers = [t for t in threading.enumerate() if t.name == "clew-source"]
    assert workers
    assert all(worker.daemon for worker in workers)


# ---------------------------------------------------------------- in the caller's thread


class Ready:
    """A context in which the store's own legs wait for nobody, or do."""

    def __init__(self, current: bool, *, vector: bool = True) -> None:
        self.current = current
        self.at_hand = current and vector


@pytest.mark.parametrize("at_hand", [True, False])
def test_quick_sources_run_here_where_nothing_keeps_them_waiting(
    collector: Collector, at_hand: bool
) -> None:
    ran: dict[str, threading.Thread] = {}

    def quick(query: Query, context: Any) -> Sequence[Candidate]:
        ran["quick"] = threading.current_thread()
        return [Candidate("a", 1.0)]

    def other(query: Query, context: Any) -> Sequence[Candidate]:
        ran["other"] = threading.current_thread()
        return [Candidate("b", 1.0)]

    context: Any = Ready(at_hand)
    asked = asking({"quick": quick, "other": other}, quick="quick")
    first, second = collector.collect(asked, context, deadline=AMPLE)
    assert (ids(first), ids(second)) == (["a"], ["b"])
    assert (ran["quick"] is threading.current_thread()) == at_hand
    assert ran["other"] is not threading.current_thread()


def test_a_quick_source_that_fails_here_takes_nothing_down(collector: Collector) -> None:
    def broken(query: Query, context: Any) -> Sequence[Candidate]:
        raise OSError("the disk is gone")

    context: Any = Ready(True)
    asked = asking({"bad": broken, "good": giving("x")}, quick="bad")
    bad, good = collector.collect(asked, context, deadline=AMPLE)
    assert bad.problem == "OSError: the disk is gone"
    assert ids(good) == ["x"]


def test_sources_that_take_turns_say_when_theirs_came(collector: Collector) -> None:
    context: Any = Ready(True)
    asked = [
        PlannedSource(name, giving("x"), QUERY, kind=name, quick=True)
        for name in ("first", "second")
    ]
    first, second = collector.collect(asked, context, deadline=AMPLE)
    assert first.start >= 0
    assert second.start >= first.start + first.ms


def test_a_source_may_have_less_time_than_the_others(collector: Collector) -> None:
    stuck = Stuck()
    meanwhile = threading.Event()

    def patient(query: Query, context: Any) -> Sequence[Candidate]:
        meanwhile.wait(2 * SHORT)  # past the other's own deadline
        return [Candidate("x", 1.0)]

    asked = asking({"stuck": stuck, "good": patient})
    asked[0] = asked[0]._replace(deadline=SHORT)
    late, good = collector.collect(asked, CONTEXT, deadline=AMPLE)
    stuck.release.set()
    assert late.problem == f"no answer within {SHORT:g} s"
    assert ids(good) == ["x"]


def test_a_source_that_could_look_only_in_part_says_so_beside_its_candidates(
    collector: Collector,
) -> None:
    source = calling(lambda: Answer([Candidate("a", 1.0)], "one of two files is missing"))
    (outcome,) = collector.collect(asking({"half": source}), CONTEXT, deadline=AMPLE)
    assert ids(outcome) == ["a"]
    assert outcome.problem == "one of two files is missing"


def test_only_the_vectors_wait_for_the_querys_own(collector: Collector) -> None:
    ran: dict[str, threading.Thread] = {}

    def noting(name: str) -> Listing:
        def source(query: Query, context: Any) -> Sequence[Candidate]:
            ran[name] = threading.current_thread()
            return [Candidate(name, 1.0)]

        return source

    context: Any = Ready(True, vector=False)
    asked = asking({"keyword": noting("keyword"), "vectors": noting("vectors")})
    both = [one._replace(quick=True) for one in asked]
    collector.collect(both, context, deadline=AMPLE)
    assert ran["keyword"] is threading.current_thread()
    assert ran["vectors"] is not threading.current_thread()
