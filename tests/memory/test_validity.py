"""When something is true, apart from when it was written down."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

import clew

DAY = 86_400.0


def contents(found: Any) -> list[str]:
    return [memory.content for memory in found]


def places(memory: clew.Memory, *moments: float | str, **options: Any) -> list[str]:
    """Where Ana lives at each of these moments."""
    found = [memory.recall("Ana lives", as_of=moment, **options) for moment in moments]
    return [" ".join(sorted(m.content.split()[-1] for m in some)) for some in found]


@pytest.fixture(params=["memory.db", "duckdb"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    name = request.param
    path = tmp_path / name if name == "memory.db" else f"duckdb://{tmp_path}/memory.duckdb"
    with clew.Memory(path, embedding_dim=4) as memory:
        yield memory


def test_as_of_goes_by_what_was_true_whenever_it_was_learnt(held: clew.Memory) -> None:
    held.remember("Ana lives in Faro", valid_from=100.0, valid_to=200.0)
    held.remember("Ana lives in Porto", valid_from=200.0)
    assert places(held, 99.9, 100.0, 199.9, 200.0, time.time()) == [
        "", "Faro", "Faro", "Porto", "Porto",
    ]  # fmt: skip
    found = held.recall("Ana lives")
    assert contents(found) == ["Ana lives in Porto"]
    assert (found[0].valid_from, found[0].valid_to) == (200.0, None)
    assert found[0].created_at > 200.0
    assert contents(held.latest()) == ["Ana lives in Porto"]
    assert [e["content"] for e in held.working_memory("Ana lives")] == ["Ana lives in Porto"]


def test_by_default_it_is_true_since_it_was_learnt(held: clew.Memory) -> None:
    held.remember("Ana lives in Porto", created_at=100.0)
    assert places(held, 99.9, 100.0, 1e9) == ["", "Porto", "Porto"]
    (found,) = held.recall("Ana lives")
    assert (found.valid_from, found.valid_to) == (100.0, None)


def test_what_ended_before_it_was_learnt_began_nobody_knows_when(held: clew.Memory) -> None:
    held.remember("Ana lives in Faro", created_at=500.0, valid_to=200.0)
    assert places(held, 0.0, 199.9, 200.0) == ["Faro", "Faro", ""]


def test_a_supersession_may_be_of_a_moment_that_has_passed(held: clew.Memory) -> None:
    old = held.remember("Ana lives in Faro", created_at=100.0)
    new = held.supersede(old.id, "Ana lives in Porto", valid_from=300.0)
    assert places(held, 200.0, 299.9, 300.0, 1e9) == ["Faro", "Faro", "Porto", "Porto"]
    ended = held.get(old.id)
    assert ended is not None and ended.ended_at is not None
    assert (ended.valid_to, ended.successor) == (300.0, new.id)
    assert abs(ended.ended_at - time.time()) < 60  # and that is when it was said
    made = held.get(new.id)
    assert made is not None and made.valid_from == 300.0 and made.created_at > 300.0
    again = held.supersede(new.id, "Ana lives in Braga", valid_from=200.0)  # earlier than known
    assert places(held, 150.0, 250.0, 350.0) == ["Faro", "Braga", "Braga"]
    assert contents(held.history(again.id)) == [
        "Ana lives in Braga", "Ana lives in Porto", "Ana lives in Faro",
    ]  # fmt: skip


def test_a_supersession_may_be_of_a_moment_to_come(held: clew.Memory) -> None:
    june, now = time.time() + 30 * DAY, time.time()
    old = held.remember("Ana lives in Faro", created_at=now - DAY)
    new = held.supersede(old.id, "Ana lives in Porto", valid_from=june)
    assert contents(held.recall("Ana lives")) == ["Ana lives in Faro"]
    assert contents(held.recall("Ana lives", now=june)) == ["Ana lives in Porto"]
    assert places(held, now, june - 1, june) == ["Faro", "Faro", "Porto"]
    assert contents(held.history(new.id)) == ["Ana lives in Porto", "Ana lives in Faro"]
    whole = held.export_json()
    assert held.import_json(whole)["unchanged"] == 2  # type: ignore[arg-type]
    assert held.export_json() == whole
    with pytest.raises(clew.InputError, match="has ended already"):
        held.supersede(old.id, "Ana lives in Braga")
    assert held.restore(old.id) == 1
    assert len(held.recall("Ana lives", now=june)) == 2


def test_what_holds_for_a_while_is_found_for_as_long(held: clew.Memory) -> None:
    now = time.time()
    held.remember("Ana lives in a tent", valid_to=now + DAY)
    held.remember("Ana lives in Porto", valid_from=now - DAY)
    for moment, count in ((now, 2), (now + DAY - 1, 2), (now + DAY, 1), (now + 9 * DAY, 1)):
        assert len(held.recall("Ana lives", now=moment)) == count, moment
    held.remember("Ana lives on a boat", valid_from=now + DAY, valid_to=now + 2 * DAY)
    for moment, count in ((now, 2), (now + DAY, 2), (now + 2 * DAY, 1)):
        assert len(held.recall("Ana lives", now=moment, k=1)) == 1
        assert len(held.recall("Ana lives", now=moment)) == count, moment


def test_forgetting_rewrites_no_history_unless_it_is_for_good(held: clew.Memory) -> None:
    old = held.remember("Ana lives in Faro", valid_from=100.0, valid_to=200.0)
    assert held.forget(old.id)
    assert places(held, 150.0) == ["Faro"]
    kept = held.get(old.id)
    assert kept is not None and (kept.valid_from, kept.valid_to) == (100.0, 200.0)
    assert held.restore(old.id) == 1
    kept = held.get(old.id)
    assert kept is not None and kept.valid_to == 200.0
    assert held.forget(old.id, hard=True)
    assert places(held, 150.0) == [""]


def test_validity_survives_an_update_and_can_be_corrected(held: clew.Memory) -> None:
    one = held.remember("Ana lives in Faro", valid_from=100.0, valid_to=200.0)
    held.update(one.id, "Ana lives in Porto", importance=0.9)
    assert places(held, 150.0, 250.0) == ["Porto", ""]
    held.update(one.id, valid_to=300.0)
    assert places(held, 150.0, 250.0, 300.0) == ["Porto", "Porto", ""]


def test_validity_goes_out_and_comes_in(held: clew.Memory, tmp_path: Path) -> None:
    old = held.remember("Ana lives in Faro", valid_from=100.0)
    held.supersede(old.id, "Ana lives in Porto", valid_from=300.0)
    held.export_json(tmp_path / "out.jsonl")
    with clew.Memory(tmp_path / "other.db", embedding_dim=4) as other:
        other.import_json(tmp_path / "out.jsonl")
        assert other.export_json() == held.export_json()
        assert other.import_json(tmp_path / "out.jsonl")["unchanged"] == 2
        assert places(other, 99.9, 200.0, 300.0) == ["", "Faro", "Porto"]
        other.import_json([{"content": "Ana lives in Lagos", "valid_to": "1969-12-31"}])
        assert places(other, -DAY - 1, -DAY) == ["Lagos", ""]


def test_what_never_held_does_not_hold_by_an_import(held: clew.Memory) -> None:
    old = held.remember("Ana lives in Faro", created_at=500.0)
    held.supersede(old.id, "Ana lives in Porto", valid_from=300.0)
    assert places(held, 200.0, 400.0, 600.0) == ["", "Porto", "Porto"]
    whole = held.export_json()
    assert held.import_json(whole)["unchanged"] == 2  # type: ignore[arg-type]
    assert held.export_json() == whole
    assert places(held, 200.0, 400.0, 600.0) == ["", "Porto", "Porto"]


def test_the_same_words_of_two_times_are_two_memories(held: clew.Memory) -> None:
    held.remember("Ana lives in Porto", valid_from=100.0, valid_to=200.0)
    again = held.remember("Ana lives in Porto", valid_from=300.0)
    assert again.status == "created"
    assert held.remember("Ana lives in Porto").id == again.id  # which is what holds
    assert held.remember("Ana lives in Porto", valid_from=300.0).status == "duplicate"
    assert places(held, 150.0, 250.0, 350.0) == ["Porto", "", "Porto"]
    assert held.consolidate() == []


def test_a_reversed_validity_is_refused(held: clew.Memory) -> None:
    for given in ({"valid_from": 200.0, "valid_to": 100.0}, {"valid_to": "soon"}):
        with pytest.raises(clew.InputError, match=r"reversed|valid_to"):
            held.remember("never", **given)  # type: ignore[arg-type]
    assert held.stats()["memories"] == 0


def test_what_a_restored_memory_was_superseded_by_no_longer_ends_it(held: clew.Memory) -> None:
    old = held.remember("Ana lives in Faro", created_at=100.0)
    held.supersede(old.id, "Ana lives in Porto", valid_from=300.0)
    assert held.restore(old.id) == 1
    assert places(held, 400.0) == ["Faro Porto"]
    assert len(held.recall("Ana lives")) == 2


def test_a_file_from_before_is_brought_up_to_date_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with clew.Memory(path, embedding_dim=4) as memory:
        old = memory.remember("Ana lives in Faro", created_at=100.0)
        memory.supersede(old.id, "Ana lives in Porto", created_at=300.0)
    db = sqlite3.connect(path)
    db.execute("DROP INDEX records_valid_from")
    db.execute("DROP INDEX records_valid_to")
    db.execute("ALTER TABLE records DROP COLUMN valid_from")
    db.execute("ALTER TABLE records DROP COLUMN valid_to")
    for table in ("records", "chunks", "vectors"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    db.execute("PRAGMA user_version = 3")
    db.commit()
    db.close()
    with clew.Memory(path, embedding_dim=4) as memory:
        assert places(memory, 99.0, 200.0, 300.0) == ["", "Faro", "Porto"]
        memory.remember("Ana lives in Lagos", valid_from=50.0, valid_to=60.0)
        assert places(memory, 55.0) == ["Lagos"]
