"""Memories of an Ariadne database (distribution `arriadne`), with Clew's names, and nothing lost.

What Clew has a field for goes there. Everything else stands under `metadata["ariadne"]`, by the
names of Ariadne's own columns; rows that belong to no memory make one more at the end, which has
ended. A file that nobody has open is read as it lies and looked at again after every step, so that
nothing is given out that was read while somebody began to write.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Any

from clew.errors import InputError, StoreError
from clew.memory.record import FIRST_MOMENT, LAST_MOMENT, MAX_CHARACTERS, TYPES, check_namespace
from clew.sources.sqlite import MAGIC, database_state, is_at_rest, open_foreign
from clew.validate import is_number, is_vector, is_whole

AriadneRow = dict[str, Any]
Attached = dict[str, list[AriadneRow]]
"""Rows that stand with one memory, by what they are called there."""

BUSY_SECONDS = 5.0
"""How long a program that holds the file for itself is waited for."""
_BATCH = 500
_OWN = "ariadne"
_NEEDED = frozenset({"id", "content", "content_hash", "memory_type", "created_at"})
"""Columns that the table `memories` has had from the first version on, and others have not."""
_ATTACHED = {
    "access_log": ("memory_id", "access_log"),
    "feedback": ("memory_id", "feedback"),
    "memory_entities": ("memory_id", "entities"),
    "memory_links": ("source_id", "links"),
    "sources": ("memory_id", "sources"),
}
"""Tables whose rows belong to a memory: the column that says to which, and what they are called
where they stand with it."""
_ENTITIES = ("entities", "id", "name")
_MENTIONS = ("memory_entities", "memory_id", "entity_id")
_EDGES = ("edges", "source_id", "target_id")
_CONSOLIDATIONS = ("consolidations", "memory_ids")
"""Tables of the graph and the columns that are needed of them."""
_ACTIONS = {"approve": 1, "relevant": 1, "reject": -1, "irrelevant": -1}
"""What Ariadne lets its users say of a memory. Any other word counts by what it did to the
confidence."""


def read_ariadne(path: str | Path) -> Iterator[dict[str, Any]]:
    """One mapping per memory, in the order in which they were made, with the names of an export.

    The file is only read, also while Ariadne has it open. What makes it unreadable is said at once,
    before the first memory.
    """
    file = Path(path).expanduser()
    with _open_database(file):
        pass
    return _read_memories(file)


def _read_memories(file: Path) -> Iterator[dict[str, Any]]:
    left: dict[str, list[AriadneRow]] = {}
    with _open_database(file) as db:
        _read_relations(db)
        for table in ("memories", "episodes"):
            for rows in _read_batches(db, table):
                attached = _read_attached(db, rows) if table == "memories" else {}
                for row in rows:
                    beside = attached.get(row["id"], {})
                    memory = _make_memory(db, table, row, beside)
                    if memory["content"]:
                        yield memory
                    else:
                        more = {"beside": beside} if beside else {}
                        left.setdefault(table, []).append(_json_row(row) | more)
        for table in db.tables:
            if unclaimed := _read_unclaimed(db, table):
                left[table] = unclaimed
    if left:
        yield _make_remainder(db, left)


# ---------------------------------------------------------------- the file


@dataclass(frozen=True, slots=True)
class _Database:
    file: Path
    connection: sqlite3.Connection
    state: str | None
    """What the file looked like when it was opened at rest. None: SQLite watches over it."""
    tables: dict[str, tuple[str, ...]]
    """Its tables and their columns, without those that a full-text index keeps for itself."""
    replaced: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    """Memories that another one supersedes: which, and since when."""
    merged: dict[int, int] = field(default_factory=dict)
    """Memories that were consolidated into another one."""
    mentioned: dict[int, int] = field(default_factory=dict)
    """Entities, each with the first memory that has it."""
    graph: dict[int | None, Attached] = field(default_factory=dict)
    """Edges and consolidations by the memory that they stand with; None: no memory has them."""

    def rows(self, sql: str, values: Sequence[Any] = (), *, of: Sequence[str]) -> list[AriadneRow]:
        """All that a statement finds; nothing where the schema lacks a table with columns `of`."""
        if not self.has(*of):
            return []
        rows = [dict(row) for row in self.connection.execute(sql, values)]
        if self.state is not None and database_state(self.file) != self.state:
            raise StoreError(
                f"{self.file} was changed while it was read: do the same again, and what was read "
                "so far is recognised"
            )
        return rows

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and set(columns) <= set(self.tables[table])


@contextlib.contextmanager
def _open_database(file: Path) -> Iterator[_Database]:
    """An Ariadne database; an InputError where it is none, a StoreError where it cannot be read."""
    at_rest = _check_file(file)
    state = database_state(file) if at_rest else None
    # Whoever goes through the rows may do so from several threads, one after the other.
    opened = open_foreign(file, at_rest=at_rest, patience=BUSY_SECONDS, check_same_thread=False)
    try:
        with opened as connection:
            connection.row_factory = sqlite3.Row
            tables = _read_schema(connection)
            if missing := _NEEDED - set(tables.get("memories", ())):
                there = ", ".join(sorted(tables)[:5]) or "none"
                without = f"without {', '.join(sorted(missing))}"
                lacks = without if "memories" in tables else "missing"
                raise InputError(
                    f"{file} is not an Ariadne database (the table 'memories' is {lacks}; tables "
                    f"there: {there}): give the file that Ariadne calls db_path"
                )
            yield _Database(file, connection, state, tables)
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise InputError(f"{file} {_NOT_SQLITE}") from error
        said = _ERRORS.get(code, "cannot be read ({error}): check that Ariadne can open it")
        raise StoreError(f"{file} {said.format(error=error)}") from error


def _check_file(file: Path) -> bool:
    """Whether nobody has it open: it is then read as it lies."""
    try:
        if not file.is_file():
            what = "is a folder" if file.exists() else "is not there"
            raise InputError(f"{file} {what}: give the file of an Ariadne database")
        with file.open("rb") as stream:
            header = stream.read(20)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{file} cannot be read: {reason}; check its permissions") from error
    if not header.startswith(MAGIC):
        empty = "is empty: give the file of an Ariadne database"
        raise InputError(f"{file} {_NOT_SQLITE if header else empty}")
    return is_at_rest(file, header)


def _read_schema(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    made = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"
    tables: list[tuple[str, str | None]] = connection.execute(made).fetchall()
    # A full-text index is made from the memories, and so are the tables that it keeps.
    virtual = [name for name, sql in tables if (sql or "").upper().startswith("CREATE VIRTUAL")]
    derived = tuple(f"{name}_" for name in virtual)
    columns = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden != 1"
    return {
        name: tuple(column for (column,) in connection.execute(columns, (name,)))
        for name, _ in tables
        if name not in virtual and not name.startswith(("sqlite_", *derived))
    }


_NOT_SQLITE = (
    "is not an SQLite database, or an encrypted one: give the file of an Ariadne database, "
    "decrypted"
)
_ERRORS = {
    sqlite3.SQLITE_BUSY: "is locked by another program: try again when that is done",
    sqlite3.SQLITE_LOCKED: "is locked by another program: try again when that is done",
    sqlite3.SQLITE_CORRUPT: "is damaged ({error}): restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened ({error}): its folder must be writable while there is a log (-wal) "
        "beside it; open and close it with Ariadne, or copy both to another folder"
    ),
    sqlite3.SQLITE_READONLY: (
        "was left half-written by a program that was stopped: open it once with Ariadne"
    ),
    sqlite3.SQLITE_IOERR: "cannot be read ({error}): check the disk",
}


# ---------------------------------------------------------------- tables


def _read_relations(db: _Database) -> None:
    """What must be known of the whole database before its first memory is read."""
    alive = "AND is_deleted = 0" if db.has("memories", "is_deleted") else ""
    for row in db.rows(
        "SELECT supersedes_id, id, created_at FROM memories WHERE supersedes_id IS NOT NULL "
        f"AND supersedes_id != id {alive} ORDER BY created_at, id",
        of=("memories", "supersedes_id"),
    ):
        since = _fit_moment(row["created_at"])
        db.replaced.setdefault(row["supersedes_id"], (row["id"], since))  # the first counts
    for row in db.rows(
        "SELECT source_id, target_id FROM memory_links WHERE link_type = 'consolidated' "
        "AND target_id IS NOT NULL AND source_id IN (SELECT id FROM memories) ORDER BY source_id",
        of=("memory_links", "source_id", "target_id", "link_type"),
    ):
        db.merged[row["target_id"]] = row["source_id"]
    if db.has(*_ENTITIES):
        for row in db.rows(
            "SELECT entity_id, MIN(memory_id) AS memory_id FROM memory_entities "
            "WHERE memory_id IN (SELECT id FROM memories) GROUP BY entity_id",
            of=_MENTIONS,
        ):
            db.mentioned[row["entity_id"]] = row["memory_id"]
    for row in db.rows("SELECT * FROM edges ORDER BY 1, 2", of=_EDGES):
        edge, ends = _json_row(row), (row["source_id"], row["target_id"])
        for side, end in zip(("source", "target"), ends, strict=True):
            if called := _find_entity(db, end).get("name"):
                edge.setdefault(side, called)
        mentioned = (db.mentioned[end] for end in ends if end in db.mentioned)
        owner = next(mentioned, None)
        db.graph.setdefault(owner, {}).setdefault("edges", []).append(edge)
    for row in db.rows("SELECT * FROM consolidations ORDER BY 1, 2", of=_CONSOLIDATIONS):
        given = _parse_json(row["memory_ids"])
        members = [n for n in given if isinstance(n, int)] if isinstance(given, list) else []
        # with the memory that it made, else with one that it was made from
        made = (db.merged[each] for each in members if each in db.merged)
        there = (each for each in members if _find_id(db, "memories", each))
        owner = next(made, None) or next(there, None)
        beside = db.graph.setdefault(owner, {})
        beside.setdefault("consolidations", []).append(_json_row(row))


def _read_batches(db: _Database, table: str) -> Iterator[list[AriadneRow]]:
    sql = f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT {_BATCH}"
    last = -(2**63)
    while rows := db.rows(sql, (last,), of=(table, "id", "content")):
        yield rows
        last = rows[-1]["id"]


def _read_attached(db: _Database, memories: list[AriadneRow]) -> dict[int, Attached]:
    span = memories[0]["id"], memories[-1]["id"]
    found: dict[int, Attached] = {}
    for table, (owner, called) in _ATTACHED.items():
        sql = f"SELECT * FROM {table} WHERE {owner} BETWEEN ? AND ? ORDER BY 1, 2"
        for row in db.rows(sql, span, of=(table, owner)):
            whose = found.setdefault(row.pop(owner), {})
            whose.setdefault(called, []).append(_resolve_numbers(db, table, row))
    ids = [memory["id"] for memory in memories]
    return {each: {**found.get(each, {}), **db.graph.get(each, {})} for each in ids}


def _resolve_numbers(db: _Database, table: str, row: AriadneRow) -> AriadneRow:
    shown = _json_row(row)
    if table == "memory_entities" and db.has(*_ENTITIES) and db.has(*_MENTIONS):
        entity = _find_entity(db, shown.pop("entity_id")) or {"id": row["entity_id"]}
        return {**entity, **{f"link_{name}": value for name, value in shown.items()}}
    for called, other in (("target", "memories"), ("episode", "episodes")):
        if name := _find_id(db, other, row.get(f"{called}_id")):
            shown.setdefault(called, name)
    return shown


def _find_entity(db: _Database, number: Any) -> AriadneRow:
    found = db.rows("SELECT * FROM entities WHERE id = ?", (number,), of=_ENTITIES)
    return _json_row(found[0]) if found else {}


def _find_id(db: _Database, table: str, number: Any) -> str | None:
    """The id that Clew's memory made of this row has; None where there is no such row."""
    if number is None:
        return None
    sql = f"SELECT id, created_at FROM {table} WHERE id = ?"
    found = db.rows(sql, (number,), of=(table, "id", "created_at"))
    return _derive_id(table, found[0]["id"], found[0]["created_at"]) if found else None


def _read_unclaimed(db: _Database, table: str) -> list[AriadneRow]:
    """Rows that stand with no memory: all of a table that is not known here."""
    if table == "memories" or (table == "episodes" and db.has(table, "id", "content")):
        return []
    for known in (_EDGES, _CONSOLIDATIONS):
        if table == known[0] and db.has(*known):
            return db.graph.get(None, {}).get(table, [])
    quoted = table.replace('"', '""')
    sql = f'SELECT * FROM "{quoted}"'
    owner = _ATTACHED.get(table, ("",))[0]
    if owner and db.has(table, owner):
        sql += f" WHERE {owner} IS NULL OR {owner} NOT IN (SELECT id FROM memories)"
    rows = db.rows(f"{sql} ORDER BY 1", of=(table,))
    if table == "entities" and db.has(*_ENTITIES) and db.has(*_MENTIONS):
        rows = [row for row in rows if row["id"] not in db.mentioned]
    return [_json_row(row) for row in rows]


# ---------------------------------------------------------------- a row as a memory


class _Columns:
    """A row on its way: what was taken for a field, and what is left of it."""

    def __init__(self, table: str, row: AriadneRow):
        self.left = dict(row)
        self.kept: AriadneRow = {"table": table, "id": self.left.pop("id")}
        self.id = _derive_id(table, self.kept["id"], row.get("created_at"))

    def take(
        self,
        column: str,
        fit: Callable[[Any], Any],
        usual: Any = None,
        *,
        same: Callable[[Any, Any], bool] = eq,
    ) -> Any:
        """A column as a field, or what is usual there; where that does not say the same, the column
        is kept beside it."""
        raw = self.left.pop(column, None)
        value = None if raw is None else fit(raw)
        if raw is not None and (value is None or not same(value, raw)):
            self.kept[column] = _json_value(raw)
        return usual if value is None else value

    def metadata(self, beside: Attached) -> dict[str, Any]:
        """The user's own, and under "ariadne" everything that no field took."""
        # The place that everything from Ariadne takes among the user's own must be free.
        own = self.take("metadata", _fit_mapping, {}, same=lambda fit, raw: fit == _parse_json(raw))
        for column, value in _json_row(self.left).items():
            taken = column in self.kept or column in beside
            self.kept[f"{column}_" if taken else column] = value
        return {**own, _OWN: {**self.kept, **beside}}


def _make_memory(db: _Database, table: str, row: AriadneRow, beside: Attached) -> dict[str, Any]:
    columns = _Columns(table, row)
    content = columns.take("content", lambda raw: str(raw).strip()[:MAX_CHARACTERS], "")
    kind = columns.take("memory_type", lambda raw: raw if raw in TYPES else None, TYPES[0])
    if row.get("content_hash") == hashlib.sha256(str(row.get("content")).encode()).hexdigest():
        del columns.left["content_hash"]
    moments = ("created_at", "updated_at", "accessed_at")
    created, updated, accessed = (columns.take(name, _fit_moment) for name in moments)
    # Reading twice must give the same, so a time that says nothing is not the time of reading.
    created = next((each for each in (created, updated, accessed) if each is not None), 0.0)
    updated = created if updated is None else updated
    ended, reason, successor = _find_end(db, columns, created=created, updated=updated)
    since, until = (columns.take(name, _fit_moment) for name in ("valid_from", "valid_to"))
    if since is not None and until is not None and since > until:  # it says nothing
        columns.kept |= {name: row[name] for name in ("valid_from", "valid_to")}
        since = until = None
    if older := _find_id(db, "memories", row.get("supersedes_id")):
        columns.kept["supersedes"] = older
    return {
        "id": columns.id,
        "content": content,
        "type": kind if table == "memories" else "episodic",
        "importance": columns.take("importance", _fit_share, 0.5),
        "tags": columns.take("tags", _fit_tags, [], same=_are_tags),
        "namespace": columns.take("namespace", _fit_namespace, "default"),
        "embedding": columns.take("embedding", _fit_vector, same=lambda fit, raw: True),
        "created_at": created,
        "updated_at": updated,
        "valid_from": since,
        "valid_to": until,
        "ended_at": ended,
        "reason": reason,
        "successor": _find_id(db, "memories", successor),
        "accesses": columns.take("access_count", _fit_count, 0),
        "strength": columns.take("retention_strength", _fit_strength, 1.0),
        "accessed_at": accessed,
        "feedback": _count_feedback(beside.get("feedback", [])),
        "metadata": columns.metadata(beside),
    }


def _find_end(
    db: _Database, columns: _Columns, *, created: float, updated: float
) -> tuple[float | None, str, int | None]:
    number: Any = columns.kept["id"] if columns.kept["table"] == "memories" else None
    deleted = bool(columns.left.pop("is_deleted", 0))
    successor, since = db.replaced.get(number, (None, None))
    ends = []
    if successor is not None:
        ends.append(max(since or 0.0, created))  # a link may have been made afterwards
    if deleted:
        when = _fit_moment(columns.left.get("deleted_at"))
        # An old row may not say when; it was changed for the last time before.
        ends.append(updated if when is None else when)
        if successor is None:
            successor = db.merged.get(number)
    ended = min(ends) if ends else None
    if ended is not None and ended == columns.left.get("deleted_at"):
        del columns.left["deleted_at"]
    if deleted:
        return ended, "consolidated" if number in db.merged else "forgotten", successor
    return ended, "superseded" if ends else "", successor


def _count_feedback(rows: list[AriadneRow]) -> dict[str, int]:
    said = [_ACTIONS.get(str(row.get("action")), row.get("confidence_delta")) for row in rows]
    signs = [sign for sign in said if isinstance(sign, (int, float))]
    return {"useful": sum(sign > 0 for sign in signs), "useless": sum(sign < 0 for sign in signs)}


def _make_remainder(db: _Database, left: dict[str, list[AriadneRow]]) -> dict[str, Any]:
    """What belongs to no memory, as one that has ended. Its id changes with what it holds, so that
    those of two databases never get in each other's way."""
    digest = hashlib.blake2b(json.dumps(left, sort_keys=True).encode(), digest_size=8).hexdigest()
    made = [
        row[name]
        for rows in left.values()
        for row in rows
        for name in ("created_at", "accessed_at")
        if _fit_moment(row.get(name)) is not None
    ]
    newest = float(max(made, default=0.0))
    sizes = ", ".join(f"{len(rows)} of {table}" for table, rows in left.items())
    return {
        **_make_memory(db, "", {"id": 0}, {}),
        "id": f"ariadne-rest-{digest}",
        "content": f"Rows of an Ariadne database that belong to no memory of it: {sizes}.",
        "type": "semantic",
        "importance": 0.0,
        "namespace": _OWN,
        "created_at": newest,
        "updated_at": newest,
        "ended_at": newest,
        "reason": "forgotten",
        "metadata": {_OWN: {"table": None, "rows": left}},
    }


# ---------------------------------------------------------------- values
# Anybody may have edited the file by hand, and SQLite keeps any value in any column. Each `_fit`
# gives what fits a field, or None.


def _derive_id(table: str, number: int, made: Any) -> str:
    """A row's name among Clew's memories. Numbers begin with 1 in every database; the moment the
    row was made, which is never changed, tells them apart."""
    return f"{_OWN}-{'' if table == 'memories' else f'{table}-'}{number}-{_short_digest(made)}"


def _short_digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=4).hexdigest()


def _fit_namespace(raw: Any) -> str:
    """A namespace. Two that are odd must not become one: a digest tells them apart."""
    with contextlib.suppress(InputError):
        if check_namespace(raw) == raw:
            return str(raw)
    near = re.sub(r"[^\w.-]+", "-", str(raw)[:100]).strip("-.") or _OWN
    return f"{near}-{_short_digest(raw)}"


def _fit_share(raw: Any) -> float | None:
    return min(1.0, max(0.0, float(raw))) if is_number(raw) else None


def _fit_moment(raw: Any) -> float | None:
    """Seconds since the epoch, of a year that can be written."""
    return float(raw) if is_number(raw, FIRST_MOMENT, LAST_MOMENT) else None


def _fit_count(raw: Any) -> int | None:
    return raw if is_whole(raw, 0) else None


def _fit_strength(raw: Any) -> float | None:
    return float(raw) if is_number(raw) and raw > 0 else None


def _fit_tags(raw: Any) -> list[str] | None:
    given = _parse_json(raw)
    if not isinstance(given, list):
        return None
    texts = (str(each).strip() for each in given if isinstance(each, (str, int, float)))
    return list(dict.fromkeys(name for name in texts if name and "\0" not in name))


def _are_tags(names: list[str], raw: Any) -> bool:
    """Clew's tags are in small letters, whoever asks for them."""
    folded = [name.lstrip("#").casefold() for name in names]
    return bool(folded == _parse_json(raw))


def _fit_mapping(raw: Any) -> dict[str, Any] | None:
    """A user's own metadata, which Ariadne keeps as a JSON object."""
    given = _parse_json(raw)
    if not isinstance(given, dict):
        return None
    return {key: value for key, value in given.items() if key != _OWN}


def _parse_json(raw: Any) -> Any:
    """What the text says, where all of it can be written as JSON again (NaN cannot); else None."""
    try:
        value = json.loads(raw)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        return None
    return value


def _fit_vector(raw: Any) -> Any:
    """An embedding: little-endian float32, of any dimension. One without a direction is none."""
    import numpy as np  # only where there are vectors

    if not isinstance(raw, bytes) or not raw or len(raw) % 4:
        return None
    row = np.frombuffer(raw, "<f4").astype(np.float32)
    return row if is_vector(row) and row.any() else None


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _json_row(row: AriadneRow) -> AriadneRow:
    """A row as a JSON object, without what is NULL."""
    return {name: _json_value(value) for name, value in row.items() if value is not None}
