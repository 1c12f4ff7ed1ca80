"""One thing begun now and waited for later."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_threads_that_come_and_go_leave_no_arenas_of_memory(tmp_path: Path) -> None:
    program = """
import ctypes, os, sys, threading
import clew

def write(number: int) -> None:
    engine.add([clew.Record(f"r{number}", f"keel bolts {number}")])
    engine.optimise()

with clew.open(sys.argv[1], model="none") as engine:
    write(0)
    for number in range(1, 12):
        thread = threading.Thread(target=write, args=(number,))
        thread.start()
        thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(os.fsencode(sys.argv[2]), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""
    told = tmp_path / "arenas.xml"
    environment = {n: of for n, of in os.environ.items() if n != "MALLOC_ARENA_MAX"}
    arguments = [sys.executable, "-c", program, str(tmp_path / "notes"), str(told)]
    (tmp_path / "notes").mkdir()
    subprocess.run(arguments, check=True, env=environment)
    early = 3  # threads that came before the first index was written may have made some
    assert 1 <= told.read_text().count("<heap") <= max(2, os.cpu_count() or 1) + early


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_memory_that_is_free_goes_back() -> None:
    program = """
from clew.background import returned_memory

def held() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

before = held()
with returned_memory():
    some = [b"x" * 100_000 for _ in range(1_000)]
    some = some[-1:]  # above all that is free: without a word glibc keeps it
    kept = held()
print(kept - before, held() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    kept, returned = map(int, done.stdout.split())
    assert kept > 90_000
    assert returned < 10_000
