"""What a lookup may be told: arguments of `Search`, over the table `[lookup]` of clew.toml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from clew.errors import ConfigError, nearest
from clew.ranking.lookup_score import (
    COMPONENTS,
    CREDIBILITY,
    WEIGHTS,
    check_credibility,
    check_shares,
)

__all__ = ["RANKINGS", "Settings"]

RANKINGS = ("hybrid", *COMPONENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default."""

    backends: tuple[str, ...] | None = None
    """Which are asked, by name; None: all that have something to look at."""
    folders: tuple[str, ...] = ()
    """Of local_files."""
    repositories: tuple[str, ...] = ()
    """Of local_git."""
    web: str = ""
    """Address of a SearXNG instance; empty: the web is not asked."""
    ranking: str = "hybrid"
    """hybrid, or one component alone."""
    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    credibility: Mapping[str, float] = field(default_factory=lambda: dict(CREDIBILITY))
    """By domain; what is given comes over the table of ranking/credibility.py."""
    deadline: float = 5.0
    """Seconds all backends have together."""
    depth: int = 50
    """Candidates each backend gives."""
    embed: int = 32
    """Passages without a vector that one lookup embeds, to compare their meaning; 0: none."""
    namespace: str = ""
    """Caches of different namespaces never meet."""
    cache: bool = True
    cache_seconds: float = 86_400.0
    cache_entries: int = 1000
    cache_file: str = ""
    """A snapshot that is read at the start and written at the end; empty: memory only."""
    max_file_mb: float = 10.0
    """Larger files, and larger blobs of a repository, are passed over."""
    commits: int = 1000
    """Of a repository's history, the newest so many are looked at."""
    adaptive_k: bool = False
    """Begin with few candidates, and ask for more while words of the query are in none of them."""
    rewrite: bool = False
    """Ask in other words where too little was found."""
    coverage_gap: float = 0.3
    """The share of the query's words that may be missing from all that was found."""
    min_results: int = 3
    """Fewer are too few."""

    @classmethod
    def of(cls, *layers: Mapping[str, Any]) -> Settings:
        """Checked; a later layer wins, and of `credibility` line by line."""
        known = {each.name: each for each in fields(cls)}
        values: dict[str, Any] = {}
        for layer in layers:
            for name, value in layer.items():
                if name not in known:
                    raise ConfigError(f"lookup: no setting {name!r}: {nearest(str(name), known)}")
                if name == "credibility" and isinstance(value, Mapping):
                    value = {**values.get(name, {}), **value}
                values[name] = value
        return cls(**{name: _CHECKS[name](name, value) for name, value in values.items()})


def _texts(name: str, value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) or hasattr(value, "__fspath__") else value
    if not isinstance(several, (list, tuple)) or not all(
        (isinstance(each, str) and each.strip()) or hasattr(each, "__fspath__") for each in several
    ):
        raise ConfigError(f"lookup: {name} = {value!r:.100}: expected names or paths")
    return tuple(str(each) for each in several)


def _some_texts(name: str, value: Any) -> tuple[str, ...] | None:
    return None if value is None else _texts(name, value)


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise ConfigError(f"lookup: {name} = {value!r:.100}: expected text")
    return str(value)


def _ranking(name: str, value: Any) -> str:
    if value not in RANKINGS:
        raise ConfigError(f"lookup: ranking = {value!r:.100}: {nearest(str(value), RANKINGS)}")
    return str(value)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"lookup: {name} = {value!r:.100}: expected true or false")
    return value


def _number(least: float, most: float = math.inf, *, whole: bool = False) -> Any:
    kind: tuple[type, ...] = (int,) if whole else (int, float)

    def checked(name: str, value: Any) -> float:
        number = isinstance(value, kind) and not isinstance(value, bool)
        if not number or not least <= value <= most or not math.isfinite(value):
            upper = f" and at most {most:g}" if most < math.inf else ""
            a = "a whole number" if whole else "a number"
            raise ConfigError(
                f"lookup: {name} = {value!r:.100}: expected {a} of at least {least:g}{upper}"
            )
        return int(value) if whole else float(value)

    return checked


def _credibility(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ConfigError('lookup: credibility is a table such as { "example.org" = 0.9 }')
    return check_credibility(value)


_CHECKS: Mapping[str, Any] = {
    "backends": _some_texts,
    "folders": _texts,
    "repositories": _texts,
    "web": _text,
    "ranking": _ranking,
    "weights": lambda name, value: check_shares(value),
    "credibility": _credibility,
    "deadline": _number(0.01),
    "depth": _number(1, 10_000, whole=True),
    "embed": _number(0, whole=True),
    "namespace": _text,
    "cache": _switch,
    "cache_seconds": _number(0),
    "cache_entries": _number(0, whole=True),
    "cache_file": _text,
    "max_file_mb": _number(0.001),
    "commits": _number(1, whole=True),
    "adaptive_k": _switch,
    "rewrite": _switch,
    "coverage_gap": _number(0, 1),
    "min_results": _number(0, whole=True),
}
