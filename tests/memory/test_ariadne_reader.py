"""What is read from an Ariadne database: every value of every row, under Clew's names."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ariadne_made import DIM, ariadne, edited, everything, of, tables, unit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew import Record
from clew.memory.ariadne import read_ariadne

FIELDS = {
    "content": "content",
    "memory_type": "type",
    "importance": "importance",
    "namespace": "namespace",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "accessed_at": "accessed_at",
    "access_count": "accesses",
    "retention_strength": "strength",
    "valid_from": "valid_from",
    "valid_to": "valid_to",
}
"""Columns that are a field of their own, as they are."""
ATTACHED = {
    "access_log": ("memory_id", "access_log"),
    "feedback": ("memory_id", "feedback"),
    "memory_entities": ("memory_id", "entities"),
    "memory_links": ("source_id", "links"),
    "sources": ("memory_id", "sources"),
}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory.mktemp("ariadne") / "memory.db")


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """One that a test may change."""
    return Path(shutil.copy(made, tmp_path / "memory.db"))


# ---------------------------------------------------------------- nothing is lost


def lost(path: Path) -> list[str]:
    """Every value of every table that cannot be found in what was read: none, that is."""
    memories = list(read_ariadne(path))
    by_row = {
        (kept["table"], kept["id"]): memory
        for memory in memories
        if (kept := memory["metadata"]["ariadne"])["table"]
    }
    return [
        f"{table} {row.get('id')}: {column} = {row[column]!r}"
        for table, rows in tables(path).items()
        for row in rows
        for column in _lost(table, row, by_row, memories)
    ]


def _lost(
    table: str,
    row: dict[str, Any],
    by_row: dict[Any, dict[str, Any]],
    memories: list[dict[str, Any]],
) -> list[str]:
    """The columns of one row that are nowhere."""
    if table in ("memories", "episodes"):
        memory = by_row[table, row["id"]]
        return [column for column in row if not _is_there(memory, column, row)]
    owner, name = ATTACHED.get(table, ("", table))
    if ("memories", row.get(owner)) in by_row:
        places = [by_row["memories", row[owner]]["metadata"]["ariadne"].get(name, [])]
        row = {column: value for column, value in row.items() if column != owner}
    else:
        kept_by_all = [memory["metadata"]["ariadne"] for memory in memories]
        places = [kept.get("rows", kept).get(table, []) for kept in kept_by_all]
    wanted = {column: as_json(value) for column, value in row.items() if value is not None}
    if name == "entities" and table != name and owner not in row:
        # The entity itself stands there, and what the row says of it besides.
        wanted = {f"link_{column}": value for column, value in wanted.items()}
        wanted["id"] = wanted.pop("link_entity_id")
    if any(wanted.items() <= each.items() for place in places for each in _flat(place)):
        return []
    return [*row]


def _flat(place: list[dict[str, Any]]) -> Iterator[Any]:
    for each in place:
        yield {key: json.dumps(value) for key, value in each.items()}


def as_json(value: Any) -> str:
    if isinstance(value, bytes):
        value = {"base64": base64.b64encode(value).decode()}
    return json.dumps(str(value) if isinstance(value, float) and math.isinf(value) else value)


def _is_there(memory: dict[str, Any], column: str, row: dict[str, Any]) -> bool:
    value, kept = row[column], memory["metadata"]["ariadne"]
    if value is None or (column in kept and json.dumps(kept[column]) == as_json(value)):
        return True
    if f"{column}_" in kept and json.dumps(kept[f"{column}_"]) == as_json(value):
        return True
    if column in FIELDS and memory[FIELDS[column]] == value:
        return True
    own = {key: each for key, each in memory["metadata"].items() if key != "ariadne"}
    special = {
        "metadata": lambda: json.loads(value) == own,
        "tags": lambda: json.loads(value) == memory["tags"],
        "embedding": lambda: np.asarray(memory["embedding"], "<f4").tobytes() == value,
        "content_hash": lambda: hashlib.sha256(row["content"].encode()).hexdigest() == value,
        "is_deleted": lambda: (memory["reason"] in ("forgotten", "consolidated")) == bool(value),
        "deleted_at": lambda: memory["ended_at"] == value,
    }
    return column in special and special[column]()


def test_every_value_of_every_table_is_found_in_what_was_read(made: Path) -> None:
    source = tables(made)
    for table, rows in source.items():
        empty = [column for column in rows[0] if all(row[column] is None for row in rows)]
        assert not empty, f"{table}: nothing would be noticed of {empty}"
    assert lost(made) == []


def test_a_column_and_a_table_of_a_later_version_come_along(copy: Path) -> None:
    edited(
        copy,
        "ALTER TABLE memories ADD COLUMN mood TEXT DEFAULT 'calm'",
        "ALTER TABLE memories ADD COLUMN links TEXT DEFAULT 'a name that is taken'",
        "ALTER TABLE sources ADD COLUMN page INTEGER DEFAULT 4",
        "ALTER TABLE memory_entities ADD COLUMN certainty REAL DEFAULT 0.5",
        "ALTER TABLE episodes ADD COLUMN picture BLOB DEFAULT x'00ff'",
        'CREATE TABLE "my ""plans""" (what TEXT, due REAL)',
        'INSERT INTO "my ""plans""" VALUES (\'sail\', 2e9)',
    )
    memories = list(read_ariadne(copy))
    kept = of(memories, "blue drawer")["metadata"]["ariadne"]
    assert kept["mood"] == "calm"
    assert [each["link_certainty"] for each in kept["entities"]] == [0.5, 0.5]
    assert memories[-1]["metadata"]["ariadne"]["rows"]['my "plans"'] == [
        {"what": "sail", "due": 2e9}
    ]
    assert lost(copy) == []


def test_the_oldest_schema_can_be_read(copy: Path) -> None:
    newer = ("tags", "namespace", "scope", "user_id", "agent_id", "session_id", "project_id",
             "event_at", "valid_from", "valid_to", "supersedes_id", "confidence")  # fmt: skip
    indexes = ("namespace", "scope", "user", "agent", "session", "project", "valid_from",
               "valid_to", "supersedes", "event_at", "confidence")  # fmt: skip
    edited(
        copy,
        *(f"DROP TABLE {table}" for table in ("sources", "feedback", "episodes")),
        *(f"DROP INDEX idx_memories_{name}" for name in indexes),
        *(f"ALTER TABLE memories DROP COLUMN {column}" for column in newer),
    )
    memories = list(read_ariadne(copy))
    assert of(memories, "blue drawer")["namespace"] == "default"
    assert of(memories, "blue drawer")["tags"] == []
    assert of(memories, "in Porto")["ended_at"] is None
    assert lost(copy) == []


def test_rows_whose_memory_is_gone_are_kept_in_one_that_is_never_found(copy: Path) -> None:
    edited(
        copy,
        "INSERT INTO feedback (memory_id, action, created_at) VALUES (999, 'approve', 5.0)",
        "INSERT INTO consolidations VALUES (7, 'no list', 'text', 0.5, 6.0)",
        "INSERT INTO memory_links VALUES (999, 1, 'related', 1.0, 7.0)",
    )
    rest = list(read_ariadne(copy))[-1]
    rows = rest["metadata"]["ariadne"]["rows"]
    assert rows["feedback"] == [
        {"id": 5, "memory_id": 999, "action": "approve", "confidence_delta": 0.0, "created_at": 5.0}
    ]
    assert {"edges", "entities", "feedback", "consolidations", "memory_links"} == set(rows)
    assert rest["ended_at"] == rest["created_at"] and rest["reason"] == "forgotten"
    assert lost(copy) == []


_ANY = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.binary(max_size=12),
    st.sampled_from(["[]", '["a", "a"]', '[" b", 3]', '{"ariadne": 1}', '{"x": NaN}', '"\\ud800"']),
)
_COLUMNS = ("content", "content_hash", "memory_type", "importance", "embedding", "created_at",
            "updated_at", "accessed_at", "access_count", "retention_strength", "is_deleted",
            "deleted_at", "metadata", "tags", "namespace", "scope", "valid_to",
            "supersedes_id", "confidence")  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(_ANY, min_size=len(_COLUMNS), max_size=len(_COLUMNS)))
def test_whatever_a_row_holds_it_is_kept_and_fits_a_record(
    values: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "odd.db"
    path.unlink(missing_ok=True)
    edited(
        path,
        # Without the conditions of the real table, since other programs may have written it.
        f"CREATE TABLE memories (id INTEGER PRIMARY KEY, {', '.join(_COLUMNS)})",
    )
    marks = ", ".join("?" * len(_COLUMNS))
    edited(path, f"INSERT INTO memories VALUES (1, {marks})", values=tuple(values))
    (memory,) = read_ariadne(path)
    if (
        values[0] is None or not str(values[0]).strip()
    ):  # nothing to remember: the row is kept as it is
        (row,) = memory["metadata"]["ariadne"]["rows"]["memories"]
        held = zip(_COLUMNS, values, strict=True)
        assert all(json.dumps(row[c]) == as_json(v) for c, v in held if v is not None)
        return
    json.dumps(memory | {"embedding": None}, allow_nan=False, ensure_ascii=False).encode()
    Record(
        id=memory["id"],
        content=memory["content"],
        collection=memory["namespace"],
        tags=memory["tags"],
        importance=memory["importance"],
        created_at=memory["created_at"],
        updated_at=memory["updated_at"],
        metadata=memory["metadata"],
    )
    row = tables(path)["memories"][0]
    for column in row:
        if column not in ("is_deleted", "content_hash"):
            assert _is_there(memory, column, row), (column, row[column], memory)


# ---------------------------------------------------------------- where things stand


def test_a_memory_with_every_option_has_each_in_its_place(made: Path) -> None:
    memory = of(list(read_ariadne(made)), "blue drawer")
    kept = memory["metadata"].pop("ariadne")
    assert memory["type"] == "procedural"
    assert memory["importance"] == 0.9
    assert memory["tags"] == ["keys", "boat"]
    assert memory["namespace"] == "home"
    assert memory["metadata"] == {"page": 7, "nested": {"list": [1, None, "ü"]}}
    assert np.allclose(memory["embedding"], unit(1), atol=1e-6)
    assert memory["ended_at"] is None and memory["successor"] is None
    assert kept["id"] == 1 and kept["scope"] == "user" and memory["valid_to"] == 1.9e9
    assert [each["name"] for each in kept["entities"]] in (
        [["ada", "boat house"], ["boat house", "ada"]]
    )
    (edge,) = kept["edges"]
    assert (edge["source"], edge["edge_type"], edge["target"]) == ("ada", "guards", "boat house")


def test_what_was_recalled_and_rated_says_so(made: Path) -> None:
    memory = of(list(read_ariadne(made)), "blue drawer")
    assert memory["accesses"] == 3
    assert memory["strength"] == pytest.approx(1.5**3)
    assert memory["accessed_at"] > memory["created_at"]
    assert memory["feedback"] == {"useful": 2, "useless": 1}
    log = memory["metadata"]["ariadne"]["access_log"]
    assert [each.get("query") for each in log] == ["keys", None, None]
    assert of(list(read_ariadne(made)), "in Porto")["feedback"] == {"useful": 0, "useless": 0}


def test_a_chain_of_memories_each_ends_where_the_next_begins(made: Path) -> None:
    memories = list(read_ariadne(made))
    porto, lisbon, faro = (of(memories, f"in {place}") for place in ("Porto", "Lisbon.", "Faro"))
    assert (porto["reason"], porto["successor"]) == ("superseded", lisbon["id"])
    assert porto["ended_at"] == lisbon["created_at"]
    assert (lisbon["reason"], lisbon["successor"]) == ("superseded", faro["id"])
    assert lisbon["metadata"]["ariadne"]["supersedes"] == porto["id"]
    assert (faro["ended_at"], faro["reason"], faro["successor"]) == (None, "", None)


def test_what_a_forgotten_memory_replaced_holds_again(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db") as memory:
        old = memory.remember("The office is on the third floor.")["memory_id"]
        new = memory.supersede(old, "From Monday on we work in the harbour.")["memory_id"]
        memory.forget(new)
        assert [hit["id"] for hit in memory.recall("office floor")] == [old]
    first, second = read_ariadne(tmp_path / "memory.db")
    assert first["ended_at"] is None
    assert second["reason"] == "forgotten"


def test_what_was_replaced_and_then_forgotten_ended_when_it_was_replaced(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db") as memory:
        old = memory.remember("The office is on the third floor.")["memory_id"]
        memory.supersede(old, "From Monday on we work in the harbour.")
        memory.forget(old)
    first, second = read_ariadne(tmp_path / "memory.db")
    assert (first["reason"], first["successor"]) == ("forgotten", second["id"])
    assert first["ended_at"] == second["created_at"]
    assert first["metadata"]["ariadne"]["deleted_at"] > first["ended_at"]
    assert lost(tmp_path / "memory.db") == []


def test_a_soft_deletion_is_an_end_and_a_hard_one_leaves_nothing(made: Path) -> None:
    memories = list(read_ariadne(made))
    tides = of(memories, "tides")
    assert tides["reason"] == "forgotten" and tides["successor"] is None
    assert tides["ended_at"] > tides["created_at"]
    assert not [memory for memory in memories if "secret that" in str(memory)]


def test_memories_that_were_merged_point_to_what_they_became(made: Path) -> None:
    memories = list(read_ariadne(made))
    *parts, whole = [memory for memory in memories if "spare lamp" in memory["content"]]
    assert [(part["reason"], part["successor"]) for part in parts] == [
        ("consolidated", whole["id"])
    ] * 2
    kept = whole["metadata"]["ariadne"]
    assert sorted(link["target"] for link in kept["links"]) == sorted(p["id"] for p in parts)
    assert json.loads(kept["consolidations"][0]["memory_ids"]) == [9, 8]
    assert whole["ended_at"] is None


def test_episodes_are_memories_that_sources_refer_to(made: Path) -> None:
    memories = list(read_ariadne(made))
    episode = of(memories, "I moved to Lisbon")
    assert episode["type"] == "episodic" and episode["metadata"]["channel"] == "web"
    assert episode["metadata"]["ariadne"]["event_at"] == 1_700_000_000.5
    sources = of(memories, "in Porto")["metadata"]["ariadne"]["sources"]
    assert [source["episode"] for source in sources] == [episode["id"]]
    assert of(memories, "Noted.")["namespace"] == "work"


def test_a_type_that_clew_has_not_is_semantic_and_remembered(made: Path) -> None:
    memory = of(list(read_ariadne(made)), "Kairos")
    assert memory["type"] == "semantic"
    assert memory["metadata"]["ariadne"]["memory_type"] == "preference"


# ---------------------------------------------------------------- odd values


@pytest.mark.parametrize("text", ["{half", "[1]", "null", '{"x": NaN}', '{"x": "\\ud800"}'])
def test_metadata_that_is_no_json_object_is_kept_as_text(copy: Path, text: str) -> None:
    edited(copy, "UPDATE memories SET metadata = ? WHERE id = 1", values=(text,))
    memory = next(read_ariadne(copy))
    assert set(memory["metadata"]) == {"ariadne"}
    assert memory["metadata"]["ariadne"]["metadata"] == text


def test_metadata_that_has_our_name_already_is_kept_beside(copy: Path) -> None:
    text = '{"ariadne": "thread", "page": 2}'
    edited(copy, "UPDATE memories SET metadata = ? WHERE id = 1", values=(text,))
    memory = next(read_ariadne(copy))
    assert memory["metadata"]["page"] == 2
    assert memory["metadata"]["ariadne"]["metadata"] == text


def test_tags_that_do_not_fit_are_kept_beside_those_that_do(copy: Path) -> None:
    text = '["keys", "keys", 7, null, " "]'
    edited(copy, "UPDATE memories SET tags = ? WHERE id = 1", values=(text,))
    memory = next(read_ariadne(copy))
    assert memory["tags"] == ["keys", "7"]
    assert memory["metadata"]["ariadne"]["tags"] == text


def test_a_vector_of_another_dimension_is_read_as_it_is(copy: Path) -> None:
    row = unit(9, DIM * 2)
    edited(copy, "UPDATE memories SET embedding = ? WHERE id = 1", values=(row.tobytes(),))
    assert next(read_ariadne(copy))["embedding"].tolist() == row.tolist()


@pytest.mark.parametrize(
    "blob", [b"", b"abc", bytes(4 * DIM), np.full(DIM, np.nan, np.float32).tobytes()]
)
def test_bytes_that_are_no_vector_are_kept_and_not_used(copy: Path, blob: bytes) -> None:
    edited(copy, "UPDATE memories SET embedding = ? WHERE id = 1", values=(blob,))
    memory = next(read_ariadne(copy))
    assert memory["embedding"] is None
    kept = memory["metadata"]["ariadne"]["embedding"]
    assert base64.b64decode(kept["base64"]) == blob


def test_numbers_out_of_range_are_brought_into_it_and_kept(copy: Path) -> None:
    edited(
        copy,
        "UPDATE memories SET importance = 7, retention_strength = -1, created_at = 9e999, "
        "valid_to = 9e999, access_count = -2 WHERE id = 1",
    )
    memory = next(read_ariadne(copy))
    assert memory["importance"] == 1.0 and memory["strength"] == 1.0 and memory["accesses"] == 0
    assert memory["created_at"] == memory["updated_at"]
    kept = memory["metadata"]["ariadne"]
    assert (kept["importance"], kept["access_count"], kept["valid_to"]) == (7.0, -2, "inf")
    assert lost(copy) == []


def test_white_space_around_a_text_is_taken_off_and_kept(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db") as memory:
        memory.remember("  The harbour closes at nine.\n")
    (read,) = read_ariadne(tmp_path / "memory.db")
    assert read["content"] == "The harbour closes at nine."
    assert read["metadata"]["ariadne"]["content"] == "  The harbour closes at nine.\n"


def test_a_text_longer_than_a_memory_may_be_is_kept_whole_beside_its_beginning(
    tmp_path: Path,
) -> None:
    text = "all work and no play " * 60_000
    with ariadne(tmp_path / "memory.db") as memory:
        memory.remember("all work")
    # By SQL: Ariadne takes ten seconds to look for what is like so long a text.
    change = "UPDATE memories SET content = ?"
    (read,) = read_ariadne(edited(tmp_path / "memory.db", change, values=(text.strip(),)))
    assert read["content"] == text[:1_000_000]
    assert read["metadata"]["ariadne"]["content"] == text.strip()


def test_a_memory_without_a_text_is_kept_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db") as memory:
        memory.remember("The harbour closes at nine.")
        blank = memory.remember("", metadata={"only": "this"}, embedding=unit(1))["memory_id"]
        memory.feedback(blank, "reject", note="says nothing")
        memory.record_episode(" ", role="user")
    harbour, rest = read_ariadne(tmp_path / "memory.db")
    assert harbour["content"] == "The harbour closes at nine."
    rows = rest["metadata"]["ariadne"]["rows"]
    assert rows["memories"][0]["metadata"] == '{"only": "this"}'
    assert rows["memories"][0]["beside"]["feedback"][0]["note"] == "says nothing"
    assert base64.b64decode(rows["memories"][0]["embedding"]["base64"]) == unit(1).tobytes()
    assert rows["episodes"][0]["role"] == "user"


def test_odd_namespaces_stay_apart(tmp_path: Path) -> None:
    odd = ["", "user|1", "user|2", "user 1", "👤", "../up", "default", "x" * 300]
    with ariadne(tmp_path / "memory.db") as memory:
        for name in odd:
            memory.remember(f"A note of {name[:9]}.", namespace=name)
    memories = list(read_ariadne(tmp_path / "memory.db"))
    spaces = [memory["namespace"] for memory in memories]
    assert len(set(spaces)) == len(odd)
    assert spaces[odd.index("user 1")] == "user 1" and spaces[odd.index("default")] == "default"
    assert all(re.fullmatch(r"\w[\w.:/@+ -]{0,199}", name) for name in spaces), spaces
    kept = [
        memory["metadata"]["ariadne"].get("namespace", memory["namespace"]) for memory in memories
    ]
    assert kept == odd


# ---------------------------------------------------------------- ids


def test_reading_twice_gives_the_same(made: Path) -> None:
    first, second = (
        [{**memory, "embedding": str(memory["embedding"])} for memory in read_ariadne(made)]
        for _ in range(2)
    )
    assert first == second
    assert len({memory["id"] for memory in first}) == len(first)


def test_an_edited_memory_keeps_its_id(copy: Path) -> None:
    before = next(read_ariadne(copy))["id"]
    with ariadne(copy) as memory:
        assert memory.update(1, content="Ada keeps the keys upstairs.", importance=0.1)
    after = next(read_ariadne(copy))
    assert after["id"] == before and after["content"] == "Ada keeps the keys upstairs."


def test_two_databases_share_no_id(made: Path, tmp_path: Path) -> None:
    with ariadne(tmp_path / "other.db") as memory:
        for number in range(12):
            memory.remember(f"Entry {number} is about {'abcdefghijkl'[number] * 9}.")
            memory.record_episode(f"said {number}", role="user")
        memory.add_edge("left", "over")
    other = {memory["id"] for memory in read_ariadne(tmp_path / "other.db")}
    assert len(other) == 25
    assert other.isdisjoint(memory["id"] for memory in read_ariadne(made))


def test_more_memories_than_are_read_at_once_all_come(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db") as memory:
        memory.remember_many(
            [{"content": f"number {i}", "entities": [f"e{i % 7}"]} for i in range(1203)]
        )
    memories = list(read_ariadne(tmp_path / "memory.db"))
    assert [memory["content"] for memory in memories] == [f"number {i}" for i in range(1203)]
    assert all(len(memory["metadata"]["ariadne"]["entities"]) == 1 for memory in memories)
