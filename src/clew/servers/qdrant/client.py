"""Qdrant's REST API over pooled connections: any node of a cluster will do, and the next one is
asked where one does not answer.

Bodies are plain JSON, put together and taken apart by orjson: a load and a search wait for that,
and the official client makes an object of every number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import orjson
import urllib3

from clew.errors import ConfigError, StoreError, check_known

Json = dict[str, Any]
PORT = 6333
KEY = "QDRANT_API_KEY"
OLDEST, NEWER = (1, 16), (2, 0)
"""Versions of the server that are known to work: phrases and conditional writes need the first."""
SEARCHED = (1, 18, 1)
"""Before it the server may leave what was just written out of ranked searches for a while: see
qdrant/qdrant pull request 9116."""
PAGE = 2_000
"""Points that are read in one request."""
PATIENT = 2.0
"""Seconds that a read is tried for: others have what a node that is gone had, or it is said."""
_CONNECT, _READ, _WRITE = 2.0, 10.0, 60.0
"""Seconds until a node is given up."""
_OPTIONS = ("shards", "replicas", "tls")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")


class Address(NamedTuple):
    """What a URL says: qdrant://one:6333,two:6333/name?shards=6&replicas=2&tls=true"""

    nodes: tuple[tuple[str, int], ...]
    name: str
    shards: int
    replicas: int
    tls: bool

    @property
    def spread(self) -> Json:
        """What has a new collection spread as it says."""
        return {"shard_number": self.shards, "replication_factor": self.replicas}

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        login, _, hosts = parts.netloc.rpartition("@")
        if login:
            raise ConfigError(f"a key does not belong into the address: give it as {KEY} instead")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        check_known("unknown option", _OPTIONS, *given, kind=ConfigError)
        counts = {}
        for option in ("shards", "replicas"):
            number = given.get(option, "1")
            if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= 1_000:
                raise ConfigError(f"{option} is a number from 1 to 1000, not {number!r}")
            counts[option] = int(number)
        if (tls := given.get("tls", "false")) not in ("true", "false"):
            raise ConfigError(f"tls is true or false, not {tls!r}")
        name = parts.path.strip("/") or "clew"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a store: letters, digits, _ . and - only")
        try:
            nodes = tuple(
                (node.hostname or "", node.port or PORT)
                for node in (urlsplit(f"//{host}") for host in hosts.split(","))
            )
        except ValueError as error:
            raise ConfigError(f"{hosts!r} are no addresses of servers: {error}") from error
        if not all(host for host, _ in nodes):
            raise ConfigError(f"{url!r} names no server: write qdrant://host:6333/name")
        return cls(nodes, name, tls=tls == "true", **counts)


def dump(value: Any) -> bytes:
    """As JSON; a table of numbers as lists, each number as short as it can be read back from."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # a part that it does not take, or half a character, which json names
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class NoCollectionError(StoreError):
    """There is no such collection."""


class _RefusedError(StoreError):
    """An answer that another node, or the same one later, may not give."""


class Server:
    """The collections of one store, whichever node has them."""

    def __init__(self, address: Address, *, patience: float):
        self.address = address
        self._patience = patience
        headers = {"content-type": "application/json"}
        if key := os.environ.get(KEY):
            headers["api-key"] = key
        kind = urllib3.HTTPSConnectionPool if address.tls else urllib3.HTTPConnectionPool
        self._nodes = [
            kind(host, port, maxsize=16, headers=headers, retries=False)
            for host, port in address.nodes
        ]
        self._first = os.getpid()  # not all processes ask the same node
        self._peers: dict[int, int] = {}
        """What the cluster calls those nodes that have answered once."""
        self.pool = ThreadPoolExecutor(8, thread_name_prefix="clew-qdrant")
        self.troubles = 0
        """Requests that a node did not answer, or refused for now."""
        self._known: set[str] = set()
        self._making = threading.Lock()

    @property
    def where(self) -> str:
        hosts = ", ".join(f"{host}:{port}" for host, port in self.address.nodes)
        return f"Qdrant at {hosts}"

    def close(self) -> None:
        self.pool.shutdown(wait=False)
        for node in self._nodes:
            node.close()

    # ------------------------------------------------------------------ requests

    def call(self, method: str, path: str, body: Any = None, *, patience: float = PATIENT) -> Any:
        """The `result` of an answer. What no node answers is asked again for as long as there is
        patience: a node that is gone is found to be by the others, and they go on without it."""
        content = None if body is None else dump(body)
        until = time.monotonic() + patience
        pause = 0.05
        while True:
            said: Exception | None = None
            for _ in self._nodes:
                node = self._nodes[self._first % len(self._nodes)]
                try:
                    return self._ask(node, method, path, content, patience > PATIENT)
                except (urllib3.exceptions.HTTPError, _RefusedError, OSError) as error:
                    said = error
                    self.troubles += 1
                    self.turn()
            if time.monotonic() + pause > until:
                raise self._explain(said)
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    def turn(self) -> None:
        """Ask the next node from now on."""
        self._first += 1

    def _ask(
        self,
        node: urllib3.HTTPConnectionPool,
        method: str,
        path: str,
        content: bytes | None,
        write: bool,
    ) -> Any:
        timeout = urllib3.Timeout(connect=_CONNECT, read=_WRITE if write else _READ)
        answer = node.urlopen(method, path, body=content, headers=node.headers, timeout=timeout)
        if answer.status == 200:
            return orjson.loads(answer.data)["result"]
        try:
            said = str(orjson.loads(answer.data)["status"]["error"])
        except (ValueError, KeyError, TypeError):
            said = answer.data.decode("utf-8", "replace")[:300]
        if answer.status in (401, 403):
            raise StoreError(f"{self.where} refuses the key: set {KEY} ({said})")
        if answer.status == 404 and "ollection" in said:
            raise NoCollectionError(f"{self.where}: {said}")
        if answer.status == 507 or ("space" in said.lower() and "disk" in said.lower()):
            raise StoreError(
                f"{self.where}: the disk of a node is full ({said}): free some space and run it "
                "again; nothing that was acknowledged is lost"
            )
        if answer.status >= 500 or answer.status in (408, 429):
            raise _RefusedError(said)
        raise StoreError(f"{self.where} refuses {method} {path}: {said}")

    def _explain(self, error: Exception | None) -> StoreError:
        if isinstance(error, _RefusedError):
            return StoreError(
                f"{self.where} cannot answer now ({error}): is a node of the cluster away? What "
                "was acknowledged is kept; try again when it is back"
            )
        said = str(error).partition(": ")[2] or type(error).__name__
        return StoreError(
            f"no server answers as {self.where} ({said}): start it, or check the address"
        )

    def check_version(self) -> tuple[int, ...]:
        """The server's version; a StoreError unless it is there and one that is known to work."""
        said = self._version()
        found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
        version = tuple(int(number or 0) for number in found.groups()) if found else (0, 0)
        if not OLDEST <= version < NEWER:
            raise StoreError(
                f"{self.where} is version {said or 'unknown'}: Clew needs "
                f"{'.'.join(map(str, OLDEST))} or later, below {NEWER[0]}"
            )
        return version

    def _version(self) -> str:
        said: Exception | None = None
        for node in self._nodes:
            try:
                timeout = urllib3.Timeout(connect=_CONNECT, read=_READ)
                answer = node.urlopen("GET", "/", headers=node.headers, timeout=timeout)
                return str(orjson.loads(answer.data).get("version", ""))
            except (urllib3.exceptions.HTTPError, OSError) as error:
                said = error
            except (ValueError, AttributeError):
                return ""
        raise self._explain(said)

    # ------------------------------------------------------------------ collections

    def collection(self, part: str) -> str:
        return f"{self.address.name}-{part}"

    def collections(self) -> list[str]:
        """Parts of this store that there are."""
        found = self.call("GET", "/collections")["collections"]
        prefix = self.collection("")
        names = (str(each["name"]) for each in found)
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def make(self, part: str, form: Mapping[str, Any], indexes: Mapping[str, Any]) -> None:
        """A collection, unless it is there: a StoreError where it is there and of another form."""
        if part in self._known:
            return
        with self._making:
            path = f"/collections/{self.collection(part)}"
            try:
                there = self.call("GET", path)
            except NoCollectionError:
                with contextlib.suppress(StoreError):  # somebody else makes it as well
                    self.call("PUT", path, {"on_disk_payload": True, **form}, patience=_WRITE)
                self._await_replicas(path)
                there = self.call("GET", path, patience=_WRITE)
            params = there["config"]["params"]
            for name, wanted in form.get("vectors", {}).items():
                size = params.get("vectors", {}).get(name, {}).get("size")
                if size != wanted["size"]:
                    raise StoreError(
                        f"the collection {self.collection(part)} of {self.where} has vectors of "
                        f"{size or 'no'} dimensions called {name!r}, and not {wanted['size']}: it "
                        "is not Clew's; give another name for the store"
                    )
            missing = [field for field in indexes if field not in there["payload_schema"]]
            for field in missing:
                schema = {"field_name": field, "field_schema": indexes[field]}
                self.call("PUT", f"{path}/index?wait=true", schema, patience=_WRITE)
            self._known.add(part)

    def _await_replicas(self, path: str) -> None:
        """Until all of a new collection are there: one that comes later than a write lacks it for a
        while, and is read all the same."""
        until = time.monotonic() + _WRITE
        while time.monotonic() < until:
            said = self.call("GET", f"{path}/cluster", patience=_WRITE)
            shards = [*said["local_shards"], *said["remote_shards"]]
            if shards and all(shard["state"] == "Active" for shard in shards):
                return
            time.sleep(0.02)

    # ------------------------------------------------------------------ points

    def write(self, part: str, operations: Sequence[Json]) -> None:
        """In this order, each on all replicas of a shard in the order in which its leader has it;
        durable and seen by every read when this returns. The leader is one of those that are there
        (what Qdrant calls strong waits for one that is gone)."""
        if operations:
            before = self.troubles
            self._operate(part, operations, max(self._patience, PATIENT + 1))
            if self.troubles != before:
                self.await_agreement(part)

    def _operate(self, part: str, operations: Sequence[Json], patience: float) -> None:
        path = f"/collections/{self.collection(part)}/points/batch?wait=true&ordering=medium"
        self.call("POST", path, {"operations": list(operations)}, patience=patience)

    def meet(self) -> set[int]:
        """The nodes that do not answer, as far as the cluster's names for them are known."""
        away = set()
        timeout = urllib3.Timeout(connect=_CONNECT, read=_CONNECT)
        for i, node in enumerate(self._nodes if len(self._nodes) > 1 else ()):
            try:
                answer = node.urlopen("GET", "/cluster", headers=node.headers, timeout=timeout)
                self._peers[i] = int(orjson.loads(answer.data)["result"]["peer_id"])
            except (urllib3.exceptions.HTTPError, OSError):
                away |= {self._peers[i]} if i in self._peers else set()
            except (ValueError, KeyError, TypeError):
                pass  # no cluster, or nothing that a key for one collection may ask
        return away

    def await_agreement(self, part: str) -> None:
        """Until the cluster has agreed that a node which is away lacks what was written. Whoever
        has found it away goes on without it at once; if that node is killed before the others
        know, the one that was away comes back as if it had everything, and what was acknowledged
        is lost. A write of nothing, to all shards, has each of them find it away."""
        until = time.monotonic() + max(self._patience, _READ)
        asked = False
        while away := self.meet():
            path = f"/collections/{self.collection(part)}/cluster"
            shards = self.call("GET", path)["remote_shards"]
            if not any(s["state"] == "Active" and s["peer_id"] in away for s in shards):
                return
            if time.monotonic() > until:
                raise self._explain(_RefusedError("the others have not agreed to go on without it"))
            if not asked:
                asked = True
                nobody = {"must": [{"has_id": [str(uuid4())]}]}
                self._operate(part, [{"delete": {"filter": nobody}}], PATIENT)
            time.sleep(0.05)

    def _post(self, part: str, what: str, body: Json) -> Any:
        return self.call("POST", f"/collections/{self.collection(part)}/{what}", body)

    def get(
        self, part: str, ids: Sequence[Any], payload: Any = True, *, vectors: Any = False
    ) -> list[Json]:
        """Points that there are, of these."""
        found: list[Json] = []
        for i in range(0, len(ids), PAGE):
            body = {"ids": list(ids[i : i + PAGE]), "with_payload": payload, "with_vector": vectors}
            found += self._post(part, "points", body)
        return found

    def scroll(
        self,
        part: str,
        condition: Json | None,
        payload: Any = True,
        *,
        most: int = 0,
        page: int = PAGE,
    ) -> Iterator[Json]:
        """All points that match, or so many, in the order of their ids."""
        body: Json = {"with_payload": payload}
        if condition:
            body["filter"] = condition
        seen = 0
        while True:
            body["limit"] = min(page, most - seen) if most else page
            answer = self._post(part, "points/scroll", body)
            yield from answer["points"]
            seen += len(answer["points"])
            if answer["next_page_offset"] is None or (most and seen >= most):
                return
            body["offset"] = answer["next_page_offset"]

    def query(self, part: str, searches: Sequence[Json]) -> list[list[Json]]:
        """The points of each search, best first; in one request."""
        if len(searches) == 1:
            return [self._post(part, "points/query", searches[0])["points"]]
        answers = self._post(part, "points/query/batch", {"searches": list(searches)})
        return [answer["points"] for answer in answers]

    def count(self, part: str, condition: Json | None, *, exact: bool = True) -> int:
        body: Json = {"exact": exact}
        if condition:
            body["filter"] = condition
        return int(self._post(part, "points/count", body)["count"])

    def facet(self, key: str, condition: Json | None) -> dict[str, int]:
        """How many records that match have each value."""
        body: Json = {"key": key, "limit": 1_000_000, "exact": True}
        if condition:
            body["filter"] = condition
        hits = self._post("records", "facet", body)["hits"]
        return {str(hit["value"]): int(hit["count"]) for hit in hits if hit["count"]}
