"""Figures for `clew status`, and the examination behind `clew doctor`."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clew.index.unflushed import FAR, ROOM
from clew.storage import log
from clew.storage.rows import vector_rows
from clew.storage.snapshot import checksum, read_state
from clew.storage.tables import Database, Tables

REBUILD = "run `clew doctor --mend`: derived indexes are made anew from the database"


def stats(db: Tables, file: Path, folder: Path) -> dict[str, Any]:
    def count(table: str) -> int:
        return int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    def grouped(query: str) -> dict[str, int]:
        return dict(db.execute(query).fetchall())

    return {
        "records": count("records"),
        "chunks": count("chunks"),
        "tags": int(db.execute("SELECT COUNT(DISTINCT tag) FROM tags").fetchone()[0]),
        "links": count("links"),
        "collections": grouped("SELECT collection, COUNT(*) FROM records GROUP BY 1 ORDER BY 1"),
        "types": grouped("SELECT type, COUNT(*) FROM records GROUP BY 1 ORDER BY 1"),
        "models": grouped("SELECT embedding_model, COUNT(*) FROM vectors GROUP BY 1 ORDER BY 1"),
        "bytes": {
            "database": sum(
                _size(p) for p in file.parent.glob(f"{glob.escape(file.name)}*") if p.is_file()
            ),
            "keyword index": sum(_size(p) for p in (folder / "derived").glob("keyword*")),
            "vector index": sum(_size(p) for p in (folder / "derived").glob("vectors-*")),
        },
    }


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(_size(p) for p in path.iterdir())
    return path.stat().st_size if path.exists() else 0


def check(database: Database, folder: Path) -> Iterator[tuple[str, bool, str]]:
    """(what was checked, is it well, what to do if not)."""
    db = database.reader
    verdict = database.verdict()
    yield (
        "database is readable throughout",
        not verdict,
        f"{verdict}: restore {database.path.name} from a backup, or delete it and index again",
    )
    if verdict:
        return
    for what, query in (
        ("every record has its text", "SELECT rid FROM records EXCEPT SELECT rid FROM texts"),
        ("every chunk has its record", "SELECT rid FROM chunks EXCEPT SELECT rid FROM records"),
        ("every vector has its chunk", "SELECT cid FROM vectors EXCEPT SELECT cid FROM chunks"),
    ):
        strays = len(db.execute(query).fetchall())
        yield what, strays == 0, f"{strays} do not: index again with `clew index --force`"
    damaged = db.execute(f"SELECT COUNT(*) FROM vectors WHERE {db.SHORT}").fetchone()[0]
    yield "vectors have their full length", damaged == 0, f"{damaged} do not: run `clew reembed`"
    chunks = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
    state = read_state(folder / "derived" / "keyword.json", "place", "docs")
    changes = None if state is None else log.since(db, tuple(state["place"]))
    follows = changes is not None and changes.size("chunk", "gone") <= FAR * ROOM
    yield "keyword index follows the database", follows, "the next search catches up by itself"
    if changes is not None and state is not None:
        added, gone = set(changes.numbers("chunk")), set(changes.numbers("gone"))
        then = chunks - len(added - gone) + len(gone - added)  # as many as there were at its place
        yield "keyword index has every chunk", state["docs"] == then, REBUILD
    for place in sorted((folder / "derived").glob("vectors-*")):
        yield from _check_vectors(db, place)


def _check_vectors(db: Tables, place: Path) -> Iterator[tuple[str, bool, str]]:
    state = read_state(place / "state.json", "place", "count", "dim", "dead", "model", "sealed")
    if state is None:
        yield f"{place.name} has its state", False, REBUILD
        return
    count, dim = state["count"], state["dim"]
    changes = log.since(db, tuple(state["place"]))
    if not count or changes is None:
        return  # the next search with this model catches up by itself
    since = np.array(changes.numbers("vector", "gone"), np.int64)
    try:
        rows = np.memmap(place / "rows.f32", "<f4", "r", shape=(count, dim))
        cids = np.memmap(place / "cids.i64", "<i8", "r", shape=(count,))
        dead = np.empty(0, np.int64)
        if state["dead"]:
            dead = np.fromfile(place / "dead.i64", "<i8", state["dead"])
    except (OSError, ValueError) as error:
        yield f"{place.name} is whole", False, f"{error}; {REBUILD}"
        return
    wrong = 0
    living = np.setdiff1d(np.arange(count), dead)
    living = living[~np.isin(cids[living], since)]  # the others are not looked at any more
    sample = living[:: max(1, len(living) // 2000)].tolist()
    for i in range(0, len(sample), 500):
        some = {int(cids[position]): position for position in sample[i : i + 500]}
        known = {
            cid: row for cid, _, row in vector_rows(db, [*some], model=state["model"], dim=dim)
        }
        wrong += sum(known.get(cid) != rows[position].tobytes() for cid, position in some.items())
    yield f"{place.name} agrees with the database", wrong == 0, f"{wrong} rows differ; {REBUILD}"
    query = "SELECT cid FROM vectors WHERE embedding_model = ?"
    every = np.array([row[0] for row in db.execute(query, (state["model"],))], np.int64)
    missing = int(np.count_nonzero(~np.isin(every, since))) - len(living)
    yield f"{place.name} has every vector", missing == 0, f"{missing} are missing; {REBUILD}"
    if state["sealed"]:
        yield f"{place.name}: inverted lists are undamaged", _undamaged(place), REBUILD


def _undamaged(place: Path) -> bool:
    """Looks again when they were renewed meanwhile."""
    for _ in range(3):
        state = read_state(place / "state.json", "sealed")
        if state is None or not state["sealed"]:
            return state is not None
        path, known = place / state["sealed"]["name"], state["sealed"].get("checksum")
        # lists of an older version have no such sum
        if path.exists() and known in (None, checksum(path)):
            return True
    return False
