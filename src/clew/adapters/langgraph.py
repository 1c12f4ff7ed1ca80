"""A LangGraph store in a memory's file: what agents keep between threads, found by meaning.

>>> store = ClewStore(clew.Memory("memory.db"), fields=["text"])
>>> graph = builder.compile(store=store)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from clew.adapters import missing
from clew.adapters.matching import check_conditions, fits, pushed
from clew.errors import InputError
from clew.filter import Filter
from clew.memory import AsyncMemory, Memory
from clew.memory.lifecycle import embed_entries
from clew.memory.memory import ScopedMemory
from clew.memory.recall import embed_query, search_memories
from clew.memory.record import find_records, record_ids
from clew.types import Record

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
    )

    from clew.adapters.items import check_fields, entry_of, fields_of
    from clew.adapters.places import below, labels_of, namespace_of, place_of
except ImportError as error:
    raise missing("LangGraph", "langgraph", error) from error

__all__ = ["ClewStore"]

T = TypeVar("T")
DEEPER = 4
"""How much further to look when conditions that no index answers have left too little."""
PAGE = 1_000
"""Records read at once when all must be."""


class ClewStore(BaseStore):
    """LangGraph's `BaseStore` over a Memory (or an AsyncMemory), which stays its owner's to close.

    An item is a memory: its namespace is `langgraph/…`, its metadata the value, its text what
    `fields` name (`"$"`: the whole value as JSON), each text a passage with a vector of its own.
    Without a model, `query` goes by words. Items do not expire: `supports_ttl` is False.
    """

    supports_ttl = False

    def __init__(self, memory: Memory | AsyncMemory, *, fields: Sequence[str] | None = None):
        """`fields` are what `put` indexes where it is not told; by default the whole value."""
        if isinstance(memory, AsyncMemory):
            memory = memory.memory
        if not isinstance(memory, Memory):
            raise InputError(f"a ClewStore keeps its items in a Memory, not in {memory!r:.100}")
        if isinstance(memory, ScopedMemory):
            raise InputError(
                "a ClewStore has namespaces of its own: give it the memory itself, not one that "
                f"is bound to {memory.namespace!r}"
            )
        self.memory = memory
        self.fields = check_fields(["$"] if fields is None else fields)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """What is read is as it was before the batch; what is written, is written at once. Of
        several puts of one key the last counts."""
        ops = list(ops)
        results = [self._read(op) for op in ops]
        puts = {_named(op): op for op in ops if isinstance(op, PutOp)}
        if puts:
            self._write(puts)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    # ------------------------------------------------------------------ writing

    def _write(self, puts: Mapping[tuple[str, str], PutOp]) -> None:
        engine, store = self.memory.engine, self.memory.store
        size = engine.config.chunk_size
        ids = record_ids(store, puts)
        kept = [(name, op) for name, op in puts.items() if op.value is not None]
        made = embed_entries(
            engine,
            [entry_of(ids[n], n[0], op, fields=self.fields, size=size) for n, op in kept],
        )
        with store.atomic():
            old = store.get(list(ids.values()))
            store.lifecycle.revive([record.id for record in old if record.ended_at is not None])
            store.delete([ids[name] for name, op in puts.items() if op.value is None])
            now = time.time()
            born = {record.id: record.created_at for record in old if record.ended_at is None}
            dated = [
                replace(e.record, created_at=born.get(e.record.id, now), updated_at=now)
                for e in made
            ]
            store.put(
                [replace(e, record=record) for e, record in zip(made, dated, strict=True)],
                model=engine.model,
            )

    # ------------------------------------------------------------------ reading

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        if isinstance(op, PutOp):
            return None
        raise InputError(f"a store has no operation {op!r:.100}")

    def _get(self, op: GetOp) -> Item | None:
        path, space = _named(op)
        found = find_records(self.memory.store, [path], space)
        if not found or found[0].ended_at is not None:
            return None
        return Item(**fields_of(found[0]))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """Those that `query` finds, best first, then the newest of the others, without a score."""
        if op.offset < 0 or op.limit < 0:
            raise InputError(f"limit and offset are from 0 on, not {op.limit} and {op.offset}")
        conditions = check_conditions(op.filter or {})
        scope = Filter(within=below(op.namespace_prefix), active=True, metadata=pushed(conditions))
        wanted = op.offset + op.limit
        found: dict[str, SearchItem] = {}
        if op.limit and op.query and op.query.strip():
            found = self._ranked(op.query, scope, conditions, wanted)
        if op.limit and len(found) < wanted:
            others = _enough(
                lambda depth: self.memory.store.select(scope, limit=depth, newest=True),
                lambda record: record.path not in found and fits(record.metadata, conditions),
                wanted - len(found),
                depth=wanted,
            )
            found |= {record.path or "": SearchItem(**fields_of(record)) for record in others}
        return list(found.values())[op.offset : wanted]

    def _ranked(
        self, query: str, scope: Filter, conditions: Mapping[str, Any], wanted: int
    ) -> dict[str, SearchItem]:
        engine = self.memory.engine
        vector, _ = embed_query(engine, query)
        sources = ("all_words",) if vector is None else ("keyword", "vectors")

        def ask(within: Filter, depth: int) -> tuple[int, dict[str, SearchItem]]:
            found = search_memories(
                engine, query, within, depth, sources=sources, vector=vector, model=engine.model
            )
            best = [one for one in found if fits(one.metadata, conditions)][:wanted]
            items = {one.id: SearchItem(**fields_of(one), score=float(one.score)) for one in best}
            return len(found), items

        for depth in (wanted, wanted * DEEPER):
            asked, found = ask(scope, depth)
            if len(found) == wanted or asked < depth:
                return found
        # Most are not wanted, and no index says which: looked through once, then only they are
        # ranked. Ranking all of them would take many times as long.
        ids = [record.id for record in self._all(scope) if fits(record.metadata, conditions)]
        return ask(scope & Filter(ids=ids), wanted)[1] if ids else {}

    def _all(self, scope: Filter) -> Iterator[Record]:
        last = ""
        while page := self.memory.store.select(scope, limit=PAGE, after=last):
            yield from page
            last = page[-1].id

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        there = {name for name, _, ended, _ in self.memory.store.lifecycle.tally() if not ended}
        known = (labels for name in there if (labels := labels_of(name)) is not None)
        depth = op.max_depth
        found = {
            labels if depth is None else labels[:depth]
            for labels in known
            if all(_matches(condition, labels) for condition in op.match_conditions or ())
        }
        return sorted(found)[op.offset : op.offset + op.limit]


def _named(op: GetOp | PutOp) -> tuple[str, str]:
    """The memory's id, which is its path too, and its namespace."""
    return place_of(op.namespace, op.key), namespace_of(op.namespace)


def _enough(
    find: Callable[[int], Sequence[T]], keep: Callable[[T], bool], wanted: int, *, depth: int
) -> list[T]:
    """The first `wanted` to keep, looking deeper until they are found or there is nothing more."""
    while True:
        found = find(depth)
        kept = [one for one in found if keep(one)]
        if len(kept) >= wanted or len(found) < depth:
            return kept[:wanted]
        depth *= DEEPER


def _matches(condition: MatchCondition, labels: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InputError(f"a namespace is matched by prefix or suffix, not {condition.match_type}")
    if len(labels) < len(path):
        return False
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=False))
