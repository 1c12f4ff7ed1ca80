from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import ConfigError
from clew.lookup_settings import check_credibility
from clew.ranking.lookup_score import credibility


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("https://www.nature.com/articles/s41586", 0.95),
        ("https://www.science.org/doi/10.1126", 0.95),
        ("https://pubmed.ncbi.nlm.nih.gov/123/", 0.95),  # more than any .gov
        ("https://en.wikipedia.org/wiki/Keel", 0.9),
        ("https://ieeexplore.ieee.org/document/1", 0.9),
        ("https://dl.acm.org/doi/1", 0.9),
        ("https://github.com/a/b", 0.85),
        ("https://arxiv.org/abs/2510.13217", 0.85),
        ("https://www.usgs.gov/", 0.85),
        ("https://stackoverflow.com/q/1", 0.8),
        ("https://web.mit.edu/x", 0.8),
        ("https://medium.com/@x/y", 0.7),
        ("https://example.org", 0.5),
        ("NATURE.COM", 0.95),
        ("nature.com.", 0.95),
        ("//nature.com/x", 0.95),
        ("https://user:secret@nature.com:8443/x", 0.95),
        (None, 0.5),
        ("", 0.5),
        ("https://[::1", 0.5),
    ],
)
def test_a_source_is_trusted_by_its_domain(source: str | None, expected: float) -> None:
    assert credibility(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "https://nature.com.example.org/",
        "https://notnature.com/",
        "https://example.org/nature.com/",
        "https://github.attacker.test/",
        "https://nature.com@example.org/",
        "https://education/",
        "https://example.org\\@nature.com/",
        "mailto:ada@nature.com",
    ],
)
def test_a_name_that_only_looks_like_one_is_not_trusted(source: str) -> None:
    assert credibility(source) == 0.5


def test_the_table_can_be_changed_line_by_line() -> None:
    table = check_credibility({"example.org": 0.9, ".gov": 0.6, "Nature.com": 0})
    assert credibility("https://sub.example.org", table=table) == 0.9
    assert credibility("https://usgs.gov", table=table) == 0.6
    assert credibility("https://nature.com", table=table) == 0
    assert credibility("https://arxiv.org", table=table) == 0.85


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_a_table_with_what_is_no_share_is_an_error(value: object) -> None:
    with pytest.raises(ConfigError, match=r"example\.org.*0 to 1"):
        check_credibility({"example.org": value})


@given(st.text(max_size=60))
def test_whatever_is_given_is_answered(source: str) -> None:
    assert 0.0 <= credibility(source) <= 1.0
