"""bm25s: keyword search only, https://github.com/xhluca/bm25s.

As its README's quickstart: English stopwords, PyStemmer's English stemmer, default BM25 (Lucene).
Scope is its `weight_mask`, which runs before the top k is taken.
"""

from __future__ import annotations

from collections.abc import Callable

import bm25s
import numpy as np
import Stemmer
from job import Job, Query, run


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    stemmer = Stemmer.Stemmer("english")
    texts = list(job.texts())
    tokens = bm25s.tokenize(
        [text.text for text in texts], stopwords="en", stemmer=stemmer, show_progress=False
    )
    retriever = bm25s.BM25()
    retriever.index(tokens, show_progress=False)
    retriever.save(job.index)
    ids = [text.id for text in texts]
    scopes = np.array([text.scope for text in texts])
    masks = {s: (scopes == s).astype(np.float32) for s in {q.scope for q in job.queries} if s}
    k = min(job.k, len(ids))

    def ask(query: Query) -> list[str]:
        words = bm25s.tokenize(query.text, stopwords="en", stemmer=stemmer, show_progress=False)
        places, scores = retriever.retrieve(
            words, k=k, show_progress=False, weight_mask=masks.get(query.scope)
        )
        return [ids[i] for i, score in zip(places[0], scores[0], strict=True) if score > 0]

    return {"keyword": ask}


if __name__ == "__main__":
    run(build, packages=("bm25s",))
