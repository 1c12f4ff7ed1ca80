"""How far a source may be trusted, by the domain it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from clew.errors import ConfigError

__all__ = ["CREDIBILITY", "UNKNOWN", "check_credibility", "credibility", "domain"]

CREDIBILITY: Mapping[str, float] = {
    "nature.com": 0.95,
    "science.org": 0.95,
    "nih.gov": 0.95,
    "wikipedia.org": 0.9,
    "ieee.org": 0.9,
    "acm.org": 0.9,
    "github.com": 0.85,
    "arxiv.org": 0.85,
    "gov": 0.85,
    "stackoverflow.com": 0.8,
    "edu": 0.8,
    "medium.com": 0.7,
}
"""A domain stands for all below it; of several that fit, the longest counts."""
UNKNOWN = 0.5


def credibility(source: str | None, *, table: Mapping[str, float] = CREDIBILITY) -> float:
    """Of an address or a host name. What is from nowhere in particular is neither good nor bad."""
    labels = domain(source or "").split(".")
    names = (".".join(labels[i:]) for i in range(len(labels)))  # the longest first
    return next((table[name] for name in names if name in table), UNKNOWN)


def domain(source: str) -> str:
    """The host of an address, in lower case; empty where it has none."""
    source = source.strip().replace("\\", "/")  # as browsers read it
    if "://" not in source:
        if "@" in source:  # a letter box
            return ""
        source = f"//{source.removeprefix('//')}"
    try:
        host = urlsplit(source).hostname
    except ValueError:  # such as an open bracket
        return ""
    return (host or "").rstrip(".")


def check_credibility(given: Mapping[str, Any]) -> dict[str, float]:
    """The table with what was given over it. A leading dot says nothing: `.gov` is `gov`."""
    table = dict(CREDIBILITY)
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"credibility is by domain, such as 'example.org', not {name!r}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise ConfigError(
                f"credibility of {name!r}: expected a number from 0 to 1, not {value!r}"
            )
        table[name.lower().strip(".")] = float(value)
    return table
