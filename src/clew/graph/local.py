"""Local search: what lies near the entities that a query names.

The query's words are looked up among names and aliases, the longest first. From there a walk
(walk.py) spreads over the records that name them, what else these name and link to, and so on. What
the query says beside the names then tells which of the near records is meant: a neighbour that has
those words as well is what the question is after, though it may not have the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.filter import Filter
from clew.graph.assemble import MOST_RECORDS, idf
from clew.graph.meant import meant, picked
from clew.graph.names import key
from clew.graph.snapshot import Entry, Snapshot, seen
from clew.graph.walk import spread
from clew.protocols import Store
from clew.text.analyser import STOPWORDS, fits, spelt, unspaced, words
from clew.types import Candidate, Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Found", "Matched", "named", "near", "search", "visible"]

LONGEST_WINDOW = 8
MOST_WORDS = 64
"""Words of a query that are looked at."""
MOST_RUN = 12
"""Characters of a name in a script without spaces."""
NEIGHBOURS = 400
"""Near records that are looked at closely."""
HALF = 10
"""The rank at which nearness is half of the nearest's."""
TRIFLE = 0.01
"""What a neighbour counts without any other word of the query."""
ALONE = 0.3
"""The same where no record is named: there is nothing else to go by than what is near."""
NAMESAKES = 8
"""A title that more records have names none of them."""
LEAST_SHARE = 0.3
"""The part of a query that names of records must be before it is taken to be about them. On cisi,
whose queries are paragraphs, a tenth is common and misleads; questions of one line have a third."""
FIRST = 10
"""Records at which the walk begins where nothing is named."""


class Matched(NamedTuple):
    """An entity that the query names, and which of its words do so."""

    entity: Entry
    key: str
    first: int
    last: int
    only: tuple[int, ...] | None = None
    """The records that may be taken to name it so; None: all of the entity's (meant.py)."""


def named(snapshot: Snapshot, store: Store, filter: Filter, text: str) -> tuple[Matched, ...]:
    """Entities that a text names, by its longest windows of words, to one who may see what matches
    the filter."""
    said = spelt(text)[:MOST_WORDS]
    windows: dict[tuple[int, int], str] = {}
    for i, word in enumerate(said):
        if unspaced(word):
            continue
        for j in range(i, min(len(said), i + LONGEST_WINDOW)):
            if i == j and word.lower() in STOPWORDS:
                continue
            windows[i, j] = key(" ".join(said[i : j + 1]))
    found = meant(snapshot, store, filter, sorted({k for k in windows.values() if k}))
    taken = [False] * len(said)
    matched: list[Matched] = []
    for (i, j), name in sorted(windows.items(), key=lambda w: (w[0][0] - w[0][1], w[0])):
        if name in found and not any(taken[i : j + 1]):
            matched.append(Matched(found[name].entity, name, i, j, found[name].only))
            taken[i : j + 1] = [True] * (j + 1 - i)
    matched += _in_runs(snapshot, store, filter, said)
    return tuple(sorted(matched, key=lambda m: (m.first, m.last, m.key)))


def _in_runs(
    snapshot: Snapshot, store: Store, filter: Filter, said: Sequence[str]
) -> list[Matched]:
    """Names within words of scripts that have no spaces, the longest first."""
    matched: list[Matched] = []
    for i, run in enumerate(said):
        if not unspaced(run):
            continue
        some = run[:60]
        parts = {
            some[a:b]
            for a in range(len(some))
            for b in range(a + 2, min(len(some), a + MOST_RUN) + 1)
        }
        found = meant(snapshot, store, filter, sorted(parts))
        at = 0
        while at < len(some):
            for b in range(min(len(some), at + MOST_RUN), at + 1, -1):
                if (one := found.get(some[at:b])) is not None:
                    matched.append(Matched(one.entity, some[at:b], i, i, one.only))
                    at = b - 1
                    break
            at += 1
    return matched


def visible(
    store: Store, filter: Filter, snapshot: Snapshot
) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Which nodes may be stepped on: entities, and records that exist, match the filter and
    have not changed since."""
    import numpy as np

    def allowed(nodes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(nodes), np.bool_)
        records = nodes < snapshot.records
        ids = snapshot.ids(nodes[records].tolist())
        may = seen(snapshot, store, filter, list(ids.values()))
        mask[records] = [ids.get(node) in may for node in nodes[records].tolist()]
        return mask

    return allowed


def near(
    snapshot: Snapshot, store: Store, filter: Filter, seeds: Mapping[int, float]
) -> tuple[dict[str, float], dict[int, float]]:
    """What a walk from these nodes finds: records by id and entities by node, the nearest first,
    with how much came to rest there."""
    mass = spread(
        snapshot.begins,
        snapshot.targets,
        snapshot.shares,
        seeds,
        allowed=visible(store, filter, snapshot),
    )
    order = sorted(mass, key=lambda node: (-mass[node], node))
    records = [node for node in order if node < snapshot.records][:NEIGHBOURS]
    ids = snapshot.ids(records)
    return (
        {ids[node]: mass[node] for node in records},
        {node: mass[node] for node in order if node >= snapshot.records},
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a local search."""

    matched: tuple[Matched, ...]
    pages: tuple[Matched, ...]
    """Those of them that a record is named after."""
    candidates: tuple[Candidate, ...]
    entities: dict[int, float]
    """What else lies near, by node."""


def search(
    snapshot: Snapshot,
    store: Store,
    text: str,
    terms: Terms,
    filter: Filter,
    *,
    limit: int,
    sure: bool = False,
) -> Found:
    """Records near the entities that the text names, best first.

    Where it names a record (by its title, its file's name or an alias), that record counts 1, and
    a neighbour as much as it is near and has the other words. Where it names other things only, or
    nothing that is known (then the walk begins where its words are found), all of it is a trifle,
    for those who ask nobody else; with `sure` it is nothing, and so it is where a long text names
    a record in passing.
    """
    matched = named(snapshot, store, filter, text)
    owners = _owners(snapshot, matched)
    pages = tuple(one for one in matched if one in owners)
    seeds, own = _seeds(snapshot, store, filter, pages, owners)
    rest = _beside(text, pages)
    if sure and not (own and _share(text, pages) >= LEAST_SHARE):
        return Found(matched, pages, (), {})
    if not seeds:
        seeds = _begun(matched, _weighed(matched, snapshot))
        rest = _beside(text, matched) or rest
    if not seeds:
        first = store.keyword(terms, filter, limit=FIRST) if terms else []
        nodes = snapshot.nodes_of([one.id for one in first])
        seeds = {nodes[one.id]: one.score for one in first if one.id in nodes}
    if not seeds:
        return Found(matched, pages, (), {})
    records, entities = near(snapshot, store, filter, seeds)
    if len(records) < limit:
        records |= _beyond(snapshot, store, filter, matched, records, most=limit - len(records))
    part = 1.0 if own else TRIFLE
    candidates = _ranked(store, filter, terms, records, own, rest, part=part)
    return Found(matched, pages, tuple(candidates[:limit]), entities)


def _owners(snapshot: Snapshot, matched: Sequence[Matched]) -> dict[Matched, list[int]]:
    """The records that are named so, unless too many are."""
    every = snapshot.owners([one.entity.node for one in matched])
    found: dict[Matched, list[int]] = {}
    for one in matched:
        of = every.get(one.entity.node, [])
        if one.only is not None:
            of = sorted(set(of).intersection(one.only))
        if 1 <= len(of) <= NAMESAKES:
            found[one] = of
    return found


def _begun(matched: Sequence[Matched], weights: Mapping[int, float]) -> dict[int, float]:
    """Where the walk begins if no record is named: at the entities, or at the records that name
    them so."""
    seeds: dict[int, float] = {}
    for one in matched:
        nodes = (one.entity.node,) if one.only is None else one.only
        for node in nodes:
            seeds[node] = max(seeds.get(node, 0.0), weights[one.entity.node] / len(nodes))
    return seeds


def _beyond(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    matched: Sequence[Matched],
    found: Mapping[str, float],
    *,
    most: int,
) -> dict[str, float]:
    """Records to which no edge leads, since the entity is named by more than have one: where a
    filter leaves but few, they may be all there is."""
    nodes: list[int] = []
    query = """SELECT record FROM mentions WHERE entity = ?
               ORDER BY after DESC, times DESC, record"""
    for one in matched:
        if one.only is None and one.entity.records > MOST_RECORDS:
            node, room = one.entity.node, most + len(found)
            nodes += picked(snapshot, store, filter, query, (node,), most=room)
    ids = snapshot.ids(nodes)
    new = [name for node in dict.fromkeys(nodes) if (name := ids[node]) not in found]
    return dict.fromkeys(new[:most], 0.0)


def _seeds(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    pages: Sequence[Matched],
    owners: Mapping[Matched, Sequence[int]],
) -> tuple[dict[int, float], dict[str, float]]:
    """Where the walk begins if records are named: at those that may be seen; and what each of them
    counts by itself."""
    weights = _weighed(pages, snapshot)
    nodes = sorted({record for one in pages for record in owners[one]})
    ids = snapshot.ids(nodes)
    may = seen(snapshot, store, filter, list(ids.values()))
    seeds: dict[int, float] = {}
    own: dict[str, float] = {}
    for one in pages:
        there = [node for node in owners[one] if ids[node] in may]
        for node in there:
            weight = weights[one.entity.node] / len(there)
            seeds[node] = max(seeds.get(node, 0.0), weight)
            own[ids[node]] = max(own.get(ids[node], 0.0), len(there) ** -0.5)
    return seeds, own


def _weighed(matched: Sequence[Matched], snapshot: Snapshot) -> dict[int, float]:
    """A rare name says more than one that everybody uses, a long one more than a short one."""
    weights: dict[int, float] = {}
    for one in matched:
        weight = idf(one.entity.records, snapshot.records) ** 2 * (one.last - one.first + 1)
        weights[one.entity.node] = max(weights.get(one.entity.node, 0.0), weight)
    return weights


def _share(text: str, matched: Sequence[Matched]) -> float:
    """The part of the words with content that these names take up."""
    said = spelt(text)[:MOST_WORDS]
    content = {i for i, word in enumerate(said) if word.lower() not in STOPWORDS}
    taken = {i for one in matched for i in range(one.first, one.last + 1)}
    return len(taken & content) / len(content) if content else 0.0


def _beside(text: str, matched: Sequence[Matched]) -> Terms:
    """The words with content that these names leave over."""
    taken = {i for one in matched for i in range(one.first, one.last + 1)}
    said = [w for i, w in enumerate(spelt(text)[:MOST_WORDS]) if i not in taken]
    content = " ".join(word for word in said if word.lower() not in STOPWORDS)
    return Terms(words=tuple(words(content))) if content else Terms()


def _ranked(
    store: Store,
    filter: Filter,
    terms: Terms,
    records: Mapping[str, float],
    own: Mapping[str, float],
    rest: Terms,
    *,
    part: float,
) -> list[Candidate]:
    if not records:
        return []
    having: dict[str, Candidate] = {}
    if rest:
        # Of all records, not of the near ones: a filter of that many ids would cost more than all.
        hits = store.keyword(replace(terms, words=rest.words), filter, limit=NEIGHBOURS)
        having = {one.id: one for one in hits if one.id in records}
    most = max((one.score for one in having.values()), default=0.0) or 1.0
    floor = TRIFLE if own else ALONE
    others = [name for name in records if name not in own]  # the nearest first
    found = [Candidate(name, own[name] * part) for name in records if name in own]
    for rank, name in enumerate(others):
        nearness = 1.0 / (1.0 + rank / HALF)
        match = having[name].score / most if name in having else 0.0
        score = nearness * (floor + (1.0 - floor) * match) * part
        found.append(Candidate(name, score, having[name].chunk if name in having else None))
    if terms.phrases or terms.excluded:
        texts = {record.id: record.content for record in store.get(list(records))}
        found = [one for one in found if one.id in texts and fits(terms, texts[one.id])]
    return sorted(found, key=lambda one: (-one.score, one.id))
