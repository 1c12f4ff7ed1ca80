"""A memory through the installed command, with the real model."""

from __future__ import annotations

import subprocess
from pathlib import Path

from installed import COMMAND, answer, clew


def test_a_memory_from_the_first_word_to_another_file(tmp_path: Path) -> None:
    done = clew("recall", "nuts", cwd=tmp_path)
    assert done.returncode == 1 and "clew remember TEXT" in done.stderr
    assert list(tmp_path.iterdir()) == []
    nuts = answer("remember", "Ana is allergic to walnuts", "--tag", "health", cwd=tmp_path)
    assert nuts["status"] == "created" and nuts["embedded"] is True
    lines = "Ana lives in Porto\nThe code of the front door is 4471\nBen plays the cello\n"
    made = answer("remember", "-", "--lines", cwd=tmp_path, given=lines)["memories"]
    assert [each["status"] for each in made] == ["created"] * 3

    # another process, and no word in common
    found = answer("recall", "which", "food", "is", "dangerous?", "-k", "1", cwd=tmp_path)
    assert [m["id"] for m in found["results"]] == [nuts["id"]]
    assert found["search_type"] == "hybrid"
    shown = clew("recall", "who makes music", "-k", "1", cwd=tmp_path).stdout
    assert "1. Ben plays the cello" in shown and "1 memory by words and meaning" in shown

    moved = answer("supersede", made[0]["id"], "Ana lives in Faro", cwd=tmp_path)
    assert answer("forget", made[1]["id"][:8], cwd=tmp_path)["forgotten"] == [made[1]["id"]]
    assert clew("export", "out.jsonl.gz", cwd=tmp_path).returncode == 0
    counts = answer("import", "out.jsonl.gz", "--db", "copy.db", cwd=tmp_path)
    assert counts == {"created": 5, "updated": 0, "unchanged": 0}
    there, back = (
        clew("export", "-", "--db", name, cwd=tmp_path).stdout for name in ("memory.db", "copy.db")
    )
    assert there == back and len(there.splitlines()) == 5
    told = answer("history", moved["id"], "--db", "copy.db", cwd=tmp_path)["memories"]
    assert [m["content"] for m in told] == ["Ana lives in Faro", "Ana lives in Porto"]
    ended = answer("memories", "--ended", "--db", "copy.db", cwd=tmp_path)["memories"]
    assert {m["reason"] for m in ended} == {"superseded", "forgotten"}


def test_several_processes_remember_at_once(tmp_path: Path) -> None:
    clew("remember", "the first", cwd=tmp_path)
    running = [
        subprocess.Popen(
            [COMMAND, "remember", f"memory number {n}"], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        for n in range(4)
    ]
    assert [process.wait(240) for process in running] == [0] * 4
    listed = answer("memories", cwd=tmp_path)["memories"]
    assert sorted(m["content"] for m in listed) == [
        *(f"memory number {n}" for n in range(4)),
        "the first",
    ]
