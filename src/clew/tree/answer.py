"""From a query to candidates, down a tree: which scorer walks, and what happens where it may not.

The embedding scorer walks by itself. A chat model scores every slate, and embeddings those that it
fails on. A cross-encoder is slow, so embeddings and words walk for it, and it reads the best of
what they found: as many passages as it may.

Where too many of the leaves are masked the walk is called off, and the source `graph` answers; if
that has nothing to say, words and vectors do. The trace says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clew.errors import ClewError, ModelError, SourceError
from clew.protocols import LLM, Context, Reranker
from clew.ranking.adaptive import Facts, KnowsFacts
from clew.ranking.fusion import fuse, min_max
from clew.text.analyser import fits
from clew.tree.report import told
from clew.tree.score import CrossEncoderScorer, EmbeddingScorer, LLMScorer
from clew.tree.snapshot import TreeSnapshot
from clew.tree.traverse import Found, traverse
from clew.tree.view import View
from clew.tree.walk import Walk
from clew.types import Answer, Candidate, Query

__all__ = ["Elsewhere", "Tools", "walked"]

Elsewhere = Callable[[Query, Context], tuple[str, Sequence[Candidate], str]]
"""Who answers where the walk is called off: its name, its candidates, and what is to be said."""
SEEDED = 10
"""Of the best by words, the nodes of so many are looked at from the beginning on."""
BATCH = 100


@dataclass(frozen=True, slots=True)
class Tools:
    """What scorers need beside the tree; each raises a ModelError that says why it is not there."""

    reranker: Callable[[], Reranker] | None = None
    llm: Callable[[], LLM | None] | None = None
    llm_seconds: float = 10.0
    blend: float = 0.3
    """The cross-encoder's part in the order of what it read."""
    elsewhere: Elsewhere | None = None
    explain: bool = False
    """Whether the trace is to have every slate."""


def walked(kept: TreeSnapshot, query: Query, context: Context, walk: Walk, tools: Tools) -> Answer:
    """The tree's answer to a query."""
    vector = context.query_vector()
    if vector is None:
        raise SourceError("the query has no vector, and a tree is walked by them: run `clew index`")
    tree = kept.current(context.model)
    view = View(tree, context.store, kept.mask(tree, query.filter), query=query.text, vector=vector)
    found, scores, notes = _WALKS[walk.scorer](view, query, context, walk, tools)
    extra: dict[str, Any] = {}
    if found.aborted:
        name, candidates, why = _elsewhere(query, context, tools)
        extra = {"fallback": {"to": name, "reason": found.ended, "note": why}}
        notes.append(f"{found.ended}: {name or 'nobody'} answers{f' ({why})' if why else ''}")
    else:
        candidates = _fitting(view, query, scores)
    trace = told(found, view, walk, whole=tools.explain) | extra
    return Answer(candidates, "; ".join(notes), trace)


def _elsewhere(
    query: Query, context: Context, tools: Tools
) -> tuple[str, Sequence[Candidate], str]:
    if tools.elsewhere is None:
        return "", (), "no other source is at hand"
    try:
        return tools.elsewhere(query, context)
    except ClewError as error:
        return "", (), str(error)


def _fitting(view: View, query: Query, scores: Sequence[tuple[int, float]]) -> list[Candidate]:
    """The best that have the query's phrases and none of its exclusions."""
    if not query.terms.phrases and not query.terms.excluded:
        return [view.candidate(key, score) for key, score in scores[: query.depth]]
    kept: list[Candidate] = []
    for i in range(0, len(scores), BATCH):
        some = [view.candidate(key, score) for key, score in scores[i : i + BATCH]]
        records = {r.id: r for r in view.store.get([c.id for c in some])}
        kept += [c for c in some if c.id in records and fits(query.terms, records[c.id].content)]
        if len(kept) >= query.depth:
            break
    return kept[: query.depth]


# ---------------------------------------------------------------------- who walks

_Walked = tuple[Found, Sequence[tuple[int, float]], list[str]]
"""Where it led, leaves with the scores that order them, what went wrong."""


def _embedding(view: View, query: Query, context: Context, walk: Walk, tools: Tools) -> _Walked:
    found = traverse(view, EmbeddingScorer(view), walk)
    return found, found.leaves, []


def _llm(view: View, query: Query, context: Context, walk: Walk, tools: Tools) -> _Walked:
    llm = tools.llm() if tools.llm is not None else None
    if llm is None:
        raise ModelError(
            "no chat model is configured to score with: set llm or llm_url (`clew config llm`), or "
            "take --scorer embedding"
        )
    scorer = LLMScorer(view, llm, seconds=tools.llm_seconds)
    found = traverse(view, scorer, walk, spare=EmbeddingScorer(view))
    failed = [step for step in found.steps if step.spare]
    notes = []
    if failed:
        notes = [f"{len(failed)} of {len(found.steps)} slates by embedding: {failed[0].problem}"]
    return found, found.leaves, notes


def _cross_encoder(view: View, query: Query, context: Context, walk: Walk, tools: Tools) -> _Walked:
    words = context.store.keyword(query.terms, query.filter, limit=max(query.depth, walk.reads))
    homes = view.tree.leaf_of
    keys = {c.id: ~homes[c.id] for c in words if c.id in homes and view.open(~homes[c.id])}
    seeds = dict.fromkeys(view.tree.parent(key) for key in list(keys.values())[:SEEDED])
    found = traverse(view, EmbeddingScorer(view), walk, seeds=seeds)
    if found.aborted:
        return found, [], []
    prior = _prior(view, found, [c for c in words if c.id in keys], context)
    notes: list[str] = []
    head = prior[: walk.reads]
    try:
        if tools.reranker is None:
            raise ModelError("no cross-encoder is at hand")
        scorer = CrossEncoderScorer(view, tools.reranker())
        read = scorer.score([key for key, _ in head]) if head else ()
    except ModelError as error:
        return found, prior, [f"not read by a cross-encoder: {error}"]
    own = min_max([score for _, score in head])
    again = min_max(list(read))
    mixed = [
        (key, (1.0 - tools.blend) * mine + tools.blend * said)
        for (key, _), mine, said in zip(head, own, again, strict=True)
    ]
    mixed.sort(key=lambda each: (-each[1], view.tree.ids[~each[0]]))
    low = head[-1][1] if head else 0.0
    rest = [(key, (1.0 - tools.blend) * (score - low)) for key, score in prior[walk.reads :]]
    return found, [*mixed, *rest], notes


def _prior(
    view: View, found: Found, words: Sequence[Candidate], context: Context
) -> list[tuple[int, float]]:
    """The leaves by words and by meaning, before anybody reads them: fused as in any search, with
    the walk in the place of the vectors."""
    keys = [key for key, _ in found.leaves]
    near = dict(zip(keys, view.prior(keys), strict=True))
    by_id = {view.tree.ids[~key]: key for key in keys}
    nearest = sorted(by_id, key=lambda name: (-near[by_id[name]], name))
    lists = {
        "keyword": [c for c in words if c.id in by_id],
        "vectors": [Candidate(name, near[by_id[name]]) for name in nearest],
    }
    facts = context.facts() if isinstance(context, KnowsFacts) else Facts()
    return [(by_id[each.id], each.score) for each in fuse("adaptive", lists, facts=facts)]


_WALKS = {"embedding": _embedding, "cross-encoder": _cross_encoder, "llm": _llm}
