"""A store behind a server: what `clew.connect` gives has the names of `Engine` and `Memory`, so
that code stays the same when a store moves there. It needs nothing but Python."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote, urlencode, urlsplit

from clew import errors
from clew.errors import ClewError, ConfigError, InputError, StoreError
from clew.filter import Filter
from clew.memory.record import Recalled, Recollection, Remembered, check_namespace
from clew.trust import find_origin, hide_password
from clew.types import Record, SearchResult
from clew.validate import encodable, guarded, is_number

if TYPE_CHECKING:
    from clew.memory.recall import RecallOptions
    from clew.protocols import Progress

URL = "http://127.0.0.1:7373"
PATIENCE = 60.0
"""Seconds to wait for an answer."""
_PASSED_ON = ("importance_boost", "mmr", "rerank", "fusion", "floor", "record_access")
"""Options of `recall` that have the same name on the server."""
LOOK = 0.2
"""Seconds between looks at a run of indexing."""


@guarded
def connect(
    url: str = URL,
    *,
    token: str | None = None,
    store: str | None = None,
    timeout: float = PATIENCE,
) -> Client:
    """Reach the stores that `clew serve` keeps open at `url`.

    `store` is the name of one of them; by default the first folder is searched, and the first
    memory remembers.
    """
    return Client(_Connection(url, token=token, store=store, timeout=timeout))


class _Connection:
    """Requests to one server; each thread has a connection of its own, which stays open."""

    def __init__(self, url: str, *, token: str | None, store: str | None, timeout: float):
        parts, said = urlsplit(url), hide_password(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not find_origin(url):
            raise ConfigError(f"{said!r:.200} is no address of a server: write http://HOST:PORT")
        self.url, self.store = said, store
        self._parts, self._token, self._timeout = parts, token, timeout
        self._open = threading.local()

    def ask(self, method: str, path: str, *, body: Any = None, **parameters: Any) -> dict[str, Any]:
        answer = self._send(method, path, body, parameters)
        with self._reading():
            text = answer.read()
        if answer.status >= 400:
            raise self._error(answer.status, text)
        return self._parse(text)

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise StoreError(f"{self.url} answered nothing of Clew's: is it a server of Clew's?")
        return found

    def stream(
        self, path: str, body: Any, **parameters: Any
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events as they come."""
        answer = self._send("POST", path, body, parameters)
        if answer.status >= 400:
            with self._reading():
                raise self._error(answer.status, answer.read())
        name = ""
        try:
            with self._reading():
                for line in answer:
                    if line.startswith(b"event: "):
                        name = line[7:].decode().strip()
                    elif line.startswith(b"data: "):
                        yield name, self._parse(line[6:])
        finally:
            self.close()  # what was not read to its end cannot be used for another request

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise StoreError(f"{self.url}: the answer broke off ({error}): ask again") from error

    def _send(
        self, method: str, path: str, body: Any, parameters: Mapping[str, Any]
    ) -> http.client.HTTPResponse:
        given = {"store": self.store, **parameters}
        said = {n: v for n, v in given.items() if v is not None and v != ()}
        query = urlencode(said, doseq=True, errors="replace")
        target = f"{self._parts.path.rstrip('/')}{path}{'?' if query else ''}{query}"
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = _dump(body)
        for last in (False, True):
            known = getattr(self._open, "connection", None)
            try:
                if known is None:
                    known = self._open.connection = self._connect()
                known.request(method, target, data, headers)
                answer: http.client.HTTPResponse = known.getresponse()
                return answer
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self.close()  # the server closes what was silent for long: once more, then
                if last:
                    raise self._unreachable(error) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unreachable(error) from error
        raise AssertionError("it has returned or raised")

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert self._parts.hostname is not None
        return kind(self._parts.hostname, self._parts.port, timeout=self._timeout)

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"nobody answers at {self.url} ({error or type(error).__name__}): is `clew serve` "
            "running there?"
        )

    def _error(self, status: int, text: bytes) -> ClewError:
        try:
            said = json.loads(text)
            message, kind = str(said["error"]), str(said["kind"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return StoreError(f"{self.url} answered {status}: is it a server of Clew's?")
        if status in (401, 403, 421):
            return ConfigError(f"{self.url}: {message}")
        known = getattr(errors, kind, None) if kind in errors.__all__ else None
        return known(message) if known is not None else ClewError(message)

    def close(self) -> None:
        """This thread's connection; the next request opens another."""
        if (known := getattr(self._open, "connection", None)) is not None:
            known.close()
            self._open.connection = None


def _dump(data: Any) -> bytes:
    return encodable(json.dumps(data, default=_plain, ensure_ascii=False)).encode()


def _plain(value: Any) -> Any:
    """What JSON has no form for: sets, rows of numbers, moments."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return list(value) if isinstance(value, Iterable) else str(value)


@guarded
class RemoteMemory:
    """A memory behind a server, by the names of `Memory`."""

    def __init__(self, connection: _Connection):
        self._server = connection

    def remember(
        self,
        content: str,
        type: str = "semantic",
        importance: float = 0.5,
        tags: str | Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        embedding: None = None,
        namespace: str = "default",
        **more: Any,
    ) -> Remembered:
        """Keep it; `more` is `id`, `created_at`, `valid_from` and `valid_to`."""
        _refuse_embedding(embedding)
        given = {"type": type, "importance": importance, "tags": _several(tags), **more}
        said = {"content": content, "metadata": metadata, "namespace": namespace, **given}
        return Remembered(**self._server.ask("POST", "/memories", body=_without_none(said)))

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        items, done = list(items), list[Remembered]()
        for item in items:
            done.append(self.remember(**item))
            if progress:
                progress("remembering", len(done), len(items))
        return done

    def recall(
        self,
        query: str,
        embedding: None = None,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        importance_min: float | None = None,
        time_range: tuple[Any, Any] | None = None,
        **options: Unpack[RecallOptions],
    ) -> Recollection:
        """The best `k` for `query`, as `Memory.recall` gives them. The server makes the query's
        vector, and asks for what is true now unless `as_of` says otherwise."""
        _refuse_embedding(embedding)
        given: dict[str, Any] = dict(options)
        since, until = map(_moment, time_range or (None, None))
        asked = {
            "namespace": _spaces(given.pop("namespace", "default")),
            "tag": _several(given.pop("tags", None)),
            "metadata": _as_parameter(given.pop("metadata", None)),
            "as_of": _moment(given.pop("as_of", None)),
            "recency": given.pop("recency_boost", 0.0),
            **{name: given.pop(name, None) for name in _PASSED_ON},
        }
        if given:
            raise InputError(f"a server's memory is not told {', '.join(given)}: leave that out")
        found = self._server.ask(
            "GET",
            "/recall",
            q=query,
            k=k,
            type=_several(type_filter),
            importance_min=importance_min,
            since=since,
            until=until,
            **asked,
        )
        found.pop("message", None)
        return Recollection(map(_recalled, found.pop("results")), **found)

    def latest(
        self,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        *,
        namespace: str | Sequence[str] = "default",
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Recalled]:
        found = self._server.ask(
            "GET",
            "/memories",
            limit=k,
            namespace=_spaces(namespace),
            type=_several(type_filter),
            tag=_several(tags),
            metadata=_as_parameter(metadata),
        )
        return list(map(_recalled, found["memories"]))

    def history(self, id: str, *, namespace: str | None = None) -> list[Recalled]:
        """A memory and those it took the place of, newest first."""
        found = self._server.ask("GET", _memory(id), namespace=namespace)
        return list(map(_recalled, found["memories"]))

    def update(
        self,
        id: str,
        content: str | None = None,
        type: str | None = None,
        importance: float | None = None,
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        embedding: None = None,
        *,
        namespace: str | None = None,
        **times: Any,
    ) -> Remembered:
        """Change it in place; `times` are `valid_from` and `valid_to`."""
        _refuse_embedding(embedding)
        given = {"content": content, "type": type, "importance": importance, "metadata": metadata}
        said = _without_none({**given, "tags": None if tags is None else _several(tags), **times})
        return Remembered(**self._server.ask("PATCH", _memory(id), body=said, namespace=namespace))

    def supersede(
        self, id: str, content: str, *, namespace: str | None = None, **fields: Any
    ) -> Remembered:
        if fields.get("tags") is not None:
            fields["tags"] = _several(fields["tags"])
        said = _without_none({"content": content, **fields})
        made = self._server.ask("POST", _memory(id, "/supersede"), body=said, namespace=namespace)
        made.pop("superseded")
        return Remembered(**made)

    def forget(self, id: str, hard: bool = False, *, namespace: str | None = None) -> bool:
        """Whether there was one to forget."""
        try:
            done = self._server.ask("DELETE", _memory(id), hard=hard, namespace=namespace)
        except InputError as error:
            if "there is no memory" in str(error):
                return False
            raise
        return bool(done["forgotten"])

    def restore(self, id: str | Sequence[str], *, namespace: str | None = None) -> int:
        places = [_memory(each, "/restore") for each in _several(id)]
        done = [self._server.ask("POST", place, namespace=namespace) for place in places]
        return sum(int(each["restored"]) for each in done)

    def feedback(
        self, id: str, useful: bool = True, *, namespace: str | None = None
    ) -> dict[str, Any]:
        return self._server.ask(
            "POST", _memory(id, "/feedback"), body={"useful": useful}, namespace=namespace
        )

    def close(self) -> None:
        self._server.close()


@guarded
class Client(RemoteMemory):
    """What a server keeps open: its folder is searched by the names of `Engine`, its memory has
    those of `Memory`. Thread-safe; a context manager."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        filter: Filter | Mapping[str, Any] | None = None,
        sources: Iterable[str] | None = None,
        **options: Any,
    ) -> SearchResult:
        """The best `limit` hits for `query`, as `Engine.search` gives them; `options` are `mode`,
        `weights`, `explain`, `rerank`, `strict`, `include_personal`, `skills_only`, `cache`,
        `tree`, `group_by` and `max_per_file`."""
        if (named := None if sources is None else _several(sources)) == []:
            raise InputError("no source is named: leave `sources` out to ask all of them")
        asked = {"q": query, "limit": limit, "filter": _fields(filter), "source": named, **options}
        return SearchResult.of(self._server.ask("POST", "/search", body=_without_none(asked)))

    def get(self, id: str) -> Record | None:
        """One record, whole."""
        try:
            found = self._server.ask("GET", f"/records/{quote(id)}")
        except InputError as error:
            if "there is no record" in str(error):
                return None
            raise
        return Record(**{name: found[name] for name in Record.__slots__})

    def status(self) -> dict[str, Any]:
        return self._server.ask("GET", "/status")

    def stores(self) -> list[dict[str, Any]]:
        """Which stores the server keeps open."""
        stores: list[dict[str, Any]] = self._server.ask("GET", "/stores")["stores"]
        return stores

    def index(self, *, embed: bool = True, force: bool = False) -> dict[str, Any]:
        """Bring the store up to date with its folders, and wait for that; what was done."""
        job = self._server.ask("POST", "/index", body={"embed": embed, "force": force})
        while job["state"] == "running":
            time.sleep(LOOK)
            job = self._server.ask("GET", "/index")
        if job["state"] == "failed":
            raise StoreError(job["error"])
        report: dict[str, Any] = job["report"]
        return report

    def ask(self, question: str, **options: Any) -> dict[str, Any]:
        """An answer in which every sentence has its source, as `clew ask --json` prints it."""
        *_, (name, answer) = ("", dict[str, Any]()), *self.stream_answer(question, **options)
        if name != "done":
            raise ClewError(str(answer.get("error", "the answer broke off: ask again")))
        return answer

    def stream_answer(self, question: str, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The same as it is made: ("citation" | "sentence" | "done" | "error", data)."""
        said = {"question": question, "store": self._server.store, **options}
        return self._server.stream("/ask", _without_none(said))


def _memory(id: str, then: str = "") -> str:
    return f"/memories/{quote(id)}{then}"


def _recalled(data: Mapping[str, Any]) -> Recalled:
    return Recalled(**{**data, "tags": tuple(data["tags"])})


def _several(given: str | Iterable[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _spaces(given: str | Sequence[str]) -> list[str]:
    """Namespaces, of which there is at least one: without any, those of all would be meant."""
    named: list[Any] = _several(given) or [given]
    return [check_namespace(each) for each in named]


def _moment(given: Any) -> Any:
    """A time as an address has it, where it is a number."""
    with suppress(OverflowError, ValueError, OSError):  # the server says what is wrong with it
        return dt.datetime.fromtimestamp(given, dt.UTC).isoformat() if is_number(given) else given
    return given


def _as_parameter(metadata: Mapping[str, Any] | None) -> bytes | None:
    return _dump(dict(metadata)) if metadata else None


def _fields(given: Filter | Mapping[str, Any] | None) -> dict[str, Any]:
    """A filter as it was given."""
    if not isinstance(given, Filter):
        return dict(given or {})
    fields = {name: of for name, of in asdict(given).items() if of not in ((), None)}
    bounds = {key: _condition(of) for key, of in given.metadata}
    return {**fields, "metadata": bounds} if bounds else fields


def _condition(of: Any) -> Any:
    if not isinstance(of, tuple):
        return of
    return [each for _, each in of] if of[0][0] == "eq" else dict(of)


def _refuse_embedding(given: object) -> None:
    if given is not None:
        raise InputError("a server makes vectors itself: leave `embedding` out")


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
