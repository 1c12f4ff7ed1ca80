"""The lists of the store's two indexes: words by BM25, and nearness in meaning by embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clew.filter import Filter
from clew.models import traits
from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Answer, Candidate, Query


def keyword(root: Path, *, collection: str = "") -> Source:
    """Records with all words of the query first; with any of them when too few have all."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        allowed = query.filter.narrowed(own)
        if allowed is None:
            return ()
        return context.store.keyword(
            query.terms, allowed, limit=query.depth, per_record=query.passages
        )

    return FunctionSource(source, outside="", by_terms=True)


def all_words(root: Path) -> Source:
    """Records that have every word of the query; with any word only if none has all. So one common
    word does not drag unrelated records in. It is what Ariadne calls full-text search."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        terms, store = query.terms, context.store
        each = tuple(group[:1] for group in terms.words)
        if len(each) > 1:
            strict = replace(terms, phrases=(*terms.phrases, *each))
            if found := store.keyword(strict, query.filter, limit=query.depth):
                return found
        return store.keyword(terms, query.filter, limit=query.depth)

    return FunctionSource(source, outside="", by_terms=True)


def vectors(root: Path, *, collection: str = "") -> Source:
    """Records whose best passage points the same way as the query. Its `floor` is of the way from
    unrelated to identical, by what is known of the model. While vectors are being made, it names
    those whose passage with the query's words has none yet."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate] | Answer:
        allowed = query.filter.narrowed(own)
        vector = None if allowed is None else context.query_vector()
        if allowed is None or vector is None:
            return ()
        store, model = context.store, context.model
        found = store.nearest(
            vector,
            allowed,
            model=model,
            limit=query.depth,
            terms=query.terms,
            per_record=query.passages,
        )
        if query.floor:
            none = traits(model).unrelated
            found = [c for c in found if c.score >= none + query.floor * (1.0 - none)]
        if not query.terms or (embedded := store.indexes.coverage(model)) == 1:
            return found
        words = store.keyword(query.terms, allowed, limit=query.depth)
        known = store.vectors.known([c.chunk for c in words if c.chunk is not None], model=model)
        # Of so many words-first records this part would be in the list so far.
        places = {c.id: int(i * embedded) for i, c in enumerate(words) if c.chunk not in known}
        return Answer(found, places=places)

    return FunctionSource(source, outside="")
