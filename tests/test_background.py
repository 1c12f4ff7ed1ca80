"""One thing begun now and waited for later."""

from __future__ import annotations

import threading

import pytest

from clew.background import begin, within


def test_it_runs_beside_and_gives_its_result_as_often_as_asked() -> None:
    told = threading.Event()
    result = begin(lambda: told.wait(10) and "done")
    told.set()
    assert result() == result() == "done"


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        begin(fail)()


def test_what_takes_too_long_is_left_behind() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
        within(0.01, over.wait)
    over.set()
    assert within(10, lambda: "done") == "done"
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 // 0)
