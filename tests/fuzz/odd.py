"""Values that nobody would give on purpose, and calls made of them."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import clew

FUZZ = int(os.environ.get("CLEW_FUZZ", "0"))
"""How many calls, or inputs, each test makes; a few by default."""


def examples(few: int) -> int:
    return max(few, FUZZ)


TEXTS = [
    *(
        "",
        " ",
        "a",
        "harbour",
        "\0",
        "a\0b",
        "\ud800",
        "x\udcff",
        "\u202e",
        "é" * 3,
        "﷽",
        "a" * 5000,
    ),
    *(
        "*",
        '"',
        '"a',
        "-a",
        "type:",
        "path:**",
        "after:2020",
        "a:b",
        "::",
        "../x",
        ".",
        "~",
        "[[",
        "{}",
    ),
    *(
        "1e999",
        "NaN",
        "-1",
        "0",
        "none",
        "default",
        "2024-01-01",
        "hybrid",
        "http://",
        "duckdb:///",
        "://",
    ),
]
NUMBERS = [
    *(0, 1, -1, 2, 7, 10**6, 2**31, 2**63, -(2**63), 10**310, True, False),
    *(0.0, -0.0, 0.5, 1e308, -1e308, math.inf, -math.inf, math.nan, 5e-324, 1j),
]
OTHERS: list[Any] = [
    *(None, b"", b"\xff", [], {}, (), set(), frozenset({"a"}), object(), int, len, print, Ellipsis),
    *([1], ["a"], ["a", None], [["a"]], [[1.0]], [[]], [b"a"], ["\ud800"], ["a", "a"]),
    *({"a": 1}, {1: 2}, {"id": "x"}, {"id": "x", "content": "y"}, [{"content": "z"}], {"\0": "\0"}),
    *({"content": 5}, [{"content": None}], [("a", 1)], {"a": {"b": {"c": math.nan}}}, {"tags": 3}),
    *(range(3), np.zeros(3), np.array([]), np.array(["a"]), np.full(64, np.nan), np.zeros((2, 64))),
    *(np.float32(1), np.int64(3), np.array(5), bytearray(b"a"), memoryview(b"a"), NotImplemented),
    *(ValueError("x"), clew.Filter(), clew.Record("a", "b"), lambda *a, **k: None),
]
POOL = [*TEXTS, *NUMBERS, *OTHERS]
VALUES = st.one_of(
    st.sampled_from(POOL),
    st.sampled_from(POOL),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.binary(max_size=8),
    st.lists(st.sampled_from(POOL), max_size=3),
    st.dictionaries(st.sampled_from(TEXTS), st.sampled_from(POOL), max_size=3),
)


def attempt(
    call: Callable[..., Any], data: st.DataObject, skip: frozenset[str] = frozenset()
) -> str:
    """Call it with odd values for some of its parameters. Anything but a ClewError goes through."""
    args: list[Any] = []
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name in skip or name == "self" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.default is not parameter.empty and not data.draw(st.booleans()):
            if (
                parameter.kind is not parameter.KEYWORD_ONLY
                and parameter.default is not parameter.empty
            ):
                options[name] = parameter.default
            continue
        options[name] = data.draw(VALUES)
    try:
        call(*args, **options)
    except clew.ClewError as error:
        assert str(error).strip()
        return "refused"
    return "done"


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """One of these with some of its bytes changed, doubled, lost or put elsewhere."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 12)))
        piece = draw(
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from(
                    [
                        bytes(data[at:to]) * 20,
                        b"",
                        b"[" * 300,
                        b"{" * 300,
                        b"\0",
                        b"\xff\xfe",
                        b"---\n",
                    ]
                ),
            )
        )
        data[at:to] = piece
    return bytes(data)
