"""Keys of lookups, spelt out a second time: others have written caches with them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.cache import (
    CacheKey,
    build_cache_key,
    canonicalize_query_text,
    hash_cache_dimensions,
)
from clew.errors import InputError

names = st.lists(st.text(max_size=6), max_size=4)


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  Keel \t bolt\n TORQUE ", "keel bolt torque"),
        ("ÉCLAIR", "éclair"),
        ("a\u3000b\u00a0c", "a b c"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_white_space_is_folded_and_case_is_lost(text: str, canonical: str) -> None:
    assert canonicalize_query_text(text) == canonical


def test_known_answers_with_every_dimension() -> None:
    told = {
        "namespace": "team",
        "embedding_signature": ["vss", "bge"],
        "hybrid_flags": ["semantic", "bm25"],
        "storage_hints": ["kuzu", "duckdb"],
    }
    payload = {
        "flags": ["bm25", "semantic"],
        "namespace": "team",
        "query": "keel bolt",
        "signature": ["bge", "vss"],
        "storage": ["duckdb", "kuzu"],
    }
    fingerprint = digest(payload)
    assert hash_cache_dimensions(query="Keel  Bolt", **told) == fingerprint
    key = build_cache_key(query=" KEEL bolt", backend="web", embedding_state="ready", **told)
    newest = {"backend": "web", "embedding": "ready", "fingerprint": fingerprint, "version": 3}
    assert key.primary == "v3:" + digest(newest)
    assert key.aliases == ("v2:" + digest({"backend": "web", "embedding": "ready", **payload}),)
    assert key.legacy == (
        "backend=web|query=keel bolt|emb_backends=bge,vss|embedding=ready|flags=bm25,semantic"
    )


def test_known_answers_with_nothing_but_a_query() -> None:
    payload = {
        "flags": ["none"],
        "namespace": "__default__",
        "query": "q",
        "signature": [],
        "storage": ["none"],
    }
    key = build_cache_key(query="q", backend="b")
    assert hash_cache_dimensions(query="q") == digest(payload)
    assert key.aliases == ("v2:" + digest({"backend": "b", "embedding": "none", **payload}),)
    assert key.legacy == "backend=b|query=q|emb_backends=|embedding=none|flags=none"


def test_literal_strings_that_must_never_change() -> None:
    assert hash_cache_dimensions(query="q") == "2c708f7c6a1b861a1d3511d4f62b915d"
    key = build_cache_key(query="Naïve  Query", backend="duckdb", hybrid_flags=["hybrid"])
    assert key.primary == "v3:07c57a758801f2eca6eac1f345f661d9"
    assert key.aliases == ("v2:9d5d59a216b614152594993975e2981f",)


def test_the_newest_form_is_tried_first_and_each_once() -> None:
    key = build_cache_key(query="q", backend="b")
    assert key.candidates() == (key.primary, *key.aliases, key.legacy)
    assert CacheKey("v3:a", ("v3:a", "v2:b"), "v2:b").candidates() == ("v3:a", "v2:b")


@given(names, names, names, st.randoms())
def test_the_order_of_what_is_listed_says_nothing(
    signature: list[str], flags: list[str], hints: list[str], random: object
) -> None:
    def key(*lists: list[str]) -> CacheKey:
        dimensions = ("embedding_signature", "hybrid_flags", "storage_hints")
        return build_cache_key(query="q", backend="b", **dict(zip(dimensions, lists, strict=True)))

    shuffled = [list(some) for some in (signature, flags, hints)]
    for some in shuffled:
        random.shuffle(some)  # type: ignore[attr-defined]
    assert key(*shuffled) == key(signature, flags, hints)


@pytest.mark.parametrize(
    "other",
    [
        {"query": "r"},
        {"backend": "c"},
        {"namespace": "n"},
        {"embedding_signature": ["s"]},
        {"embedding_state": "ready"},
        {"hybrid_flags": ["f"]},
        {"storage_hints": ["h"]},
    ],
)
def test_every_dimension_makes_another_key(other: dict[str, Any]) -> None:
    usual = {"query": "q", "backend": "b"}
    assert build_cache_key(**usual).primary != build_cache_key(**{**usual, **other}).primary
    assert build_cache_key(**usual).aliases != build_cache_key(**{**usual, **other}).aliases


def test_a_text_in_the_place_of_a_list_is_an_error() -> None:
    with pytest.raises(InputError, match="put it in a list"):
        build_cache_key(query="q", backend="b", hybrid_flags="hybrid")
    with pytest.raises(InputError, match="a query is text"):
        canonicalize_query_text(None)  # type: ignore[arg-type]
