"""The bundled cases: small memories, questions to them, and the scorers' marks by category."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.eval import scorers
from clew.protocols import Embedder
from clew.types import Vector

__all__ = ["NEGATIVE", "SCORERS", "Case", "Outcome", "cases", "matrix", "run_cases"]

SHIPPED = Path(__file__).with_name("cases.toml")
NEGATIVE = "negative"
SCORERS = ("token-only", "vector", "hybrid")
SHOWN = 5

Scorer = Callable[["Case"], list[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One question to one small store."""

    kind: str
    query: str
    texts: Mapping[str, str]
    expect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scorer made of one case."""

    case: Case
    scorer: str
    found: tuple[str, ...]

    def recall(self, at: int) -> float:
        """The share of the expected among the first; a negative passes only with nothing found."""
        if not self.case.expect:
            return 0.0 if self.found else 1.0
        among = set(self.found[:at]) & set(self.case.expect)
        return len(among) / min(at, len(self.case.expect))

    @property
    def passed(self) -> bool:
        """All that is expected is among the first five."""
        return self.recall(SHOWN) == 1.0


@functools.cache
def cases(file: Path = SHIPPED) -> tuple[Case, ...]:
    """The cases of a file, checked."""
    data = tomllib.loads(file.read_text("utf-8"))
    found: list[Case] = []
    for number, row in enumerate(data["cases"], 1):
        store = data["stores"].get(row["store"])
        if store is None or not row["query"].strip():
            raise InputError(f"{file}: case {number}: unknown store or empty query")
        if unknown := set(row["expect"]) - set(store):
            raise InputError(f"{file}: case {number}: no entry {sorted(unknown)} in {row['store']}")
        if bool(row["expect"]) is (row["kind"] == NEGATIVE):
            raise InputError(f"{file}: case {number}: only a negative expects nothing")
        found.append(Case(row["kind"], row["query"], store, tuple(row["expect"])))
    return tuple(found)


def run_cases(
    wanted: Iterable[str], embedder: Embedder | None, *, least_cosine: float | None = None
) -> list[Outcome]:
    """Every case with each wanted scorer. The embedder is needed for all but `token-only`."""
    chosen = _scorers(embedder, least_cosine)
    return [Outcome(case, name, tuple(chosen[name](case))) for name in wanted for case in cases()]


def _scorers(embedder: Embedder | None, least: float | None) -> dict[str, Scorer]:
    known: dict[str, Vector] = {}
    if embedder is not None:
        least = scorers.least_cosine(embedder.model) if least is None else least
        texts = list(dict.fromkeys(text for case in cases() for text in case.texts.values()))
        known = dict(zip(texts, embedder.embed_documents(texts), strict=True))

    def tokens(case: Case) -> scorers.Scores:
        return scorers.by_tokens(case.query, case.texts)

    def cosine(case: Case) -> scorers.Scores:
        assert embedder is not None and least is not None
        vectors = {name: known[text] for name, text in case.texts.items()}
        return scorers.by_cosine(embedder.embed_query(case.query), vectors, least=least)

    def ids(scores: scorers.Scores) -> list[str]:
        return [name for name, _ in scores]

    return {
        "token-only": lambda case: ids(tokens(case)),
        "vector": lambda case: ids(cosine(case)),
        "hybrid": lambda case: ids(scorers.hybrid(tokens(case), cosine(case))),
    }


def matrix(outcomes: Iterable[Outcome]) -> dict[str, dict[str, dict[str, Any]]]:
    """Scorer → category (and `all`) → {"cases", "recall@1", "recall@5"}, means over cases."""
    grouped: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        of = grouped.setdefault(outcome.scorer, {})
        of.setdefault(outcome.case.kind, []).append(outcome)
        of.setdefault("all", []).append(outcome)
    return {
        scorer: {
            kind: {
                "cases": len(some),
                "recall@1": round(sum(o.recall(1) for o in some) / len(some), 4),
                "recall@5": round(sum(o.recall(SHOWN) for o in some) / len(some), 4),
            }
            for kind, some in sorted(of.items(), key=lambda item: item[0] == "all")
        }
        for scorer, of in grouped.items()
    }
