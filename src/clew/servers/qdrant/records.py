"""Records and passages as points, and back.

A record is one point, so that it is read whole or not at all; each of its passages is a point with
its words, and one with its vector. The passages' points follow from the records', and can be made
anew from them.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from clew.ranking.adaptive import K1, LENGTHS, B
from clew.servers.qdrant.client import Json, dump
from clew.servers.qdrant.conditions import FOREVER, INDEXES
from clew.storage.batch import labels_of, record_columns, tags_of
from clew.storage.tables import RECORD
from clew.text import analyser
from clew.text.passage import passage, titles
from clew.types import Chunk, Life, Record, Vector

TEXT = {"type": "text", "tokenizer": "whitespace", "lowercase": False, "phrase_matching": True}
RECORDS: Json = {
    **INDEXES,
    **dict.fromkeys(("kind", "tag", "path", "key"), "keyword"),
    "rid": "integer",
}
WORDS: Json = {**INDEXES, "body": TEXT, "title": {**TEXT, "phrase_matching": False}}
VECTORS: Json = {**INDEXES, "digest": "keyword"}
_ENDED = RECORD.index("ended_at")
_METADATA = RECORD.index("metadata")


class StoredPassage(NamedTuple):
    """A passage of a record, as the record's point tells of it."""

    number: int
    chunk: Chunk
    digest: str
    sizes: tuple[int, int]
    """Tokens of its text and of its title."""
    model: str = ""
    """Whose vector it has; none."""


class Stored(NamedTuple):
    """A record as it is kept."""

    rid: int
    record: Record
    parts: tuple[StoredPassage, ...]
    life: Life = Life()


# ---------------------------------------------------------------------- records


def record_payload(stored: Stored, fields: Json) -> Json:
    """`fields` are what filters see of it."""
    record = stored.record
    columns = list(record_columns(record, record.created_at or 0.0, record.updated_at or 0.0))
    columns[_ENDED] = None
    doc = _dump([*columns, tags_of(record), list(dict.fromkeys(record.links)), record.content])
    chunks = _dump(
        [(part.number, *part.chunk, part.digest, part.sizes) for part in stored.parts],
    )
    firsts = [f"={part.digest}" for part in stored.parts[:1]]
    labels = [f"{kind[0]}:{label}" for kind, label in labels_of(record)]
    return {
        **fields,
        **life_payload(stored),
        "is": [*fields["is"], *firsts, *(f"l{label}" for label in labels)],
        "id": record.id,
        "rid": stored.rid,
        "tag": tags_of(record),
        "path": [record.path] if record.path else [],
        "key": list(dict.fromkeys(word[2:] for word in fields["is"] if word.startswith("k:"))),
        "doc": doc,
        "chunks": chunks,
        "sum": crc32(chunks.encode(), crc32(doc.encode())),
    }


def life_payload(stored: Stored) -> Json:
    """What changes about a record without a change of the record. Qdrant does not read numbers to
    the last digit: those that are given back are written as text."""
    record, life = stored.record, stored.life
    why = "" if record.ended_at is None else life.reason or "ended"
    return {
        "kind": _dump([record.collection, record.type, why]),
        "ended": FOREVER if record.ended_at is None else record.ended_at,
        "facts": _dump([record.importance, record.created_at, record.ended_at, *life]),
        "successor": life.successor,
        "held": [part.model for part in stored.parts],
    }


def read_record(payload: Mapping[str, Any]) -> Stored | None:
    """None: it is not as it was written."""
    try:
        doc, chunks = payload["doc"], payload["chunks"]
        if crc32(chunks.encode(), crc32(doc.encode())) != payload["sum"]:
            return None
        *columns, tags, links, content = json.loads(doc)
        columns[_METADATA] = json.loads(columns[_METADATA])
        _, _, columns[_ENDED], *life = json.loads(payload["facts"])
        fields = dict(zip(RECORD, columns, strict=True))
        record = Record(content=content, tags=tuple(tags), links=tuple(links), **fields)
        return Stored(payload["rid"], record, read_parts(payload), Life(*life))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def read_parts(payload: Mapping[str, Any]) -> tuple[StoredPassage, ...]:
    return tuple(
        StoredPassage(number, Chunk(start, end, tuple(lines), heading), digest, tuple(sizes), model)
        for (number, start, end, lines, heading, digest, sizes), model in zip(
            json.loads(payload["chunks"]), payload["held"], strict=True
        )
    )


def _dump(value: Any) -> str:
    return dump(value).decode()


def text_of(record: Record, chunk: Chunk) -> tuple[str, str]:
    """Titles, and the text as it is indexed and embedded."""
    title = titles(record.title, record.metadata)
    return title, passage(title, chunk.heading, record.content[chunk.start : chunk.end])


# ---------------------------------------------------------------------- words

Means = tuple[float, float]
"""Tokens per passage, in the text and in the title."""


@lru_cache(maxsize=200_000)
def dimension(field: str, token: str) -> int:
    """The dimension of a word in the sparse vectors."""
    return crc32(f"{field}{token}".encode("utf-8", "surrogatepass"))


def damping(size: int, mean: float) -> float:
    """What BM25 holds against a word in a text of so many tokens. Lengths are rounded as Tantivy
    does it, so that both score alike."""
    kept = LENGTHS[bisect_right(LENGTHS, size) - 1]
    return float(K1 * (1 - B + B * kept / max(mean, 1e-9)))


def sparse_vector(title: Sequence[str], body: Sequence[str], means: Means) -> Json:
    """The words of a passage as a vector. Its product with one of how rare they are is BM25."""
    weights: dict[int, float] = {}
    for field, tokens, mean in (("b", body, means[0]), ("t", title, means[1])):
        against = damping(len(tokens), mean)
        for token, times in Counter(tokens).items():
            place = dimension(field, token)
            weights[place] = weights.get(place, 0.0) + (1 + K1) * times / (times + against)
    for character in characters(body):
        weights[dimension("c", character)] = 1.0
    return {"indices": list(weights), "values": [round(weight, 7) for weight in weights.values()]}


def characters(body: Sequence[str]) -> list[str]:
    """Scripts without spaces are indexed in pairs: one character is part of two of them."""
    if "".join(body).isascii():
        return []
    pairs = (token for token in body if token[:1] >= "\u0e00" and analyser.unspaced(token))
    return list(dict.fromkeys(character for pair in pairs for character in pair))


MARK = "\u00b7"
"""No token begins with it."""


def mark(character: str) -> str:
    """As a character stands behind the tokens of a passage."""
    return f"{MARK}{character}"


def words_payload(
    fields: Json, stored: Stored, part: StoredPassage, title: str, body: str, means: Means
) -> Json:
    """`body` and `title` are tokens, joined by spaces."""
    marks = [mark(character) for character in characters(body.split())]
    return {
        **fields,
        "record": stored.record.id,
        "body": " ".join((body, *marks)),
        "title": title,
        "digest": part.digest,
        "length": part.chunk.end - part.chunk.start,
        "means": _dump(means),
    }


# ---------------------------------------------------------------------- vectors


def vectors_part(model: str, dim: int) -> str:
    """The collection of a model's vectors."""
    name = blake2b(f"{model}\0{dim}".encode("utf-8", "surrogatepass"), digest_size=8)
    return f"vectors-{name.hexdigest()}"


def pack(vector: Vector) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()


def unpack(text: str) -> Vector:
    return np.frombuffer(base64.b64decode(text), "<f4")
