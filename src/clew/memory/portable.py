"""Memories out of their file and into another: JSON, or JSON lines, with nothing lost.

An import is a restore. It says how a memory is to be, so doing it twice is the same as once. It
goes on in batches: all of one are checked before any of it is written, and where it stops, what was
written is said.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clew.engine import Engine
from clew.errors import ClewError, InputError, StoreError, check_known
from clew.filter import Filter
from clew.ingest.records import make_entry
from clew.memory.lifecycle import (
    embed_entries,
    make_memory_entry,
    refresh_indexes,
    write_entries,
)
from clew.memory.recall import MemoryReader
from clew.memory.record import (
    MEMORY_FIELDS,
    check_moment,
    check_text,
    make_record,
    public_id,
    record_id,
    record_ids,
    with_record_ids,
)
from clew.models import EXTERNAL
from clew.protocols import Progress, batched, read_pages
from clew.trust import replace_file
from clew.types import Entry, Life, Record, Vectors
from clew.validate import is_number, is_whole, read_lines, unit

HEADER = {"format": "clew-memory", "version": 1}
"""What a document of memories says of itself."""
_PAGE = 500
"""Memories read, or checked and written, at a time."""
_MOMENTS = ("created_at", "updated_at", "ended_at")
_LIFE_FIELDS = Life._fields
_EXPORT_FIELDS = (
    *MEMORY_FIELDS,
    *("updated_at", "ended_at", *_LIFE_FIELDS, "feedback"),
    *("embedding_model", "embedding_dim", "chunk_size"),
)
"""What a mapping may have. `feedback` is {"useful": n, "useless": n}, another way to say these."""
_UNIT_TOLERANCE = 1e-3
"""How far from 1 the length of a vector may be that is taken as it is: so it comes back bit by
bit."""


# ---------------------------------------------------------------- out


def export_memories(engine: Engine, scope: Filter, *, embeddings: bool) -> Iterator[dict[str, Any]]:
    store = engine.store
    for page in read_pages(store, scope, _PAGE):
        ids = [record.id for record in page]
        lives = store.lifecycle.get(ids)
        held = store.vectors.of(ids) if embeddings else {}
        for record in page:
            life, space = lives.get(record.id, Life()), record.collection
            data: dict[str, Any] = {
                "id": public_id(record.id, space),
                "content": record.content,
                "type": record.type,
                "namespace": space,
                "importance": record.importance,
                "tags": list(record.tags),
                "metadata": dict(record.metadata),
                **{name: getattr(record, name) for name in _MOMENTS},
                **{name: getattr(life, name) for name in _LIFE_FIELDS},
            }
            for name in ("valid_from", "valid_to"):  # where they are said
                if (moment := getattr(record, name)) is not None:
                    data[name] = moment
            if life.successor is not None:
                data["successor"] = public_id(life.successor, space)
            if record.id in held:
                model, rows = held[record.id]
                data["embedding"] = base64.b64encode(rows.astype("<f4").tobytes()).decode("ascii")
                data["embedding_model"], data["embedding_dim"] = model, rows.shape[1]
                if len(rows) > 1:
                    data["chunk_size"] = engine.config.chunk_size
            yield data


def write_export(memories: Iterable[Mapping[str, Any]], file: Path) -> int:
    """Write a file that is whole or not there at all; how many. One a line where it is .jsonl."""
    begin, end = json.dumps({**HEADER, "memories": []}).removesuffix("]}"), "\n]}\n"
    if jsonl := _has_lines(file):
        begin = end = ""
    count = 0
    try:
        with replace_file(file, durable=True) as raw:
            out: Any = contextlib.nullcontext(raw)
            if file.suffix == ".gz":
                # without name and time, so that the same memories make the same file
                out = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
            with out as stream:
                stream.write(begin.encode())
                for count, memory in enumerate(memories, 1):
                    row = json.dumps(memory, ensure_ascii=False)
                    row = f"{row}\n" if jsonl else f"{',' if count > 1 else ''}\n{row}"
                    stream.write(row.encode())
                stream.write(end.encode())
    except OSError as error:
        raise StoreError(
            f"{file} could not be written: {error.strerror or error}; make room, or choose "
            "another place"
        ) from error
    return count


def _has_lines(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))


# ---------------------------------------------------------------- in


def import_memories(
    memory: MemoryReader,
    source: Any,
    *,
    model: str,
    namespace: str | None,
    embed: bool,
    progress: Progress | None,
) -> dict[str, int]:
    """What became of the memories in `source`. `model` made vectors that come without a model's
    name; all go into `namespace`, if one is named."""
    engine = memory.engine
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    total, items = _read_source(source)
    dims: dict[str, int] = {}

    def model_of(item: _ImportedMemory) -> str | None:
        """One model has vectors of one size in a store: others get a name of their own."""
        if item.rows is None:
            return None
        size = item.rows.shape[1]
        name = item.model or (model if size == memory.embedding_dim else EXTERNAL)
        if name not in dims:
            dims[name] = engine.store.indexes.prepare(name) or size
        return name if dims[name] == size else f"{name}-{size}"

    now = time.time()
    try:
        for some in batched(items, _PAGE):
            page = [_read_item(place, item, namespace, now) for place, item in some]
            for status in _restore(engine, page, model_of, embed=embed):
                counts[status] += 1
            if progress:
                progress("importing", sum(counts.values()), total)
    except ClewError as error:
        done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        so_far = f"imported so far: {done}; what is there already is recognised next time"
        raise type(error)(f"{error} ({so_far if done else 'nothing was imported'})") from error
    if sum(counts.values()) > _PAGE:
        refresh_indexes(engine.store, {engine.model, model}, bulk=True)
    return counts


def _read_source(source: Any) -> tuple[int, Iterator[tuple[str, Any]]]:
    """How many memories there are (0: unknown), and each with its place."""
    where = ""
    if isinstance(source, (str, Path)):
        file = Path(source).expanduser()
        _check_file(file)
        if _has_lines(file):
            return 0, _read_lines(file)
        source, where = _read_document(file), f"{file}, "
    if isinstance(source, Mapping):
        _check_header(source, where)
        source = source["memories"]
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise InputError(f"{where or 'this '}is no export: it is {source!r:.100}")
    total = len(source) if isinstance(source, Sequence) else 0
    return total, ((f"{where}memory {n}", item) for n, item in enumerate(source, 1))


def _check_header(document: Mapping[str, Any], where: str) -> None:
    form, version = HEADER.values()
    memories, said = document.get("memories"), document.get("version", version)
    if document.get("format", form) != form or not isinstance(memories, (list, tuple)):
        raise InputError(
            f'{where}no export of memories: {{"format": "{form}", "version": {version}, '
            '"memories": […]} is expected'
        )
    if said != version:
        raise InputError(
            f"{where}version {said!r:.20} of the format is not known here, {version} is: use the "
            "version of Clew that wrote it, or a newer one"
        )


def _check_file(file: Path) -> None:
    if not file.is_file():
        what = "is a folder" if file.exists() else "is not there"
        raise InputError(f"{file} {what}: give the file of an export")
    try:
        with file.open("rb") as stream:
            is_database = stream.read(16) == b"SQLite format 3\0"
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    if is_database:
        raise InputError(
            f"{file} is a database, not an export: `clew import --from arriadne` reads Ariadne's; "
            "one of Clew's needs no import, or `clew export` first"
        )


def _read_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, text in read_lines(file):
        try:
            yield f"{file}:{number}", json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{file}:{number}: not a memory in JSON, the file may be cut short here: {error}"
            ) from None


def _read_document(file: Path) -> Any:
    try:
        return json.loads("\n".join(text for _, text in read_lines(file)))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not JSON, or cut short: {error}; nothing was imported. If it has one "
            "memory a line, its name must end in .jsonl"
        ) from None


# ---------------------------------------------------------------- one memory, checked


@dataclass(frozen=True, slots=True)
class _ImportedMemory:
    record: Record
    life: Mapping[str, Any]
    """What was said of its life: fields of `Life`."""
    new: bool
    """Nothing is said that only a memory which was there before has: its text is its name."""
    rows: Vectors | None = None
    model: str | None = None
    chunk_size: int | None = None
    """How long the passages are that the rows are of, where they are several."""


def _read_item(place: str, item: Any, namespace: str | None, now: float) -> _ImportedMemory:
    try:
        if not isinstance(item, Mapping):
            raise InputError(f"a memory is a mapping of its fields, not {item!r:.100}")
        return _check_item(item if namespace is None else {**item, "namespace": namespace}, now)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _check_item(item: Mapping[str, Any], now: float) -> _ImportedMemory:
    if "memory_type" in item:
        raise InputError(
            "this is an export of Ariadne's, which leaves out what was deleted and what users "
            "said of it: import its database itself, with `clew import --from arriadne FILE`"
        )
    check_known("unknown field", _EXPORT_FIELDS, *item)
    record = make_record({k: v for k, v in item.items() if k in MEMORY_FIELDS}, now=now)
    life = _check_life(item)
    if life and item.get("valid_from") is None and record.valid_to == record.created_at:
        record = replace(record, valid_from=None)  # what took its place is older: it never held
    created, updated, ended = (
        None if (stamp := item.get(name)) is None else check_moment(stamp, name)
        for name in _MOMENTS
    )
    named = item.get("id") is not None
    new = not named and not life and item.get("embedding_model") is None and ended is None
    if ended is None:
        if life.get("reason") != "superseded":  # else it is still to end
            life |= {"reason": "", "successor": None}
    elif not life.get("reason"):
        life["reason"] = "forgotten"
    own = record.id if named else _derive_id(record)
    rows = _check_rows(item)
    return _ImportedMemory(
        replace(record, id=own, created_at=created, updated_at=updated, ended_at=ended),
        life,
        new,
        rows,
        None if rows is None else _check_short_text(item, "embedding_model"),
        _check_count(item, "chunk_size", least=1),
    )


def _derive_id(record: Record) -> str:
    """An id for a memory that comes without: the same text gets the same one again."""
    when = [moment for moment in (record.valid_from, record.valid_to) if moment is not None]
    said = json.dumps([record.collection, record.type, record.content, *when])
    name = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
    return record_id(name, record.collection)


def _check_life(item: Mapping[str, Any]) -> dict[str, Any]:
    usual = Life()
    life: dict[str, Any] = {
        name: getattr(usual, name) if item[name] is None else item[name]
        for name in _LIFE_FIELDS
        if name in item
    }
    if (feedback := item.get("feedback")) is not None:
        if not isinstance(feedback, Mapping) or not {"useful", "useless"}.issuperset(feedback):
            raise InputError(f"feedback is {{'useful': n, 'useless': n}}, not {feedback!r:.100}")
        life |= feedback
    for name in ("accesses", "useful", "useless"):
        _check_count(life, name)
    for name in ("reason", "successor"):
        _check_short_text(life, name)
    if "strength" in life:
        if not (is_number(life["strength"]) and life["strength"] > 0):
            raise InputError(f"strength must be a number above 0, not {life['strength']!r:.100}")
        life["strength"] = float(life["strength"])
    if life.get("accessed_at") is not None:
        life["accessed_at"] = check_moment(life["accessed_at"], "accessed_at")
    return life


def _check_count(given: Mapping[str, Any], name: str, *, least: int = 0) -> int | None:
    """A number that SQLite can keep."""
    number = given.get(name)
    if number is None or is_whole(number, least, 2**63 - 1):
        return number
    raise InputError(f"{name} must be a whole number from {least} on, not {number!r:.100}")


def _check_short_text(given: Mapping[str, Any], name: str) -> str | None:
    text = given.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > 500:
        raise InputError(f"{name} is a text of at most 500 characters, not {text!r:.100}")
    return check_text(text, name)


def _check_rows(item: Mapping[str, Any]) -> Vectors | None:
    embedding, dim = item.get("embedding"), _check_count(item, "embedding_dim", least=1)
    if embedding is None:
        return None
    import numpy as np

    from clew.ingest.records import make_table

    row: Any = None
    if isinstance(embedding, str):
        try:
            row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        except (binascii.Error, ValueError):
            raise InputError(
                "the embedding is no base64 of 32-bit floats: the file is damaged"
            ) from None
    else:
        with contextlib.suppress(ValueError):  # rows of several lengths
            row = np.asarray(embedding)
        if isinstance(embedding, bytes) or row is None or row.ndim != 1:
            raise InputError("an embedding is one row of numbers")
    dim = dim or len(row)
    if not len(row) or len(row) % dim:
        raise InputError(f"the embedding has {len(row)} numbers, embedding_dim says {dim}")
    rows = make_table(row.reshape(-1, dim), records=len(row) // dim)
    if not rows.any(axis=1).all():
        raise InputError("the embedding is all zeros: it has no direction to compare")
    lengths = np.linalg.norm(rows, axis=1)
    whole: Vectors = rows if (abs(lengths - 1) < _UNIT_TOLERANCE).all() else unit(rows)
    return whole


# ---------------------------------------------------------------- a batch, written


def _restore(
    engine: Engine,
    page: Sequence[_ImportedMemory],
    model_of: Callable[[_ImportedMemory], str | None],
    *,
    embed: bool,
) -> list[str]:
    """What became of each. Told twice within a batch, the last word counts."""
    store = engine.store
    # under the ids that they have in this file, and followed by what has one here
    heirs = [(item.life.get("successor") or "", item.record.collection) for item in page]
    ids = record_ids(store, [heir for heir in heirs if heir[0]])
    records = with_record_ids(store, [item.record for item in page])
    items: dict[str, _ImportedMemory] = {}
    for item, record, heir in zip(page, records, heirs, strict=True):
        life = {**item.life, "successor": ids[heir]} if heir in ids else item.life
        items[record.id] = replace(item, record=record, life=life)
    known = {record.id: record for record in store.get(list(items))}
    same = [n for n, r in known.items() if r.content == items[n].record.content]
    held = store.vectors.of([n for n in same if items[n].rows is None])
    ready: dict[str, tuple[Entry, str | None]] = {}
    for name, item in items.items():
        if name in held and len(held[name][1]) == 1:  # of the whole text: it stays
            its_model, rows = held[name]
            ready[name] = make_memory_entry(engine, item.record, rows[0]), its_model
        else:
            ready[name] = _entry_of(engine, item, model_of(item))
    if embed:
        bare = [e for n, (e, _) in ready.items() if e.vectors is None and n not in same]
        for each in embed_entries(engine, bare):
            ready[each.record.id] = each, None if each.vectors is None else engine.model
    with store.atomic():
        new = [ready[n] for n, item in items.items() if item.new]
        kept = write_entries(engine, [(made, model or engine.model) for made, model in new])
        done = ["unchanged" if k.status == "duplicate" else k.status for k in kept]
        for model in dict.fromkeys(model for _, model in ready.values()):
            others = [n for n, item in items.items() if not item.new and ready[n][1] == model]
            statuses = store.put([ready[n][0] for n in others], model=model)
            old = store.lifecycle.get(others)
            lives = {n: old[n]._replace(**items[n].life) for n in others}
            changed = {n: life for n, life in lives.items() if life != old[n]}
            store.lifecycle.set(changed)
            done += [
                "updated" if status == "unchanged" and name in changed else status
                for name, status in zip(others, statuses, strict=True)
            ]
    return done


def _entry_of(engine: Engine, item: _ImportedMemory, model: str | None) -> tuple[Entry, str | None]:
    """The entry with the passages that its vectors are of. One that fits no passages is made anew
    some time."""
    rows = item.rows
    if rows is None or len(rows) == 1:
        return make_memory_entry(engine, item.record, None if rows is None else rows[0]), model
    made = make_entry(item.record, chunk_size=item.chunk_size or engine.config.chunk_size)
    if len(made.chunks) == len(rows):
        return made._replace(vectors=rows), model
    return make_memory_entry(engine, item.record), None
