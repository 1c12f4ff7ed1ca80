"""Snapshots of lookups: written in one form, read in that and in those before it.

    {"clew": 3, "answers": [{"namespace", "keys", "made", "stamp", "answer"}]}     this one
    {"_default": {"1": {"namespace", "query", "backend", "results"}}}              TinyDB tables

In the second, `query` is a key (`v2:…`, or `backend=…|query=…|…`) or, older still, the query as it
was typed. It has no times: its answers count as made when the file was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.cache.answers import check, decoded, encoded
from clew.cache.lookup_keys import DEFAULT_NAMESPACE, build_cache_key
from clew.cache.lookups import KeptAnswer
from clew.errors import InputError
from clew.types import Hit, SearchResult

__all__ = ["read", "write"]

FORM = 3
Row = tuple[str, str, KeptAnswer]
"""Namespace, a form of the key, the answer."""


def write(file: Path, rows: Iterable[Row]) -> int:
    """Replace the file at once, so that nobody reads half of it."""
    answers: dict[tuple[str, int], dict[str, Any]] = {}
    for namespace, name, kept in rows:
        place = namespace, id(kept)
        if place not in answers:
            try:
                check(kept.result)
                answer = encoded(kept.result).decode("utf-8", "surrogatepass")
            except (TypeError, ValueError, RecursionError):
                continue
            told = {"namespace": namespace, "made": kept.made, "stamp": kept.stamp}
            answers[place] = {**told, "keys": [], "answer": answer}
        answers[place]["keys"].append(name)
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    draft.touch(mode=0o600)  # it has the words of what was found
    draft.write_text(json.dumps({"clew": FORM, "answers": list(answers.values())}), "utf-8")
    draft.replace(file)
    return len(answers)


def read(file: Path) -> Iterator[Row]:
    """All answers of a snapshot. An InputError where it is none; single rows that make no sense are
    passed over."""
    try:
        told = json.loads(file.read_text("utf-8"))
        made = file.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: no snapshot of lookups: {error}; delete it") from error
    if not isinstance(told, dict):
        raise InputError(f"{file}: no snapshot of lookups; delete it")
    if "clew" in told:
        return _rows(told.get("answers"))
    tables = [table for table in told.values() if isinstance(table, dict)]
    if told and not tables:
        raise InputError(f"{file}: no snapshot of lookups; delete it")
    return (row for table in tables for each in table.values() for row in _old(each, made))


def _rows(answers: Any) -> Iterator[Row]:
    for each in answers if isinstance(answers, list) else ():
        try:
            result = decoded(each["answer"].encode("utf-8", "surrogatepass"))
            kept = KeptAnswer(result, float(each["made"]), each["stamp"])
            names = [(str(each["namespace"]), str(name)) for name in each["keys"]]
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            continue
        yield from ((namespace, name, kept) for namespace, name in names)


def _old(row: Any, made: float) -> Iterator[Row]:
    if not isinstance(row, Mapping) or not isinstance(row.get("results"), list):
        return
    query, backend = row.get("query"), row.get("backend")
    if not isinstance(query, str) or not isinstance(backend, str):
        return
    name = query.replace("|emb_backends=__none__|", "|emb_backends=|")
    if not name.startswith(("v2:", "v3:", "backend=")):
        name = build_cache_key(query=query, backend=backend).legacy
    hits = tuple(filter(None, (_hit(each, backend) for each in row["results"])))
    namespace = row.get("namespace") or DEFAULT_NAMESPACE
    yield str(namespace), name, KeptAnswer(SearchResult(hits), made)


def _hit(found: Any, backend: str) -> Hit | None:
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
