"""The harness, briefly and with a fixed seed; `benchmarks/reliability.py` runs it for as long as
it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import syscalls
from harness import BAD, Tally, judge

HERE = Path(__file__).parent
EXPECTED = {"lost", "doubled", "wrong", "bare", "refused", "hung", "crashed"}


def run(kind: str, **options: float) -> dict[str, Any]:
    given = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), kind, *given],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_nothing_acknowledged_is_lost_by_a_kill_at_any_moment() -> None:
    result = run("kills", seed=14, count=30, seconds=8)
    assert result["findings"] == []
    assert result["counts"]["kills"] > 0


@pytest.mark.skipif(
    bool(syscalls.why_not()) and os.environ.get("CI") != "true", reason=syscalls.why_not()
)
def test_a_file_operation_that_fails_is_said_in_clews_words_and_loses_nothing() -> None:
    result = run("file_faults", seed=14, count=20, seconds=8)
    assert result["findings"] == []
    tried = ("faults", "kills at a file operation")
    assert sum(result["counts"].get(each, 0) for each in tried) > 0


def test_a_crowd_of_processes_and_threads_loses_nothing() -> None:
    result = run("crowd", seed=14, seconds=6)
    assert result["findings"] == []
    assert result["counts"]["calls at once"] > 0


def test_a_damaged_file_is_never_served_as_truth_nor_a_bare_error() -> None:
    result = run("flips", seed=14, count=6, seconds=5)
    counts = result["counts"]
    assert result["findings"] == []
    assert counts["corruptions"] > 0
    assert sum(counts.get(each, 0) for each in ("harmless", "named")) == counts["corruptions"]


def test_the_oracle_sees_what_is_lost_changed_or_too_much() -> None:
    state = {"kept": "1", "lost": "1", "old": "1", "gone": "1", "changed": "1"}
    pending = {"gone": None, "changed": "2", "new": "0"}
    seen = {"kept": "1", "old": "0", "changed": "2", "stray": "0"}
    tally = Tally()
    judge(seen, state, pending, [], tally, "here")
    assert dict(tally.counts) == {"lost": 1, "wrong": 2}
    assert tally.bad == 3
    assert set(BAD) == EXPECTED


def test_odd_input_by_the_thousand_ends_in_clews_words() -> None:
    command = [sys.executable, str(HERE.parent / "fuzz" / "run.py"), "--seed=14", "--count=800"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["findings"] == [] and result["counts"]["inputs"] >= 800
