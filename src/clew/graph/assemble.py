"""From what each record says to one graph: aliases merged, links resolved, edges weighed, capped.

Nodes are records (first) and entities. An edge leads from a record to an entity it names, or from a
record to one it links to. An entity that nearly everybody names says little: it weighs little (as
in BM25, by how rare it is), and no entity has more than `MOST_RECORDS` edges, so that one with ten
thousand mentions neither costs more than another nor draws everything to itself.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.graph.extracts import Known
from clew.graph.links import Targets
from clew.graph.names import key
from clew.text.analyser import STOPWORDS

__all__ = ["Assembled", "Entity", "Relation", "assemble", "compressed"]

MOST_RECORDS = 200
"""Edges of an entity."""
MOST_ENTITIES = 60
"""Edges of a record to entities."""
MOST_TOGETHER = 12
"""Entities of one passage that are taken to belong together, the rarest."""
MOST_RELATED = 20
"""Relations kept of one entity."""
LINK, NAMING = 1.5, 2.0
"""What a link and being named after counts, where a mention of something rare counts 1."""
SURE = 0.8
"""The part of its uses that an acronym or a link's words must have in one meaning."""
_ANY_PAGE = """
    here this link page site docs documentation read more guide following below above reference
    tutorial example details it there website home source see index readme overview introduction
    contents
"""
GENERIC = frozenset(_ANY_PAGE.split())
"""What links say and pages are called everywhere."""


class Entity(NamedTuple):
    name: str
    kind: str
    records: int
    mentions: int


class Relation(NamedTuple):
    first: int
    second: int
    kind: str
    weight: float
    stated: tuple[int, ...] = ()
    """The records that say so; none for those of being named together."""


@dataclass(slots=True)
class Assembled:
    """The whole graph, ready to be written. Nodes: records from 0, then entities."""

    ids: list[str]
    digests: list[str]
    """Of the versions of the records that all this was taken from."""
    entities: list[Entity]
    names: dict[str, int]
    """Every key and alias, to the entity's node."""
    writers: list[tuple[str, int]]
    """(key, record that has it)"""
    joins: list[tuple[str, str, int]]
    """(key, another of the same entity, record that says they are the same)"""
    mentions: list[tuple[int, int, int, bool, str]]
    """(entity, record, how often, whether the record is named after it, how it is written there),
    by entity."""
    links: list[tuple[int, int]]
    relations: list[Relation]
    edges: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]
    """Ends and weights, each edge once."""

    @property
    def nodes(self) -> int:
        return len(self.ids) + len(self.entities)


_Said = defaultdict[str, defaultdict[str, list[int]]]
"""What a name may mean, and the records that use it so."""


class _Merged:
    """Keys that mean the same (union–find; the smaller key stands for both until named), and which
    records say so."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self.said: dict[tuple[str, str], set[int]] = defaultdict(set)

    def find(self, name: str) -> str:
        root = name
        while (above := self._parent.get(root, root)) != root:
            root = above
        while (above := self._parent.get(name, name)) != root:
            self._parent[name] = root
            name = above
        return root

    def join(self, first: str, second: str, said: Iterable[int]) -> None:
        if first != second:
            self.said[first, second].update(said)
        a, b = self.find(first), self.find(second)
        if a != b:
            low, high = sorted((a, b))
            self._parent[high] = low

    def members(self) -> Iterable[str]:
        """All that were joined, those that stand for others too."""
        return {*self._parent, *self._parent.values()}


def assemble(records: Iterable[Known]) -> Assembled:
    """Deterministic: the order of the ids decides every tie."""
    known = list(records)
    count = len(known)
    targets = Targets((r.id, r.title, r.path) for r in known)
    titles = [key(r.title) for r in known]
    links: dict[tuple[int, int], None] = {}
    anchors: _Said = defaultdict(lambda: defaultdict(list))
    for number, record in enumerate(known):
        for target, words in record.data.anchors:
            found = targets.find(target, source=number, path=record.path)
            if found is None or found == number:
                continue
            links[number, found] = None
            if words and titles[found] and (said := key(words)):
                anchors[said][titles[found]].append(number)
    merged = _aliases(known, titles, anchors)
    # ------------------------------------------------ entities
    groups: dict[str, int] = {}
    spellings: list[Counter[str]] = []
    kinds: list[Counter[str]] = []
    mentions: dict[tuple[int, int], int] = {}
    written: dict[tuple[int, int], tuple[int, str]] = {}
    passages: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, record in enumerate(known):
        for name, mention in record.data.mentions.items():
            root = merged.find(name)
            entity = groups.setdefault(root, len(groups))
            if entity == len(spellings):
                spellings.append(Counter())
                kinds.append(Counter())
            rank = 1000 if mention.kind == "page" and titles[number] == name else mention.count
            spellings[entity][mention.text] += rank
            kinds[entity][mention.kind] += mention.count
            at = entity, number
            mentions[at] = mentions.get(at, 0) + mention.count
            written[at] = max(written.get(at, (0, "")), (rank, mention.text))
            for chunk in mention.chunks:
                passages[number, chunk].add(entity)
    frequency = Counter(entity for entity, _ in mentions)
    total: Counter[int] = Counter()
    for (entity, _), times in mentions.items():
        total[entity] += times
    own = [groups.get(merged.find(title), -1) if title else -1 for title in titles]
    pages = set(own)
    entities = [
        Entity(
            _best(spellings[e]), "page" if e in pages else _best(kinds[e]), frequency[e], total[e]
        )
        for e in range(len(spellings))
    ]
    rarity = [idf(entity.records, count) for entity in entities]
    names = {name: count + groups[root] for name, root in _spelt(known, merged) if root in groups}
    joins = [
        (one, other, number)
        for (one, other), by in sorted(merged.said.items())
        if one in names and other in names
        for number in sorted(by)
    ]
    rows = [
        (entity, number, times, own[number] == entity, written[entity, number][1])
        for (entity, number), times in sorted(mentions.items())
    ]
    return Assembled(
        ids=[r.id for r in known],
        digests=[r.digest for r in known],
        entities=entities,
        names=names,
        writers=[(name, number) for number, r in enumerate(known) for name in r.data.mentions],
        joins=joins,
        mentions=rows,
        links=sorted(links),
        relations=_relations(known, merged, groups, own, passages, rarity),
        edges=_edges(rows, list(links), rarity, records=count),
    )


def idf(records: int, of: int) -> float:
    """How much it says that a record names this: 1 for what one has, near 0 for what all have."""
    if of < 2:
        return 1.0
    return max(0.02, math.log((of + 1) / (records + 0.5)) / math.log((of + 1) / 1.5))


def _best(counts: Mapping[str, int]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))


def _spelt(known: Sequence[Known], merged: _Merged) -> Iterator[tuple[str, str]]:
    for record in known:
        for name in record.data.mentions:
            yield name, merged.find(name)
    for name in sorted(merged.members()):
        yield name, merged.find(name)


# ---------------------------------------------------------------------- aliases


def _aliases(
    known: Sequence[Known], titles: Sequence[str], anchors: Mapping[str, Mapping[str, list[int]]]
) -> _Merged:
    merged = _Merged()
    titled = Counter(title for title in titles if title)
    owners: _Said = defaultdict(lambda: defaultdict(list))
    for number, (record, title) in enumerate(zip(known, titles, strict=True)):
        for alias in record.data.own:
            if title and alias != title:
                owners[alias][title].append(number)
    for alias, pages in sorted(owners.items()):
        if len(pages) == 1 and alias not in titled and _telling(alias):
            for title, by in pages.items():
                merged.join(alias, title, by)
    for said, of in sorted(anchors.items()):
        title, by = max(of.items(), key=lambda pair: (len(pair[1]), pair[0]))
        sure = len(by) >= SURE * sum(map(len, of.values())) and titled[title] == 1
        if sure and said not in titled and _telling(said) and len(said.split()) <= 5:
            merged.join(said, title, by)
    meanings: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for number, record in enumerate(known):
        for short, long in record.data.acronyms:
            meanings[short][merged.find(long)].append((long, number))
    for short, kinds in sorted(meanings.items()):
        _, uses = max(kinds.items(), key=lambda pair: (len(pair[1]), pair[0]))
        if len(uses) >= SURE * sum(map(len, kinds.values())):
            for long, number in uses:
                merged.join(short, long, (number,))
    return merged


def _telling(name: str) -> bool:
    """Not what any page might be called, and not digits alone."""
    words = [w for w in name.split() if w not in GENERIC and w not in STOPWORDS]
    return any(not word.isdigit() for word in words)


# ---------------------------------------------------------------------- relations


def _relations(
    known: Sequence[Known],
    merged: _Merged,
    groups: Mapping[str, int],
    own: Sequence[int],
    passages: Mapping[tuple[int, int], set[int]],
    rarity: Sequence[float],
) -> list[Relation]:
    """Stated ones, and those of being named in one passage, the strongest of each entity."""
    said: dict[tuple[int, int, str], dict[int, None]] = defaultdict(dict)
    for number, record in enumerate(known):
        for one, kind, other in record.data.relations:
            a = groups.get(merged.find(one), -1) if one else own[number]
            b = groups.get(merged.find(other), -1)
            if a >= 0 and b >= 0 and a != b:
                said[a, b, kind][number] = None
    pairs: list[int] = []
    size = len(rarity)
    for together in passages.values():
        some = sorted(together, key=lambda e: (-rarity[e], e))[:MOST_TOGETHER]
        some.sort()
        pairs += [a * size + b for i, a in enumerate(some) for b in some[i + 1 :]]
    found = [
        Relation(a, b, kind, float(len(by)), tuple(by))
        for (a, b, kind), by in sorted(said.items(), key=lambda pair: pair[0])
    ]
    if not pairs:
        return found
    codes, counts = np.unique(np.asarray(pairs, np.int64), return_counts=True)
    rare = np.asarray(rarity)
    first, second = codes // size, codes % size
    weight = (1 + np.log(counts)) * rare[first] * rare[second]
    kept = _strongest(first, second, weight, size)
    for i in kept:
        found.append(Relation(int(first[i]), int(second[i]), "together", float(weight[i])))
    return found


def _strongest(
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    size: int,
) -> list[int]:
    """Places of those that are among the strongest of either end."""
    order = np.lexsort((second, first, -weight))
    held = np.zeros(size, np.int64)
    kept: list[int] = []
    for i in order.tolist():
        a, b = first[i], second[i]
        if held[a] < MOST_RELATED or held[b] < MOST_RELATED:
            held[a] += 1
            held[b] += 1
            kept.append(i)
    return kept


# ---------------------------------------------------------------------- edges


def _edges(
    rows: Sequence[tuple[int, int, int, bool, str]],
    links: Sequence[tuple[int, int]],
    rarity: Sequence[float],
    *,
    records: int,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    entity = np.asarray([row[0] for row in rows], np.int64)
    record = np.asarray([row[1] for row in rows], np.int64)
    times = np.asarray([row[2] for row in rows], np.float64)
    after = np.asarray([row[3] for row in rows], np.bool_)
    rare = np.asarray(rarity)[entity] if len(rows) else np.empty(0)
    weight = (1 + np.log(np.maximum(times, 1)) / 2) * rare**2 * np.where(after, NAMING, 1.0)
    kept = _capped(entity, record, weight, MOST_RECORDS)
    kept &= _capped(record, entity, weight, MOST_ENTITIES) | after
    joined = Counter(tuple(sorted(pair)) for pair in links)
    pairs = sorted(joined)
    return (
        np.concatenate([record[kept], [a for a, _ in pairs]]).astype(np.int32),
        np.concatenate([entity[kept] + records, [b for _, b in pairs]]).astype(np.int32),
        np.concatenate([weight[kept], [LINK * joined[p] ** 0.5 for p in pairs]]).astype(np.float32),
    )


def _capped(
    of: npt.NDArray[np.int64],
    ties: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    most: int,
) -> npt.NDArray[np.bool_]:
    """The heaviest of each group."""
    order = np.lexsort((ties, -weight, of))
    grouped = of[order]
    starts = np.searchsorted(grouped, grouped, side="left")
    kept = np.zeros(len(of), np.bool_)
    kept[order[np.arange(len(of)) - starts < most]] = True
    return kept


def compressed(
    edges: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]], nodes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Both directions, row by row: where each node's edges begin, where they lead, what share of
    the node's weight each has."""
    one, other, weight = edges
    source = np.concatenate([one, other])
    target = np.concatenate([other, one])
    both = np.concatenate([weight, weight]).astype(np.float64)
    order = np.lexsort((target, source))
    source, target, both = source[order], target[order], both[order]
    begins = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=nodes), out=begins[1:])
    sums = np.bincount(source, weights=both, minlength=nodes)
    shares = both / np.maximum(sums[source], 1e-12) if len(source) else both
    return begins, target.astype(np.int32), shares.astype(np.float32)
