"""The bundled cases: small memories, questions to them, and the scorers' marks by category.

The three scorers of conversation memory (CONTRACT C) are pure functions over small stores. Token
recall keeps what has a third of the query's words, cosine what is near enough for its model, and
reciprocal rank fusion joins both lists. Each gives ids, best first, ties by id; what is below its
threshold is not given at all, so a query about nothing in the store finds nothing.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from clew.errors import InputError
from clew.models import least_cosine
from clew.protocols import Embedder
from clew.ranking.fusion import fuse
from clew.sources.tokens import LEAST_RECALL, query_tokens, record_tokens, token_recall
from clew.types import Candidate, Vector

SHIPPED = Path(__file__).with_name("cases.toml")
NEGATIVE = "negative"
SCORERS = ("token-only", "vector", "hybrid")
SHOWN_IDS = 5

Scores = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    query: str
    texts: Mapping[str, str]
    expect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaseOutcome:
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
        return self.recall(SHOWN_IDS) == 1.0


@functools.cache
def read_cases(file: Path = SHIPPED) -> tuple[Case, ...]:
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
    wanted: Iterable[str], embedder: Embedder | None, *, least: float | None = None
) -> list[CaseOutcome]:
    """Every case with each wanted scorer. The embedder is needed for all but `token-only`; `least`
    is the cosine that counts, of its model where it is not given."""
    cases = read_cases()
    known: dict[str, Vector] = {}
    if embedder is not None:
        least = least_cosine(embedder.model) if least is None else least
        texts = list(dict.fromkeys(text for case in cases for text in case.texts.values()))
        known = dict(zip(texts, embedder.embed_documents(texts), strict=True))

    def score(scorer: str, case: Case) -> Scores:
        if scorer == "token-only":
            return score_tokens(case.query, case.texts)
        if scorer == "hybrid":
            return fuse_scores(score("token-only", case), score("vector", case))
        assert embedder is not None and least is not None
        vectors = {name: known[text] for name, text in case.texts.items()}
        return score_cosine(embedder.embed_query(case.query), vectors, least=least)

    return [
        CaseOutcome(case, name, tuple(entry for entry, _ in score(name, case)))
        for name in wanted
        for case in cases
    ]


def score_tokens(query: str, texts: Mapping[str, str]) -> Scores:
    """(id, token recall), best first."""
    wanted = query_tokens(query)
    recalls = {name: token_recall(wanted, record_tokens(t)) for name, t in texts.items()}
    return _cut_scores(recalls, LEAST_RECALL)


def score_cosine(query: Vector, vectors: Mapping[str, Vector], *, least: float) -> Scores:
    """(id, cosine), best first; every vector has length 1. Rounded as a store does: what a sum
    depends on its order by decides nothing."""
    cosines = {name: round(float(query @ vector), 6) for name, vector in vectors.items()}
    return _cut_scores(cosines, least)


def fuse_scores(*lists: Scores) -> Scores:
    """Plain reciprocal rank fusion: Σ 1 / (60 + rank)."""
    named = {
        str(i): [Candidate(name, score) for name, score in ranked] for i, ranked in enumerate(lists)
    }
    return [(found.id, found.score) for found in fuse("rrf", named, k=60)]


def _cut_scores(scores: Mapping[str, float], least: float) -> Scores:
    kept = [(name, score) for name, score in scores.items() if score >= least]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))


def summarise_cases(outcomes: Iterable[CaseOutcome]) -> dict[str, dict[str, dict[str, Any]]]:
    """Scorer → category (and `all`) → {"cases", "recall@1", "recall@5"}, means over cases."""
    grouped: dict[str, dict[str, list[CaseOutcome]]] = {}
    for outcome in outcomes:
        of = grouped.setdefault(outcome.scorer, {})
        of.setdefault(outcome.case.kind, []).append(outcome)
        of.setdefault("all", []).append(outcome)
    return {
        scorer: {
            kind: {
                "cases": len(some),
                "recall@1": round(fmean(o.recall(1) for o in some), 4),
                "recall@5": round(fmean(o.recall(SHOWN_IDS) for o in some), 4),
            }
            for kind, some in sorted(of.items(), key=lambda item: item[0] == "all")
        }
        for scorer, of in grouped.items()
    }
