"""The second pass of indexing: vectors for the chunks that have none of the current model.

Embedding happens outside any lock; each batch is one short transaction. Whatever stops the run,
the next one goes on from there, because what is missing is asked of the store.
"""

from __future__ import annotations

import time

import numpy as np

from clew.protocols import Embedder, Progress, Store

__all__ = ["embed"]

BATCH = 128
REFRESH_SECONDS = 10.0


def embed(store: Store, embedder: Embedder, *, progress: Progress | None = None) -> int:
    """How many chunks got a vector."""
    pending = store.pending(embedder.model)
    done = written = 0
    refreshed = time.monotonic()
    for i in range(0, len(pending), BATCH):
        some = pending[i : i + BATCH]
        known = store.known_vectors(some, model=embedder.model)
        fresh = [(cid, text) for cid, text in store.texts(some) if cid not in known]
        distinct = list(dict.fromkeys(text for _, text in fresh))
        rows = dict(zip(distinct, embedder.embed_documents(distinct), strict=True))
        vectors = known | {cid: rows[text] for cid, text in fresh}
        if vectors:
            chunks = list(vectors)
            together = np.stack([vectors[cid] for cid in chunks])
            written += store.set_vectors(chunks, together, model=embedder.model)
        done += len(some)
        if progress:
            progress("embedding", done, len(pending))
        if time.monotonic() - refreshed > REFRESH_SECONDS:
            store.refresh()
            refreshed = time.monotonic()
    return written
