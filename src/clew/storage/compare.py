"""Whether two stores hold the same: a checksum per record and part, and what else they keep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from clew.filter import EVERYTHING
from clew.protocols import Store
from clew.types import Held, Life, Record

__all__ = ["Whole", "pages", "sums", "unlike", "wholes"]


class Whole(NamedTuple):
    """A record with all that a store has of it."""

    record: Record
    held: Sequence[Held]
    life: Life


def pages(store: Store, *, after: str = "", size: int) -> Iterator[list[Whole]]:
    """Every record from there on, by id."""
    while records := store.select(EVERYTHING, limit=size, after=after):
        yield wholes(store, records)
        after = records[-1].id


def wholes(store: Store, records: Sequence[Record]) -> list[Whole]:
    ids = [record.id for record in records]
    held, lives = store.vectors.chunks(ids), store.lifecycle.get(ids)
    return [
        Whole(record, held.get(record.id, []), lives.get(record.id, Life())) for record in records
    ]


def sums(whole: Whole) -> dict[str, str]:
    """A checksum of each part. In which order tags and links were given is not kept everywhere."""
    record = whole.record
    fields = {
        **{name: getattr(record, name) for name in _FIELDS},
        "tags": sorted(record.tags),
        "links": sorted(record.links),
        "metadata": record.metadata,
    }
    return {
        "content": _sum(record.content.encode(), record.title.encode()),
        "metadata": _sum(_json(fields)),
        "passages": _sum(*(_json(_place(one)) for one in whole.held)),
        "vectors": _sum(*(_vector(one) for one in whole.held)),
        "life": _sum(_json(asdict(whole.life))),
    }


_FIELDS = (
    *("id", "path", "collection", "type", "domain"),
    *("importance", "created_at", "updated_at", "ended_at", "valid_from", "valid_to"),
)


def unlike(mine: Whole, theirs: Whole | None, *, more: bool = False) -> list[str]:
    """The parts in which they differ. `more`: theirs may have vectors that mine has not."""
    if theirs is None:
        return ["missing"]
    if more and len(mine.held) == len(theirs.held):
        pairs = zip(mine.held, theirs.held, strict=True)
        held = [b if a.model else b._replace(model=None, vector=None) for a, b in pairs]
        theirs = Whole(theirs.record, held, theirs.life)
    here, there = sums(mine), sums(theirs)
    return [part for part in here if here[part] != there[part]]


def _place(one: Held) -> list[object]:
    return [one.chunk.start, one.chunk.end, *one.chunk.lines, one.chunk.heading]


def _vector(one: Held) -> bytes:
    if one.vector is None:
        return b""
    return f"{one.model}\n".encode() + one.vector.astype("<f4").tobytes()


def _json(value: object) -> bytes:
    if isinstance(value, Mapping):
        value = dict(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def _sum(*parts: bytes) -> str:
    from hashlib import blake2b

    digest = blake2b(digest_size=16)
    for part in parts:  # each with its length, so that no two sequences run into one
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
