"""Cache keys: a digest of everything that decides an answer.

The key of a search is `GENERATION.DIGEST`: the generation stands in front so that a cache can tell
what is dead. Two searches share an exact key only where they cannot have different answers. A group
is the same without the words: the semantic cache looks only inside one.

The key of a lookup has three forms. Others have written caches with them, so every character
counts:

    v3:DIGEST   of backend, embedding state and the fingerprint of everything else
    v2:DIGEST   of the same values side by side
    backend=…|query=…|emb_backends=…|embedding=…|flags=…   knows neither namespace nor storage
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

from clew.errors import InputError
from clew.filter import Filter
from clew.text.parse import LONGEST_QUERY
from clew.types import Query, Vector

try:
    from _blake2 import blake2b  # hashlib's own: with hashlib comes OpenSSL, slow to load
except ImportError:  # pragma: no cover - another Python
    from hashlib import blake2b

DEFAULT_NAMESPACE = "__default__"
_NONE = "none"
_VERSION = 3
_ATOMS = (str, int, float, bool, NoneType)
_SPACE = re.compile(r"\s+")


# ---------------------------------------------------------------------- searches


class SearchKeys(NamedTuple):
    """The key of one search, and that of all searches which differ in their words only."""

    exact: str
    group: str


def canonical_query(text: str, *, syntax: bool = True) -> str:
    """The query with white space folded where it says nothing, and nothing else changed.

    Case stays: it decides how `getUserName` falls into words, what `path:` matches and what some
    models read. So does white space in quotes: `tag:"case  study"` is another tag. Without
    `syntax` the text goes to the model as it is.
    """
    given = text.replace("\0", " ")[:LONGEST_QUERY]  # what parse() looks at
    if not syntax:
        return given.strip()
    parts = given.split('"')
    for i, part in enumerate(parts):
        quoted = i % 2 and i < len(parts) - 1  # the last quote may have no partner
        if not quoted:
            parts[i] = _SPACE.sub(" ", part)
    return '"'.join(parts).strip()


def search_parameters(
    query: Query, *, generation: int | Sequence[int], **others: Any
) -> dict[str, Any]:
    """What decides the answer to `query` beside its words.

    What the query syntax asked for is in here as well: `tag:risk keel` and `keel` have the same
    vector and must never be taken for each other. `others` is all that a Query does not say:
    sources, weights, strict, rerank, visibility, settings, model, freshness, syntax, explain…
    A generation may be a number and a token of it, for stores that can be brought back from a
    backup and then reach the same number again.
    """
    return {
        **others,
        # In metadata 1 and True are one to a dictionary, and two to a key.
        "filter": query.filter if query.filter.metadata else _fingerprint_filter(query.filter),
        "phrases": query.terms.phrases,
        "excluded": query.terms.excluded,
        "mode": query.mode,
        "limit": query.limit,
        "depth": query.depth,
        "passages": query.passages,
        "generation": generation,
    }


@lru_cache(maxsize=64)
def _fingerprint_filter(wanted: Filter) -> str | None:
    """Most searches have the same few filters."""
    return fingerprint(wanted) if wanted else None


def search_keys(
    canonical: str, parameters: Mapping[str, Any], *, vector: Vector | Sequence[float] | None = None
) -> SearchKeys:
    """Both keys. `vector` is the query's where the caller gave it: then it decides as well. Such
    searches have groups of their own, since nobody knows whether their vectors mean their words."""
    given = None
    if vector is not None:
        import numpy as np

        given = digest(np.ascontiguousarray(vector, dtype="<f4").tobytes()).hex()
        parameters = {**parameters, "\0vector": "given"}
    group = group_key(parameters)
    return SearchKeys(f"{generation_of(group)}.{_digest_of([group, canonical, given])}", group)


def group_key(parameters: Mapping[str, Any]) -> str:
    """The key of all searches with these parameters, whatever their words."""
    from clew import __version__  # another version may rank differently

    generation = parameters.get("generation")
    number = generation[0] if isinstance(generation, (list, tuple)) and generation else generation
    if not isinstance(number, int) or isinstance(number, bool):
        raise InputError("a cache key needs the store's generation: answers go stale without it")
    return f"{number}.{_digest_of([__version__, _plain(parameters)])}"


def generation_of(key: str) -> int:
    """The generation of a key or a group."""
    return int(key.partition(".")[0])


# ---------------------------------------------------------------------- lookups


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One lookup's key in every form, the newest first."""

    primary: str
    aliases: tuple[str, ...] = ()
    legacy: str = ""

    def candidates(self) -> tuple[str, ...]:
        """All forms, in the order in which they are tried."""
        names = (self.primary, *self.aliases, self.legacy)
        return tuple(dict.fromkeys(name for name in names if name))


def canonicalize_query_text(text: str) -> str:
    """Fold white space and case: queries that differ in nothing else are the same lookup."""
    if not isinstance(text, str):
        raise InputError(f"a query is text, not {type(text).__name__}")
    return " ".join(text.split()).lower()


def hash_cache_dimensions(
    *,
    query: str,
    namespace: str | None = None,
    embedding_signature: Iterable[str] = (),
    hybrid_flags: Iterable[str] = (),
    storage_hints: Iterable[str] = (),
) -> str:
    """The fingerprint of what decides an answer, whichever backend gives it."""
    told = _dimensions(query, namespace, embedding_signature, hybrid_flags, storage_hints)
    return _digest_of(told)


def build_cache_key(
    *,
    query: str,
    backend: str,
    namespace: str | None = None,
    embedding_signature: Iterable[str] = (),
    embedding_state: str = _NONE,
    hybrid_flags: Iterable[str] = (),
    storage_hints: Iterable[str] = (),
) -> CacheKey:
    """The key of one lookup. `embedding_signature` names what makes vectors, `hybrid_flags` what is
    switched on, `storage_hints` the state of what is searched; their order says nothing."""
    told = _dimensions(query, namespace, embedding_signature, hybrid_flags, storage_hints)
    of = {"backend": backend, "embedding": embedding_state or _NONE}
    newest = {**of, "fingerprint": _digest_of(told), "version": _VERSION}
    legacy = (
        f"backend={backend}|query={told['query']}|emb_backends={','.join(told['signature'])}"
        f"|embedding={of['embedding']}|flags={','.join(told['flags'])}"
    )
    before = _digest_of({**of, **told})
    return CacheKey(f"v{_VERSION}:{_digest_of(newest)}", (f"v2:{before}",), legacy)


def _dimensions(
    query: str,
    namespace: str | None,
    signature: Iterable[str],
    flags: Iterable[str],
    storage: Iterable[str],
) -> dict[str, Any]:
    return {
        "flags": _names(flags) or [_NONE],
        "namespace": namespace or DEFAULT_NAMESPACE,
        "query": canonicalize_query_text(query),
        "signature": _names(signature),
        "storage": _names(storage) or [_NONE],
    }


def _names(given: Iterable[str]) -> list[str]:
    if isinstance(given, str):  # it would come apart into letters
        raise InputError(f"expected several texts, not {given!r:.60}: put it in a list")
    names = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"expected a list of texts, not {given!r:.60}")
    return sorted(names)


# ---------------------------------------------------------------------- digests


def fingerprint(value: Any) -> str:
    """A short name for plain values or a dataclass, such as the settings: made once, used often."""
    return _digest_of(_plain(value))


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _digest_of(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return digest(text.encode("ascii")).hex()


def _plain(value: Any) -> Any:
    """Return it as JSON has it, with no two different values alike."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, (list, tuple)):
        return [each if type(each) in _ATOMS else _plain(each) for each in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("parameters of a search have names that are text")
        return {k: each if type(each) in _ATOMS else _plain(each) for k, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(each) for each in value), key=json.dumps)
    if is_dataclass(value):
        kept = {f.name: getattr(value, f.name) for f in fields(value)}
        return {f"\0{type(value).__name__}": _plain(kept)}
    if isinstance(value, (dt.date, dt.time)):  # clew.toml may have them
        return {f"\0{type(value).__name__}": value.isoformat()}
    raise TypeError(f"a parameter of a search cannot be {type(value).__name__}: use plain values")
