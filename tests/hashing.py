"""An embedder for tests: real vectors without a model, from hashed tokens. Alike words, alike
vectors; it counts what it was asked, so that a test can say "nothing was embedded twice"."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from clew.text.analyser import tokens
from clew.types import Vector, Vectors
from clew.validate import unit

MOST_KEPT = 10_000
"""Texts that are remembered: a long run asks for more than it has memory for."""


class HashingEmbedder:
    def __init__(self, *, model: str = "hashing@1", dim: int = 64):
        self.model, self.dim = model, dim
        self.embedded: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        del self.embedded[:-MOST_KEPT]
        return np.stack([self._vector(text) for text in texts]) if texts else self._nothing()

    def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    def _nothing(self) -> Vectors:
        return np.empty((0, self.dim), np.float32)

    def _vector(self, text: str) -> Vector:
        row = np.zeros(self.dim, np.float32)
        for token in tokens(text):
            row[crc32(token.encode()) % self.dim] += 1
        row[0] += 0.01  # a text without words has a direction too
        return row / np.linalg.norm(row)


class Hanging(HashingEmbedder):
    """Embeds no query before it is `free`."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def embed_query(self, text: str) -> Vector:
        self.free.wait(30)
        return super().embed_query(text)


class Words:
    """A row for each word, the same wherever it stands."""

    model, dim = "words@1", 96

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def _rows(self, text: str) -> Vectors:
        seeds = [crc32(word.encode()) for word in self.words(text)]
        return unit(np.array([np.random.default_rng(s).normal(size=96) for s in seeds]))

    def encode_passages(self, texts: Sequence[str]) -> list[Vectors]:
        self.encoded += texts
        del self.encoded[:-MOST_KEPT]
        return [self._rows(text) for text in texts]

    def encode_query(self, text: str, *, expand: bool = True) -> Vectors:
        return self._rows(text)[:32]

    def score(self, query: Vectors, passages: Sequence[Vectors]) -> list[float]:
        return [float((query @ rows.T).max(axis=1).sum()) for rows in passages]

    def words(self, text: str, *, query: bool = False) -> list[str]:
        return re.findall(r"\w+", text.lower())[:300] or ["."]
