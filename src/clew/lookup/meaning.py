"""What a lookup may know of meaning: the query's vector, and those of what was found."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from clew.background import within
from clew.cache.keys import digest
from clew.errors import ModelError
from clew.lookup.gather import Pooled
from clew.lookup.parts import Parts
from clew.lookup.rank import Meaning, words_of
from clew.models import traits
from clew.ranking.lookup_score import bm25
from clew.text.analyser import known_share
from clew.types import Vector

__all__ = ["Embedded", "meaning_of"]

KEPT = 4096
"""Vectors of passages that are in no store."""
KNOWN = 0.5
"""The share of the query's letters that must be of a script which the model knows."""


class Embedded:
    """Vectors of texts made lately, by model. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bytes], Vector] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, model: str, text: str) -> Vector | None:
        with self._lock:
            return self._kept.get((model, digest(text.encode("utf-8", "replace"))))

    def put(self, model: str, text: str, vector: Vector) -> None:
        with self._lock:
            self._kept[model, digest(text.encode("utf-8", "replace"))] = vector
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def meaning_of(
    query: str, pool: Sequence[Pooled], parts: Parts, embedded: Embedded, *, seconds: float
) -> tuple[Meaning, str | None]:
    """And what is missing, if time ran out: then it may be there the next time."""
    if parts.settings.ranking not in ("hybrid", "semantic"):
        return Meaning(why_not="not asked for"), None
    name = str(parts.model.model)
    share = known_share(query, traits(name).scripts)
    if share < KNOWN:
        return Meaning(why_not=f"{name} does not know the script of the query"), None
    vectors = [each.found.vector for each in pool]
    missing = [i for i, vector in enumerate(vectors) if vector is None]
    texts = {i: words_of(pool[i].found.hit) for i in missing}
    wanted = _most_promising(query, texts, parts.settings.embed) if parts.local_model else []
    made: list[Vector] = []

    def work() -> None:
        made.append(parts.model.embed_query(query))
        embedder = parts.model.embedder
        for i in wanted:
            if embedded.get(name, texts[i]) is None:
                embedded.put(name, texts[i], embedder.embed_documents([texts[i]])[0])

    problem = None
    try:
        within(seconds, work)
    except ModelError as error:
        return Meaning(why_not=str(error)), None
    except TimeoutError:
        problem = f"semantic: no vectors within {seconds:.3g} s for some of the texts"
    except Exception as error:  # a model may be anybody's code
        return Meaning(why_not=f"{type(error).__name__}: {error}"), f"semantic: {error}"
    if not made:
        return Meaning(why_not=problem), problem
    for i in missing:
        vectors[i] = embedded.get(name, texts[i])
    return Meaning(made[0], vectors), problem


def _most_promising(query: str, texts: dict[int, str], most: int) -> list[int]:
    """Those with most of the query's words: not all can be embedded while somebody waits."""
    if len(texts) <= most:
        return list(texts)
    scores = dict(zip(texts, bm25(query, list(texts.values())), strict=True))
    return sorted(texts, key=lambda i: (-scores[i], i))[:most]
