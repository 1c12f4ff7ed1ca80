"""The floor: bare Tantivy plus bare FAISS, called one after the other, with no Clew code.

What anybody who glues the two libraries together pays at least, for ten numbers from each: no
filters, no fusion, no texts, no snippets. Both follow their usual practice:

- Tantivy: the tokens Clew's analyser makes (so both rank the same words), an OR of the query's
  words, merged segments, top 10, record numbers from a fast field. Tokenising the query is not
  counted.
- FAISS: IVFFlat with 4·√n lists in memory, and the fewest probes that reach the recall Clew had on
  the same queries. Float rows, no recompression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import tantivy
from tantivy import Occur

from clew.text import analyser
from clew.text.parse import parse

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Floor:
    """Both indexes over the same records."""

    schema: tantivy.Schema
    searcher: tantivy.Searcher
    vectors: Any
    lists: int
    probes: int = 1
    recall: float = 0.0

    @classmethod
    def build(cls, folder: Path, texts: Iterable[str], vectors: Floats) -> Floor:
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("number", fast=True)
        builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
        schema = builder.build()
        folder.mkdir(parents=True)
        index = tantivy.Index(schema, str(folder))
        writer = index.writer(512_000_000, 2)
        for number, text in enumerate(texts):
            document = tantivy.Document()
            document.add_unsigned("number", number)
            document.add_text("body", analyser.joined(text))
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()

        count, dim = vectors.shape
        lists = int(4 * np.sqrt(count))
        ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
        sample = np.sort(np.random.default_rng(4).permutation(count)[: 64 * lists])
        ivf.train(np.ascontiguousarray(vectors[sample]))
        for i in range(0, count, 50_000):
            ivf.add(np.ascontiguousarray(vectors[i : i + 50_000]))
        return cls(schema, index.searcher(), ivf, lists)

    def tune(self, queries: Floats, truth: Numbers, *, target: float) -> None:
        """The fewest probes with at least this recall."""
        self.probes, self.recall = 0, 0.0
        while self.recall < target and self.probes < self.lists:
            self.probes += max(1, self.probes // 16)
            self.vectors.nprobe = min(self.probes, self.lists)
            self.recall = recall(self.vectors.search(queries, 10)[1], truth)

    def keyword(self, tokens: Sequence[str], limit: int = 10) -> list[int]:
        words = [
            (Occur.Should, tantivy.Query.term_query(self.schema, "body", token, "freq"))
            for token in tokens
        ]
        query = tantivy.Query.boolean_query(words)
        hits = self.searcher.search(query, limit, count=False).hits
        return self.searcher.fast_field_values("number", [address for _, address in hits])

    def nearest(self, vector: Floats, limit: int = 10) -> list[int]:
        return self.vectors.search(vector.reshape(1, -1), limit)[1][0].tolist()


def query_tokens(text: str) -> list[str]:
    """The words Clew would look for, so that both legs rank by the same ones."""
    groups = parse(text).terms.words
    return list(dict.fromkeys(token for group in groups for token in group))


def exact(queries: Floats, rows: Floats, limit: int = 10) -> Numbers:
    """The true nearest rows, by scoring all of them."""
    best: list[tuple[Floats, Numbers]] = []
    for i in range(0, len(rows), 100_000):
        some = np.ascontiguousarray(rows[i : i + 100_000])
        k = min(limit, len(some))
        scores, places = faiss.knn(queries, some, k, metric=faiss.METRIC_INNER_PRODUCT)
        best.append((scores, places + i))
    scores = np.concatenate([s for s, _ in best], axis=1)
    places = np.concatenate([n for _, n in best], axis=1)
    order = np.argsort(-scores, axis=1)[:, :limit]
    return np.take_along_axis(places, order, axis=1)


def recall(found: Iterable[Iterable[int]], truth: Iterable[Iterable[int]]) -> float:
    """The share of the true ones that were found, over all queries."""
    shares = [len(set(f) & set(t)) / len(set(t)) for f, t in zip(found, truth, strict=True)]
    return float(np.mean(shares))
