"""Nearness in meaning, by embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.filter import Filter
from clew.models import traits
from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Answer, Candidate, Query

__all__ = ["vectors"]


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
        if not query.terms or (embedded := store.coverage(model)) == 1:
            return found
        words = store.keyword(query.terms, allowed, limit=query.depth)
        known = store.known_vectors([c.chunk for c in words if c.chunk is not None], model=model)
        # Of so many words-first records this part would be in the list so far.
        places = {c.id: int(i * embedded) for i, c in enumerate(words) if c.chunk not in known}
        return Answer(found, places=places)

    return FunctionSource(source, outside="")
