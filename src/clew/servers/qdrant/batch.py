"""Writing records: compared with what there is, and put into the transaction under way. As
storage/batch.py does it with tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from clew.errors import InputError
from clew.protocols import batched
from clew.servers.qdrant.client import Json
from clew.servers.qdrant.conditions import having, point_id
from clew.servers.qdrant.journal import Journal, Transaction
from clew.servers.qdrant.records import Stored, StoredPassage, read_record, text_of, vectors_part
from clew.storage.batch import (
    alike,
    check_vectors,
    explain_unwritable,
    find_new,
    is_row,
    passage_digest,
    record_columns,
    root_of,
    tags_of,
)
from clew.text import analyser
from clew.types import Entry, FileState, Record, Vector


def put(journal: Journal, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with explain_unwritable(entries), journal.writing() as now:
        last = {entry.record.id: i for i, entry in enumerate(entries)}
        dim = check_vectors(entries, model)
        if dim:
            check_dim(now, model or "", dim)
        old = journal.fetch(list(last), damaged=set())
        numbers = [part.number for stored in old.values() for part in stored.parts]
        had = read_vectors(journal, numbers, model or "") if dim and numbers else {}
        moment = time.time()
        return [
            _add(now, entry, old.get(entry.record.id), model or "", had, moment)
            if last[entry.record.id] == i
            else "updated"
            for i, entry in enumerate(entries)
        ]


def _add(
    now: Transaction,
    entry: Entry,
    old: Stored | None,
    model: str,
    had: Mapping[int, Vector],
    moment: float,
) -> str:
    given = entry.record
    if old is None:
        now.rid += 1
    parts, changed = _add_parts(now, entry, old, model, had)
    if entry.file is not None and given.path is not None:
        note_file(now, root_of(given.id, given.collection, given.path), given.path, entry.file)
    if old is not None and not changed and alike(old.record, given):
        return "unchanged"
    created = moment if old is None or old.record.created_at is None else old.record.created_at
    record_columns(given, created, moment)  # or an error that says what cannot be kept
    record = replace(
        given,
        created_at=created if given.created_at is None else given.created_at,
        updated_at=moment if given.updated_at is None else given.updated_at,
        tags=tuple(tags_of(given)),
        links=tuple(dict.fromkeys(given.links)),
        metadata=dict(given.metadata),
    )
    for text in (record.id, record.content, record.title, record.path or "", *record.links):
        text.encode()  # half a character is refused here, and not by the server
    rid = now.rid if old is None else old.rid
    stored = Stored(rid, record, parts)
    now.after[record.id] = stored if old is None else stored._replace(life=old.life)
    now.touched[record.id] = None
    return "created" if old is None else "updated"


def _add_parts(
    now: Transaction, entry: Entry, old: Stored | None, model: str, had: Mapping[int, Vector]
) -> tuple[tuple[StoredPassage, ...], bool]:
    """The passages, and whether any is another one than before. Those whose words did not change
    keep their number and their vector."""
    before: dict[str, list[StoredPassage]] = {}
    for part in sorted(old.parts if old else (), key=lambda part: -part.number):
        before.setdefault(part.digest, []).append(part)
    parts: list[StoredPassage] = []
    changed = False
    for place, chunk in enumerate(entry.chunks):
        digest = passage_digest(entry, place).hex()
        if same := before.get(digest):
            part = same.pop()
            changed |= part.chunk != chunk
            part = part._replace(chunk=chunk)
        else:
            title, body = map(analyser.joined, text_of(entry.record, chunk))
            now.cid += 1
            now.tokens[now.cid] = title, body
            sizes = body.count(" ") + bool(body), title.count(" ") + bool(title)
            part = StoredPassage(now.cid, chunk, digest, sizes)
            changed = True
        if entry.vectors is not None:
            row = entry.vectors[place].astype("<f4")
            known = had.get(part.number)
            if part.model != model or known is None or not np.array_equal(known, row):
                now.vectors[part.number] = model, row
                part, changed = part._replace(model=model), True
        parts.append(part)
    return tuple(parts), changed or any(before.values())


def put_new(
    journal: Journal, entries: Sequence[Entry], *, model: str | None
) -> list[tuple[str, str]]:
    with explain_unwritable(entries), journal.writing() as now:
        there = journal.fetch([entry.record.id for entry in entries], damaged=set())
        digests = [passage_digest(entry, 0).hex() for entry in entries if entry.chunks]
        fresh, kept = find_new(
            entries,
            [stored.record for stored in there.values()],
            [_twin(stored.record) for stored in _with_digests(journal, now, digests)],
        )
        put(journal, fresh, model=model)
    return kept


def _twin(record: Record) -> tuple[object, ...]:
    said = record.collection, record.type, record.content
    return *said, record.valid_from, record.valid_to, record.id


def _with_digests(journal: Journal, now: Transaction, digests: Sequence[str]) -> list[Stored]:
    """Records in use that begin with one of these passages."""
    wanted = dict.fromkeys(f"={digest}" for digest in digests)
    found: dict[str, Stored] = {}
    for some in batched(wanted, 500):
        condition: Json = {"must": [having(*some)]}
        for point in journal.server.scroll("records", condition, page=200):
            stored = read_record(point["payload"])
            if stored is not None and stored.record.id not in now.after:
                found[stored.record.id] = stored
    mine = (stored for stored in now.after.values() if stored is not None)
    every = [*found.values(), *mine]
    return [stored for stored in every if stored.record.ended_at is None]


def delete(journal: Journal, ids: Iterable[str]) -> int:
    with journal.writing() as now:
        lost: set[str] = set()
        found = journal.fetch(list(ids), damaged=lost)
        for name, stored in found.items():
            now.after[name] = None
            now.touched[name] = None
            forget_file(journal, now, stored.record)
        for name in lost:  # not as it was written: its point goes, its passages by `mend`
            now.before[name] = Stored(0, Record(name, ""), ())
            now.after[name] = None
            now.touched[name] = None
        return len(found) + len(lost)


def rename(journal: Journal, old_id: str, entry: Entry) -> None:
    """Give a record another id, then write the rest of the entry over it."""
    with journal.writing() as now:
        stored = journal.fetch([old_id, entry.record.id]).get(old_id)
        if stored is not None and old_id != entry.record.id:
            delete(journal, [entry.record.id])
            forget_file(journal, now, stored.record)
            moved = replace(stored.record, id=entry.record.id)
            now.after[old_id], now.after[moved.id] = None, stored._replace(record=moved)
            now.touched |= {old_id: None, moved.id: None}
        put(journal, [entry], model=None)


# ---------------------------------------------------------------------- vectors


def check_dim(now: Transaction, model: str, dim: int) -> None:
    """An InputError unless the vectors of this model have as many dimensions."""
    known = now.dims.get(model) or now.head.vectors_of(model)[0]
    if known not in (0, dim):
        raise InputError(
            f"this store's vectors of {model} have {known} dimensions, the given ones {dim}: "
            "use the same model, or name another"
        )
    now.dims[model] = dim


def read_vectors(journal: Journal, numbers: Sequence[int], model: str) -> dict[int, Vector]:
    """Those that passages have of this model."""
    now = journal.transaction
    found: dict[int, Vector] = {}
    dim, count = journal.head().vectors_of(model)
    if count:
        part = vectors_part(model, dim)
        for point in journal.server.get(part, numbers, False, vectors=["dense"]):
            found[point["id"]] = np.array(point["vector"]["dense"], np.float32)
    for number in numbers if now is not None else ():
        if now is not None and number in now.vectors:
            of, row = now.vectors[number]
            found.pop(number, None)
            if of == model:
                found[number] = row
    return found


# ---------------------------------------------------------------------- files


def file_point(collection: str, path: str) -> str:
    return point_id(f"\0file {collection}\0{path}")


def note_file(now: Transaction, collection: str, path: str, state: FileState) -> None:
    now.meta[file_point(collection, path)] = {
        "is": [f"file {collection}"],
        "path": path,
        "state": list(state),
    }


def forget_file(journal: Journal, now: Transaction, record: Record) -> None:
    """As storage/batch.py does it."""
    if record.path is None:
        return
    root = root_of(record.id, record.collection, record.path)
    point = file_point(root, record.path)
    if not is_row(record.id, record.path):
        now.meta[point] = None
    elif point not in now.meta:
        for found in journal.server.get("meta", [point]):
            size, mtime_ns, *_ = found["payload"]["state"]
            note_file(now, root, record.path, FileState(size, mtime_ns, "", 0))
