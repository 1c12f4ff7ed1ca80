"""Keys of lookups: a digest of all that decides the answer, and the two forms it had before.

    v3:DIGEST   of backend, embedding state and the fingerprint of everything else
    v2:DIGEST   of the same values side by side
    backend=…|query=…|emb_backends=…|embedding=…|flags=…   knows neither namespace nor storage

Others have written caches with these keys, so every character counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clew.cache.keys import digest
from clew.errors import InputError

__all__ = ["CacheKey", "build_cache_key", "canonicalize_query_text", "hash_cache_dimensions"]

VERSION = 3
DEFAULT_NAMESPACE = "__default__"
NONE = "none"


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
    """White space folded, lower case: queries that differ in nothing else are the same lookup."""
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
    return _digest(_dimensions(query, namespace, embedding_signature, hybrid_flags, storage_hints))


def build_cache_key(
    *,
    query: str,
    backend: str,
    namespace: str | None = None,
    embedding_signature: Iterable[str] = (),
    embedding_state: str = NONE,
    hybrid_flags: Iterable[str] = (),
    storage_hints: Iterable[str] = (),
) -> CacheKey:
    """The key of one lookup. `embedding_signature` names what makes vectors, `hybrid_flags` what is
    switched on, `storage_hints` the state of what is searched; their order says nothing."""
    told = _dimensions(query, namespace, embedding_signature, hybrid_flags, storage_hints)
    state = embedding_state or NONE
    newest = {
        "backend": backend,
        "embedding": state,
        "fingerprint": _digest(told),
        "version": VERSION,
    }
    legacy = (
        f"backend={backend}|query={told['query']}|emb_backends={','.join(told['signature'])}"
        f"|embedding={state}|flags={','.join(told['flags'])}"
    )
    before = _digest({"backend": backend, "embedding": state, **told})
    return CacheKey(f"v{VERSION}:{_digest(newest)}", (f"v2:{before}",), legacy)


def _dimensions(
    query: str,
    namespace: str | None,
    signature: Iterable[str],
    flags: Iterable[str],
    storage: Iterable[str],
) -> dict[str, Any]:
    return {
        "flags": _names(flags) or [NONE],
        "namespace": namespace or DEFAULT_NAMESPACE,
        "query": canonicalize_query_text(query),
        "signature": _names(signature),
        "storage": _names(storage) or [NONE],
    }


def _names(given: Iterable[str]) -> list[str]:
    if isinstance(given, str):  # it would come apart into letters
        raise InputError(f"expected several texts, not {given!r:.60}: put it in a list")
    names = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"expected a list of texts, not {given!r:.60}")
    return sorted(names)


def _digest(value: dict[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return digest(text.encode("ascii")).hex()
