"""Values that nobody would give on purpose, and calls made of them."""

from __future__ import annotations

import inspect
import io
import math
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import clew
from clew.types import Adjust

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
WORDS = [*TEXTS, '"', "-", ":", "type:a", "tag:t", "path:*", "after:", "before:x", "(", "OR"]
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
    call: Callable[..., Any],
    pick: Callable[[], Any],
    flip: Callable[[], bool],
    given: list[Any] | None = None,
) -> None:
    """Call it with odd values for some of its parameters, which are noted in `given`."""
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty or flip():
            options[name] = pick()
    if given is not None:
        given.append(options)
    call(**options)


def mutate(rng: random.Random, seed: bytes) -> bytes:
    """With some of its bytes changed, doubled, lost or put elsewhere."""
    data = bytearray(seed)
    for _ in range(rng.randint(0, 6)):
        at = rng.randint(0, len(data))
        to = min(len(data), at + rng.randint(0, 12))
        pieces = (
            bytes(data[at:to]) * 20,
            b"",
            b"[" * 300,
            b"{" * 300,
            b"\0",
            b"\xff\xfe",
            b"---\n",
        )
        data[at:to] = rng.choice(pieces) if rng.random() < 0.5 else rng.randbytes(rng.randint(0, 6))
    return bytes(data)


def damaged(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(mutate, st.randoms(use_true_random=False), st.sampled_from(seeds))


ALONE: dict[str, Callable[..., Any]] = {
    "open": clew.open,
    "Filter": clew.Filter,
    "Filter.of": clew.Filter.of,
    "Record": clew.Record,
    "Adjust": Adjust,
    "Memory": clew.Memory,
    "Search": clew.Search,
    "rrf": clew.rrf,
    "weighted_rrf": clew.weighted_rrf,
    "fts_escape": clew.fts_escape,
    "agentic_search": clew.agentic_search,
    "run_search": clew.run_search,
    "NullEmbeddingProvider": clew.NullEmbeddingProvider,
}

# ---------------------------------------------------------------------- files

TABLE = b'a,b,date\n1,"x ""y""",2024-01-01\n2,z,\n'
MARKDOWN = b"---\ntitle: A\ntags: [x, y]\na: {b: [1, 2]}\n---\n# H\n\ntext [[l]] #t `c`\n"
HTML = b"<html><title>T</title><body><h1>A</h1><p>b &amp; c<script>x</script></body></html>"
CODE = b"def f(x):\n    '''doc'''\n    return {x: [1, 2]}\n\nclass A: pass\n"


def _zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        file.writestr("word/document.xml", "<document><body><p><t>a</t></p></body></document>")
        file.writestr("xl/workbook.xml", "<workbook><sheets/></workbook>")
    return made.getvalue()


SEEDS = [
    TABLE,
    MARKDOWN,
    HTML,
    CODE,
    b"",
    b'{"a": 1}\n{"a": [2]}\n',
    b"%PDF-1.4\n1 0 obj\n",
    _zipped(),
]

TOML = b"""model = "none"
limit = 5
[weights]
keyword = 2.0
[sources.tags]
enabled = false
weight = 0.5
[collections]
a = ["b/*"]
[domains]
personal = ["x"]
[lookup]
limit = 3
"""
