"""From what each record says to one graph: aliases merged, links resolved, edges weighed, capped.

Nodes are records (first) and entities. An edge leads from a record to an entity it names, or from a
record to one it links to. An entity that nearly everybody names says little: it weighs little (as
in BM25, by how rare it is), and no entity has more than `MOST_RECORDS` edges, so that one with ten
thousand mentions neither costs more than another nor draws everything to itself.
"""

from __future__ import annotations

import math
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.graph.extract import RecordExtract, key, title_keys
from clew.text.analyser import STOPWORDS, unspaced

MOST_RECORDS = 200  # edges of an entity
MOST_ENTITIES = 60  # edges of a record to entities
MOST_TOGETHER = 12  # entities of one passage that are taken to belong together, the rarest
MOST_RELATED = 20  # relations kept of one entity
LINK, NAMING = 1.5, 2.0
"""What a link and being named after counts, where a mention of something rare counts 1."""
NAMESAKES = 8  # a title that more records have names none of them
COMMON = 10, 0.05
"""So many records, or this part of all, may write a title before it is a word like any other."""
SECTIONS = 2  # pages that may call a section so before it is part of a template
SURE = 0.8  # the part of its uses that an acronym or a link's words must have in one meaning
LINKED = 0.34  # the part of the records with a link's words that link by them, for a name
SHORTEST = 3  # letters of an acronym that is one without a text that says so
_ANY_PAGE = """
    here this link page site docs documentation read more guide following below above reference
    tutorial example details it there website home source see index readme overview introduction
    contents
"""
GENERIC = frozenset(_ANY_PAGE.split())
"""What links say and pages are called everywhere."""

Edges = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]
"""Ends and weights, each edge once."""
GraphRows = dict[str, Sequence[tuple[Any, ...]]]


@dataclass(slots=True)
class EntityGraph:
    """The whole graph, ready to be written. Nodes: records from 0, then entities."""

    ids: list[str]
    """Of the records."""
    tables: GraphRows
    """Rows of records, entities, names and so on, as the snapshot's schema has them."""
    edges: Edges

    @property
    def nodes(self) -> int:
        return len(self.ids) + len(self.tables["entities"])


def assemble(records: Iterable[RecordExtract]) -> EntityGraph:
    """Deterministic: the order of the ids decides every tie."""
    known = list(records)
    count = len(known)
    titles = [key(record.title) for record in known]
    links, anchors = _resolve_links(known, titles)
    aliases = _find_aliases(known, titles, anchors)
    sections = _find_sections(known)
    groups: dict[str, int] = {}
    spellings: list[Counter[str]] = []
    kinds: list[Counter[str]] = []
    mentions: Counter[tuple[int, int]] = Counter()
    written: dict[tuple[int, int], tuple[int, str]] = {}
    passages: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, record in enumerate(known):
        for name, mention in record.data.mentions.items():
            if name in sections:
                continue
            entity = groups.setdefault(aliases.find(name), len(groups))
            if entity == len(spellings):
                spellings.append(Counter())
                kinds.append(Counter())
            rank = 1000 if mention.kind == "page" and titles[number] == name else mention.count
            spellings[entity][mention.text] += rank
            kinds[entity][mention.kind] += mention.count
            mentions[entity, number] += mention.count
            best = written.get((entity, number), (0, ""))
            written[entity, number] = max(best, (rank, mention.text))
            for chunk in mention.chunks:
                passages[number, chunk].add(entity)
    frequency: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for (entity, _), times in mentions.items():
        frequency[entity] += 1
        total[entity] += times
    rarity = [idf(frequency[entity], count) for entity in range(len(groups))]
    own = [groups.get(aliases.find(title), -1) if title else -1 for title in titles]
    pages = set(own)
    naming = [
        (entity, number, times, own[number] == entity, written[entity, number][1])
        for (entity, number), times in sorted(mentions.items())
    ]
    nodes = {
        name: count + groups[root]
        for name in {*aliases.members(), *(name for r in known for name in r.data.mentions)}
        if name not in sections
        if (root := aliases.find(name)) in groups
    }
    numbers = {name: number for number, name in enumerate(sorted(nodes))}
    stated: dict[tuple[int, int, str], dict[int, None]] = defaultdict(dict)
    for number, record in enumerate(known):
        for one, kind, other in record.data.relations:
            a = groups.get(aliases.find(one), -1) if one else own[number]
            b = groups.get(aliases.find(other), -1)
            if a >= 0 and b >= 0 and a != b:
                stated[a, b, kind][number] = None
    statements = sorted(stated.items(), key=lambda item: item[0])
    relations = [
        *((*pair, float(len(by))) for pair, by in statements),
        *_relate_neighbours(passages.values(), rarity),
    ]
    tables: GraphRows = {
        "records": [(node, r.id, r.digest) for node, r in enumerate(known)],
        "entities": [
            (count + e, _most(names), "page" if e in pages else _most(of), frequency[e], total[e])
            for e, (names, of) in enumerate(zip(spellings, kinds, strict=True))
        ],
        "names": [(number, name, nodes[name]) for name, number in numbers.items()],
        "writers": [
            (numbers[name], n)
            for n, r in enumerate(known)
            for name in r.data.mentions
            if name in numbers
        ],
        "joins": [
            (nodes[one], numbers[one], numbers[other], number)
            for (one, other), by in aliases.said.items()
            if one in nodes and other in nodes
            for number in by
        ],
        "mentions": [(count + entity, *rest) for entity, *rest in naming],
        "links": lead_on(known, links),
        "titles": [(name, n) for n, record in enumerate(known) for name in own_titles(record)],
        "relations": [
            (number, count + first, count + second, kind, weight)
            for number, (first, second, kind, weight) in enumerate(relations)
        ],
        "stated": [(number, node) for number, (_, by) in enumerate(statements) for node in by],
    }
    return EntityGraph([r.id for r in known], tables, _weigh_edges(naming, links, rarity, count))


def _find_sections(known: Sequence[RecordExtract]) -> set[str]:
    """What several pages call a section and nobody calls anything else: `Before you begin`."""
    headings: Counter[str] = Counter()
    others: set[str] = set()
    for record in known:
        for name, mention in record.data.mentions.items():
            if mention.kind == "heading":
                headings[name] += 1
            else:
                others.add(name)
    return {name for name, count in headings.items() if count > SECTIONS and name not in others}


def own_titles(record: RecordExtract) -> list[str]:
    """What a query may call a record, without spaces: `Mcdull` is McDull."""
    names = (*title_keys(record.title), *record.data.own)
    return sorted({name.replace(" ", "") for name in names if _is_telling(name)})


def lead_on(
    known: Sequence[RecordExtract],
    links: Iterable[tuple[int, int]],
    *,
    naming: Sequence[int] | None = None,
) -> list[tuple[int, int, int]]:
    """(source, target, place): a record links to another, or its text has the other's title, unless
    so many have that it says nothing. By the order in which the text has them, links behind.
    `naming` is how many others lead to each already, where not all records have their data."""
    called = [title_keys(record.title) for record in known]
    owners: dict[str, list[int]] = defaultdict(list)
    for number, names in enumerate(called):
        for name in names:
            owners[name].append(number)
    writing = Counter(name for record in known for name in set(record.data.titles))
    most = max(COMMON[0], COMMON[1] * len(known))
    found: dict[tuple[int, int], int] = {}
    for number, record in enumerate(known):
        for name in record.data.titles:
            for other in owners[name] if len(owners[name]) <= NAMESAKES else ():
                # one word, of which the title itself says that it means other things as well
                unsure = name != called[other][0] and " " not in name and not unspaced(name)
                common = writing[name] if naming is None else max(writing[name], naming[other] + 1)
                itself = not set(called[number]).isdisjoint(called[other])
                if common <= (COMMON[0] if unsure else most) and not itself:
                    found.setdefault((number, other), len(found))
    for pair in sorted(links):
        found.setdefault(pair, len(found))
    return sorted((*pair, place) for pair, place in found.items())


def idf(records: int, of: int) -> float:
    """How much it says that a record names this: 1 for what one has, near 0 for what all have."""
    if of < 2:
        return 1.0
    return max(0.02, math.log((of + 1) / (records + 0.5)) / math.log((of + 1) / 1.5))


def _most(counts: Mapping[str, int]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))


# ---------------------------------------------------------------------- links

_PAGES = frozenset({".md", ".markdown", ".mdx", ".rst", ".html", ".htm", ".txt"})
_Uses = defaultdict[str, defaultdict[str, list[int]]]
"""What a name may mean, and the records that use it so."""


class LinkResolver:
    """Finds the record that a link means. It may use a path from where it stands, or from a site's
    root that is somewhere below the folder's, a file's name, or a title; records at equal paths of
    two folders are told apart by id."""

    def __init__(self, known: Sequence[RecordExtract]):
        self._known = known
        self._paths: dict[str, list[int]] = defaultdict(list)
        self._ends: dict[str, list[int]] = defaultdict(list)
        self._names: dict[str, list[int]] = defaultdict(list)
        self._roots = [record.id.partition(":")[0] for record in known]
        for number, record in enumerate(known):
            path = record.path or record.id
            for place in {_bare(path), _bare(record.id)}:
                self._paths[place].append(number)
            steps = _bare(path).split("/")
            for i in range(1, len(steps) - 1):  # a last step alone is a file's name
                self._ends["/".join(steps[i:])].append(number)
            for said in {key(PurePosixPath(path).stem), key(record.title)} - {""}:
                self._names[said].append(number)

    def find(self, source: int, target: str) -> int | None:
        """Of the record with this number; None: nowhere, or it cannot be told."""
        if not (target := target.strip()):
            return None
        path = self._known[source].path or ""
        # a page may be served as a folder of its own: ../other is its neighbour then
        places = [posixpath.join(posixpath.dirname(path), target), target]
        places.append(posixpath.join(_bare(path), target))
        if target.startswith("/"):
            places = [target.lstrip("/")]
        places = [_bare(posixpath.normpath(place)) for place in places]
        may = [self._paths.get(place, []) for place in places]
        may += [self._ends.get(place.lstrip("./"), []) for place in places]
        if "/" not in target.strip("/"):  # else a path that leads nowhere, which is not a name
            stem = PurePosixPath(target).stem if PurePosixPath(target).suffix else target
            may.append(self._names.get(key(stem), []))
        for numbers in may:  # the only one, or the only one of the source's own folder
            if len(numbers) > 1:
                numbers = [n for n in numbers if self._roots[n] == self._roots[source]]
            if len(numbers) == 1:
                return numbers[0]
        return None


def _resolve_links(
    known: Sequence[RecordExtract], titles: Sequence[str]
) -> tuple[set[tuple[int, int]], _Uses]:
    """Which record links to which; and by the words of links, the titles they lead to."""
    resolver = LinkResolver(known)
    links: set[tuple[int, int]] = set()
    anchors: _Uses = defaultdict(lambda: defaultdict(list))
    for number, record in enumerate(known):
        for target, words in record.data.anchors:
            found = resolver.find(number, target)
            if found is None or found == number:
                continue
            links.add((number, found))
            if _is_title_like(words, known[found].title) and (said := key(words)):
                anchors[said][titles[found]].append(number)
    return links, anchors


def _is_title_like(words: str, title: str) -> bool:
    """Whether a link's words may be another name of its page: written as a name; and of a part of
    the title only how it begins, where all of it is a name. `Greta` is Greta Oltmanns, `Linux` is
    not Install kubectl on Linux."""
    if not words or not title or words[0].islower():
        return False
    said, whole = key(words).split(), key(title).split()
    if not set(said) < set(whole):
        return True
    named = all(word[:1].isupper() for word in title.split() if word.lower() not in STOPWORDS)
    return named and whole[: len(said)] == said


def _bare(path: str) -> str:
    """Without the suffix that links to pages often leave out, and without index files."""
    place = path.rpartition(":")[2].strip("/").casefold()
    suffix = PurePosixPath(place).suffix
    if suffix in _PAGES:
        place = place.removesuffix(suffix)
    return place.removesuffix("/_index").removesuffix("/index")


# ---------------------------------------------------------------------- aliases


class _Aliases:
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
        low, high = sorted((self.find(first), self.find(second)))
        if low != high:
            self._parent[high] = low

    def members(self) -> set[str]:
        """All that were joined, those that stand for others too."""
        return {*self._parent, *self._parent.values()}


def _find_aliases(
    known: Sequence[RecordExtract], titles: Sequence[str], anchors: _Uses
) -> _Aliases:
    """By front matter and file names, by the words of links, by acronyms that are spelt out."""
    aliases = _Aliases()
    titled = Counter(title for title in titles if title)
    owners: _Uses = defaultdict(lambda: defaultdict(list))
    for number, (record, title) in enumerate(zip(known, titles, strict=True)):
        for alias in record.data.own:
            if title and alias != title:
                owners[alias][title].append(number)
    for alias, pages in sorted(owners.items()):
        if len(pages) == 1 and alias not in titled and _is_telling(alias):
            for title, by in pages.items():
                aliases.join(alias, title, by)
    mentioned = Counter(name for record in known for name in record.data.mentions)
    for said, of in sorted(anchors.items()):
        title, by = max(of.items(), key=lambda pair: (len(pair[1]), pair[0]))
        sure = len(by) >= SURE * sum(map(len, of.values())) and titled[title] == 1
        sure = sure and len(set(by)) >= LINKED * mentioned[said]
        if sure and said not in titled and _is_telling(said) and len(said.split()) <= 5:
            aliases.join(said, title, by)
    meanings: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for number, record in enumerate(known):
        for short, long in (*record.data.acronyms, *_spell_out(record)):
            meanings[short][aliases.find(long)].append((long, number))
    for short, kinds in sorted(meanings.items()):
        _, uses = max(kinds.items(), key=lambda pair: (len(pair[1]), pair[0]))
        if len(uses) >= SURE * sum(map(len, kinds.values())):
            for long, number in uses:
                aliases.join(short, long, (number,))
    return aliases


def _spell_out(record: RecordExtract) -> Iterator[tuple[str, str]]:
    """Acronyms of a record, and names of it that they are the initials of: PDB beside
    PodDisruptionBudget."""
    mentions = record.data.mentions
    short = {
        name for name, of in mentions.items() if of.kind == "acronym" and SHORTEST <= len(name) <= 6
    }
    for name in mentions if short else ():
        pieces = name.split()
        if SHORTEST <= len(pieces) <= 6 and (letters := "".join(p[0] for p in pieces)) in short:
            yield letters, name


def _is_telling(name: str) -> bool:
    """Not what any page might be called, and not digits alone."""
    words = [w for w in name.split() if w not in GENERIC and w not in STOPWORDS]
    return any(not word.isdigit() for word in words)


# ---------------------------------------------------------------------- relations and edges


def _relate_neighbours(
    passages: Iterable[set[int]], rarity: Sequence[float]
) -> list[tuple[int, int, str, float]]:
    """Of entities that are named in one passage, the strongest of each."""
    pairs: list[int] = []
    size = len(rarity)
    for together in passages:
        some = sorted(sorted(together, key=lambda e: (-rarity[e], e))[:MOST_TOGETHER])
        pairs += [a * size + b for i, a in enumerate(some) for b in some[i + 1 :]]
    if not pairs:
        return []
    codes, counts = np.unique(np.asarray(pairs, np.int64), return_counts=True)
    rare = np.asarray(rarity)
    first, second = codes // size, codes % size
    weight = (1 + np.log(counts)) * rare[first] * rare[second]
    held = np.zeros(size, np.int64)
    found: list[tuple[int, int, str, float]] = []
    for i in np.lexsort((second, first, -weight)).tolist():
        a, b = int(first[i]), int(second[i])
        if held[a] < MOST_RELATED or held[b] < MOST_RELATED:  # among the strongest of either
            held[a] += 1
            held[b] += 1
            found.append((a, b, "together", float(weight[i])))
    return found


def _weigh_edges(
    rows: Sequence[tuple[int, int, int, bool, str]],
    links: Iterable[tuple[int, int]],
    rarity: Sequence[float],
    records: int,
) -> Edges:
    entity = np.asarray([row[0] for row in rows], np.int64)
    record = np.asarray([row[1] for row in rows], np.int64)
    times = np.asarray([row[2] for row in rows], np.float64)
    after = np.asarray([row[3] for row in rows], np.bool_)
    rare = np.asarray(rarity)[entity] if len(rows) else np.empty(0)
    weight = (1 + np.log(np.maximum(times, 1)) / 2) * rare**2 * np.where(after, NAMING, 1.0)
    kept = _heaviest(entity, record, weight, MOST_RECORDS)
    kept &= _heaviest(record, entity, weight, MOST_ENTITIES) | after
    joined = Counter((min(pair), max(pair)) for pair in links)
    pairs = sorted(joined)
    return (
        np.concatenate([record[kept], [a for a, _ in pairs]]).astype(np.int32),
        np.concatenate([entity[kept] + records, [b for _, b in pairs]]).astype(np.int32),
        np.concatenate([weight[kept], [LINK * joined[p] ** 0.5 for p in pairs]]).astype(np.float32),
    )


def _heaviest(
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


def compress_edges(edges: Edges, nodes: int) -> list[npt.NDArray[Any]]:
    """Both directions, row by row: where each node's edges begin, where they lead, what share of
    the node's weight each has; and that weight."""
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
    arrays = target.astype(np.int32), shares.astype(np.float32), sums.astype(np.float32)
    return [begins, *arrays]
