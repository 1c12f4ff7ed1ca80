"""Memory: what an agent keeps. Remember, recall, forget, and what happens in between.

Its file is opened and read in recall.py; here is what writes, and two other forms of the same:
bound to one namespace, and awaited.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Self, TypeVar

from clew.errors import InputError
from clew.filter import Filter
from clew.memory import lifecycle
from clew.memory.recall import MemoryReader
from clew.memory.record import (
    CHANGEABLE_FIELDS,
    MEMORY_FIELDS,
    Embedding,
    Recalled,
    Remembered,
    change_record,
    check_namespace,
    check_namespaces,
    is_several,
    make_record,
    make_scope,
    public_id,
    with_record_ids,
)
from clew.protocols import Progress, read_pages
from clew.ranking.adjust import priority
from clew.storage import same_file
from clew.timestamps import Moment
from clew.types import Entry, Record, Vector
from clew.validate import check_number, check_whole, guarded

T = TypeVar("T")

_BATCH = 1_000
"""Memories of one transaction."""
_PAGE = 500
_PRAISE, _BLAME = 0.05, 0.1
"""What feedback moves the importance by. Blame weighs more: what misleads does harm."""
_FAR_APART = 0.5
"""A cosine below which vectors object to two memories becoming one. How near is near depends on the
model, so this is far."""


@guarded
class Memory(MemoryReader):
    """One file of memories. Thread-safe, shared with other processes; a context manager.

    >>> with clew.Memory("memory.db") as memory:
    ...     memory.remember("Ana is allergic to walnuts", importance=0.9, tags=["health"])
    ...     memory.recall("which nuts must be avoided?")

    Namespaces never see each other, and ids are per namespace. `embedder` makes the vectors: an
    embedder, or a function from a text to a vector of `embedding_dim` numbers. Without one it is
    the configured model if its weights are here; `embedding_dim` other than its own says that
    vectors are given. What has no vector is found by its words.
    """

    def scoped(self, namespace: str) -> Memory:
        """The same memory bound to one namespace: nothing it is told to do sees or touches another.
        The file stays this one's to close."""
        return ScopedMemory(self, namespace)

    # ------------------------------------------------------------------ remembering

    def remember(
        self,
        content: str,
        type: str = "semantic",
        importance: float = 0.5,
        tags: str | Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        embedding: Embedding | None = None,
        namespace: str = "default",
        *,
        id: str | None = None,
        created_at: Moment | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> Remembered:
        """Keep it. What is known word for word is not kept twice: then its id comes back.
        `created_at` is when it was learnt (by default now), `valid_from` and `valid_to` when it is
        true: by default since then, and without an end."""
        given = locals()
        return self.remember_many([{name: given[name] for name in MEMORY_FIELDS}])[0]

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        """Several at once, much faster than one by one. All are checked before any is written; they
        are written in batches, each whole or not at all."""
        items, now = list(items), time.time()
        for item in items:
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a mapping of its fields, not {item!r:.100}")
        records = [make_record(item, now=now) for item in items]
        rows = [self._check_vector(item.get("embedding")) for item in items]
        if named := [i for i, item in enumerate(items) if item.get("id") is not None]:
            known = with_record_ids(self.store, [records[i] for i in named])
            lifecycle.check_ids(self.store, known)
            for i, record in zip(named, known, strict=True):
                records[i] = record
        done: list[Remembered] = []
        for i in range(0, len(records), _BATCH):
            some = records[i : i + _BATCH]
            ready = self._prepare(some, rows[i : i + _BATCH])
            made = lifecycle.write_entries(self.engine, ready)
            done += [
                replace(each, id=public_id(each.id, record.collection))
                for each, record in zip(made, some, strict=True)
            ]
            if progress:
                progress("remembering", len(done), len(records))
        if len(done) >= _BATCH:
            lifecycle.refresh_indexes(self.store, {self.model, self._given_model}, bulk=True)
        return done

    def _prepare(
        self, records: Sequence[Record], rows: Sequence[Vector | None]
    ) -> list[tuple[Entry, str]]:
        """Memories ready to be written, each with the model of its vectors: nothing slow is left to
        do. A row is the vector the caller gave."""
        made = [
            lifecycle.make_memory_entry(self.engine, record, row)
            for record, row in zip(records, rows, strict=True)
        ]
        own = iter(lifecycle.embed_entries(self.engine, [e for e in made if e.vectors is None]))
        return [
            (next(own), self.model) if each.vectors is None else (each, self._given_model)
            for each in made
        ]

    def update(
        self,
        id: str,
        content: str | None = None,
        type: str | None = None,
        importance: float | None = None,
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        embedding: Embedding | None = None,
        *,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
        namespace: str | None = None,
    ) -> Remembered:
        """Change it in place, for what was wrong all along; `supersede` keeps what was true."""
        given = locals()
        changes = {name: given[name] for name in CHANGEABLE_FIELDS}
        row = self._check_vector(embedding)
        while True:
            old = self._find_one(id, namespace)
            new, made = change_record(old, changes, now=time.time()), None
            if row is not None or new.content != old.content:
                [(made, model)] = self._prepare([new], [row])
            with self.store.atomic():
                if self._find_one(id, namespace) != old:
                    continue  # somebody was quicker: what they said stays
                if made is None:
                    lifecycle.rewrite_record(self.engine, new)
                else:
                    self.store.put([made], model=model)
                return Remembered(id, "updated", old.id in self.store.vectors.of([old.id]))

    def supersede(
        self, id: str, content: str, *, new_id: str | None = None, **fields: Any
    ) -> Remembered:
        """What was true till now is no longer: `content` takes its place, with its type, tags,
        importance and metadata unless `fields` (as for `remember`) say otherwise. The old one is
        found by `as_of` and in `history`. With `valid_from` it was, or will be, true till then."""
        old, now = self._find_one(id, fields.pop("namespace", None)), time.time()
        item = {
            **{name: getattr(old, name) for name in ("type", "importance", "tags", "metadata")},
            **fields,
            "id": new_id,
            "content": content,
            "namespace": old.collection,
        }
        (record,) = with_record_ids(self.store, [make_record(item, now=now)])
        row = self._check_vector(item.get("embedding"))
        if new_id is not None:
            lifecycle.check_ids(self.store, [record])
        ready = self._prepare([record], [row])
        with self.store.atomic():
            # ended first: else the very same text would count as known
            old = self._find_one(id, old.collection)  # as it is now, if it still is
            life = self.store.lifecycle.get([old.id])[old.id]
            if old.ended_at is not None or life.successor is not None:
                raise InputError(f"the memory {id!r} has ended already: restore it first")
            lifecycle.supersede_record(self.engine, old, record, now=now)
            ended = life._replace(reason="superseded", successor=record.id)
            self.store.lifecycle.set({old.id: ended})
            (made,) = lifecycle.write_entries(self.engine, ready)
            if made.id != record.id:  # known already, as another memory
                self.store.lifecycle.set({old.id: ended._replace(successor=made.id)})
        return replace(made, id=public_id(made.id, record.collection))

    # ------------------------------------------------------------------ forgetting and keeping

    def forget(self, id: str, hard: bool = False, *, namespace: str | None = None) -> bool:
        """Forget softly: it is no longer found, and `restore` brings it back. `hard`: for good,
        and `vacuum` leaves no trace of it. Whether there was one to forget."""
        if not (found := self._find([id], namespace)):
            return False
        if hard:
            return lifecycle.delete_record(self.store, found[0].id)
        return bool(self.store.lifecycle.end([found[0].id], at=time.time(), reason="forgotten"))

    def restore(self, id: str | Sequence[str], *, namespace: str | None = None) -> int:
        """Bring back what was forgotten, evicted, superseded or consolidated; how many."""
        ids = list(id) if is_several(id) else [id]
        records = self._find(ids, namespace)
        return len(lifecycle.revive_records(self.engine, [record.id for record in records]))

    def feedback(
        self, id: str, useful: bool = True, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Say whether it helped: its importance moves a little, so its place in the queue of what
        is given up first does too."""
        if not isinstance(useful, bool):
            raise InputError(f"useful is True or False, not {useful!r:.100}")
        with self.store.atomic():
            record = self._find_one(id, namespace)
            self.store.lifecycle.rate(record.id, useful=int(useful), useless=int(not useful))
            moved = record.importance + (_PRAISE if useful else -_BLAME)
            importance = round(min(1.0, max(0.0, moved)), 6)
            if importance != record.importance:
                lifecycle.rewrite_record(self.engine, replace(record, importance=importance))
            life = self.store.lifecycle.get([record.id])[record.id]
        said = {"useful": life.useful, "useless": life.useless}
        return {"id": id, **said, "importance": importance}

    def evict(
        self,
        max_memories: int | None = None,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """End what is above `max_memories`, lowest priority first; `restore` brings it back."""
        self._accesses.flush()
        keep = self.max_memories if max_memories is None else max_memories
        keep, now = check_whole("max_memories", keep, least=0), time.time()
        ledger = self.store.lifecycle.ledger(make_scope(namespace))
        ranked = (
            (priority(life, importance=importance, created_at=created, now=now), name)
            for name, importance, created, life in ledger
        )
        lowest = heapq.nsmallest(max(0, len(ledger) - keep), ranked)
        least = {name: value for value, name in lowest}
        ids = set(least)
        if not dry_run:
            ids = set(self.store.lifecycle.end(list(least), at=now, reason="evicted"))
        return [
            {
                "id": public_id(record.id, record.collection),
                "namespace": record.collection,
                "priority": least[record.id],
                "content": record.content,
            }
            for record in self.store.get([each for each in least if each in ids])
        ]

    def consolidate(
        self,
        namespace: str | None = None,
        *,
        threshold: float = _FAR_APART,
        ignore: str | Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Make one of memories of one namespace and type that say the same, in other words perhaps
        where their vectors are near: the most important is kept, else the oldest, with the others'
        tags, metadata and accesses; those end, and `restore` brings them back. What differs in a
        number, a name, a date or a negation stays apart, and so do two values of one metadata key
        unless `ignore` names it, episodes of different days, other times of being true, and vectors
        with a cosine below `threshold`."""
        from clew.memory.consolidate import consolidate

        scope, threshold = make_scope(namespace), check_number("threshold", threshold)
        keys = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        self._accesses.flush()
        return consolidate(
            self.engine, scope, threshold=threshold, ignore=keys, now=time.time(), dry_run=dry_run
        )

    def stats(self, *, namespace: str | None = None) -> dict[str, Any]:
        """Counts by namespace, type and state; vectors by model; sizes. Of one namespace alone
        nothing is said that others have a part in."""
        self._accesses.flush()
        scope = make_scope(namespace, active=None)
        active, types, ended = Counter[str](), Counter[str](), Counter[str]()
        for space, kind, reason, count in self.store.lifecycle.tally():
            if namespace is not None and space not in scope.collection:
                continue
            if reason:
                ended[reason] += count
            else:
                active[space] += count
                types[kind] += count
        # Vectors that callers give have a name of their own, unless an embedder was given as well.
        model = self.model if self.store.indexes.prepare(self.model) else self._given_model
        said = {
            "max_memories": self.max_memories,
            "memories": active.total(),
            "namespaces": dict(active),
            "types": dict(types),
            "ended": dict(ended),
            "model": self.model,
            "embedding_dim": self.embedding_dim,
        }
        if namespace is not None:
            every, bare = self.store.count(scope), self.store.vectors.missing(scope, model=model)
            return {**said, "embedded": 1 - sum(bare.values()) / every if every else 0.0}
        kept = self.store.stats(model=model)
        shown = ("models", "vectors", "embedded", "generation", "bytes")
        return {"path": self.name, **said, **{key: kept[key] for key in shown}}

    # ------------------------------------------------------------------ out and in

    def export_json(
        self,
        path: str | Path | None = None,
        *,
        namespace: str | None = None,
        ended: bool = True,
        embeddings: bool = True,
    ) -> dict[str, Any] | int:
        """Everything there is to know of the memories: as plain data, or written to a file (one
        memory a line where that ends in .jsonl; also .gz) that is whole or not there; then the
        answer is how many. Without `ended`, only what can be found."""
        from clew.memory import portable

        self._accesses.flush()
        scope = make_scope(namespace, active=None if ended else True)
        memories = portable.export_memories(self.engine, scope, embeddings=embeddings)
        if path is None:
            return {**portable.HEADER, "memories": list(memories)}
        file = Path(path).expanduser()
        if same_file(file, self.path.expanduser()):
            raise InputError(f"{file} is the memory itself: export to another file")
        return portable.write_export(memories, file)

    def import_json(
        self,
        source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        embed: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Bring memories back as they were exported, from a file, from what `export_json` gave, or
        from mappings with those names; how many were created, updated and unchanged. What has the
        id of one that is here, in the same namespace, takes its place. Twice is the same as once.
        With `namespace` all go into that one. What comes without a vector gets one, unless `embed`
        is False."""
        from clew.memory.portable import import_memories

        self._accesses.flush()
        space = None if namespace is None else check_namespace(namespace)
        model = self._given_model
        return import_memories(
            self, source, model=model, namespace=space, embed=embed, progress=progress
        )

    # ------------------------------------------------------------------ upkeep

    def reembed(self, *, namespace: str | None = None, progress: Progress | None = None) -> int:
        """Give every memory a vector of this model, those with another's too; how many got one."""
        if namespace is None:
            return self.engine.reembed(progress=progress)
        vectors, embedder, done = self.store.vectors, self.engine.embedder, 0
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
        for page in read_pages(self.store, make_scope(namespace, active=None), _PAGE):
            held = vectors.chunks([record.id for record in page]).values()
            stale = [each.number for some in held for each in some if each.model != embedder.model]
            if texts := dict(vectors.texts(stale)):
                rows = embedder.embed_documents(list(texts.values()))
                done += vectors.set(list(texts), rows, model=embedder.model)
        return done

    def optimise(self, *, progress: Progress | None = None) -> None:
        """Bring the indexes into their best shape now, after many were remembered at once.
        Otherwise a later recall starts that in the background."""
        models = {self.model, self._given_model}
        lifecycle.refresh_indexes(self.store, models, progress=progress, optimise=True)

    def vacuum(self) -> None:
        """Give back the space of what is gone for good, and leave no trace of it."""
        self._accesses.flush()
        self.engine.vacuum()


# ---------------------------------------------------------------- bound to one namespace


class ScopedMemory(Memory):
    """What `Memory.scoped` gives. The file is its owner's: to close this one closes nothing."""

    def __init__(self, owner: Memory, namespace: str):
        self._owner, self.namespace = owner, check_namespace(namespace)

    def __getattr__(self, name: str) -> Any:
        """What a memory has beside its methods is the owner's."""
        if name == "_owner":  # not set yet: copied, or unpickled
            raise AttributeError(name)
        return getattr(self._owner, name)

    def open(self) -> Self:
        self._owner.open()
        return self

    def close(self) -> None:
        pass

    def scoped(self, namespace: str) -> ScopedMemory:
        self._check(namespace)
        return self

    def _check(self, namespace: Any) -> str:
        """Return its own namespace, which may be named or not."""
        if namespace is not None and {*check_namespaces(namespace)} != {self.namespace}:
            raise InputError(f"this memory is bound to the namespace {self.namespace!r}")
        return self.namespace

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        bound = (
            {**item, "namespace": self._check(item.get("namespace"))}
            if isinstance(item, Mapping)
            else item
            for item in items
        )
        return super().remember_many(bound, progress=progress)

    def list_newest(
        self, scope: Filter, *, limit: int, offset: int = 0
    ) -> tuple[list[Recalled], bool]:
        own = Filter(collection=self._check(scope.collection or None))
        return super().list_newest(scope & own, limit=limit, offset=offset)

    def explain_absence(
        self,
        namespace: str | Sequence[str] | None = (),
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        return self._explain_filter(make_scope(self._check(namespace or None)), tags, metadata)


def _bind_namespace(method: Callable[..., T]) -> Callable[..., T]:
    """The method with the namespace of the handle, whether that is an option of its own or one of
    those that it passes on."""
    shape = signature(method)
    others = next((p.name for p in shape.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    @wraps(method)
    def call(self: ScopedMemory, *args: Any, **options: Any) -> T:
        told = shape.bind(self, *args, **options)
        values = told.arguments
        if "namespace" not in shape.parameters:
            values = values.setdefault(others, {})
        values["namespace"] = self._check(values.get("namespace"))
        return method(*told.args, **told.kwargs)

    return call


for _name in (
    *("remember", "update", "supersede", "forget", "restore", "feedback"),
    *("recall", "working_memory", "fts_search", "vector_search", "hybrid_search"),
    *("latest", "get", "history", "evict", "consolidate"),
    *("stats", "export_json", "import_json", "reembed"),
):
    setattr(ScopedMemory, _name, _bind_namespace(getattr(Memory, _name)))


# ---------------------------------------------------------------- awaited


def _awaited(method: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(self: AsyncMemory, *args: Any, **options: Any) -> T:
        import asyncio  # 15 ms that the command line need not spend

        own = getattr(self.memory, method.__name__)  # of a scoped one, its own
        return await asyncio.to_thread(own, *args, **options)

    return call


class AsyncMemory:
    """A `Memory` for asyncio: `await memory.recall(...)`, `async with AsyncMemory(...)`.

    Takes what `Memory` takes, and opens the file at once as that does: some milliseconds. Each call
    runs in a thread, so the loop goes on. `memory` is the synchronous one behind it.
    """

    def __init__(self, *args: Any, **options: Any):
        self.memory = Memory(*args, **options)

    def scoped(self, namespace: str) -> AsyncMemory:
        """The same bound to one namespace."""
        bound = object.__new__(AsyncMemory)
        bound.memory = self.memory.scoped(namespace)
        return bound

    async def open(self) -> AsyncMemory:
        await _awaited(Memory.open)(self)
        return self

    async def __aenter__(self) -> AsyncMemory:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    close = _awaited(Memory.close)
    remember = _awaited(Memory.remember)
    remember_many = _awaited(Memory.remember_many)
    update = _awaited(Memory.update)
    supersede = _awaited(Memory.supersede)
    history = _awaited(Memory.history)
    recall = _awaited(Memory.recall)
    working_memory = _awaited(Memory.working_memory)
    fts_search = _awaited(Memory.fts_search)
    vector_search = _awaited(Memory.vector_search)
    hybrid_search = _awaited(Memory.hybrid_search)
    latest = alatest = _awaited(Memory.latest)
    list_newest = _awaited(Memory.list_newest)
    explain_absence = _awaited(Memory.explain_absence)
    get = _awaited(Memory.get)
    context_pack = _awaited(Memory.context_pack)
    forget = _awaited(Memory.forget)
    restore = _awaited(Memory.restore)
    feedback = _awaited(Memory.feedback)
    evict = _awaited(Memory.evict)
    consolidate = _awaited(Memory.consolidate)
    stats = _awaited(Memory.stats)
    export_json = _awaited(Memory.export_json)
    import_json = _awaited(Memory.import_json)
    reembed = _awaited(Memory.reembed)
    optimise = _awaited(Memory.optimise)
    vacuum = _awaited(Memory.vacuum)
