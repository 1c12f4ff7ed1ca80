"""Near-duplicates made one: of memories that say the same, one is kept and the others end.

Vectors cannot tell: of pairs that differ in a name, a number or a "not" nearly half are at a cosine
of .95 and above (bge-small), and pairs that say the same go down to .80. So what texts say is
compared (text/equivalence.py), which also finds every pair without a look at anything's neighbours.
Vectors that lie far apart can only object; where the words are others they must lie near, nearer
than those of any two facts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from clew.engine import Engine
from clew.filter import Filter
from clew.memory.lifecycle import rewrite_record
from clew.memory.record import public_id
from clew.models import traits
from clew.protocols import Store, read_pages
from clew.text.equivalence import gist, is_paraphrase, same_fact
from clew.types import Life, Record, Vectors

_PARAPHRASE_NEARNESS = 0.6
"""How far from the cosine of unrelated texts to 1 those of a paraphrase lie at least: with
bge-small .83, where 14,000 pairs of two facts have at most that."""
_PAGE = 1_000
_DAY = 86_400

SameFact = Callable[[Record, Record], bool]


def consolidate(
    engine: Engine,
    scope: Filter,
    *,
    threshold: float,
    ignore: Collection[str],
    now: float,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """What is kept and what ends in its favour, a group in one transaction.

    One pass over the memories; only the texts of those that have a double are read again.
    """
    store = engine.store
    done: list[dict[str, Any]] = []
    for ids in _find_doubles(store, scope):
        same = _make_comparison(store.vectors.of(ids), threshold)
        there = [record for record in store.get(ids) if record.ended_at is None]
        for kept, *others in group_records(there, same=same, ignore=ignore):
            if dry_run or _merge(engine, kept, others, now=now):
                space = kept.collection
                ended = [{"id": public_id(o.id, space), "content": o.content} for o in others]
                about = {"id": public_id(kept.id, space), "content": kept.content}
                done.append({**about, "namespace": space, "type": kept.type, "ended": ended})
    return done


def _find_doubles(store: Store, scope: Filter) -> list[list[str]]:
    found: dict[bytes, list[str]] = {}
    for record in chain.from_iterable(read_pages(store, scope, _PAGE)):
        key = hashlib.blake2b(repr(_comparison_key(record)).encode("utf-8", "surrogatepass"))
        found.setdefault(key.digest()[:16], []).append(record.id)
    return [ids for ids in found.values() if len(ids) > 1]


def _merge(engine: Engine, kept: Record, others: Sequence[Record], *, now: float) -> bool:
    """Merge them, unless somebody has changed one meanwhile: then the next time will see."""
    store = engine.store
    ids = [kept.id, *(other.id for other in others)]
    with store.atomic():
        if store.get(ids) != [kept, *others]:
            return False
        if (whole := merge_records([kept, *others])) != kept:
            rewrite_record(engine, whole)
        lives = store.lifecycle.get(ids)
        store.lifecycle.set({kept.id: merge_lives([lives[name] for name in ids])})
        store.lifecycle.end(ids[1:], at=now, reason="consolidated", successor=kept.id)
    return True


def group_records(
    records: Iterable[Record], *, same: SameFact | None = None, ignore: Collection[str] = ()
) -> list[list[Record]]:
    """Put those together that say the same, the one to keep first: the most important, else the
    oldest. Whatever the order they come in, the groups are the same.

    `same` decides whether one may end in favour of what is kept (by default, by its words);
    metadata of the keys in `ignore` may differ.
    """
    same = same or _make_comparison({}, 0.0)
    alike: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda r: (-r.importance, r.created_at or 0.0, r.id)):
        alike.setdefault(_comparison_key(record), []).append(record)
    return [group for some in alike.values() for group in _split(some, same, ignore)]


def _comparison_key(record: Record) -> tuple[Any, ...]:
    """What must be equal, so that a pair need be looked at."""
    day = (record.created_at or 0.0) // _DAY if record.type == "episodic" else None
    when = record.valid_from, record.valid_to, day
    return record.collection, record.type, record.title, when, gist(record.content)


def _split(left: list[Record], same: SameFact, ignore: Collection[str]) -> Iterator[list[Record]]:
    """Groups without a contradiction in metadata, of two or more."""
    while left:
        kept, *rest = left
        group, known, left = [kept], dict(kept.metadata), []
        for record in rest:
            agreed = all(
                key in ignore or known.get(key, value) == value
                for key, value in record.metadata.items()
            )
            if agreed and same(kept, record):
                group.append(record)
                known = {**record.metadata, **known}
            else:
                left.append(record)
        if len(group) > 1:
            yield group


def merge_records(records: Sequence[Record]) -> Record:
    """The first with what the others have beside their text; where they differ, its own."""
    metadata: dict[str, Any] = {}
    for record in reversed(records):
        metadata |= record.metadata
    return replace(
        records[0],
        importance=max(record.importance for record in records),
        tags=tuple(dict.fromkeys(tag for record in records for tag in record.tags)),
        created_at=min((r.created_at for r in records if r.created_at is not None), default=None),
        metadata=metadata,
    )


def merge_lives(lives: Sequence[Life]) -> Life:
    """One life for all of them: the first is that of the kept one."""
    accessed = [life.accessed_at for life in lives if life.accessed_at is not None]
    return lives[0]._replace(
        accesses=sum(life.accesses for life in lives),
        strength=max(life.strength for life in lives),
        accessed_at=max(accessed, default=None),
        useful=sum(life.useful for life in lives),
        useless=sum(life.useless for life in lives),
    )


def _make_comparison(vectors: Mapping[str, tuple[str, Vectors]], threshold: float) -> SameFact:
    """Whether two memories say the same, and their vectors allow it. Those of two models cannot be
    compared, and what has none is known by its own words only."""

    def is_same(one: Record, other: Record) -> bool:
        same = same_fact(one.content, other.content)
        if not same and not is_paraphrase(one.content, other.content):
            return False
        if one.id not in vectors or other.id not in vectors:
            return same
        (model, mine), (its, theirs) = vectors[one.id], vectors[other.id]
        if model != its or mine.shape != theirs.shape:
            return same
        apart = traits(model).unrelated
        paraphrase = apart + _PARAPHRASE_NEARNESS * (1 - apart)
        least = threshold if same else max(threshold, paraphrase)
        return bool((mine * theirs).sum(axis=1).min() >= least - 1e-6)

    return is_same
