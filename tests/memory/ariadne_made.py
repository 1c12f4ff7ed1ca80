"""Ariadne databases made by the real package, and a look at what SQLite holds in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from arriadne import AriadneMemory

__all__ = ["DIM", "ariadne", "edited", "everything", "of", "tables", "unit"]

DIM = 8


def unit(seed: int, dim: int = DIM) -> np.ndarray:
    row = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    return row / np.linalg.norm(row)


@contextmanager
def ariadne(path: Path) -> Iterator[AriadneMemory]:
    memory = AriadneMemory(db_path=path, embedding_dim=DIM)
    try:
        yield memory
    finally:
        memory.close()


def everything(path: Path) -> Path:
    """A database in which every table has rows and every column a value somewhere."""
    with ariadne(path) as memory:
        turn = memory.record_episode(
            "I moved to Lisbon in May.",
            role="user",
            source="chat",
            session_id="s-1",
            event_at=1_700_000_000.5,
            metadata={"channel": "web", "words": 6},
        )["episode_id"]
        memory.record_episode("Noted.", role="assistant", namespace="work")
        memory._db.add_episode(  # the public method has no options for these
            "The build is red.", role="tool", scope="project", user_id="u-1", agent_id="a-1",
            project_id="p-1",
        )  # fmt: skip
        full = memory.remember(
            "Ada keeps the keys of the boat house in the blue drawer.",
            memory_type="procedural",
            importance=0.9,
            embedding=unit(1),
            entities=["Ada", "boat house"],
            metadata={"page": 7, "nested": {"list": [1, None, "ü"]}},
            tags=["keys", "boat"],
            namespace="home",
            scope="user",
            user_id="u-1",
            agent_id="a-1",
            session_id="s-1",
            project_id="p-1",
            event_at=1_600_000_000.25,
            valid_from=1_600_000_000.0,
            valid_to=1_900_000_000.0,
            confidence=0.75,
        )
        assert full["status"] == "created", full
        lived = memory.remember_with_provenance(
            "The user lives in Porto.",
            turn,
            "chat",
            source_id="message-4",
            span="0:24",
            confidence=0.5,
            embedding=unit(2),
            entities=["user", "Porto"],
        )["memory_id"]
        moved = memory.supersede(
            lived, "Since May the user lives in Lisbon.", turn, span="2:9", embedding=unit(3)
        )["memory_id"]
        memory.supersede(moved, "The user has bought a flat in Faro.", embedding=unit(4))
        soft = memory.remember("A note about tides that nobody needs.")["memory_id"]
        hard = memory.remember("A secret that must not stay.", entities=["secret"])["memory_id"]
        memory.forget(soft)
        assert memory.forget(hard, hard=True)
        memory.remember("Kairos is a preference of the crew.", memory_type="preference")
        for place in ("in the hall", "in the dim hall"):
            memory.remember_many(
                [{"content": f"the spare lamp hangs {place} by the door", "embedding": unit(5)}]
            )
        assert memory.consolidate() == 1
        memory.feedback(full["memory_id"], "approve", 0.1, note="true", actor="ben")
        memory.feedback(full["memory_id"], "reject", -0.2)
        memory.feedback(full["memory_id"], "confirmed", 0.1)
        memory.feedback(lived, "correct")
        memory.add_edge("ada", "boat house", "guards", 0.4)
        memory.add_edge("moon", "tide", "pulls")
        for _ in range(3):
            assert memory.recall("keys of the boat house", embedding=unit(1), k=2)
        memory._db.conn.execute("UPDATE access_log SET query = 'keys' WHERE id = 1")
        memory._db.conn.commit()
    return path


def tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, without those of the full-text index and of SQLite."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    try:
        names = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith(("sqlite_", "memories_fts"))
        ]
        found = {}
        for name in names:
            quoted = name.replace('"', '""')
            found[name] = [dict(row) for row in db.execute(f'SELECT * FROM "{quoted}"')]
        return found
    finally:
        db.close()


def edited(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> Path:
    """The same file after somebody went at it with SQL."""
    db = sqlite3.connect(path)
    try:
        for statement in statements:
            db.execute(statement, values)
        db.commit()
    finally:
        db.close()
    return path


def of(memories: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """The one memory whose text has these words."""
    (found,) = [memory for memory in memories if words in memory["content"]]
    return found
