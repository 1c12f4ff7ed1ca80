"""What a lookup may be told: arguments of `Search`, over the table `[lookup]` of clew.toml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from clew.errors import ConfigError, check_known
from clew.validate import is_number, is_whole

COMPONENTS = ("bm25", "semantic", "credibility")
RANKINGS = ("hybrid", *COMPONENTS)
WEIGHTS: Mapping[str, float] = {"bm25": 0.3, "semantic": 0.5, "credibility": 0.2}
TOLERANCE = 0.001
"""By which the sum of the weights may miss 1."""
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


def check_shares(given: Mapping[str, Any]) -> dict[str, float]:
    """Weights of the components, none left out. They sum to 1, or are all 0: then each component
    that takes part counts the same."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"weights are a table such as {dict(WEIGHTS)}, not {given!r:.100}")
    for name, value in given.items():
        check_known("weights: no component", COMPONENTS, name, kind=ConfigError)
        if not is_number(value, 0):
            raise ConfigError(f"the weight of {name} must be a number of at least 0, not {value!r}")
    shares = {name: float(given.get(name, 0.0)) for name in COMPONENTS}
    total = math.fsum(shares.values())
    if total and round(abs(total - 1), 9) > TOLERANCE:
        raise ConfigError(f"the weights sum to {total:g}: let them sum to 1")
    return shares


def check_credibility(given: Mapping[str, Any]) -> dict[str, float]:
    """The table with what was given over it. A leading dot says nothing: `.gov` is `gov`."""
    table = dict(CREDIBILITY)
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"credibility is by domain, such as 'example.org', not {name!r}")
        if not is_number(value, 0, 1):
            raise ConfigError(
                f"credibility of {name!r}: expected a number from 0 to 1, not {value!r}"
            )
        table[name.lower().strip(".")] = float(value)
    return table


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")


def _check(name: str, value: Any, *, usual: Any, least: float, most: float) -> Any:
    """A value of the kind that is usual there, or an error that says what is expected."""
    if name == "weights":
        return check_shares(value)
    if name == "credibility":
        if not isinstance(value, Mapping):
            raise ConfigError('lookup: credibility is a table such as { "example.org" = 0.9 }')
        return check_credibility(value)
    if name == "ranking":
        check_known("lookup: ranking =", RANKINGS, value, kind=ConfigError)
        return str(value)
    if value is None and (usual is None or isinstance(usual, str)):
        return usual
    if isinstance(usual, bool):
        fits, expected = isinstance(value, bool), "true or false"
    elif isinstance(usual, (int, float)):
        whole = isinstance(usual, int)
        fits = (is_whole if whole else is_number)(value, least, most)
        expected = f"{'a whole number' if whole else 'a number'} of at least {least:g}"
        expected += f" and at most {most:g}" if most < math.inf else ""
    elif isinstance(usual, str):
        fits, expected = _is_text(value), "text"
    else:
        usual, value = (), [value] if _is_text(value) else value
        several = isinstance(value, (list, tuple))
        fits = several and all(_is_text(each) and str(each).strip() for each in value)
        expected = "names or paths"
    if not fits:
        raise ConfigError(f"lookup: {name} = {value!r:.100}: expected {expected}")
    return tuple(map(str, value)) if usual == () else type(usual)(value)


def _setting(usual: Any, least: float = 0, most: float = math.inf) -> Any:
    limits = {"usual": usual, "least": least, "most": most}
    return field(default_factory=lambda: usual, metadata=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSettings:
    """Every setting with its default."""

    backends: tuple[str, ...] | None = _setting(None)
    """Which are asked, by name; None: all that have something to look at."""
    folders: tuple[str, ...] = _setting(())
    """Of local_files."""
    repositories: tuple[str, ...] = _setting(())
    """Of local_git."""
    web: str = _setting("")
    """Address of a SearXNG instance; empty: the web is not asked."""
    ranking: str = _setting("hybrid")
    """hybrid, or one component alone."""
    weights: Mapping[str, float] = _setting(WEIGHTS)
    credibility: Mapping[str, float] = _setting(CREDIBILITY)
    """By domain; what is given comes over the table above."""
    deadline: float = _setting(5.0, 0.01)
    """Seconds all backends have together."""
    depth: int = _setting(50, 1, 10_000)
    """Candidates each backend gives."""
    embed: int = _setting(32)
    """Passages without a vector that one lookup embeds, to compare their meaning; 0: none."""
    namespace: str = _setting("")
    """Caches of different namespaces never meet."""
    keep: bool = _setting(True)
    """Whether what is read of folders and repositories is kept in the user's cache folder."""
    cache: bool = _setting(True)
    cache_seconds: float = _setting(86_400.0)
    cache_entries: int = _setting(1000)
    cache_file: str = _setting("")
    """A snapshot that is read at the start and written at the end; empty: memory only."""
    max_file_mb: float = _setting(10.0, 0.001)
    """Larger files, and larger blobs of a repository, are passed over."""
    commits: int = _setting(1000, 1)
    """Of a repository's history, the newest so many are looked at."""
    adaptive_k: bool = _setting(False)
    """Begin with few candidates, and ask for more while words of the query are in none of them."""
    rewrite: bool = _setting(False)
    """Ask in other words where too little was found."""
    coverage_gap: float = _setting(0.3, 0, 1)
    """The share of the query's words that may be missing from all that was found."""
    min_results: int = _setting(3)
    """Fewer are too few."""

    @classmethod
    def of(cls, *layers: Mapping[str, Any]) -> LookupSettings:
        """Checked; a later layer wins, and of `credibility` line by line."""
        known = {each.name: each.metadata for each in fields(cls)}
        values: dict[str, Any] = {}
        for layer in layers:
            for name, value in layer.items():
                check_known("lookup: no setting", known, name, kind=ConfigError)
                if name == "credibility" and isinstance(value, Mapping):
                    value = {**values.get(name, {}), **value}
                values[name] = value
        return cls(**{name: _check(name, value, **known[name]) for name, value in values.items()})
