"""LookupCache: answers to lookups, in memory and in snapshots, under every form of their key.

The older forms say less: the oldest knows neither the namespace nor the state of what was searched.
So namespaces are kept apart here, and each answer has the newest form of the key it was made for:
under an older form it answers only the very same lookup. An answer from an old snapshot has none;
whether that will do is for the caller to say.

Snapshots are written in one form, and read in that and in those before it:

    {"clew": 3, "answers": [{"namespace", "keys", "made", "stamp", "answer"}]}     this one
    {"_default": {"1": {"namespace", "query", "backend", "results"}}}              TinyDB tables

In the second, `query` is a key (`v2:…`, or `backend=…|query=…|…`) or, older still, the query as it
was typed. It has no times: its answers count as made when the file was written.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clew.cache.answers import AnswerTable, KeptAnswer, check, copied, decoded, encoded
from clew.cache.keys import DEFAULT_NAMESPACE, CacheKey, build_cache_key
from clew.errors import InputError
from clew.types import Hit, SearchResult

FORM = 3
CacheSlot = Literal["primary", "alias", "legacy"]


class CachedLookup(NamedTuple):
    """An answer, and the form of the key that had it."""

    result: SearchResult
    slot: CacheSlot


class LookupCache:
    """Thread-safe; bounded in number and in age."""

    def __init__(
        self,
        *,
        entries: int = 1000,
        seconds: float = 86_400.0,
        clock: Callable[[], float] = time.time,
    ):
        self._seconds, self._clock = seconds, clock
        self._table: AnswerTable[tuple[str, str]] = AnswerTable(entries=max(0, entries))
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many answers there are, under however many names."""
        with self._lock:
            return len(self._table)

    def get(
        self, key: CacheKey, *, namespace: str | None = None, stamped: bool = False
    ) -> CachedLookup | None:
        """The answer to this lookup and the form of the key that had it. One found under an older
        form is kept under all of them from now on. With `stamped`, not what an old snapshot has."""
        with self._lock:
            for form in key.candidates():
                name = _name(namespace, form)
                kept = self._table.get(name)
                if kept is None:
                    continue
                if not self._is_alive(kept):
                    self._table.drop(name)
                    continue
                if kept.key is None:
                    if stamped:
                        continue
                    kept = kept._replace(key=key.primary)
                elif kept.key != key.primary:
                    continue
                self._put(key, namespace, kept)
                slot: CacheSlot = "alias" if form in key.aliases else "legacy"
                if form == key.primary:
                    slot = "primary"
                return CachedLookup(copied(kept.result), slot)
        return None

    def put(self, key: CacheKey, result: SearchResult, *, namespace: str | None = None) -> None:
        """Keep an answer under every form of its key; not one whose values could not be copied."""
        try:
            check(result)
        except TypeError:
            return
        with self._lock:
            self._put(key, namespace, KeptAnswer(key.primary, copied(result), self._clock()))

    def clear(self, *, namespace: str | None = None) -> None:
        """Forget the answers of a namespace, or all."""
        with self._lock:
            for name, _ in self._table.items():
                if namespace in (None, name[0]):
                    self._table.drop(name)

    def save(self, file: str | Path) -> int:
        """Write a snapshot; how many answers it has. What has no form in JSON is left out."""
        with self._lock:
            alive = [(name, kept) for name, kept in self._table.items() if self._is_alive(kept)]
        return _write_snapshot(Path(file), alive)

    def load(self, file: str | Path) -> int:
        """Take in a snapshot of this or an older form; how many answers came of it. What is here
        already stays: it is newer."""
        taken: set[int] = set()
        with self._lock:
            for name, kept in _read_snapshot(Path(file)):
                if name not in self._table and self._is_alive(kept):
                    self._table.put((name,), kept)
                    taken.add(id(kept))
        return len(taken)

    def _put(self, key: CacheKey, namespace: str | None, kept: KeptAnswer) -> None:
        self._table.put([_name(namespace, form) for form in key.candidates()], kept)

    def _is_alive(self, kept: KeptAnswer) -> bool:
        return 0 <= self._clock() - kept.made < self._seconds


def _name(namespace: object, form: str) -> tuple[str, str]:
    return str(namespace or DEFAULT_NAMESPACE), form


# ---------------------------------------------------------------------- snapshots

_Row = tuple[tuple[str, str], KeptAnswer]


def _write_snapshot(file: Path, rows: Iterable[_Row]) -> int:
    """Replace the file at once, so that nobody reads half of it."""
    answers: dict[tuple[str, int], dict[str, Any]] = {}
    for (namespace, form), kept in rows:
        place = namespace, id(kept)
        if place not in answers:
            try:
                check(kept.result)
                answer = encoded(kept.result).decode("utf-8", "surrogatepass")
            except (TypeError, ValueError, RecursionError):
                continue
            told = {"namespace": namespace, "made": kept.made, "stamp": kept.key}
            answers[place] = {**told, "keys": [], "answer": answer}
        answers[place]["keys"].append(form)
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    draft.touch(mode=0o600)  # it has the words of what was found
    draft.write_text(json.dumps({"clew": FORM, "answers": list(answers.values())}), "utf-8")
    draft.replace(file)
    return len(answers)


def _read_snapshot(file: Path) -> Iterator[_Row]:
    """All answers of a snapshot. An InputError where it is none; single rows that make no sense are
    passed over."""
    try:
        told = json.loads(file.read_text("utf-8"))
        made = file.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: no snapshot of lookups: {error}; delete it") from error
    tables = [t for t in told.values() if isinstance(t, dict)] if isinstance(told, dict) else []
    if isinstance(told, dict) and "clew" in told:
        return _rows(told.get("answers"))
    if told != {} and not tables:
        raise InputError(f"{file}: no snapshot of lookups; delete it")
    return (row for table in tables for each in table.values() for row in _old_rows(each, made))


def _rows(answers: Any) -> Iterator[_Row]:
    for each in answers if isinstance(answers, list) else ():
        try:
            result = decoded(each["answer"].encode("utf-8", "surrogatepass"))
            kept = KeptAnswer(each["stamp"], result, float(each["made"]))
            names = [_name(each["namespace"], str(form)) for form in each["keys"]]
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            continue
        yield from ((name, kept) for name in names)


def _old_rows(row: Any, made: float) -> Iterator[_Row]:
    if not isinstance(row, Mapping) or not isinstance(row.get("results"), list):
        return
    query, backend = row.get("query"), row.get("backend")
    if not isinstance(query, str) or not isinstance(backend, str):
        return
    form = query.replace("|emb_backends=__none__|", "|emb_backends=|")
    if not form.startswith(("v2:", "v3:", "backend=")):
        form = build_cache_key(query=query, backend=backend).legacy
    hits = tuple(filter(None, (_old_hit(each, backend) for each in row["results"])))
    yield _name(row.get("namespace"), form), KeptAnswer(None, SearchResult(hits), made)


def _old_hit(found: Any, backend: str) -> Hit | None:
    if not isinstance(found, Mapping):
        return None
    address, words = found.get("url"), found.get("content") or found.get("snippet") or ""
    name = found.get("id") or address
    if not isinstance(name, str) or not isinstance(words, str):
        return None
    score = found.get("relevance_score", found.get("score", 0.0))
    return Hit(
        id=name,
        content=words,
        score=float(score) if isinstance(score, (int, float)) else 0.0,
        source=backend,
        title=str(found.get("title") or ""),
        path=address if isinstance(address, str) else None,
        metadata={key: value for key, value in found.items() if isinstance(key, str)},
    )
