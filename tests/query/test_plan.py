from __future__ import annotations

from typing import Any

import pytest

from clew.errors import InputError
from clew.query.plan import plan


def keyword(query: Any, context: Any) -> list[Any]:
    return []


def vectors(query: Any, context: Any) -> list[Any]:
    return []


def tags(query: Any, context: Any) -> list[Any]:
    return []


REGISTERED = {"keyword": keyword, "vectors": vectors, "tags": tags}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("hybrid", ["keyword", "vectors", "tags"]),
        ("keyword", ["keyword"]),
        ("vector", ["vectors"]),
    ],
)
def test_a_mode_decides_the_sources(mode: Any, expected: list[str]) -> None:
    assert plan(REGISTERED, mode=mode, sources=None) == {n: REGISTERED[n] for n in expected}


def test_named_sources_are_asked_in_the_given_order() -> None:
    assert list(plan(REGISTERED, mode="hybrid", sources=["tags", "keyword"])) == ["tags", "keyword"]
    assert list(plan(REGISTERED, mode="hybrid", sources="tags")) == ["tags"]


def test_an_unknown_mode_or_source_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown mode 'keywords': did you mean 'keyword'"):
        plan(REGISTERED, mode="keywords", sources=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown source 'tag': did you mean 'tags'"):
        plan(REGISTERED, mode="hybrid", sources=["tag"])


def test_the_registered_sources_are_untouched() -> None:
    chosen = plan(REGISTERED, mode="hybrid", sources=None)
    chosen.clear()
    assert list(REGISTERED) == ["keyword", "vectors", "tags"]
