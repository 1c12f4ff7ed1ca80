"""Time grows with a file's size and not with its square, whatever it is made of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from clew.errors import ClewError
from clew.filter import on_path
from clew.ingest.chunk import chunk
from clew.ingest.readers import read

SIZE = 4_000
MOST = 12.0
"""Four times the size may take so many times the processor's time; sixteen would be its square."""
UNNOTICED = 0.25
"""Seconds that nobody need explain."""

PIECES = (
    *("[", "![[", "](", "[[a|", "`", "```\n", "<!--", "{{<", "{% comment %}", "\n%%", " ^a", "#a "),
    *("a\n-\n", "> ", "- ", "<a ", "<p>", "<h1>", "<template>", "</head>", "<!", "<?", "&#"),
    *("<![CDATA[", '"', ",", "1", "a:", "a: b\n", "\n ", "a\n=\n", ".. a\n", ":doc:`", "`a <"),
    *("// copyright\n", "copyright:", "def a(\n", '{"a":1}\n', "[1,", "http://", '"a\n', "date,"),
)
KINDS = (".md", ".html", ".rst", ".py", ".csv", ".jsonl")


def seconds(call: Callable[[], object]) -> float:
    spent = []
    for _ in range(2):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent)


def grows(call: Callable[[int], object]) -> bool:
    """Whether the time grows much faster than the size."""
    large = seconds(lambda: call(4 * SIZE))
    return large > UNNOTICED and large > MOST * seconds(lambda: call(SIZE))


def read_file(text: str, kind: str) -> None:
    with contextlib.suppress(ClewError):  # said at once is well said
        chunk(read(text.encode(), f"a{kind}"))


@pytest.mark.parametrize("kind", KINDS)
def test_reading_takes_time_by_size(kind: str) -> None:
    slow = [
        piece
        for piece in PIECES
        if grows(lambda size, piece=piece: read_file(piece * (size // len(piece)), kind))  # type: ignore[misc]
    ]
    assert slow == []


@pytest.mark.parametrize("piece", ["[", "{a: ", "- ", "a: &a [*a]\n", "a:\n ", "<<: ", "a.a."])
@pytest.mark.parametrize("fence", ["---", "+++"])
def test_front_matter_takes_time_by_size(piece: str, fence: str) -> None:
    def text(size: int) -> str:
        return f"{fence}\na: {piece * (size // len(piece))}\n{fence}\nwords\n"

    assert not grows(lambda size: read_file(text(size), ".md"))


def test_figures_in_a_header_take_time_by_size() -> None:
    assert not grows(lambda size: read_file(f"{'1' * size}x,b\n1,2\n", ".csv"))


@pytest.mark.parametrize("piece", ["*a", "**a", "**/", "?*", "a**/*", "[", "[a]*"])
def test_matching_takes_time_by_size(piece: str) -> None:
    for path in ("a", "a/", "ab/"):
        assert not grows(lambda size, path=path: on_path(f"{piece * 9}!", path * size))  # type: ignore[misc]
