"""Vectors of tokens, for late interaction: a multivector per text, compared on the server.

What index/token_codes.py keeps as codes in a folder is here a collection per model, in half
precision, on disk and without a graph, since only what other lists name is ever scored. A text's
point is named by its digest, so what was written twice is the same, and a text that moves keeps it.
They follow from texts alone: no journal has them, and a search that finds none encodes its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np

from clew.servers.qdrant.client import Json, NoCollectionError, Server
from clew.servers.qdrant.conditions import point_id
from clew.types import Vectors

PREFIX = "tokens-"
_NUMBERS = 200_000
"""Of one request that writes."""


class TokenVectors:
    """Of one model. It is asked for what clew.index.token_codes.TokenCodes is asked for."""

    harmed, outgrown = 0, False

    def __init__(self, server: Server, *, part: str = "", model: str = "", dim: int = 0):
        name = blake2b(f"{model}\0{dim}".encode(), digest_size=8).hexdigest()
        self._server, self._part, self._dim = server, part or f"{PREFIX}{name}", dim

    def find(self, digests: Sequence[bytes], *, vectors: bool = False) -> Mapping[bytes, Any]:
        """Of those that have any."""
        points: list[Json] = []
        with suppress(NoCollectionError):
            ids = [point_id(digest.hex()) for digest in digests]
            points = self._server.get(self._part, ids, ["digest"], vectors=vectors)
        return {bytes.fromhex(p["payload"]["digest"]): p.get("vector") for p in points}

    def score(self, query: Vectors, digests: Sequence[bytes]) -> dict[bytes, float]:
        if not len(query) or not digests:
            return {}
        search = {
            "query": np.asarray(query, np.float32).tolist(),
            "using": "tokens",
            "filter": {"must": [{"has_id": [point_id(digest.hex()) for digest in digests]}]},
            "params": {"exact": True},
            "limit": len(digests),
            "with_payload": ["digest"],
        }
        try:
            (points,) = self._server.query(self._part, [search])
        except NoCollectionError:
            return {}
        return {bytes.fromhex(p["payload"]["digest"]): p["score"] / len(query) for p in points}

    def rows(self, digest: bytes) -> Vectors | None:
        found = self.find([digest], vectors=True).get(digest)
        return None if found is None else np.array(found["tokens"], np.float32)

    def figures(self) -> dict[str, Any]:
        """The server does not count tokens; bytes are with the others that it names."""
        count = 0
        with suppress(NoCollectionError):
            count = self._server.count(self._part, None)
        return {"passages": count, "bytes": 0, "bits": 16}

    def damaged(self) -> str:
        return ""

    def train(self, rows: Vectors, *, tokens: int) -> None:
        """There is no codebook."""

    def retrain(self) -> None:
        """There is none."""

    def add(self, passages: Mapping[bytes, Vectors]) -> bool:
        tokens: Json = {
            "size": self._dim,
            "distance": "Dot",
            "datatype": "float16",
            "on_disk": True,
            "multivector_config": {"comparator": "max_sim"},
            "hnsw_config": {"m": 0},
        }
        spread = self._server.address.spread
        self._server.make(self._part, {"vectors": {"tokens": tokens}, **spread}, {})
        for points in _pieces(passages):
            self._server.write(self._part, [{"upsert": {"points": points}}])
        return True

    def keep(self, passages: Mapping[bytes, Vectors]) -> None:
        if passages:
            self.add(passages)

    def keep_only(self, living: Sequence[bytes], *, always: bool = False) -> None:
        """Without those of texts that are gone."""
        alive = {digest.hex() for digest in living}
        with suppress(NoCollectionError):
            points = self._server.scroll(self._part, None, ["digest"], page=10_000)
            gone = [p["id"] for p in points if p["payload"]["digest"] not in alive]
            if gone:
                self._server.write(self._part, [{"delete": {"points": gone}}])


def _pieces(passages: Mapping[bytes, Vectors]) -> Iterator[list[Json]]:
    some: list[Json] = []
    size = 0
    for digest, rows in passages.items():
        if not len(rows):
            continue
        if some and size + rows.size > _NUMBERS:
            yield some
            some, size = [], 0
        table = np.ascontiguousarray(rows, np.float32)
        payload = {"digest": digest.hex()}
        some.append({"id": point_id(digest.hex()), "vector": {"tokens": table}, "payload": payload})
        size += rows.size
    if some:
        yield some
