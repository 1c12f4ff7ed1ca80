"""Memory: what an agent keeps. Remember, recall, forget, and what happens in between.

Its file is opened in file.py and read in recalling.py; here is what writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.memory import given, lifecycle
from clew.memory.identity import placed, public_id
from clew.memory.keep import (
    check_ids,
    embedded,
    entry_of,
    prepared,
    reembed,
    revive,
    rewrite,
    written,
)
from clew.memory.recalling import Embedding, Recalling
from clew.memory.results import Remembered
from clew.protocols import Progress
from clew.timestamps import Moment

__all__ = ["Memory"]

BATCH = 1_000
"""Memories of one transaction."""
FAR_APART = 0.5
"""A cosine below which vectors object to two memories becoming one. How near is near depends on the
model, so this is far."""


class Memory(Recalling):
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
        from clew.memory.scoped import ScopedMemory

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
        item = {
            "content": content,
            "type": type,
            "importance": importance,
            "tags": tags,
            "metadata": metadata,
            "embedding": embedding,
            "namespace": namespace,
            "id": id,
            "created_at": created_at,
            "valid_from": valid_from,
            "valid_to": valid_to,
        }
        return self.remember_many([item])[0]

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        """Several at once, much faster than one by one. All are checked before any is written; they
        are written in batches, each whole or not at all."""
        items, now = list(items), time.time()
        for item in items:
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a mapping of its fields, not {item!r:.100}")
        records = [given.record_of(item, now=now) for item in items]
        rows = [
            None
            if item.get("embedding") is None
            else given.vector_of(item["embedding"], dim=self.embedding_dim)
            for item in items
        ]
        if named := [i for i, item in enumerate(items) if item.get("id") is not None]:
            known = placed(self.store, [records[i] for i in named])
            check_ids(self.store, known)
            for i, record in zip(named, known, strict=True):
                records[i] = record
        done: list[Remembered] = []
        for i in range(0, len(records), BATCH):
            some = records[i : i + BATCH]
            ready = prepared(self.engine, some, rows[i : i + BATCH])
            made = written(self.engine, ready, given_model=self._given_model)
            done += [
                replace(each, id=public_id(each.id, record.collection))
                for each, record in zip(made, some, strict=True)
            ]
            if progress:
                progress("remembering", len(done), len(records))
        if len(done) >= BATCH:
            for model in {self.model, self._given_model}:
                self.store.prepare(model)
            self.store.refresh(bulk=True)
        return done

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
        row = None if embedding is None else given.vector_of(embedding, dim=self.embedding_dim)
        told = {
            "content": content,
            "type": type,
            "importance": importance,
            "tags": tags,
            "metadata": metadata,
            "valid_from": valid_from,
            "valid_to": valid_to,
        }
        while True:
            old = self._record(id, namespace)
            new, made = given.changed(old, told, now=time.time()), None
            if row is not None or new.content != old.content:
                made = entry_of(self.engine, new, row)
                if row is None:
                    (made,) = embedded(self.engine, [made])
            with self.store.atomic():
                if self._record(id, namespace) != old:
                    continue  # somebody was quicker: what they said stays
                if made is None:
                    rewrite(self.engine, new)
                else:
                    self.store.put([made], model=self.model if row is None else self._given_model)
                return Remembered(id, "updated", old.id in self.store.vectors_of([old.id]))

    def supersede(
        self, id: str, content: str, *, new_id: str | None = None, **fields: Any
    ) -> Remembered:
        """What was true till now is no longer: `content` takes its place, with its type, tags,
        importance and metadata unless `fields` (as for `remember`) say otherwise. The old one is
        found by `as_of` and in `history`. With `valid_from` it was, or will be, true till then."""
        old, now = self._record(id, fields.pop("namespace", None)), time.time()
        item = {
            "type": old.type,
            "importance": old.importance,
            "tags": old.tags,
            "metadata": old.metadata,
            **fields,
            "id": new_id,
            "content": content,
            "namespace": old.collection,
        }
        (record,) = placed(self.store, [given.record_of(item, now=now)])
        if (row := item.get("embedding")) is not None:
            row = given.vector_of(row, dim=self.embedding_dim)
        if new_id is not None:
            check_ids(self.store, [record])
        ready = prepared(self.engine, [record], [row])
        with self.store.atomic():
            # ended first: else the very same text would count as known
            old = self._record(id, old.collection)  # as it is now, if it still is
            life = self.store.lives([old.id])[old.id]
            if old.ended_at is not None or life.successor is not None:
                raise InputError(f"the memory {id!r} has ended already: restore it first")
            for earlier in lifecycle.overtaken(self.store, old, record):
                rewrite(self.engine, lifecycle.followed(earlier, record, now=now))
            ended = replace(life, reason="superseded", successor=record.id)
            self.store.set_lives({old.id: ended})
            (made,) = written(self.engine, ready, given_model=self._given_model)
            if made.id != record.id:  # known already, as another memory
                self.store.set_lives({old.id: replace(ended, successor=made.id)})
        return replace(made, id=public_id(made.id, record.collection))

    # ------------------------------------------------------------------ forgetting and keeping

    def forget(self, id: str, hard: bool = False, *, namespace: str | None = None) -> bool:
        """Softly: it is no longer found, and `restore` brings it back. `hard`: it is gone for good,
        and `vacuum` leaves no trace of it. Whether there was one to forget."""
        if not (known := self._known([id], namespace)):
            return False
        if hard:
            return lifecycle.buried(self.store, known[0].id)
        return bool(self.store.end([known[0].id], at=time.time(), reason="forgotten"))

    def restore(self, id: str | Sequence[str], *, namespace: str | None = None) -> int:
        """Bring back what was forgotten, evicted, superseded or consolidated; how many."""
        ids = list(id) if isinstance(id, (Sequence, Set)) and not isinstance(id, str) else [id]
        return len(revive(self.engine, [record.id for record in self._known(ids, namespace)]))

    def feedback(
        self, id: str, useful: bool = True, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Say whether it helped: its importance moves a little, so its place in the queue of what
        is given up first does too."""
        if not isinstance(useful, bool):
            raise InputError(f"useful is True or False, not {useful!r:.100}")
        with self.store.atomic():
            record = self._record(id, namespace)
            self.store.rated(record.id, useful=int(useful), useless=int(not useful))
            importance = lifecycle.after_feedback(record.importance, useful=useful)
            if importance != record.importance:
                rewrite(self.engine, replace(record, importance=importance))
            life = self.store.lives([record.id])[record.id]
        return {
            "id": id,
            "useful": life.useful,
            "useless": life.useless,
            "importance": importance,
        }

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
        keep = given.check_count("max_memories", keep, least=0)
        now = time.time()
        least = lifecycle.least(self.store.ledger(given.scope(namespace)), keep=keep, now=now)
        if not dry_run:
            ended = set(self.store.end([name for name, _ in least], at=now, reason="evicted"))
            least = [one for one in least if one[0] in ended]
        priorities = dict(least)
        return [
            {
                "id": public_id(record.id, record.collection),
                "namespace": record.collection,
                "priority": priorities[record.id],
                "content": record.content,
            }
            for record in self.store.get(list(priorities))
        ]

    def consolidate(
        self,
        namespace: str | None = None,
        *,
        threshold: float = FAR_APART,
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

        scope, threshold = given.scope(namespace), given.check_share("threshold", threshold)
        keys = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        self._accesses.flush()
        now = time.time()
        return consolidate(
            self.engine, scope, threshold=threshold, ignore=keys, now=now, dry_run=dry_run
        )

    def stats(self, *, namespace: str | None = None) -> dict[str, Any]:
        """Counts by namespace, type and state; vectors by model; sizes. Of one namespace alone
        nothing is said that others have a part in."""
        self._accesses.flush()
        scope, tally = given.scope(namespace, active=None), self.store.tally()
        # Vectors that callers give have a name of their own, unless an embedder was given as well.
        model = self.model if self.store.prepare(self.model) else self._given_model
        said = {
            "max_memories": self.max_memories,
            **lifecycle.counts(t for t in tally if namespace is None or t[0] in scope.collection),
            "model": self.model,
            "embedding_dim": self.embedding_dim,
        }
        if namespace is not None:
            every, bare = self.store.count(scope), self.store.unembedded(scope, model=model)
            return {**said, "embedded": 1 - sum(bare.values()) / every if every else 0.0}
        kept = self.store.stats(model=model)
        shown = ("models", "vectors", "embedded", "generation", "bytes")
        return {"path": str(self.path), **said, **{key: kept[key] for key in shown}}

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
        scope = given.scope(namespace, active=None if ended else True)
        memories = portable.exported(self.engine, scope, embeddings=embeddings)
        if path is None:
            named = {"format": portable.FORMAT, "version": portable.VERSION}
            return {**named, "memories": list(memories)}
        file = Path(path).expanduser()
        if file.exists() and file.samefile(self.path.expanduser()):
            raise InputError(f"{file} is the memory itself: export to another file")
        return portable.write(memories, file)

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
        from clew.memory.portable import imported

        self._accesses.flush()
        return imported(
            self.engine,
            source,
            model=self._given_model,
            dim=self.embedding_dim,
            namespace=None if namespace is None else given.check_namespace(namespace),
            embed=embed,
            progress=progress,
        )

    # ------------------------------------------------------------------ upkeep

    def reembed(self, *, namespace: str | None = None, progress: Progress | None = None) -> int:
        """Give every memory a vector of this model, those with another's too; how many got one."""
        if namespace is None:
            return self.engine.reembed(progress=progress)
        return reembed(self.engine, given.scope(namespace, active=None))

    def optimise(self, *, progress: Progress | None = None) -> None:
        """Bring the indexes into their best shape now, after many were remembered at once.
        Otherwise a later recall starts that in the background."""
        for model in {self.model, self._given_model}:
            self.store.prepare(model)
        self.store.refresh(progress=progress, optimise=True)

    def vacuum(self) -> None:
        """Give back the space of what is gone for good, and leave no trace of it."""
        self._accesses.flush()
        self.engine.vacuum()
