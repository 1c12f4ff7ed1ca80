"""Local search: what lies near the entities that a query names; and the graph as people look at it.

The query's words are looked up among names and aliases, the longest first. From there a walk
spreads over the records that name them, what else these name and link to, and so on. What the query
says beside the names then tells which of the near records is meant: a neighbour that has those
words as well is what the question is after, though it may not have the name. Nothing is reached by
way of a record that must not be seen, nor shown that only such records say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.errors import InputError
from clew.graph.assemble import MOST_RECORDS, NAMESAKES, idf
from clew.graph.communities import choose_level, describe_themes, largest_themes
from clew.graph.extract import LONGEST_TITLE, key
from clew.graph.snapshot import EACH, GraphSnapshot, GraphView, Meaning, SeenEntity
from clew.storage.ownership import replace_private
from clew.text.analyser import STOPWORDS, fits, has_word, spelt, tokens, unspaced, words
from clew.types import Candidate, Terms

LONGEST_WINDOW = 8  # words of one name
MOST_WORDS = 64  # words of a query that are looked at
MOST_RUN = 12  # characters of a name in a script without spaces
NEIGHBOURS = 400  # near records that are looked at closely
HALF = 10  # the rank at which nearness is half of the nearest's
TRIFLE = 0.01  # what a neighbour counts without any other word of the query
ALONE = 0.3  # the same where no record is named: there is nothing else to go by than what is near
LEAST_SHARE = 0.3
"""The part of a query that names of records must be before it is taken to be about them. On cisi,
whose queries are paragraphs, a tenth is common and misleads; questions of one line have a third."""
FIRST_HITS, THROUGH = 5, 3  # hits that a second hop may begin at, and how many of them it does
MANY, BEHIND = 4, 2  # others that a record may name to lead anywhere, and those that are shown
MOST_READ = 50_000  # characters of a hit in which the other words are looked for
FIRST = 10  # records at which the walk begins where nothing is named

RESTART = 0.5  # the share that stays where it is: far things hardly count (as in HippoRAG)
ROUNDS = 5
FRONT = 500  # nodes that pass something on in one round, those with most
LEAST_MASS = 1e-5
COUNTED = 5_000  # records of one entity that are counted where many entities are shown
MOST_RELATIONS = 200  # relations of one entity that are looked at, and some more for many wanted
TOGETHER = "together"  # how two are related that one passage names
TELLING = {"page": 2.0, "heading": 0.3, "field": 0.5, "tag": 0.5, "link": 0.5, "code": 0.7}
"""What an entity of a kind tells beside a name in a text."""
AMONG = 400  # entities among which the foremost are found
TEMPLATE = Path(__file__).with_name("picture.html")
MOST_NODES = 2_000
PER_ENTITY = 6  # records drawn for one entity


class NameMatch(NamedTuple):
    """What the query names, and which of its words do so."""

    meaning: Meaning
    key: str
    first: int
    last: int

    @property
    def node(self) -> int:
        return self.meaning.entity


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """What a local search found."""

    matched: tuple[NameMatch, ...]
    candidates: tuple[Candidate, ...] = ()
    entities: Mapping[int, float] = field(default_factory=dict)
    """What else lies near, by node, the nearest first."""


def search_near(
    view: GraphView, text: str, terms: Terms, *, limit: int, sure: bool = False
) -> LocalAnswer:
    """Records near the entities that the text names, best first.

    Where it names a record (by its title, its file's name or an alias), that record counts 1, and
    a neighbour as much as it is near and has the other words. Where it names other things only, or
    nothing that is known (then the walk begins where its words are found), all of it is a trifle,
    for those who ask nobody else; with `sure` it is nothing, and so it is where a long text names
    a record in passing.
    """
    snapshot = view.snapshot
    matched = match_names(view, text)
    owners = _owners(snapshot, matched)
    visible = view.visible(record for records in owners.values() for record in records)
    pages = {one: [n for n in records if n in visible] for one, records in owners.items()}
    seeds = _weigh_seeds(snapshot, pages)
    own: dict[str, float] = {}  # what each record that is named counts by itself
    for nodes in pages.values():
        for node in nodes:
            own[visible[node]] = max(own.get(visible[node], 0.0), len(nodes) ** -0.5)
    rest, share = _words_beside(text, owners)
    if sure and not (own and share >= LEAST_SHARE):
        return LocalAnswer(matched)
    if not seeds:
        seeds = _weigh_seeds(snapshot, {one: one.meaning.only or (one.node,) for one in matched})
        rest = _words_beside(text, matched)[0] or rest
    if not seeds and terms:
        hits = view.store.keyword(terms, view.filter, limit=FIRST)
        known = snapshot.nodes_of([hit.id for hit in hits])
        seeds = {known[hit.id]: hit.score for hit in hits if hit.id in known}
    if not seeds:
        return LocalAnswer(matched)
    edges = snapshot.begins, snapshot.targets, snapshot.shares
    mass = spread(*edges, seeds, allowed=partial(_passable, view))
    order = sorted(mass, key=lambda node: (-mass[node], node))
    near = [node for node in order if snapshot.is_record(node)][:NEIGHBOURS]
    ids = snapshot.ids(near)
    records = [ids[node] for node in near]
    if len(records) < limit:
        records += _records_without_edge(view, matched, records, most=limit - len(records))
    candidates = _rank(view, terms, records, own, rest)
    return LocalAnswer(
        matched,
        tuple(candidates[:limit]),
        {node: mass[node] for node in order if not snapshot.is_record(node)},
    )


# ---------------------------------------------------------------------- names


def match_names(view: GraphView, text: str) -> tuple[NameMatch, ...]:
    """Entities that a text names, by its longest windows of words."""
    said = spelt(text)[:MOST_WORDS]
    windows = _key_windows(said, LONGEST_WINDOW)
    found = view.meanings(sorted(set(windows.values())))
    taken = [False] * len(said)
    matched: list[NameMatch] = []
    for (i, j), name in windows.items():
        if name in found and not any(taken[i : j + 1]):
            matched.append(NameMatch(found[name], name, i, j))
            taken[i : j + 1] = [True] * (j + 1 - i)
    for i, word in enumerate(said):
        if unspaced(word):
            matched += _match_within(view, word[:60], i)
    return tuple(sorted(matched, key=lambda m: (m.first, m.last, m.key)))


def _key_windows(said: Sequence[str], longest: int) -> dict[tuple[int, int], str]:
    """What the runs of so many words may name, by first and last place, the longest first. Scripts
    without spaces are left out."""
    windows: dict[tuple[int, int], str] = {}
    for i, word in enumerate(said):
        if unspaced(word):
            continue
        for j in range(i, min(len(said), i + longest)):
            common = i == j and word.lower() in STOPWORDS
            if not common and (name := key(" ".join(said[i : j + 1]))):
                windows[i, j] = name
    return dict(sorted(windows.items(), key=lambda w: (w[0][0] - w[0][1], w[0])))


def _match_within(view: GraphView, run: str, place: int) -> list[NameMatch]:
    """Names within a run of a script that has no spaces, the longest first."""
    starts = range(len(run))
    parts = {run[a:b] for a in starts for b in range(a + 2, min(len(run), a + MOST_RUN) + 1)}
    found = view.meanings(sorted(parts))
    matched: list[NameMatch] = []
    at = 0
    while at < len(run):
        for end in range(min(len(run), at + MOST_RUN), at + 1, -1):
            if (one := found.get(run[at:end])) is not None:
                matched.append(NameMatch(one, run[at:end], place, place))
                at = end - 1
                break
        at += 1
    return matched


def _words_beside(text: str, matched: Iterable[NameMatch]) -> tuple[Terms, float]:
    """The words with content that these names leave over, and the part that they take up."""
    taken = {i for one in matched for i in range(one.first, one.last + 1)}
    said = enumerate(spelt(text)[:MOST_WORDS])
    content = [(i, word) for i, word in said if word.lower() not in STOPWORDS]
    left = [word for i, word in content if i not in taken]
    share = (len(content) - len(left)) / len(content) if content else 0.0
    return Terms(words=tuple(words(" ".join(left)))), share


# ---------------------------------------------------------------------- the second hop


def find_behind(view: GraphView, text: str, hits: Sequence[str]) -> dict[str, list[Candidate]]:
    """What the text asks for by way of records that it names: of the first hits whose title stands
    in it and that lack some of its other words, the few records that they name or link to. One
    that names many leads nowhere in particular."""
    nodes = view.snapshot.nodes_of(hits[:FIRST_HITS])
    named = _match_titles(view, text)
    through = [hit for hit in hits[:FIRST_HITS] if nodes.get(hit) in named][:THROUGH]
    found: dict[str, list[Candidate]] = {}
    for record in view.store.get(through) if through else ():
        # of this title only: what another takes up (`Place of birth`) may be what is asked of this
        asked = _other_words(text, named[nodes[record.id]])
        has = {*tokens(record.title), *tokens(record.content[:MOST_READ])}
        if not all(has_word(word, has) for word in asked):
            targets = view.first_records(
                "SELECT target FROM links WHERE source = ? ORDER BY place",
                (nodes[record.id],),
                most=MANY + len(named) + 1,
            )
            others = [node for node in targets if node not in named]
            if len(others) <= MANY:
                ids = view.snapshot.ids(others[:BEHIND])
                found[record.id] = [Candidate(ids[node], 1.0) for node in others[:BEHIND]]
    return found


def _match_titles(view: GraphView, text: str) -> dict[int, range]:
    """Records that may be seen whose title, file's name or alias a text has, with the places of its
    words; where titles overlap, the longest."""
    said = spelt(text)[:MOST_WORDS]
    windows = {
        places: name.replace(" ", "") for places, name in _key_windows(said, LONGEST_TITLE).items()
    }
    within = {
        word[a:b]: i
        for i, word in enumerate(said)
        if unspaced(word)
        for a in range(min(len(word), MOST_WORDS))
        for b in range(a + 2, min(len(word), a + LONGEST_TITLE) + 1)
    }
    owners: dict[str, list[int]] = {}
    query = "SELECT key, record FROM titles WHERE key IN (SELECT value FROM json_each(?))"
    for name, record in view.snapshot.among(query, sorted({*windows.values(), *within})):
        owners.setdefault(name, []).append(record)
    visible = view.visible(record for some in owners.values() for record in some)
    found: dict[int, range] = {}
    taken: set[int] = set()
    for (i, j), name in windows.items():
        mine = [record for record in owners.get(name, ()) if record in visible]
        if 1 <= len(mine) <= NAMESAKES and taken.isdisjoint(range(i, j + 1)):
            taken.update(range(i, j + 1))
            found |= dict.fromkeys(mine, range(i, j + 1))
    for name in sorted(within.keys() & owners.keys(), key=lambda name: (-len(name), name)):
        for record in owners[name] if len(owners[name]) <= NAMESAKES else ():
            if record in visible:  # the run is one word: what else is in it is asked
                found.setdefault(record, range(0))
    return found


def _other_words(text: str, taken: Collection[int]) -> list[tuple[str, ...]]:
    """The words with content that a title does not take up, each with its tokens."""
    left = [
        word
        for i, word in enumerate(spelt(text)[:MOST_WORDS])
        if i not in taken and word.lower() not in STOPWORDS
    ]
    return words(" ".join(left)) if left else []


# ---------------------------------------------------------------------- where the walk begins


def _owners(snapshot: GraphSnapshot, matched: Sequence[NameMatch]) -> dict[NameMatch, list[int]]:
    """The records that are named so, unless too many are."""
    query = """SELECT entity, record FROM mentions
               WHERE after AND entity IN (SELECT value FROM json_each(?)) ORDER BY 1, 2"""
    every: dict[int, list[int]] = {}
    for entity, record in snapshot.among(query, [one.node for one in matched]):
        every.setdefault(entity, []).append(record)
    found: dict[NameMatch, list[int]] = {}
    for one in matched:
        of = every.get(one.node, [])
        if one.meaning.only is not None:
            of = sorted(set(of).intersection(one.meaning.only))
        if 1 <= len(of) <= NAMESAKES:
            found[one] = of
    return found


def _weigh_seeds(
    snapshot: GraphSnapshot, begins: Mapping[NameMatch, Sequence[int]]
) -> dict[int, float]:
    """Nodes where the walk begins, by what is named. A rare name says more than one that everybody
    uses, a long one more than a short one."""
    weights: dict[int, float] = {}
    for one in begins:
        weight = idf(one.meaning.records, snapshot.records) ** 2 * (one.last - one.first + 1)
        weights[one.node] = max(weights.get(one.node, 0.0), weight)
    seeds: dict[int, float] = {}
    for one, nodes in begins.items():
        for node in nodes:
            seeds[node] = max(seeds.get(node, 0.0), weights[one.node] / len(nodes))
    return seeds


# ---------------------------------------------------------------------- the walk


def _passable(view: GraphView, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which nodes may be stepped on: entities, and records that may be seen."""
    records = {node for node in nodes.tolist() if view.snapshot.is_record(node)}
    hidden = records - view.visible(records).keys()
    return np.asarray([node not in hidden for node in nodes.tolist()], np.bool_)


def spread(
    begins: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int32],
    shares: npt.NDArray[np.float32],
    seeds: Mapping[int, float],
    *,
    allowed: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
) -> dict[int, float]:
    """How much of the seeds' weight comes to rest at each node; at most 1 together.

    Personalised PageRank by pushing, at a cost that does not grow with the graph (Andersen, Chung,
    Lang: Local graph partitioning using PageRank vectors, FOCS 2006), in rounds over a bounded
    front. `allowed` is asked once per round which of the nodes may be stepped on.
    """
    total = sum(seeds.values())
    if not total > 0:
        return {}
    nodes = np.asarray(sorted(seeds), np.int64)
    moving = np.asarray([seeds[int(n)] / total for n in nodes])
    rest: dict[int, float] = {}
    for step in range(ROUNDS):
        may = allowed(nodes)
        nodes, moving = nodes[may], moving[may]
        last = step == ROUNDS - 1
        for node, mass in zip(nodes.tolist(), moving.tolist(), strict=True):
            rest[node] = rest.get(node, 0.0) + mass * (1.0 if last else RESTART)
        if last or not len(nodes):
            break
        if len(nodes) > FRONT:
            front = np.sort(np.lexsort((nodes, -moving))[:FRONT])
            nodes, moving = nodes[front], moving[front]
        counts = begins[nodes + 1] - begins[nodes]
        ends = np.cumsum(counts)
        if not ends[-1]:
            break
        edges = np.arange(ends[-1]) + np.repeat(begins[nodes] - (ends - counts), counts)
        mass = np.repeat(moving * (1.0 - RESTART), counts) * shares[edges]
        reached, where = np.unique(targets[edges], return_inverse=True)
        arrived = np.bincount(where, weights=mass)
        enough = arrived > LEAST_MASS
        nodes, moving = reached[enough].astype(np.int64), arrived[enough]
    return rest


def _records_without_edge(
    view: GraphView, matched: Sequence[NameMatch], found: Sequence[str], *, most: int
) -> list[str]:
    """Records to which no edge leads, since the entity is named by more than have one: where a
    filter leaves but few, they may be all there is."""
    nodes: list[int] = []
    query = """SELECT record FROM mentions WHERE entity = ?
               ORDER BY after DESC, times DESC, record"""
    for one in matched:
        if one.meaning.only is None and one.meaning.records > MOST_RECORDS:
            nodes += view.first_records(query, (one.node,), most=most + len(found))
    ids = view.snapshot.ids(nodes)
    return [ids[node] for node in dict.fromkeys(nodes) if ids[node] not in found][:most]


# ---------------------------------------------------------------------- ranking


def _rank(
    view: GraphView, terms: Terms, records: Sequence[str], own: Mapping[str, float], rest: Terms
) -> list[Candidate]:
    """Rank records, the nearest first, of which `own` are named; `rest` is what else is said."""
    having: dict[str, Candidate] = {}
    if records and rest:
        # Of all records, not of the near ones: a filter of that many ids would cost more than all.
        beside = replace(terms, words=rest.words)
        hits = view.store.keyword(beside, view.filter, limit=NEIGHBOURS)
        near = set(records)
        having = {hit.id: hit for hit in hits if hit.id in near}
    most = max((hit.score for hit in having.values()), default=0.0) or 1.0
    part, floor = (1.0, TRIFLE) if own else (TRIFLE, ALONE)
    found = [Candidate(name, own[name] * part) for name in records if name in own]
    for rank, name in enumerate(name for name in records if name not in own):
        nearness = 1.0 / (1.0 + rank / HALF)
        hit = having.get(name)
        match = hit.score / most if hit else 0.0
        score = nearness * (floor + (1.0 - floor) * match) * part
        found.append(Candidate(name, score, hit.chunk if hit else None))
    if terms.narrows:
        texts = {record.id: record.content for record in view.store.get(records)}
        found = [one for one in found if one.id in texts and fits(terms, texts[one.id])]
    return sorted(found, key=lambda one: (-one.score, one.id))


# ---------------------------------------------------------------------- as people look at it


def parts_of(matched: Iterable[NameMatch]) -> dict[int, set[int]]:
    """The records by which entities were named that were asked for by one of their names only."""
    parts: dict[int, set[int]] = {}
    for one in matched:
        if one.meaning.only is not None:
            parts.setdefault(one.node, set()).update(one.meaning.only)
    return parts


def find_foremost(view: GraphView, *, limit: int, each: int = EACH) -> list[SeenEntity]:
    """Entities by how much they tell: named by many records and not by nearly all; a page, or a
    name of several words, more than a single word or a heading."""
    rows = view.snapshot.rows(
        "SELECT node, name, kind, records FROM entities ORDER BY records DESC, node LIMIT ?",
        max(AMONG, 2 * limit),
    )
    worth = {
        node: count
        * idf(count, view.snapshot.records) ** 2
        * TELLING.get(kind, 1.0)
        # every further word, or capital within one, makes chance less likely
        * min(2.0, 0.5 + 0.5 * len(key(name).split()))
        for node, name, kind, count in rows
        # no options, paths or qualified symbols
        if kind == "page" or (name[0].isalnum() and "." not in name)
    }
    order = sorted(worth, key=lambda node: (-worth[node], node))[: 2 * limit]
    found = view.entities(order, each=each)
    return [found[node] for node in order if node in found][:limit]


def describe_graph(view: GraphView, *, limit: int, level: int | None) -> dict[str, Any]:
    """Figures, foremost entities, themes of one level."""
    snapshot, state = view.snapshot, view.snapshot.state
    themes = []
    if len(snapshot.levels):
        largest = largest_themes(snapshot, choose_level(snapshot, level))
        themes = describe_themes(view, largest[: 2 * limit])[:limit]
    return {
        **{name: state[name] for name in ("records", "entities", "links", "relations")},
        "levels": list(state["levels"]),
        "foremost": [
            {
                "name": entity.name,
                "kind": entity.kind,
                "records": len(entity.records),
                "mentions": entity.mentions,
                "more": entity.more,
            }
            for entity in find_foremost(view, limit=limit, each=COUNTED)
        ],
        "themes": [theme.to_dict() for theme in themes],
    }


def describe_entity(view: GraphView, name: str, *, limit: int) -> dict[str, Any]:
    """One entity: its spellings, the records that name it, what it is related to."""
    matched = match_names(view, name)
    nodes = [one.node for one in matched]
    found = view.entities(nodes, parts=parts_of(matched), each=-1)
    if not found:
        raise InputError(f"the graph knows no {name!r}: `clew graph show` lists what it knows")
    longest = max(
        (one for one in matched if one.node in found),
        key=lambda one: (one.last - one.first, -one.first),
    )
    entity = found[longest.node]
    ids = view.snapshot.ids(entity.records)
    return {
        "name": entity.name,
        "kind": entity.kind,
        "spellings": entity.spellings,
        "mentions": entity.mentions,
        "records": [ids[node] for node in entity.records[:limit]],
        "related": _find_relations(view, entity, limit=limit),
    }


def _find_relations(view: GraphView, entity: SeenEntity, *, limit: int) -> list[dict[str, Any]]:
    """Relations that may be seen, the strongest first: how two are related is told where a record
    that may be seen says so, and counts as often as such records do; of others that are named in
    one such record it is said that they are, and no more."""
    rows = view.snapshot.rows(
        """SELECT number, first, second, kind, weight FROM relations
           WHERE first = ?1 OR second = ?1
           ORDER BY kind = 'together', weight DESC, first, second LIMIT ?2""",
        entity.node,
        MOST_RELATIONS + 3 * limit,
    )
    others = [b if a == entity.node else a for _, a, b, _, _ in rows]
    names = view.entities(others)
    statements = view.snapshot.among(
        "SELECT relation, record FROM stated WHERE relation IN (SELECT value FROM json_each(?))",
        [row[0] for row in rows],
    )
    visible = view.visible(record for _, record in statements)
    stated = Counter(number for number, record in statements if record in visible)
    mine = set(entity.records)
    found: list[dict[str, Any]] = []
    told: set[int] = set()
    untold: dict[int, None] = {}

    def add(other: int, kind: str, weight: float, direction: str) -> None:
        relation = {"name": names[other].name, "relation": kind, "direction": direction}
        found.append({**relation, "weight": round(weight, 4)})

    for other, (number, first, _, kind, weight) in zip(others, rows, strict=True):
        if other not in names:
            continue
        if kind != TOGETHER and number in stated:
            weight = float(stated[number])
        elif mine.isdisjoint(names[other].records):
            continue
        elif kind != TOGETHER:
            untold[other] = None
            continue
        told.add(other)
        add(other, kind, weight, "to" if first == entity.node else "from")
    for other in (node for node in untold if node not in told):
        add(other, TOGETHER, 0.0, "to")
    found.sort(key=lambda one: (one["relation"] == TOGETHER, -one["weight"]))
    return found[:limit]


# ---------------------------------------------------------------------- the picture


def describe_network(view: GraphView, name: str | None, *, limit: int) -> dict[str, Any]:
    """Nodes and edges: the foremost entities, the records that name several of them, and links
    between these; or what is around one entity. A node's id is e:NAME or r:RECORD, so that pictures
    can be put together."""
    if name is not None:
        return _describe_around(view, name, limit=limit)
    snapshot = view.snapshot
    entities = find_foremost(view, limit=max(1, limit * 2 // 3))
    counts = Counter(node for entity in entities for node in entity.records[:PER_ENTITY])
    room = max(0, limit - len(entities))
    records = sorted(counts, key=lambda node: (-counts[node], node))[:room]
    ids = snapshot.ids(records)
    titles = _titles(view, ids.values())
    level = min(1, len(snapshot.levels) - 1)

    def theme(node: int) -> int:
        return int(snapshot.levels[level][node]) if level >= 0 else -1

    drawn: dict[int, dict[str, Any]] = {}
    for entity in entities:
        drawn[entity.node] = {
            **_draw_entity(entity.name, entity.kind, len(entity.records), theme(entity.node)),
            "spellings": entity.spellings[:6],
        }
    for node in records:
        drawn[node] = _draw_record(ids[node], titles, counts[node], theme(node))
    named = [(entity.node, node) for entity in entities for node in entity.records[:PER_ENTITY]]
    links = snapshot.among(
        """SELECT source, target FROM links WHERE source IN (SELECT value FROM json_each(?))
           ORDER BY 1, 2""",
        records,
    )
    edges = [
        {"from": drawn[a]["id"], "to": drawn[b]["id"], "kind": kind, "weight": 1.0}
        for kind, pairs in (("named in", named), ("links to", links))
        for a, b in pairs
        if a in drawn and b in drawn
    ]
    return {"nodes": list(drawn.values()), "edges": edges}


def _describe_around(view: GraphView, name: str, *, limit: int) -> dict[str, Any]:
    """One entity with what it is related to, and the records that name it."""
    found = describe_entity(view, name, limit=max(1, limit // 2))
    own = _draw_entity(found["name"], found["kind"], 1.0)
    titles = _titles(view, found["records"])
    others = {
        each["name"]: _draw_entity(each["name"], "entity", each["weight"])
        for each in reversed(found["related"])
        if each["name"] != found["name"]
    }
    records = [_draw_record(each, titles, 1.0) for each in found["records"]]
    edges = []
    for each in found["related"]:
        ends = own["id"], f"e:{each['name']}"
        one, other = ends if each["direction"] == "to" else ends[::-1]
        edges.append({"from": one, "to": other, "kind": each["relation"], "weight": each["weight"]})
    edges += [
        {"from": own["id"], "to": record["id"], "kind": "named in", "weight": 1.0}
        for record in records
    ]
    return {"nodes": [own, *others.values(), *records], "edges": edges}


def _titles(view: GraphView, ids: Iterable[str]) -> dict[str, str]:
    return {record.id: record.title for record in view.store.get(list(ids))}


def _draw_entity(name: str, kind: str, weight: float, theme: int = -1) -> dict[str, Any]:
    node = {"id": f"e:{name}", "kind": kind, "name": name, "weight": weight}
    return {**node, "record": None, "theme": theme}


def _draw_record(
    name: str, titles: Mapping[str, str], weight: float, theme: int = -1
) -> dict[str, Any]:
    node = {"id": f"r:{name}", "kind": "record", "name": titles.get(name) or name}
    return {**node, "weight": weight, "record": name, "theme": theme}


def draw(view: GraphView, file: Path, *, entity: str | None, limit: int) -> dict[str, int]:
    """Write the picture of the network; how many nodes and edges it has. Colours are themes. The
    page lays itself out, always alike, and lets one drag, zoom, search, and click for details."""
    if not 1 <= limit <= MOST_NODES:
        raise InputError(f"a picture has from 1 to {MOST_NODES} nodes, not {limit}")
    data = describe_network(view, entity, limit=limit)
    # `<` closes the script from within any text; the other two end a line in older readers.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign, code in (("<", "\\u003c"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(sign, code)
    page = TEMPLATE.read_text("utf-8").replace("/*DATA*/null", text)
    try:
        replace_private(file, page.encode("utf-8", "replace").decode())
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}; name another file") from error
    return {name: len(some) for name, some in data.items()}
