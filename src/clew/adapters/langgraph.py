"""A LangGraph store in a memory's file: what agents keep between threads, found by meaning.

>>> store = ClewStore(clew.Memory("memory.db"), fields=["text"])
>>> graph = builder.compile(store=store)

Where an item is:

    ("users", "ana"), "tea/black"   →   namespace langgraph/users/ana
                                        id, path  langgraph/users/ana/tea+2Fblack

The path makes everything below a namespace one range of an index. The root keeps items apart from
what else is remembered in the same file.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import operator
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from clew.errors import InputError, check_known, needs_extra
from clew.filter import Filter
from clew.ingest.chunk import chunk
from clew.memory import AsyncMemory, Memory, Recalled
from clew.memory.lifecycle import embed_entries
from clew.memory.memory import ScopedMemory
from clew.memory.recall import embed_query, search_memories
from clew.memory.record import find_records, public_id, record_ids
from clew.protocols import read_pages
from clew.types import Chunk, Document, Entry, Record
from clew.validate import guarded

with needs_extra("langgraph", "the adapter for LangGraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        tokenize_path,
    )

_DEEPER = 4
"""How much further to look when conditions that no index answers have left too little."""
_PAGE = 1_000
"""Records read at once when all must be."""


class NamespaceError(InputError, InvalidNamespaceError):
    """LangGraph's own error, and Clew's."""


@guarded
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
        self.fields = _check_fields(["$"] if fields is None else fields)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """What is read is as it was before the batch; what is written, is written at once. Of
        several puts of one key the last counts."""
        ops = list(ops)
        results = [self._read(op) for op in ops]
        puts = {_place(op): op for op in ops if isinstance(op, PutOp)}
        if puts:
            self._write(puts)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def _write(self, puts: Mapping[tuple[str, str], PutOp]) -> None:
        engine, store = self.memory.engine, self.memory.store
        ids = record_ids(store, puts)
        made = embed_entries(
            engine,
            [
                _make_entry(ids[path, space], path, op, self.fields, engine.config.chunk_size)
                for (path, space), op in puts.items()
                if op.value is not None
            ],
        )
        with store.atomic():
            old = store.get(list(ids.values()))
            store.lifecycle.revive([record.id for record in old if record.ended_at is not None])
            store.delete([ids[name] for name, op in puts.items() if op.value is None])
            now = time.time()
            born = {record.id: record.created_at for record in old if record.ended_at is None}
            for i, entry in enumerate(made):
                created = born.get(entry.record.id, now)
                dated = replace(entry.record, created_at=created, updated_at=now)
                made[i] = entry._replace(record=dated)
            store.put(made, model=engine.model)

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            path, space = _place(op)
            found = find_records(self.memory.store, [path], space)
            there = bool(found) and found[0].ended_at is None
            return Item(**_item_fields(found[0])) if there else None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._list_namespaces(op)
        if isinstance(op, PutOp):
            return None
        raise InputError(f"a store has no operation {op!r:.100}")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """Items that `query` finds, best first, then the newest of the others, without a score."""
        if op.offset < 0 or op.limit < 0:
            raise InputError(f"limit and offset are from 0 on, not {op.limit} and {op.offset}")
        conditions = _check_conditions(op.filter or {})
        within = namespace_of(op.namespace_prefix) + "/"
        scope = Filter(within=within, active=True, metadata=_indexed_part(conditions))
        wanted = op.offset + op.limit
        found: dict[str, SearchItem] = {}
        if op.limit and op.query and op.query.strip():
            found = self._rank(op.query, scope, conditions, wanted)
        depth, more = wanted, bool(op.limit)
        while more and len(found) < wanted:
            newest = self.memory.store.select(scope, limit=depth, newest=True)
            for record in newest:
                if len(found) < wanted and _fits(record.metadata, conditions):
                    found.setdefault(record.path or "", SearchItem(**_item_fields(record)))
            more, depth = len(newest) == depth, depth * _DEEPER
        return list(found.values())[op.offset : wanted]

    def _rank(
        self, query: str, scope: Filter, conditions: Mapping[str, Any], wanted: int
    ) -> dict[str, SearchItem]:
        engine = self.memory.engine
        vector, _ = embed_query(engine, query)
        sources = ("all_words",) if vector is None else ("keyword", "vectors")

        def search(within: Filter, depth: int) -> tuple[int, dict[str, SearchItem]]:
            found = search_memories(
                engine, query, within, depth, sources=sources, vector=vector, model=engine.model
            )
            best = [one for one in found if _fits(one.metadata, conditions)][:wanted]
            items = (SearchItem(**_item_fields(one), score=float(one.score)) for one in best)
            return len(found), {one.id: item for one, item in zip(best, items, strict=True)}

        for depth in (wanted, wanted * _DEEPER):
            count, items = search(scope, depth)
            if len(items) == wanted or count < depth:
                return items
        # Most are not wanted, and no index says which: looked through once, then only they are
        # ranked. Ranking all of them would take many times as long.
        pages = chain.from_iterable(read_pages(self.memory.store, scope, _PAGE))
        ids = [record.id for record in pages if _fits(record.metadata, conditions)]
        return search(scope & Filter(ids=ids), wanted)[1] if ids else {}

    def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        tally = self.memory.store.lifecycle.tally()
        there = {labels_of(name) for name, _, ended, _ in tally if not ended}
        found = {
            labels[: op.max_depth]
            for labels in there
            if labels is not None
            and all(_matches(condition, labels) for condition in op.match_conditions or ())
        }
        return sorted(found)[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, labels: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InputError(f"a namespace is matched by prefix or suffix, not {condition.match_type}")
    if len(labels) < len(path):
        return False
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=False))


# ---------------------------------------------------------------- where an item is

_ROOT = "langgraph"
_ODD = re.compile(r"[^\w.:@ -]")
"""What a namespace of Clew may not have, the separator, and the sign of an escape."""
_ESCAPED = re.compile(r"(?:\+[0-9A-F]{2})+")


def namespace_of(labels: Any) -> str:
    """The memory's namespace. No two tuples of labels share one."""
    for label in labels:
        if not isinstance(label, str) or not label:
            raise NamespaceError(
                f"{label!r:.100} in {labels!r:.100} is no label of a namespace: use a text"
            )
    return "/".join((_ROOT, *map(_escape, labels)))


def labels_of(namespace: str) -> tuple[str, ...] | None:
    """The way back; None for what is no item's namespace."""
    root, *labels = namespace.split("/")
    return tuple(map(_unescape, labels)) if root == _ROOT else None


def path_of(labels: Any, key: object) -> str:
    """The memory's id, and its path too."""
    return f"{namespace_of(labels)}/{_escape(str(key))}"


def key_of(path: str) -> str:
    return _unescape(path.rpartition("/")[2])


def _place(op: GetOp | PutOp) -> tuple[str, str]:
    return path_of(op.namespace, op.key), namespace_of(op.namespace)


def _escape(text: str) -> str:
    return _ODD.sub(
        lambda odd: "".join(f"+{byte:02X}" for byte in odd[0].encode("utf-8", "surrogatepass")),
        text,
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(
        lambda escaped: bytes.fromhex(escaped[0].replace("+", "")).decode("utf-8", "surrogatepass"),
        text,
    )


# ---------------------------------------------------------------- items as records, and back


def _make_entry(id: str, path: str, op: PutOp, fields: Sequence[str], size: int) -> Entry:
    """The record that `op` puts; `fields` are indexed where it does not say which. What is not to
    be found by a query has a text, as every memory has, but no passage."""
    value = _check_value(op)
    paths = fields if op.index is None else _check_fields(op.index or ())
    texts = dict.fromkeys(
        text
        for path in paths
        for text in get_text_at_path(value, path if path == "$" else tokenize_path(path))
        if text.strip()
    )
    chunks: list[Chunk] = []  # each text is a passage of its own, or several where it is long
    at, line = 0, 0
    for text in texts:
        parts: Sequence[Chunk] = (Chunk(0, len(text), (1, text.count("\n") + 1)),)
        if len(text) > size:
            parts = chunk(Document(text, "text"), size=size)
        for part in parts:
            first, last = part.lines
            chunks.append(Chunk(at + part.start, at + part.end, (line + first, line + last)))
        at, line = at + len(text) + 2, line + text.count("\n") + 2
    record = Record(
        id=id,
        path=path,
        collection=namespace_of(op.namespace),
        type="semantic",
        content="\n\n".join(texts) or json.dumps(value, sort_keys=True, ensure_ascii=False),
        metadata=value,
    )
    return Entry(record, tuple(chunks))


def _item_fields(record: Record | Recalled) -> dict[str, Any]:
    own = record.id if isinstance(record, Recalled) else public_id(record.id, record.collection)
    return {
        "namespace": labels_of(own.rpartition("/")[0]),
        "key": key_of(own),
        "value": dict(record.metadata),
        "created_at": dt.datetime.fromtimestamp(record.created_at or 0, dt.UTC),
        "updated_at": dt.datetime.fromtimestamp(record.updated_at or 0, dt.UTC),
    }


def _check_fields(given: Any) -> list[str]:
    if isinstance(given, str) or not all(isinstance(path, str) for path in given):
        raise InputError(f"fields to index are a list of paths such as 'text', not {given!r:.100}")
    return list(given)


def _check_value(op: PutOp) -> dict[str, Any]:
    """Return the value, if it comes back as it was given: JSON, with text as keys throughout."""
    if not isinstance(op.value, Mapping):
        raise InputError(f"the value of {op.key!r} must be a mapping, not {op.value!r:.100}")
    value = dict(op.value)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the value of {op.key!r} is not JSON: {error}") from error
    if not _has_text_keys(value):
        raise InputError(f"the value of {op.key!r} has a key that is no text: JSON has none such")
    return value


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(each) for key, each in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_has_text_keys, value))


# ---------------------------------------------------------------- filters
# As LangGraph writes them: {"status": "open", "effort": {"$lte": 3}}. They are said twice:
# `_indexed_part` is what Clew's index can answer, never less than what fits; `_fits` decides.


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare numbers with numbers, texts with texts: nothing else has an order."""
    return lambda value, bound: any(
        isinstance(value, kind) and isinstance(bound, kind) and compare(value, bound)
        for kind in ((int, float), str)
    )


_RANGES = {
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}
_OPERATORS = {"$eq": operator.eq, "$ne": operator.ne, **_RANGES}
_EXACT = 2**53
"""Above it, the index may take two whole numbers for one."""


def _has_operators(wanted: Mapping[Any, Any]) -> bool:
    return any(str(name).startswith("$") for name in wanted)


def _check_conditions(conditions: Any) -> dict[str, Any]:
    """Refuse before anything is looked for: a store without items would not notice."""
    if not isinstance(conditions, Mapping):
        raise InputError(f"a filter is a mapping of keys to values, not {conditions!r:.100}")
    for key, wanted in conditions.items():
        if not isinstance(key, str):
            raise InputError(f"a filter names keys of a value, which are text, not {key!r:.100}")
        _check_operators(wanted)
    return dict(conditions)


def _check_operators(wanted: Any) -> None:
    if isinstance(wanted, Mapping) and _has_operators(wanted):
        check_known("unknown operator", _OPERATORS, *wanted)
    elif isinstance(wanted, (list, tuple, Mapping)):
        for each in wanted.values() if isinstance(wanted, Mapping) else wanted:
            _check_operators(each)


def _fits(value: Any, conditions: Mapping[str, Any]) -> bool:
    """Whether an item's value meets all of them; what it does not have counts as None."""
    return all(_meets(value.get(key), wanted) for key, wanted in conditions.items())


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_OPERATORS[name](value, bound) for name, bound in wanted.items())
        return isinstance(value, Mapping) and _fits(value, wanted)
    if isinstance(wanted, (list, tuple)):
        several = isinstance(value, (list, tuple)) and len(value) == len(wanted)
        return several and all(map(_meets, value, wanted))
    return bool(value == wanted)


def _indexed_part(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The part of it that `Filter(metadata=…)` can say."""
    said: dict[str, Any] = {}
    for key, wanted in conditions.items():
        equal = wanted["$eq"] if isinstance(wanted, Mapping) and "$eq" in wanted else wanted
        if not isinstance(equal, Mapping):
            if equal is None or _is_indexed(equal):
                said[key] = equal
        elif equal is wanted:
            ranges = {
                name[1:]: int(bound) if isinstance(bound, bool) else bound
                for name, bound in wanted.items()
                if name in _RANGES and _is_indexed(bound)
            }
            # texts and numbers at once can be met by nothing; `_fits` says so
            if len({isinstance(bound, str) for bound in ranges.values()}) == 1:
                said[key] = ranges
    return said


def _is_indexed(scalar: Any) -> bool:
    """Whether the index compares it as Python does."""
    if isinstance(scalar, str):
        return not any("\ud800" <= character <= "\udfff" for character in scalar)
    return isinstance(scalar, (int, float)) and abs(scalar) <= _EXACT  # NaN is not, either
