"""Writes, whole or not at all, though Qdrant writes one point at a time.

One point of the collection `meta`, the head, says who may write, how far the change log goes, and
which entry of the journal has yet to be applied. A write is first put into the journal as a whole;
with the one change of the head that names it, it is made: durable, on all replicas, and numbered.
Then it is applied, which may be done twice, and struck off. Whoever finds an entry whose writer is
gone applies it first. So what is killed anywhere between loses nothing that was acknowledged and
leaves no half of anything behind.

To write is to hold the lease, which is taken by a change of the head on condition that nobody has
it: a shard's leader puts all such changes in one order.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from clew.background import is_running
from clew.errors import StoreError
from clew.servers.qdrant.client import PATIENT, Json, NoCollectionError, Server, dump
from clew.servers.qdrant.conditions import fields_of, point_id
from clew.servers.qdrant.records import (
    RECORDS,
    VECTORS,
    WORDS,
    Means,
    Stored,
    StoredPassage,
    life_payload,
    pack,
    read_record,
    record_payload,
    sparse_vector,
    unpack,
    vectors_part,
    words_payload,
)
from clew.storage.batch import labels_of
from clew.storage.checksum import refuse
from clew.storage.tables import CLOSED
from clew.types import Vector

LEASE = 10.0
"""Seconds after which a writer that is not heard of is taken for gone. One of this machine whose
process has ended is known to be at once."""
KEEP = 10_000
"""Writes that the change log goes back."""
FORMAT = 1
PIECE = 4_000_000
"""Characters of one piece of an entry, and about those of one request that applies it."""
_TOO_LATE = "nothing was written: it took so long that another writer went ahead; try again"
HEAD = point_id("\0head")
EMPTY: Json = {
    **dict.fromkeys(("records", "chunks", "rid", "cid", "body", "title", "links"), 0),
    "models": {},
    "labels": {"tag": 0, "folder": 0, "name": 0},
}
"""Figures of a store without records."""


class Head(NamedTuple):
    """One state of a store."""

    store: str
    serial: int
    """Of the last write of any kind."""
    place: tuple[int, int]
    """Where the change log ends: number, token."""
    owner: str
    until: float
    pending: tuple[str, ...]
    """Pieces of the entry that has yet to be applied."""
    figures: Json

    @property
    def means(self) -> Means:
        return means_of(self.figures)

    def vectors_of(self, model: str) -> tuple[int, int]:
        """The dimension of this model's vectors, and how many there are."""
        dim, count = self.figures["models"].get(model, (0, 0))
        return dim, count


def means_of(figures: Json) -> Means:
    chunks = max(1, figures["chunks"])
    return figures["body"] / chunks, figures["title"] / chunks


def log_point(number: int) -> str:
    return point_id(f"\0log {number}")


@dataclass(slots=True)
class Transaction:
    """What a block has written so far: seen by its own reads, by nobody else's."""

    head: Head
    owner: str
    before: dict[str, Stored | None] = field(default_factory=dict)
    after: dict[str, Stored | None] = field(default_factory=dict)
    vectors: dict[int, tuple[str, Vector]] = field(default_factory=dict)
    tokens: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Of new passages: their titles and texts as tokens."""
    meta: dict[str, Json | None] = field(default_factory=dict)
    """Notes, roots and files by the id of their point."""
    touched: dict[str, None] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    confirmed: float = field(default_factory=time.monotonic)
    """When the lease was known to hold."""
    rid: int = 0
    cid: int = 0
    token: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return (self.head.place[0] + 1, self.token) if self.touched else self.head.place


class Journal:
    """The one who writes to a store, and the place it is at."""

    def __init__(self, server: Server, *, busy_seconds: float):
        self.server = server
        self._busy = busy_seconds
        self._writing = threading.RLock()
        self._local = threading.local()
        self._spoilt: BaseException | None = None
        self._closed = False
        self._seen = 0
        """The last write that was seen here."""
        self._process = os.getpid()
        self._left: set[str] = set()
        """Leases that ended here, and that the server could not be told of."""

    # ------------------------------------------------------------------ the store itself

    def open(self, *, create: bool) -> None:
        self.server.check_version()
        self.server.meet()
        try:
            if self.read(patience=0.0) is not None:
                self.head()
                return
        except NoCollectionError:
            pass
        if not create:
            raise StoreError(
                f"{self.server.where} has no store {self.server.address.name!r}: check the name, "
                "or index something"
            )
        self._make()

    def _make(self) -> None:
        address = self.server.address
        # The head decides what is so: it is on as many nodes as can fail and leave most of them.
        copies = address._replace(shards=1, replicas=max(3, address.replicas)).spread
        self.server.make("meta", {"vectors": {}, **copies}, {"is": "keyword"})
        self.server.make("records", {"vectors": {}, **address.spread}, RECORDS)
        words: Json = {"sparse_vectors": {"words": {}}, "vectors": {}}
        self.server.make("words", {**words, **address.spread}, WORDS)
        if self.read() is None:
            payload = {
                "store": uuid4().hex,
                "format": FORMAT,
                "serial": 0,
                "number": 0,
                "token": 0,
                "owner": "",
                "until": 0.0,
                "pending": [],
                "figures": json.dumps(EMPTY),
            }
            point = {"id": HEAD, "vector": {}, "payload": payload}
            # Where two make it at once, the second finds the first's and leaves it.
            nobody = {"must": [{"key": "store", "match": {"value": ""}}]}
            self.server.write("meta", [{"upsert": {"points": [point], "update_filter": nobody}}])

    def make_vectors(self, model: str, dim: int) -> None:
        """Make the collection of a model's vectors."""
        vectors = {"dense": {"size": dim, "distance": "Dot", "on_disk": True}}
        form = {"vectors": vectors, **self.server.address.spread}
        self.server.make(vectors_part(model, dim), form, VECTORS)

    def check(self) -> None:
        """A StoreError unless it can be used, here and now."""
        if self._closed:
            raise StoreError(CLOSED)
        if self._process != os.getpid():
            raise StoreError("this store was opened before the process was forked: open it again")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.server.close()

    # ------------------------------------------------------------------ reading

    @property
    def transaction(self) -> Transaction | None:
        """What this thread is writing."""
        found: Transaction | None = getattr(self._local, "transaction", None)
        return found

    def read(self, *, patience: float = PATIENT) -> Head | None:
        """The head as it is now; None: the store was not made yet."""
        path = f"/collections/{self.server.collection('meta')}/points"
        body = {"ids": [HEAD], "with_payload": True}
        until = time.monotonic() + PATIENT
        while True:
            found = self.server.call("POST", path, body, patience=patience)
            if not found:
                return None
            said = found[0]["payload"]
            if said["serial"] >= self._seen or time.monotonic() > until:
                break
            self.server.turn()  # a node that was away answers before it has heard what it lacks
            time.sleep(0.02)
        self._seen = said["serial"]
        if said["format"] > FORMAT:
            raise StoreError(
                f"the store {self.server.address.name!r} was written by a newer Clew: upgrade with "
                "`pip install -U clew-search`"
            )
        return Head(
            said["store"],
            said["serial"],
            (said["number"], said["token"]),
            said["owner"],
            said["until"],
            tuple(said["pending"]),
            json.loads(said["figures"]),
        )

    def head(self) -> Head:
        """The state that reads see, after what a writer who is gone has left to do."""
        self.check()
        if self.transaction is not None:
            return self.transaction.head
        head = self.read()
        if head is None:
            raise StoreError(f"the store {self.server.address.name!r} was deleted: open it again")
        if head.pending and self._is_free(head):
            with self._writing:
                owner, head = self._acquire()
                self._change(owner, {"owner": ""})
        return head

    def fetch(self, ids: Sequence[str], damaged: set[str] | None = None) -> dict[str, Stored]:
        """Records by id, with what this thread is writing. One that is not as it was written is
        noted where there is a set for it: else it is an error."""
        self.check()
        now = self.transaction
        known = {} if now is None else now.after
        ids = list(dict.fromkeys(ids))
        missing = [name for name in ids if name not in known]
        found = {name: stored for name in ids if (stored := known.get(name)) is not None}
        for point in self.server.get("records", [point_id(name) for name in missing]):
            stored, name = read_record(point["payload"]), str(point["payload"].get("id"))
            if stored is not None:
                found[name] = stored
            elif damaged is None:
                raise refuse(name)
            else:
                damaged.add(name)
        if now is not None:
            for name in missing:
                now.before.setdefault(name, found.get(name))
        return found

    # ------------------------------------------------------------------ writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """One write, whole or not at all. One within another is part of it, and if it fails the
        outer one fails too."""
        self.check()
        with self._writing:
            self.check()
            if (outer := self.transaction) is not None:
                try:
                    yield outer
                except BaseException as error:
                    self._spoilt = self._spoilt or error
                    raise
                return
            owner, head = self._acquire()
            now = Transaction(head, owner, rid=head.figures["rid"], cid=head.figures["cid"])
            now.token = int.from_bytes(os.urandom(6))
            self._local.transaction = now
            free = True
            try:
                yield now
                if self._spoilt is not None:
                    raise StoreError(
                        f"nothing was written: a part of it failed ({self._spoilt})"
                    ) from self._spoilt
                operations, figures = describe(now)
                self._local.transaction = None
                if operations:
                    self._commit(now, operations, figures)
                    free = False
            finally:
                self._local.transaction, self._spoilt = None, None
                if free:  # what was made and not applied, the next one applies
                    try:
                        self._change(owner, {"owner": ""})
                    except StoreError:  # as on a full disk
                        self._left.add(owner)

    def _commit(self, now: Transaction, operations: list[Json], figures: Json) -> None:
        for operation in operations:  # what cannot be applied must not be made
            if "model" in operation:
                self.make_vectors(operation["model"], operation["dim"])
        text = dump(operations).decode()
        pieces = [
            {"id": str(uuid4()), "vector": {}, "payload": {"piece": text[i : i + PIECE]}}
            for i in range(0, len(text), PIECE)
        ]
        for piece in pieces[:-1]:
            self.server.write("meta", [{"upsert": {"points": [piece]}}])
        serial = now.head.serial + 1
        names = [piece["id"] for piece in pieces]
        made = {
            "serial": serial,
            "number": now.place[0],
            "token": now.place[1],
            "until": time.time() + LEASE,
            "pending": names,
            "figures": json.dumps(figures),
        }
        last = {"upsert": {"points": pieces[-1:]}}
        self.server.write("meta", [last, _head_change(now.owner, made)])
        head = self.read()
        if head is None or head.owner != now.owner or head.serial != serial:
            raise StoreError(_TOO_LATE)
        if not self._apply(operations, now.owner):
            self.head()  # whoever has the lease needs the pieces; if nobody has, this one again
            return
        done = _head_change(now.owner, {"pending": [], "owner": ""})
        self.server.write("meta", [done, {"delete": {"points": names}}])

    def _acquire(self) -> tuple[str, Head]:
        """The lease, and the state that it begins with: all that was written is applied."""
        owner = f"{_machine()}:{os.getpid()}:{uuid4().hex}"
        until = time.monotonic() + self._busy
        while True:
            head = self.read()
            if head is not None and self._is_free(head):
                same = [
                    {"key": "owner", "match": {"value": head.owner}},
                    {"key": "serial", "match": {"value": head.serial}},
                ]
                taken = {"owner": owner, "until": time.time() + LEASE}
                self.server.write("meta", [_head_change(None, taken, same)])
                head = self.read()
            if head is not None and head.owner == owner:
                break
            if time.monotonic() > until:
                raise StoreError(
                    f"another process is writing to {self.server.address.name!r}: wait for it to "
                    "finish, then try again"
                )
            time.sleep(0.002 + os.urandom(1)[0] / 12_800)
        if head.pending:
            pieces = {
                point["id"]: point["payload"]["piece"]
                for point in self.server.get("meta", head.pending)
            }
            if len(pieces) == len(head.pending):  # else it was applied, and only not struck off
                self._apply(json.loads("".join(pieces[name] for name in head.pending)), owner)
            self._change(owner, {"pending": [], "until": time.time() + LEASE})
            head = head._replace(pending=())
        return owner, head

    def hold(self) -> None:
        """Between the steps of a write that takes long: a StoreError where another has gone ahead
        meanwhile. Nothing where nothing is written."""
        now, at = self.transaction, time.monotonic()
        if now is not None and at - now.confirmed > LEASE / 4:
            if not self._holds(now.owner):
                raise StoreError(_TOO_LATE)
            now.confirmed = at

    def _holds(self, owner: str) -> bool:
        """Whether the lease is this owner's, from now on for as long as it lasts."""
        self._change(owner, {"until": time.time() + LEASE})
        head = self.read()
        return head is not None and head.owner == owner

    def _is_free(self, head: Head) -> bool:
        if not head.owner or head.owner in self._left or head.until < time.time():
            return True
        machine, process, _ = head.owner.rsplit(":", 2)
        return machine == _machine() and not is_running(int(process))

    def _change(self, owner: str, values: Json) -> None:
        self.server.write("meta", [_head_change(owner, values)])

    def _apply(self, operations: list[Json], owner: str) -> bool:
        """Everything an entry says; harmless where some of it was done before. The lease is made
        to last where it takes long. Who has lost it, having been stopped for so long, ends (False):
        another has applied the entry, or is about to, and may have written since."""
        by_part: dict[str, list[Json]] = {}
        for operation in operations:
            by_part.setdefault(operation["part"], []).append(operation)
        confirmed = time.monotonic()

        def apply(part: str) -> bool:
            nonlocal confirmed
            for operation in by_part[part]:
                if "model" in operation:
                    self.make_vectors(operation["model"], operation["dim"])
                expanded = expand(operation)
                if (now := time.monotonic()) - confirmed > LEASE / 4:
                    if not self._holds(owner):
                        return False
                    confirmed = now
                self.server.write(part, expanded)
            return True

        if len(by_part) == 1:
            return apply(*by_part)
        return all([*self.server.pool.map(apply, by_part)])


def _machine() -> str:
    """Tells where numbers of processes mean the same."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    import platform

    return platform.node().replace(":", ".")


def _head_change(owner: str | None, values: Json, same: Sequence[Json] = ()) -> Json:
    """Of the head, as long as it is this owner's, or as it is expected to be."""
    mine = [{"key": "owner", "match": {"value": owner}}] if owner is not None else []
    must = [{"has_id": [HEAD]}, *mine, *same]
    return {"set_payload": {"payload": values, "filter": {"must": must}}}


# ---------------------------------------------------------------------- what a write comes to


def describe(now: Transaction) -> tuple[list[Json], Json]:
    """The operations that take the store from before to after, and its figures then."""
    changed = {
        name: (now.before.get(name), after)
        for name, after in now.after.items()
        if now.before.get(name) is not after
    }
    old = {part.number: (s, part) for s, _ in changed.values() if s for part in s.parts}
    new = {part.number: (s, part) for _, s in changed.values() if s for part in s.parts}
    figures = _count(now, changed.values(), old, new)
    means = means_of(figures)
    dims = {model: dim for model, (dim, _) in now.head.figures["models"].items()} | now.dims
    sets: dict[str, list[Json]] = {}
    upserts: dict[str, list[Json]] = {}
    deletes: dict[str, list[Any]] = {}

    def collection(model: str) -> str:
        return vectors_part(model, dims[model])

    fields: dict[str, Json] = {}
    for name, (before, after) in changed.items():
        if after is None:
            deletes.setdefault("records", []).append(point_id(name))
            continue
        fields[name] = fields_of(after.record)
        payload = record_payload(after, fields[name])
        had = record_payload(before, fields_of(before.record)) if before is not None else {}
        if all(payload[key] == had.get(key) for key in ("doc", "chunks", "rid")):
            if (life := life_payload(after)) != life_payload(before or after):
                sets.setdefault("records", []).append({"ids": [point_id(name)], "payload": life})
        else:
            upserts.setdefault("records", []).append({"id": point_id(name), "payload": payload})
        _move_parts(after, fields[name], old, now.vectors, sets, collection)
    for number, (stored, part) in new.items():
        if number not in old:
            title, body = now.tokens[number]
            payload = words_payload(fields[stored.record.id], stored, part, title, body, means)
            sparse = sparse_vector(title.split(), body.split(), means)
            point = {"id": number, "payload": payload, "words": sparse}
            upserts.setdefault("words", []).append(point)
        if (vector := now.vectors.get(number)) is not None:
            name = stored.record.id
            payload = {**fields[name], "record": name, "digest": part.digest}
            point = {"id": number, "payload": payload, "dense": pack(vector[1])}
            upserts.setdefault(collection(part.model), []).append(point)
    for number, (_, part) in old.items():
        left = new[number][1].model if number in new else ""
        if part.model and part.model != left:
            deletes.setdefault(collection(part.model), []).append(number)
        if number not in new:
            deletes.setdefault("words", []).append(number)
    for name, noted in now.meta.items():
        if noted is None:
            deletes.setdefault("meta", []).append(name)
        else:
            upserts.setdefault("meta", []).append({"id": name, "payload": noted})
    if now.touched:
        number, token = now.place
        log = {"number": number, "token": token, "ids": json.dumps(list(now.touched))}
        upserts.setdefault("meta", []).append({"id": log_point(number), "payload": log})
        deletes.setdefault("meta", []).append(log_point(number - KEEP))
    of_model = {collection(model): (model, dims[model]) for model in dims}
    operations: list[Json] = []
    for part_name, points in upserts.items():
        made = of_model.get(part_name)
        about = {} if made is None else {"model": made[0], "dim": made[1]}
        for some in _pieces(points):
            operations.append({"part": part_name, "upsert": some, **about})
    operations += [{"part": part, "set": some} for part, some in sets.items()]
    operations += [{"part": part, "delete": ids} for part, ids in deletes.items()]
    return operations, figures


def _move_parts(
    after: Stored,
    fields: Json,
    old: Mapping[int, tuple[Stored, StoredPassage]],
    vectors: Mapping[int, Any],
    sets: dict[str, list[Json]],
    collection: Callable[[str], str],
) -> None:
    """What filters see of a record is on the points of its passages as well: of those that stay."""
    payload = {**fields, "record": after.record.id}
    kept: dict[str, list[int]] = {}
    for part in after.parts:
        if part.number not in old:
            continue
        was = old[part.number][0].record
        if {**fields_of(was), "record": was.id} != payload:
            kept.setdefault("words", []).append(part.number)
            if part.model and part.number not in vectors:
                kept.setdefault(collection(part.model), []).append(part.number)
    for name, numbers in kept.items():
        sets.setdefault(name, []).append({"ids": numbers, "payload": payload})


def _count(
    now: Transaction,
    changed: Any,
    old: Mapping[int, tuple[Stored, StoredPassage]],
    new: Mapping[int, tuple[Stored, StoredPassage]],
) -> Json:
    figures = json.loads(json.dumps(now.head.figures))
    figures["rid"], figures["cid"] = now.rid, now.cid
    for before, after in changed:
        for stored, sign in ((before, -1), (after, 1)):
            if stored is None:
                continue
            record = stored.record
            figures["records"] += sign
            figures["links"] += sign * len(set(record.links))
            kinds = {kind for kind, _ in labels_of(record)} | ({"tag"} if record.tags else set())
            for kind in kinds:
                figures["labels"][kind] += sign
    for parts, sign in ((old, -1), (new, 1)):
        for _, part in parts.values():
            figures["chunks"] += sign
            figures["body"] += sign * part.sizes[0]
            figures["title"] += sign * part.sizes[1]
            if part.model:
                dim = now.dims.get(part.model, 0)
                known = figures["models"].setdefault(part.model, [dim, 0])
                known[1] += sign
    for model, dim in now.dims.items():
        if model in figures["models"]:
            figures["models"][model][0] = dim
    figures["models"] = {model: each for model, each in figures["models"].items() if each[1]}
    return figures  # type: ignore[no-any-return]


def _pieces(points: list[Json]) -> Iterator[list[Json]]:
    """So many at a time as go into one request."""
    some: list[Json] = []
    size = 0
    for point in points:
        dense = 8 * len(point.get("dense", ""))
        sparse = 30 * len(point.get("words", {}).get("indices", ()))
        texts = sum(len(value) for value in point["payload"].values() if isinstance(value, str))
        if some and size + dense + sparse + texts > PIECE:
            yield some
            some, size = [], 0
        some.append(point)
        size += dense + sparse + texts + 1_000
    if some:
        yield some


def expand(operation: Json) -> list[Json]:
    """As Qdrant is told it."""
    if "upsert" in operation:
        points = []
        for point in operation["upsert"]:
            vector: Json = {}
            if "dense" in point:
                vector["dense"] = unpack(point["dense"])
            if "words" in point:
                vector["words"] = point["words"]
            points.append({"id": point["id"], "vector": vector, "payload": point["payload"]})
        return [{"upsert": {"points": points}}]
    if "set" in operation:
        return [
            {"set_payload": {"payload": each["payload"], "points": each["ids"]}}
            for each in operation["set"]
        ]
    return [{"delete": {"points": operation["delete"]}}]
