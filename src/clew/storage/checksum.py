"""Checksums of records, passages and vectors: a flipped bit on the disk is never shown as truth.

Each is a CRC-32, kept beside what it is of, made when that is written and compared when it is read
to be shown. A record has two in one number: of all but its text and links, which every hit shows,
and of those two. A passage's covers its words too, so that a hit of a long record need not read all
of it. None stands where a store of an older format was not written to since: `seal` fills them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import nan
from struct import Struct
from typing import Any
from zlib import crc32

from clew.errors import StoreError
from clew.protocols import batched
from clew.storage import log
from clew.storage.tables import RECORD, Row, Tables, distrust_files, remove

UNSEALED = "unsealed"
"""The key in `meta` that says that some have none yet."""
FIELDS = ", ".join(f"r.{name}" for name in (*RECORD, "checksum"))
_BATCH = 1_000
_LOWER = 31
_TIMES = Struct("<6d")
_PLACE = Struct("<6q")
_CHUNK = "cid", "rid", '"start"', '"end"', "first_line", "last_line", "heading", "digest"
_OF_CHUNK = ", ".join(f"c.{name}" for name in (*_CHUNK, "checksum"))


def sum_fields(columns: Sequence[Any], tags: Sequence[str]) -> int:
    """Sum up the columns of a record, in the order of RECORD, and its tags."""
    name, collection, kind, domain, title, path, *numbers = columns
    importance, created, updated, metadata, ended, since, until = numbers
    moments = [nan if moment is None else moment + 0.0 for moment in (ended, since, until)]
    path = "\0" if path is None else path
    words = "\0".join((name, collection, kind, domain, title, path, metadata, *sorted(tags)))
    times = _TIMES.pack(importance + 0.0, created + 0.0, updated + 0.0, *moments)
    return crc32(words.encode("utf-8", "surrogatepass"), crc32(times))


def sum_record(
    columns: Sequence[Any], tags: Sequence[str], content: str, links: Sequence[str]
) -> int:
    text = crc32(content.encode("utf-8", "surrogatepass"))
    if links:
        text = crc32("\0".join(sorted(links)).encode("utf-8", "surrogatepass"), text)
    return sum_fields(columns, tags) << _LOWER | text >> 1


def sum_chunk(place: Sequence[int], heading: str, digest: bytes, text: str) -> int:
    """`place`: its number, its record's, and where it begins and ends, by characters and lines."""
    words = f"{heading}\0{text}".encode("utf-8", "surrogatepass")
    return crc32(words, crc32(digest, crc32(_PLACE.pack(*place))))


def fields_fit(columns: Sequence[Any], tags: Sequence[str], known: int | None) -> bool:
    """Whether they are as they were written; what has no checksum is taken at its word."""
    try:
        return sum_fields(columns, tags) == (known >> _LOWER if known is not None else _any)
    except (TypeError, ValueError):
        return False


def record_fits(
    columns: Sequence[Any],
    tags: Sequence[str],
    content: str,
    links: Sequence[str],
    known: int | None,
) -> bool:
    try:
        return sum_record(columns, tags, content, links) == (_any if known is None else known)
    except (TypeError, ValueError, AttributeError):
        return False


def chunk_fits(
    place: Sequence[int], heading: str, digest: bytes, text: str, known: int | None
) -> bool:
    try:
        return sum_chunk(place, heading, digest, text) == (_any if known is None else known)
    except Exception:  # struct.error is no ValueError
        return False


class _Any:
    """Equal to everything: what has no checksum must still be of the right types."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


_any = _Any()


def refuse(name: str) -> StoreError:
    """Why a record cannot be given out."""
    return StoreError(
        f"the record {name!r} is not as it was written: the disk may be failing. `clew doctor` "
        "names all such, `clew doctor --mend` reads them anew from their files; for others "
        "restore a backup, or write them again"
    )


# ---------------------------------------------------------------------- all of them


class Damage:
    """What does not fit its checksum, or lacks a part."""

    def __init__(self) -> None:
        self.records: dict[int, str] = {}
        """Numbers and ids."""
        self.chunks: dict[int, str] = {}
        """Records that are sound themselves but have a damaged passage, or whose tables beside them
        say something else."""
        self.vectors: list[int] = []
        """Of these passages."""

    def __bool__(self) -> bool:
        return bool(self.records or self.chunks or self.vectors)


def examine(db: Tables) -> Damage:
    """Read all there is."""
    damage = Damage()
    rids = [row[0] for row in db.execute("SELECT rid FROM records ORDER BY rid").fetchall()]
    for some in batched(rids, _BATCH):
        texts: dict[int, tuple[str, str]] = {}
        for rid, columns, tags, links, content, known in _whole(db, some):
            if record_fits(columns, tags, content, links, known) and _is_json(columns[9]):
                texts[rid] = columns[0], content
            else:
                damage.records[rid] = str(columns[0])
        for row, text in _chunks(db, texts):
            if not chunk_fits(row[:6], row[6], row[7], text, row[8]):
                damage.chunks[row[1]] = texts[row[1]][0]
        for rid in set(some) - texts.keys() - damage.records.keys():  # its text is not there
            damage.records[rid] = str(db.names([rid]).get(rid, f"number {rid}"))
    cids = [row[0] for row in db.execute("SELECT cid FROM vectors ORDER BY cid").fetchall()]
    for some in batched(cids, _BATCH):
        query = "SELECT cid, checksum, embedding FROM vectors WHERE cid IN ({})"
        sound = {row[0] for row in db.with_vectors(query, some)}
        damage.vectors += [cid for cid in some if cid not in sound]
    return damage


def _is_json(metadata: str) -> bool:
    try:
        return isinstance(json.loads(metadata), dict)
    except ValueError:
        return False


def _whole(db: Tables, rids: Sequence[int]) -> Iterator[Row]:
    """(number, columns, tags, links, text, checksum)"""
    query = f"""SELECT {FIELDS}, r.rid, {db.CONTENT}, {db.TAGS}, {db.LINKS}
                FROM records AS r {db.TEXTS} WHERE r.rid IN ({{}})"""
    for *columns, known, rid, content, tags, links in db.among(query, rids, near=True):
        yield rid, columns, db.as_names(tags), db.as_names(links), content, known


def _chunks(db: Tables, texts: dict[int, tuple[str, str]]) -> Iterator[tuple[Row, str]]:
    query = f"SELECT {_OF_CHUNK} FROM chunks AS c WHERE c.rid IN ({{}})"
    for row in db.among(query, list(texts), near=True):
        yield row, texts[row[1]][1][row[2] : row[3]]


def are_sound(db: Tables, rids: Sequence[int]) -> list[int]:
    """Rows that fit their checksums: whoever changes a column makes theirs anew by `seal_records`,
    and damage must not be sealed with it."""
    return [
        rid
        for rid, columns, tags, links, content, known in _whole(db, rids)
        if record_fits(columns, tags, content, links, known)
    ]


def seal_records(db: Tables, rids: Sequence[int]) -> None:
    rows = [
        (rid, sum_record(columns, tags, content, links))
        for rid, columns, tags, links, content, _ in _whole(db, rids)
    ]
    db.set_checksums("records", "rid", rows)


def seal(db: Tables) -> None:
    """Give all that has no checksum one, of what is there; of a store of an older format."""
    query = "SELECT rid FROM records WHERE checksum IS NULL"
    rids = [row[0] for row in db.execute(query).fetchall()]
    for some in batched(rids, _BATCH):
        seal_records(db, some)
        texts = {rid: (columns[0], content) for rid, columns, *_, content, _ in _whole(db, some)}
        sums = [
            (row[0], sum_chunk(row[:6], row[6], row[7], text))
            for row, text in _chunks(db, texts)
            if row[8] is None
        ]
        db.set_checksums("chunks", "cid", sums)
    query = "SELECT cid FROM vectors WHERE checksum IS NULL"
    cids = [row[0] for row in db.execute(query).fetchall()]
    for some in batched(cids, _BATCH):
        query = "SELECT cid, checksum, embedding FROM vectors WHERE cid IN ({})"
        rows = db.with_vectors(query, some)
        db.set_checksums("vectors", "cid", [(cid, crc32(row.tobytes())) for cid, row in rows])
    db.execute("DELETE FROM meta WHERE key = ?", (UNSEALED,))


def is_sealed(db: Tables) -> bool:
    return db.execute("SELECT 1 FROM meta WHERE key = ?", (UNSEALED,)).fetchone() is None


def drop_damaged(db: Tables) -> tuple[list[str], list[str]]:
    """Take out damaged vectors, damaged records that can be read from their files again, and
    passages whose record is gone with a page of the database. The ids of these records, and of
    those that have to be cut into passages again."""
    damage = examine(db)
    files = {f"{c}:{p}" for c, p in db.execute("SELECT collection, path FROM files").fetchall()}
    again = {
        rid: name
        for rid, name in damage.records.items()
        if name in files or name.rpartition("#")[0] in files
    }
    query = "SELECT rid FROM chunks EXCEPT SELECT rid FROM records"
    rids = [*again, *(row[0] for row in db.execute(query).fetchall())]
    cids = [row[0] for row in db.among("SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    for table in (*db.DETAILS, "lives", "chunks"):
        remove(db, table, "rid", rids)
    remove(db, "vectors", "cid", {*cids, *damage.vectors})
    log.append(db, {"gone": cids, "record": rids, "vector": damage.vectors})
    if again:
        distrust_files(db)
    return sorted(again.values()), sorted(damage.chunks.values())
