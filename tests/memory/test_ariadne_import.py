"""A database made by the real `arriadne`, imported: nothing of it is lost, twice is once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ariadne_made import DIM, ariadne, everything, of, tables, unit

import clew
from clew.cli import run
from clew.memory.ariadne import read_ariadne


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory.mktemp("ariadne") / "memory.db")


def memories(memory: clew.Memory) -> list[dict[str, Any]]:
    data = memory.export_json()
    assert isinstance(data, dict)
    listed: list[dict[str, Any]] = data["memories"]
    return listed


def test_every_memory_comes_with_all_that_the_reader_found(database: Path, tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM) as memory:
        counts = memory.import_json(read_ariadne(database))
        kept = {each["id"]: each for each in memories(memory)}
        told = list(read_ariadne(database))
        assert counts == {"created": len(told), "updated": 0, "unchanged": 0}
        for item in told:
            found, feedback = kept[item["id"]], item.pop("feedback")
            embedding = item.pop("embedding")
            assert {name: found[name] for name in feedback} == feedback
            assert (embedding is None) == ("embedding" not in found)
            item["tags"] = sorted(tag.casefold() for tag in item["tags"])
            assert {name: found.get(name) for name in item} == item
        assert memory.import_json(read_ariadne(database))["unchanged"] == len(told)
        assert list({each["id"]: each for each in memories(memory)}.values()) == list(kept.values())
        ended = {each["reason"] for each in kept.values() if each["ended_at"] is not None}
        assert ended == {"superseded", "forgotten", "consolidated"}


def test_a_query_finds_what_ariadne_found_by_words_and_by_vector(
    database: Path, tmp_path: Path
) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM) as memory:
        memory.import_json(read_ariadne(database))
        (keys,) = memory.vector_search(unit(1), k=1, namespace="home")
        assert keys.content.startswith("Ada keeps the keys")
        assert keys.score == pytest.approx(1, abs=1e-5)
        (flat,) = memory.recall("where does the user live", unit(4), k=1)
        assert "flat in Faro" in flat.content
        assert [m.content for m in memory.history(flat.id)][-1] == "The user lives in Porto."


def test_every_text_of_every_table_is_somewhere_in_the_memory(
    database: Path, tmp_path: Path
) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM) as memory:
        memory.import_json(read_ariadne(database))
        text = json.dumps(memories(memory), ensure_ascii=False)
    for table, rows in tables(database).items():
        for row in rows:
            for column, value in row.items():
                if column in ("content_hash", "metadata", "tags", "memory_ids"):
                    continue  # made from others, or taken apart
                if isinstance(value, str):
                    assert json.dumps(value, ensure_ascii=False)[1:-1] in text, (table, column)


def test_a_vector_keeps_its_direction_whatever_the_memorys_own_model(
    database: Path, tmp_path: Path
) -> None:
    with clew.Memory(tmp_path / "m.db", model="none") as memory:  # 384 dimensions, not 8
        memory.import_json(read_ariadne(database))
        keys = of(memories(memory), "keys of the boat house")
        assert (keys["embedding_model"], keys["embedding_dim"]) == ("external", DIM)
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM) as memory:  # as Ariadne was opened
        (found,) = memory.vector_search(np.asarray(unit(1)), k=1, namespace="home")
        assert found.id == keys["id"]


def test_a_tag_in_capitals_is_found_in_any_case_and_kept_as_it_was(tmp_path: Path) -> None:
    with ariadne(tmp_path / "a.db") as theirs:
        theirs.remember("Ada keeps the keys.", tags=["Keys", "boat"])
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM) as memory:
        memory.import_json(read_ariadne(tmp_path / "a.db"))
        (found,) = memory.recall("keys", tags="KEYS")
        assert found.tags == ("boat", "keys")
        assert json.loads(found.metadata["ariadne"]["tags"]) == ["Keys", "boat"]


def test_the_command_imports_it(
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_MODEL", "none")
    monkeypatch.delenv("CLEW_MEMORY", raising=False)
    assert run(["import", "--from", "arriadne", "nowhere.db"]) == 1
    assert run(["import", "--from", "arriadne", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    capsys.readouterr()
    for expected in ("created", "unchanged"):
        assert run(["import", "--from", "arriadne", str(database), "--json"]) == 0
        counts = json.loads(capsys.readouterr().out)
        assert counts[expected] == sum(counts.values()) > 8
    assert run(["recall", "boat house", "--namespace", "home", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["metadata"]["page"] == 7 and found["tags"] == ["boat", "keys"]
    assert run(["import", str(database)]) == 1
    assert "--from arriadne" in capsys.readouterr().err
