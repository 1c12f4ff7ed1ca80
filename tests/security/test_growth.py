"""Time grows with an input's size and not with its square, whatever it is made of: growth.py has
the inputs, and measures."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator

import pytest
from growth import Crafted, inputs, measure

NOTICED = 1.5
"""Half way to a square. Clew keeps to MOST, which growth.py measures on a quiet machine: where
others take the processor's caches in turns, a linear reader has come to 1.31 in eight tries."""
PARSERS = defaultdict[str, list[Crafted]](list)
for each in inputs():
    PARSERS[each.parser].append(each)


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    """The collector goes through all that a process holds, whatever is read."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("parser", PARSERS)
def test_reading_takes_time_by_size(parser: str) -> None:
    measured = {each.piece: measure(each, most=NOTICED) for each in PARSERS[parser]}
    assert {piece: n for piece, n in measured.items() if n > NOTICED} == {}


def test_every_parser_is_measured_with_some_hundred_inputs() -> None:
    from clew.ingest.readers import kind_of, known_suffixes

    assert sum(map(len, PARSERS.values())) >= 300
    kinds = {kind_of(parser) for parser in PARSERS if parser in known_suffixes()}
    assert kinds == {kind_of(suffix) for suffix in known_suffixes()}


def test_a_square_is_noticed() -> None:
    def run(size: int) -> None:
        text = "a" * size
        for _ in range(size // 40):
            text.count("ab")

    assert measure(Crafted("own", "a", run), most=3) > NOTICED  # of one try
