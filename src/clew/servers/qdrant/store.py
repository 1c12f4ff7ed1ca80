"""QdrantStore: what clew.protocols.Store asks for, of points."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError, StoreError
from clew.filter import Filter
from clew.protocols import Progress, batched
from clew.ranking.adjust import GROWTH, STRONGEST
from clew.servers.qdrant import batch, upkeep
from clew.servers.qdrant.batch import file_point, note_file, read_vectors
from clew.servers.qdrant.client import Json
from clew.servers.qdrant.conditions import FOREVER, both, fields_of, having, point_id
from clew.servers.qdrant.journal import KEEP, Head, Journal, Transaction, log_point
from clew.servers.qdrant.records import (
    Stored,
    StoredPassage,
    read_parts,
    record_payload,
    sparse_vector,
    text_of,
    vectors_part,
)
from clew.servers.qdrant.search import (
    KeywordQuery,
    Statistics,
    cut,
    dense_query,
    rank,
    rank_labels,
    rank_words,
)
from clew.servers.qdrant.tokens import PREFIX, TokenVectors
from clew.storage.batch import float32, possible_ids
from clew.storage.side_tables import stack_vectors
from clew.storage.tables import SAMPLED_LENGTHS, spaced
from clew.text import analyser
from clew.types import (
    Candidate,
    Entry,
    FileState,
    Held,
    LabelKind,
    Life,
    Passage,
    Record,
    Terms,
    Vector,
    Vectors,
)
from clew.validate import check_row


class QdrantStore:
    """The collections of one name. Whichever process writes, all see it; the folder has only what
    others derive from the records."""

    def __init__(self, journal: Journal, folder: Path):
        self.folder = folder
        self._journal, self._server = journal, journal.server
        self._pin: Head | None = None
        self._memo: list[Statistics] = []
        """Of the state that was searched last: shared by all views."""
        self._lengths: list[tuple[int, Sequence[int]]] = [(0, ())]
        self.damaged: set[str] | None = None
        self.files = _FileStates(self)
        self.notes = _Notes(self)
        self._split()

    def _split(self) -> None:
        self.vectors = _QdrantEmbeddings(self)
        self.lifecycle = _Lifecycle(self)
        self.changes = _ChangeLog(self)
        self.indexes = _QdrantIndexes(self)
        self.upkeep = _QdrantUpkeep(self)

    def view(self) -> QdrantStore:
        view = copy.copy(self)
        view._pin = self._journal.head()
        view.damaged = set()
        view._split()
        return view

    def _head(self) -> Head:
        self._journal.check()
        if self._pin is not None and self._journal.transaction is None:
            return self._pin
        return self._journal.head()

    def _statistics(self) -> Statistics:
        """While a write is being applied it is counted in part: that is not kept beyond it."""
        head = self._head()
        known = self._memo[-1] if self._memo else None
        if known is None or _state(known.head) != _state(head):
            known = Statistics(self._server, head)
            self._memo[:] = [known]
        return known

    # ------------------------------------------------------------------ writing

    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        return batch.put(self._journal, entries, model=model)

    def put_new(
        self, entries: Sequence[Entry], *, model: str | None = None
    ) -> list[tuple[str, str]]:
        return batch.put_new(self._journal, entries, model=model) if entries else []

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        with self._journal.writing():
            yield

    def delete(self, ids: Sequence[str]) -> int:
        return batch.delete(self._journal, possible_ids(ids))

    def rename(self, old_id: str, entry: Entry) -> None:
        batch.rename(self._journal, old_id, entry)

    # ------------------------------------------------------------------ reading

    def get(self, ids: Sequence[str]) -> list[Record]:
        found = self._journal.fetch(possible_ids(ids), self.damaged)
        return [found[name].record for name in ids if name in found]

    def _matching(self, filter: Filter, payload: Sequence[str]) -> Iterator[Json]:
        """Payloads of the records that match, with what this thread is writing."""
        self._journal.check()
        now = self._journal.transaction
        written: Mapping[str, Stored | None] = {} if now is None else now.after
        condition = self._statistics().condition(filter)
        for point in self._server.scroll("records", condition, ["id", *payload]):
            if point["payload"]["id"] not in written:
                yield point["payload"]
        for stored in written.values():
            if stored is not None and filter.allows(stored.record):
                yield record_payload(stored, fields_of(stored.record))

    def select(
        self, filter: Filter, *, limit: int, after: str = "", newest: bool = False
    ) -> list[Record]:
        """Qdrant has no order of names: those of all that match are read, unless the newest are
        asked for, which it can put in order."""
        if limit < 1:  # which Qdrant refuses
            return []
        if newest and not after and self._journal.transaction is None:
            return self.get(self._newest(filter, limit))
        found = self._matching(filter, ["facts"] if newest else [])
        names = [(json.loads(p["facts"])[1] if newest else 0.0, p["id"]) for p in found]
        names.sort(key=lambda each: (-each[0], each[1]))
        return self.get([name for _, name in names if name > after][:limit])

    def _newest(self, filter: Filter, limit: int) -> list[str]:
        condition = self._statistics().condition(filter)
        search: Json = {
            "query": {"order_by": {"key": "created", "direction": "desc"}},
            "limit": limit,
            "with_payload": ["id", "created"],
        }
        if condition:
            search["filter"] = condition
        (points,) = self._server.query("records", [search])
        if len(points) >= limit:  # of one moment as the last there may be more
            last = points[-1]["payload"]["created"]
            same: Json = {"must": [{"key": "created", "range": {"gte": last, "lte": last}}]}
            points += self._server.scroll("records", both(condition, same), ["id", "created"])
        found = {(-p["payload"]["created"], p["payload"]["id"]) for p in points}
        return [name for _, name in sorted(found)][:limit]

    def count(self, filter: Filter) -> int:
        if self._journal.transaction is not None:
            return sum(1 for _ in self._matching(filter, []))
        statistics = self._statistics()
        if not filter:
            return int(statistics.head.figures["records"])
        return self._server.count("records", statistics.condition(filter))

    def counts(self, field: str, filter: Filter) -> dict[str, int]:
        condition = self._statistics().condition(filter)
        if field not in ("collection", "type"):
            return self._server.facet(field, condition)
        found: dict[str, int] = {}
        for kind, count in self._server.facet("kind", condition).items():
            name = json.loads(kind)[0 if field == "collection" else 1]
            found[name] = found.get(name, 0) + count
        return {name: count for name, count in found.items() if name}

    def passages(self, candidates: Sequence[Candidate]) -> list[Passage | None]:
        known = self._journal.fetch([candidate.id for candidate in candidates], self.damaged)
        found: list[Passage | None] = []
        for candidate in candidates:
            stored = known.get(candidate.id)
            parts = () if stored is None else stored.parts
            best = next((part for part in parts if part.number == candidate.chunk), None)
            best = best or min(parts, key=lambda part: part.number, default=None)
            if stored is None or best is None:
                found.append(None)
                continue
            chunk = best.chunk
            text = stored.record.content[chunk.start : chunk.end]
            found.append(Passage(best.number, stored.record, text, chunk.lines, chunk.heading))
        return found

    # ------------------------------------------------------------------ legs

    def keyword(
        self, terms: Terms, filter: Filter, *, limit: int, per_record: int = 1
    ) -> list[Candidate]:
        statistics = self._statistics()
        if not terms or limit < 1:
            return []
        query = KeywordQuery(statistics, terms, filter)
        condition = statistics.narrow(statistics.condition(filter), terms)
        found = rank_words(
            self._server, query, terms, condition, limit=limit, per_record=per_record
        )
        if (now := self._journal.transaction) is not None:
            weights = query.weights(every=False, unknown=True)

            def score(stored: Stored, part: StoredPassage) -> float:
                title, body = map(analyser.tokens, text_of(stored.record, part.chunk))
                vector = sparse_vector(title, body, statistics.head.means)
                pairs = zip(vector["indices"], vector["values"], strict=True)
                return float(sum(weights.get(place, 0.0) * value for place, value in pairs))

            return _beside(now, found, score, filter, terms, limit, per_record)
        return found

    def nearest(
        self,
        vector: Vector,
        filter: Filter,
        *,
        model: str,
        limit: int,
        terms: Terms | None = None,
        per_record: int = 1,
    ) -> list[Candidate]:
        query = check_row(vector)
        statistics = self._statistics()
        dim, count = statistics.head.vectors_of(model)
        if count and dim != len(query):
            raise InputError(f"the vectors of {model} have {dim} dimensions, not {len(query)}")
        found: list[Candidate] = []
        if count and limit > 0:
            condition = statistics.narrow(statistics.condition(filter), terms)
            part = vectors_part(model, dim)
            body = dense_query(query)
            found = rank(self._server, part, body, condition, limit=limit, per_record=per_record)
        if (now := self._journal.transaction) is not None:
            numbers = [p.number for s in now.after.values() if s for p in s.parts]
            rows = read_vectors(self._journal, numbers, model)

            def score(_: Stored, part: StoredPassage) -> float | None:
                row = rows.get(part.number)
                return None if row is None else float(row @ query)

            return _beside(now, found, score, filter, terms or Terms(), limit, per_record)
        return found

    def labelled(
        self,
        kinds: Sequence[LabelKind],
        groups: Sequence[tuple[float, Sequence[str]]],
        filter: Filter,
        *,
        limit: int,
        terms: Terms | None = None,
    ) -> list[Candidate]:
        statistics = self._statistics()
        condition = statistics.narrow(statistics.condition(filter), terms)
        return rank_labels(statistics, kinds, groups, condition, limit=limit)

    # ------------------------------------------------------------------ upkeep

    def stats(self, *, model: str) -> dict[str, Any]:
        head = self._head()
        figures, (_, rows) = head.figures, head.vectors_of(model)
        return {
            "records": figures["records"],
            "chunks": figures["chunks"],
            "tags": len(self.counts("tag", Filter())),
            "links": figures["links"],
            "collections": dict(sorted(self.counts("collection", Filter()).items())),
            "types": dict(sorted(self.counts("type", Filter()).items())),
            "models": {name: each[1] for name, each in sorted(figures["models"].items())},
            "bytes": upkeep.sizes(self._server),
            "generation": self.changes.generation(),
            "embedded": self.indexes.coverage(model),
            "vectors": {"stage": "server" if rows else "none", "rows": rows},
            "behind": self.indexes.behind,
        }

    def close(self) -> None:
        self._journal.close()


def _state(head: Head) -> tuple[object, ...]:
    return head.store, head.place, head.pending


def _beside(
    now: Transaction,
    found: list[Candidate],
    score: Callable[[Stored, StoredPassage], float | None],
    filter: Filter,
    terms: Terms,
    limit: int,
    per_record: int,
) -> list[Candidate]:
    """What was found, with the records that this thread is writing as they are now."""
    left = [candidate for candidate in found if candidate.id not in now.after]
    for stored in now.after.values():
        if stored is None or not filter.allows(stored.record):
            continue
        texts = [text_of(stored.record, part.chunk)[1] for part in stored.parts]
        has = [
            analyser.fits(Terms(phrases=(phrase,)), text)
            for phrase in terms.phrases
            for text in texts
        ]
        step = max(1, len(texts))
        if not all(any(has[i : i + step]) for i in range(0, len(has), step)):
            continue
        if not all(analyser.fits(Terms(excluded=terms.excluded), text) for text in texts):
            continue
        mine = []
        for part in stored.parts:
            worth = score(stored, part)
            if worth is not None and (worth > 0 or not terms.words):
                mine.append(Candidate(stored.record.id, round(worth, 6), part.number))
        left += sorted(mine, key=lambda c: (-c.score, c.chunk or 0))[:per_record]
    return cut(left, limit)


class _Facet:
    """A part of what a store offers."""

    def __init__(self, store: QdrantStore):
        self._store, self._journal, self._server = store, store._journal, store._server


class _QdrantEmbeddings(_Facet):
    def pending(self, model: str) -> list[int]:
        head = self._store._head()
        whole = head.vectors_of(model)[1] == head.figures["chunks"]
        if whole and self._journal.transaction is None:
            return []
        rows: list[tuple[tuple[str, str], int, int, int, float, bool]] = []
        wanted = ["rid", "path", "kind", "updated", "chunks", "held"]
        for payload in self._store._matching(Filter(), wanted):
            path = payload["path"][0] if payload["path"] else payload["id"]
            file = path, json.loads(payload["kind"])[0]
            for part in read_parts(payload):
                place = part.chunk.start, part.number, payload["updated"], part.model != model
                rows.append((file, payload["rid"], part.chunk.end, *place))  # type: ignore[arg-type]
        rows.sort(key=lambda row: (row[0], row[1], row[3], row[4]))
        waiting: list[tuple[int, int, int, int]] = []
        for _, mine in groupby(rows, key=lambda row: row[0]):
            for order, (_, _, end, start, number, updated, lacks) in enumerate(mine):  # type: ignore[misc]
                if lacks:
                    waiting.append((order, -int(updated / 86400), end - start, number))
        return [row[3] for row in sorted(waiting)]

    def _owners(self, chunks: Sequence[int]) -> dict[int, Stored]:
        """The record of each chunk that there is."""
        now = self._journal.transaction
        mine = [] if now is None else [stored for stored in now.after.values() if stored]
        found = {part.number: stored for stored in mine for part in stored.parts}
        missing = [number for number in chunks if number not in found]
        points = self._server.get("words", missing, ["record"])
        names = {point["id"]: point["payload"]["record"] for point in points}
        known = self._journal.fetch(list(names.values()), damaged=set())
        for number, name in names.items():
            stored = known.get(name)
            if stored is not None and any(part.number == number for part in stored.parts):
                found[number] = stored
        return {number: found[number] for number in chunks if number in found}

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        return [
            (number, text_of(stored.record, part.chunk)[1])
            for number, stored in self._owners(chunks).items()
            for part in stored.parts
            if part.number == number
        ]

    def digests(self, chunks: Sequence[int] | None = None) -> dict[int, bytes]:
        self._journal.check()
        if chunks is None:
            points = list(self._server.scroll("words", None, ["digest"], page=10_000))
        else:
            points = self._server.get("words", chunks, ["digest"])
        return {p["id"]: bytes.fromhex(p["payload"]["digest"]) for p in points}

    def known(self, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
        dim, count = self._store._head().vectors_of(model)
        if not count or not chunks:
            return {}
        rows = self._rows(vectors_part(model, dim), chunks)
        if len(rows) < len(chunks):  # of the same text elsewhere, then
            rows |= self._of_same_text([n for n in chunks if n not in rows], model, dim)
        return rows

    def _rows(self, part: str, numbers: Sequence[int]) -> dict[int, Vector]:
        points = self._server.get(part, numbers, False, vectors=True)
        return {point["id"]: np.array(point["vector"]["dense"], np.float32) for point in points}

    def _of_same_text(self, chunks: Sequence[int], model: str, dim: int) -> dict[int, Vector]:
        digests = {number: each.hex() for number, each in self.digests(chunks).items()}
        part = vectors_part(model, dim)
        found: dict[str, Vector] = {}
        for some in batched(dict.fromkeys(digests.values()), 500):
            match: Json = {"key": "digest", "match": {"any": some}}
            points = self._server.scroll(part, {"must": [match]}, ["digest"], page=1_000)
            firsts = {point["payload"]["digest"]: point["id"] for point in points}
            rows = self._rows(part, list(firsts.values()))
            found |= {digest: rows[n] for digest, n in firsts.items() if n in rows}
        return {number: found[each] for number, each in digests.items() if each in found}

    def tokens(self, model: str, dim: int) -> TokenVectors:
        return TokenVectors(self._server, model=model, dim=dim)

    def set(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        with self._journal.writing() as now:
            rows = float32(vectors, len(chunks), "these chunks")
            batch.check_dim(now, model, rows.shape[1])
            owners = self._owners(chunks)
            given = dict(zip(chunks, rows, strict=True))
            for name in dict.fromkeys(stored.record.id for stored in owners.values()):
                stored = self._journal.fetch([name])[name]
                parts = tuple(
                    part._replace(model=model) if part.number in given else part
                    for part in stored.parts
                )
                now.after[name] = stored._replace(parts=parts)
                now.touched[name] = None
            now.vectors |= {number: (model, given[number]) for number in owners}
            return sum(number in owners for number in chunks)

    def of(self, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
        return stack_vectors(self.chunks(ids))

    def chunks(self, ids: Sequence[str]) -> dict[str, list[Held]]:
        stored = self._journal.fetch(possible_ids(ids), damaged=set())
        by_model: dict[str, list[int]] = {}
        for each in stored.values():
            for part in each.parts:
                by_model.setdefault(part.model, []).append(part.number)
        rows: dict[int, Vector] = {}
        for model, numbers in by_model.items():
            if model:
                rows |= read_vectors(self._journal, numbers, model)
        held: dict[str, list[Held]] = {}
        for name, each in stored.items():
            order = sorted(each.parts, key=lambda p: (p.chunk.start, p.chunk.end, p.number))
            for part in order:
                row = rows.get(part.number)
                of = part.model if row is not None else None
                held.setdefault(name, []).append(Held(part.number, part.chunk, of, row))
        return held

    def missing(self, filter: Filter, *, model: str) -> dict[tuple[str, int] | None, int]:
        head = self._store._head()
        if head.vectors_of(model)[1] == head.figures["chunks"]:
            return {}
        found: dict[tuple[str, int] | None, int] = {}
        for payload in self._store._matching(filter, ["held"]):
            for other in dict.fromkeys(payload["held"]):
                if other != model:
                    key = (other, head.vectors_of(other)[0]) if other else None
                    found[key] = found.get(key, 0) + 1
        return dict(sorted(found.items(), key=lambda each: each[0] or ("", 0)))


class _Lifecycle(_Facet):
    def get(self, ids: Sequence[str]) -> dict[str, Life]:
        found = self._journal.fetch(possible_ids(ids), damaged=set())
        return {name: stored.life for name, stored in found.items()}

    def set(self, lives: Mapping[str, Life]) -> None:
        self._change(list(lives), lambda stored: stored._replace(life=lives[stored.record.id]))

    def count_accesses(self, counts: Mapping[str, int], *, at: float) -> None:
        def change(stored: Stored) -> Stored:
            life, more = stored.life, counts[stored.record.id]
            life = life._replace(
                accesses=life.accesses + more,
                strength=min(life.strength * GROWTH ** min(more, 64), STRONGEST),
                accessed_at=at if life.accessed_at is None else max(life.accessed_at, at),
            )
            return stored._replace(life=life)

        self._change(list(counts), change)

    def rate(self, id: str, *, useful: int = 0, useless: int = 0) -> bool:
        def change(stored: Stored) -> Stored:
            life = stored.life
            useful_now, useless_now = life.useful + useful, life.useless + useless
            return stored._replace(life=life._replace(useful=useful_now, useless=useless_now))

        return bool(self._change([id], change))

    def end(
        self, ids: Sequence[str], *, at: float, reason: str, successor: str | None = None
    ) -> list[str]:
        return self._set_end(ids, at, reason, successor)

    def revive(self, ids: Sequence[str]) -> list[str]:
        return self._set_end(ids, None, "", None)

    def _set_end(
        self, ids: Sequence[str], at: float | None, reason: str, successor: str | None
    ) -> list[str]:
        def change(stored: Stored) -> Stored:
            if (stored.record.ended_at is None) == (at is None):
                return stored
            life = stored.life._replace(reason=reason, successor=successor)
            return stored._replace(record=replace(stored.record, ended_at=at), life=life)

        with self._journal.writing() as now:
            changed = self._change(ids, change)
            now.touched |= dict.fromkeys(changed)
            return changed

    def _change(self, ids: Sequence[str], change: Callable[[Stored], Stored]) -> list[str]:
        """Those that are there, and other than before."""
        with self._journal.writing() as now:
            found = self._journal.fetch(possible_ids(ids), damaged=set())
            for name, stored in found.items():
                if (after := change(stored)) is not stored:
                    now.after[name] = after
            return [
                name for name, stored in found.items() if now.after.get(name, stored) is not stored
            ]

    def ledger(self, filter: Filter) -> list[tuple[str, float, float, Life]]:
        rows: list[tuple[str, float, float, Life]] = []
        for payload in self._store._matching(filter, ["facts"]):
            importance, created, _, *life = json.loads(payload["facts"])
            rows.append((payload["id"], importance, created, Life(*life)))
        return sorted(rows, key=lambda row: row[0])

    def tally(self) -> list[tuple[str, str, str, int]]:
        self._journal.check()
        kinds = self._server.facet("kind", None)
        return sorted((*json.loads(kind), count) for kind, count in kinds.items())

    def next_change(self, at: float) -> float | None:
        self._journal.check()
        holds = {"key": "ended", "range": {"gte": FOREVER}}
        searches: list[Json] = [
            {
                "query": {"order_by": {"key": key, "direction": "asc"}},
                "filter": {"must": [holds, {"key": key, "range": {"gt": at, "lt": FOREVER}}]},
                "limit": 1,
                "with_payload": [key],
            }
            for key in ("from", "to")
        ]
        found = zip(("from", "to"), self._server.query("records", searches), strict=True)
        moments = [point["payload"][key] for key, points in found for point in points]
        return min(moments, default=None)

    def predecessors(self, id: str) -> list[str]:
        self._journal.check()
        same: Json = {"must": [{"key": "successor", "match": {"value": id}}]}
        points = self._server.scroll("records", same, ["id", "created"])
        found = [(-p["payload"]["created"], p["payload"]["id"]) for p in points]
        return [name for _, name in sorted(found)]


class _Meta(_Facet):
    """What is kept in `meta` by name."""

    def _read(self, word: str) -> dict[str, Json]:
        self._journal.check()
        points = self._server.scroll("meta", {"must": [having(word)]})
        found = {point["id"]: point["payload"] for point in points}
        now = self._journal.transaction
        for point, payload in ({} if now is None else now.meta).items():
            found.pop(point, None)
            if payload is not None and word in payload["is"]:
                found[point] = payload
        return found

    def _get(self, points: Sequence[str]) -> dict[str, Json]:
        self._journal.check()
        now = self._journal.transaction
        written = {} if now is None else now.meta
        missing = [point for point in points if point not in written]
        found = {point["id"]: point["payload"] for point in self._server.get("meta", missing)}
        return found | {p: known for p in points if (known := written.get(p)) is not None}


class _FileStates(_Meta):
    def roots(self) -> dict[str, str]:
        return {each["name"]: each["folder"] for each in self._read("root").values()}

    def set_root(self, collection: str, folder: str) -> None:
        with self._journal.writing() as now:
            payload = {"is": ["root"], "name": collection, "folder": folder}
            now.meta[point_id(f"\0root {collection}")] = payload

    def remove_root(self, collection: str) -> None:
        with self._journal.writing() as now:
            for point in (point_id(f"\0root {collection}"), *self._read(f"file {collection}")):
                now.meta[point] = None

    def states(self, collection: str, paths: Sequence[str] | None = None) -> dict[str, FileState]:
        if paths is None:
            found = self._read(f"file {collection}")
        else:
            found = self._get([file_point(collection, path) for path in paths])
        return {each["path"]: FileState(*each["state"]) for each in found.values()}

    def set_states(self, collection: str, states: Mapping[str, FileState]) -> None:
        with self._journal.writing() as now:
            for path, state in states.items():
                note_file(now, collection, path, state)

    def forget(self, collection: str, paths: Sequence[str]) -> None:
        with self._journal.writing() as now:
            now.meta |= {file_point(collection, path): None for path in paths}


class _Notes(_Meta, MutableMapping[str, str]):
    def __getitem__(self, key: str) -> str:
        found = self._get([point_id(f"\0note {key}")])
        if not found:
            raise KeyError(key)
        return str(next(iter(found.values()))["value"])

    def __setitem__(self, key: str, value: str) -> None:
        with self._journal.writing() as now:
            payload = {"is": ["note"], "key": key, "value": value}
            now.meta[point_id(f"\0note {key}")] = payload

    def __delitem__(self, key: str) -> None:
        with self._journal.writing() as now:
            now.meta[point_id(f"\0note {key}")] = None

    def __iter__(self) -> Iterator[str]:
        return iter([each["key"] for each in self._read("note").values()])

    def __len__(self) -> int:
        return len(self._read("note"))


class _ChangeLog(_Facet):
    def generation(self) -> int:
        return self.edition()[0]

    def edition(self) -> tuple[int, int]:
        now = self._journal.transaction
        return self._store._head().place if now is None else now.place

    def touched(self, edition: tuple[int, int]) -> list[str] | None:
        last, (number, token) = self._journal.head().place, edition
        if (number, token) == last:
            return []
        if not 0 <= number < last[0] or last[0] - number >= KEEP:
            return None
        wanted = [log_point(i) for i in range(number, last[0] + 1)]
        points = self._server.get("meta", wanted)
        rows = {point["payload"]["number"]: point["payload"] for point in points}
        begun = token if number == 0 else rows.pop(number, {}).get("token")
        if begun != token or (number == 0 and token) or len(rows) != last[0] - number:
            return None
        ids = dict.fromkeys(name for row in rows.values() for name in json.loads(row["ids"]))
        there = self._server.get("records", [point_id(name) for name in ids], ["id"])
        return sorted(point["payload"]["id"] for point in there)


class _QdrantIndexes(_Facet):
    @property
    def remote(self) -> bool:
        return self._journal.transaction is None

    def current(self) -> bool:
        """A write is searchable when it is acknowledged."""
        self._journal.check()
        return True

    @property
    def behind(self) -> int:
        return 1 if self._store._head().pending else 0

    @property
    def behind_because(self) -> str:
        return "another process is writing" if self.behind else ""

    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        self._journal.check()
        if optimise and not bulk:
            upkeep.weigh_anew(self._journal, progress)

    def prepare(self, model: str) -> int:
        return self._store._head().vectors_of(model)[0]

    def rebuild(self, *, progress: Progress | None = None) -> None:
        upkeep.derive(self._journal, progress)
        self._store._memo.clear()

    def coverage(self, model: str) -> float:
        head = self._store._head()
        chunks = head.figures["chunks"]
        return head.vectors_of(model)[1] / chunks if chunks else 0.0

    def reach(self, terms: Terms, filter: Filter) -> float:
        if not terms.words:
            return 0.0
        return KeywordQuery(self._store._statistics(), terms, filter).reach()

    def lengths(self) -> Sequence[int]:
        """Taken anew when the store has grown or shrunk by half."""
        head = self._store._head()
        size, ((at, known),) = int(head.figures["chunks"]), self._store._lengths
        if not at / 1.5 <= size <= at * 1.5:
            known = self._sample(int(head.figures["cid"]))
            self._store._lengths[:] = [(size, known)]
        return known

    def _sample(self, top: int) -> list[int]:
        """Evenly spread over the numbers that were given, of which some are gone."""
        points = self._server.get("words", spaced(1, top, 4 * SAMPLED_LENGTHS), ["length"])
        if len(points) < SAMPLED_LENGTHS:
            points = list(self._server.scroll("words", None, ["length"], most=SAMPLED_LENGTHS))
        points.sort(key=lambda point: point["id"])
        step = max(1, len(points) // SAMPLED_LENGTHS)
        return [int(point["payload"]["length"]) for point in points[::step]]


class _QdrantUpkeep(_Facet):
    def check(self) -> Iterator[tuple[str, bool, str]]:
        self._journal.check()
        yield from upkeep.check(self._journal)

    def mend(self) -> tuple[list[str], list[str], bool]:
        return upkeep.mend(self._journal)

    def vacuum(self) -> None:
        """Qdrant gives the space of what was deleted back by itself."""
        self._journal.check()
        upkeep.sweep(self._journal)
        living = list(self._store.vectors.digests().values())
        for part in self._server.collections():
            if part.startswith(PREFIX):
                TokenVectors(self._server, part=part).keep_only(living)

    def backup(
        self,
        file: str | Path,
        *,
        root: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        raise StoreError(
            "a store in Qdrant is backed up by Qdrant's own snapshots, or as a file: `clew migrate "
            "--to embedded:///copy.db`, then `clew backup` of that"
        )
