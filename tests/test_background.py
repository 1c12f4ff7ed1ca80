"""One thing begun now and waited for later."""

from __future__ import annotations

import subprocess
import sys
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


def test_a_process_that_ends_waits_for_calls_of_libraries_and_begins_none() -> None:
    """A thread that comes back from C++ when Python is gone aborts the process."""
    program = """
import threading, time
from clew.background import library_call
inside = threading.Event()

def work() -> None:
    with library_call():
        inside.set()
        time.sleep(0.5)
        print("back", flush=True)
    with library_call():
        print("once more", flush=True)

threading.Thread(target=work, daemon=True).start()
inside.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "back\n", "")
