"""Memories out of their file and into another: JSON, or JSON lines, with nothing lost.

An import is a restore. It says how a memory is to be, so doing it twice is the same as once. It
goes on in batches: all of one are checked before any of it is written, and where it stops, what was
written is said.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from clew.engine import Engine
from clew.errors import ClewError, InputError, StoreError
from clew.filter import Filter
from clew.ingest.records import make_entry
from clew.memory.form import Told, plain, told
from clew.memory.identity import place, placed
from clew.memory.keep import Prepared, embedded, entry_of, written
from clew.models.current import EXTERNAL
from clew.protocols import Progress, Store
from clew.types import Entry, Life

__all__ = ["FORMAT", "VERSION", "exported", "imported", "write"]

FORMAT, VERSION = "clew-memory", 1
PAGE = 500
"""Memories read, or checked and written, at a time."""
MAGIC = b"SQLite format 3\0"


# ---------------------------------------------------------------- out


def exported(engine: Engine, scope: Filter, *, embeddings: bool) -> Iterator[dict[str, Any]]:
    """All memories of the scope by id, page by page."""
    store, last = engine.store, ""
    while page := store.select(scope, limit=PAGE, after=last):
        ids = [record.id for record in page]
        lives = store.lives(ids)
        held = store.vectors_of(ids) if embeddings else {}
        for record in page:
            life = lives.get(record.id, Life())
            size = engine.config.chunk_size
            yield plain(record, life, held.get(record.id), chunk_size=size)
        last = ids[-1]


def write(memories: Iterable[Mapping[str, Any]], file: Path) -> int:
    """Into a file that is whole or not there at all; how many. One a line where it is .jsonl."""
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as raw:
            with _packed(raw, file) as stream:
                count = _write(memories, stream, lines=_by_lines(file))
            raw.flush()
            os.fsync(raw.fileno())
        part.replace(file)
    except OSError as error:
        raise StoreError(
            f"{file} could not be written: {error.strerror or error}; make room, or choose "
            "another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return count


def _write(memories: Iterable[Mapping[str, Any]], out: IO[str], *, lines: bool) -> int:
    count = 0
    begun = json.dumps({"format": FORMAT, "version": VERSION, "memories": []})
    out.write("" if lines else begun.removesuffix("]}"))
    for count, memory in enumerate(memories, 1):
        row = json.dumps(memory, ensure_ascii=False)
        out.write(f"{row}\n" if lines else f"{',' if count > 1 else ''}\n{row}")
    out.write("" if lines else "\n]}\n")
    return count


@contextlib.contextmanager
def _packed(raw: IO[bytes], file: Path) -> Iterator[IO[str]]:
    # without name and time, so that the same memories make the same file
    out: Any = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if file.suffix == ".gz" else raw
    text = io.TextIOWrapper(out, "utf-8", newline="\n")
    yield text
    text.detach()  # flushed, not closed
    if out is not raw:
        out.close()


def _by_lines(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))


# ---------------------------------------------------------------- in


def imported(
    engine: Engine,
    source: Any,
    *,
    model: str,
    dim: int,
    namespace: str | None = None,
    embed: bool = True,
    progress: Progress | None = None,
) -> dict[str, int]:
    """What became of the memories in `source`. `model` made vectors of `dim` numbers that come
    without a model's name; all go into `namespace`, if one is named."""
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    total, items = _opened(source)
    names = _Names(engine, model, dim)
    now = time.time()
    if namespace is not None:
        items = ((place, _within(item, namespace)) for place, item in items)
    try:
        while page := [_checked(place, item, now) for place, item in islice(items, PAGE)]:
            for status in _restore(engine, page, names, embed=embed):
                counts[status] += 1
            if progress:
                progress("importing", sum(counts.values()), total)
    except ClewError as error:
        raise type(error)(f"{error} ({_done(counts)})") from error
    if sum(counts.values()) > PAGE:
        for name in {engine.model, model}:
            engine.store.prepare(name)
        engine.store.refresh(bulk=True)
    return counts


def _within(item: Any, namespace: str) -> Any:
    return {**item, "namespace": namespace} if isinstance(item, Mapping) else item


def _done(counts: Mapping[str, int]) -> str:
    if not any(counts.values()):
        return "nothing was imported"
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"imported so far: {said}; what is there already is recognised next time"


def _checked(place: str, item: Any, now: float) -> Told:
    try:
        return told(item, now=now)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _opened(source: Any) -> tuple[int, Iterator[tuple[str, Any]]]:
    """How many memories there are (0: unknown), and each with its place."""
    where = ""
    if isinstance(source, (str, Path)):
        file = _file(source)
        if _by_lines(file):
            return 0, _lines(file)
        source, where = _document(file), f"{file}, "
    if isinstance(source, Mapping):
        source = _memories(source, where)
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise InputError(f"{where or 'this '}is no export: it is {source!r:.100}")
    total = len(source) if isinstance(source, Sequence) else 0
    return total, ((f"{where}memory {n}", item) for n, item in enumerate(source, 1))


def _memories(document: Mapping[str, Any], where: str) -> Any:
    said, version = document.get("format", FORMAT), document.get("version", VERSION)
    if said != FORMAT or not isinstance(document.get("memories"), (list, tuple)):
        raise InputError(
            f'{where}no export of memories: {{"format": "{FORMAT}", "version": {VERSION}, '
            '"memories": […]} is expected'
        )
    if version != VERSION:
        raise InputError(
            f"{where}version {version!r:.20} of the format is not known here, {VERSION} is: use "
            "the version of Clew that wrote it, or a newer one"
        )
    return document["memories"]


def _file(path: str | Path) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        what = "is a folder" if file.exists() else "is not there"
        raise InputError(f"{file} {what}: give the file of an export")
    try:
        with file.open("rb") as stream:
            if stream.read(len(MAGIC)) == MAGIC:
                raise InputError(
                    f"{file} is a database, not an export: `clew import --from arriadne` reads "
                    "Ariadne's; one of Clew's needs no import, or `clew export` first"
                )
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    return file


def _lines(file: Path) -> Iterator[tuple[str, Any]]:
    from clew.text.lines import lines

    for number, text in lines(file):
        try:
            yield f"{file}:{number}", json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{file}:{number}: not a memory in JSON, the file may be cut short here: {error}"
            ) from None


def _document(file: Path) -> Any:
    from clew.text.lines import lines

    try:
        return json.loads("\n".join(text for _, text in lines(file)))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not JSON, or cut short: {error}; nothing was imported. If it has one "
            "memory a line, its name must end in .jsonl"
        ) from None


# ---------------------------------------------------------------- a batch


class _Names:
    """Under which name vectors are kept: one model has vectors of one size in a store."""

    def __init__(self, engine: Engine, model: str, dim: int):
        self._store, self._given, self._dim = engine.store, model, dim
        self._dims: dict[str, int] = {}

    def of(self, item: Told) -> str | None:
        if item.rows is None:
            return None
        dim = item.rows.shape[1]
        name = item.model or (self._given if dim == self._dim else EXTERNAL)
        if name not in self._dims:
            self._dims[name] = self._store.prepare(name) or dim
        return name if self._dims[name] == dim else f"{name}-{dim}"


def _restore(engine: Engine, page: Sequence[Told], names: _Names, *, embed: bool) -> list[str]:
    """What became of each. Told twice within a batch, the last word counts."""
    store = engine.store
    items = {item.record.id: item for item in _placed(store, page)}
    known = {record.id: record for record in store.get(list(items))}
    same = [n for n, r in known.items() if r.content == items[n].record.content]
    entries, models = _entries(engine, items, names, same)
    if embed:
        bare = [n for n, e in entries.items() if e.vectors is None and n not in same]
        for made in embedded(engine, [entries[n] for n in bare]):
            entries[made.record.id] = made
            models[made.record.id] = engine.model if made.vectors is not None else None
    new = [n for n, item in items.items() if item.new]
    done: list[str] = []
    with store.atomic():
        for model in dict.fromkeys(models.values()):
            told_first = [entries[n] for n in new if models[n] == model]
            ready = Prepared(tuple(told_first), tuple(range(len(told_first))))
            kept = written(engine, ready, given_model=model or engine.model)
            done += ["unchanged" if k.status == "duplicate" else k.status for k in kept]
            others = [n for n, item in items.items() if not item.new and models[n] == model]
            statuses = store.put([entries[n] for n in others], model=model)
            lived = _relive(engine, [items[n] for n in others])
            done += [
                "updated" if status == "unchanged" and name in lived else status
                for name, status in zip(others, statuses, strict=True)
            ]
    return done


def _placed(store: Store, page: Sequence[Told]) -> list[Told]:
    """Under the ids that they have in this file, and followed by what has one here."""
    heirs = [(item.life.get("successor") or "", item.record.collection) for item in page]
    places = place(store, [heir for heir in heirs if heir[0]])
    return [
        replace(
            item,
            record=record,
            life={**item.life, "successor": places[heir]} if heir in places else item.life,
        )
        for item, record, heir in zip(
            page, placed(store, [item.record for item in page]), heirs, strict=True
        )
    ]


def _entries(
    engine: Engine, items: Mapping[str, Told], names: _Names, same: Sequence[str]
) -> tuple[dict[str, Entry], dict[str, str | None]]:
    """With the passages that their vectors are of. A vector that is of a whole text stays, also
    where the import has none; one that fits no passages is made anew some time."""
    held = engine.store.vectors_of([n for n in same if items[n].rows is None])
    entries: dict[str, Entry] = {}
    models: dict[str, str | None] = {}
    for name, item in items.items():
        rows, model = item.rows, names.of(item)
        if name in held and len(held[name][1]) == 1:
            model, rows = held[name]
        if rows is None or len(rows) == 1:
            made = entry_of(engine, item.record, None if rows is None else rows[0])
        else:
            size = item.chunk_size or engine.config.chunk_size
            made = make_entry(item.record, chunk_size=size)
            if len(made.chunks) == len(rows):
                made = replace(made, vectors=rows)
            else:
                made, model = entry_of(engine, item.record), None
        entries[name], models[name] = made, model
    return entries, models


def _relive(engine: Engine, items: Sequence[Told]) -> set[str]:
    """Their lives as the import has them; those that were another."""
    lives = engine.store.lives([item.record.id for item in items])
    told_of = {item.record.id: replace(lives[item.record.id], **item.life) for item in items}
    changed = {name: life for name, life in told_of.items() if life != lives[name]}
    engine.store.set_lives(changed)
    return set(changed)
