"""Communities: records and entities that have more to do with each other than with the rest.

Leiden (Traag, Waltman, van Eck, 2019) by igraph, fine groups first; these become the nodes of the
next, coarser level, so that each group lies within one of the level above. The seed is fixed and
the groups are numbered by size, so the same graph always gives the same communities.

What a community is about are its central entities, and a sentence from each of its central records.
Every sentence is kept with the record it stands in, so that whoever may not see the record does not
see the sentence either. What a chat model writes is kept with all records it has read.

A theme is a community as a query sees it, ranked by its records that words and vectors find and
that may be seen. Beside other sources it votes only where it is what was asked: its names and what
sums it up have nearly all words of the query, and those are more than two.
"""

from __future__ import annotations

import random
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.errors import ConfigError, InputError
from clew.graph.extract import FENCE, key
from clew.graph.snapshot import GraphSnapshot, GraphView
from clew.models import traits
from clew.protocols import Progress
from clew.ranking.adaptive import nearness
from clew.text.analyser import tokens
from clew.text.snippet import strip_front_matter, strip_markup
from clew.types import Candidate, Record, Terms, Vector

if TYPE_CHECKING:
    from clew.graph.assemble import Edges, EntityGraph
    from clew.graph.proposal import Proposer

RESOLUTIONS = (4.0, 1.0, 0.3)  # from many small groups to a few large ones
SEED = 20251013
ITERATIONS = 4
_dice = threading.Lock()  # igraph has one source of chance for the whole process
MISSING = (
    "communities need igraph, which is not installed: run `pip install 'clew-search[graph]'`, then "
    "`clew graph build`"
)
CENTRAL_RECORDS, CENTRAL_ENTITIES = 40, 25
"""Members that are kept by name, those that hang together with most of the others."""
SENTENCES = 3
SHORTEST_SENTENCE, LONGEST_SENTENCE = 40, 320
ABOUT = 8  # names by which a sentence is chosen
MOST_TEXT = 20_000
DEPTH = 100  # records of each leg that speak for their themes
VOICES = 10  # records of one theme that count
SHOWN_ENTITIES, SHOWN_RECORDS = 8, 10
WORDS, SHARE, THEMES, PART = 3, 0.75, 3, 0.5
"""For a vote: the fewest words of a query, the share of them that a theme has, how many themes
vote, and what a record counts at most. Two words fit by chance: a query of cacm lost by it."""

Levels = Sequence[npt.NDArray[np.int32]]
"""Per level, from fine to coarse, the community of each node."""


@dataclass(slots=True)
class _Community:
    """One group at one level."""

    number: int
    level: int
    records: list[tuple[int, float]]
    """Nodes with how central they are, the most central first; so are the entities."""
    entities: list[tuple[int, float]]
    size: int
    """How many records it has in all."""
    sentences: dict[int, str]
    """By record, of the most central ones that have any."""
    summary: str = ""
    """By a chat model, from the records of the sentences; empty: there is none."""


# ---------------------------------------------------------------------- groups


def find_levels(edges: Edges, nodes: int) -> Levels:
    """Group the nodes. A ConfigError where igraph is missing."""
    try:
        import igraph  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(MISSING) from None
    if not nodes:
        return []
    one, other, weight = edges
    graph = igraph.Graph(n=nodes, edges=np.column_stack([one, other]))
    graph.es["weight"] = weight.astype(np.float64).tolist()
    of = np.arange(nodes)
    levels: list[npt.NDArray[np.int32]] = []
    for resolution in RESOLUTIONS:
        with _dice:
            igraph.set_random_number_generator(random.Random(SEED))
            try:
                found = graph.community_leiden(
                    objective_function="modularity",
                    weights="weight",
                    resolution=resolution,
                    n_iterations=ITERATIONS,
                )
            finally:
                igraph.set_random_number_generator(random)
        membership = np.asarray(found.membership)
        of, order = _number_by_size(membership[of])
        levels.append(of.astype(np.int32))
        graph.contract_vertices(order[membership].tolist())
        graph.simplify(multiple=True, loops=False, combine_edges="sum")
        if graph.vcount() == len(membership) and len(levels) > 1:
            levels.pop()  # nothing came together any more
            break
    return levels


def _number_by_size(of: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Numbered by size, then by their first node; and the new number of each old one."""
    sizes = np.bincount(of)
    first = np.full(len(sizes), len(of), np.int64)
    np.minimum.at(first, of, np.arange(len(of)))
    order = np.empty(len(sizes), np.int64)
    order[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return order[of], order


def _gather(graph: EntityGraph, levels: Levels) -> tuple[list[_Community], Levels]:
    """Communities of two records or more, numbered through all levels; and per level the number of
    each node's, -1 where it has none."""
    one, other, weight = graph.edges
    found: list[_Community] = []
    numbered: list[npt.NDArray[np.int32]] = []
    count = len(graph.ids)
    for level, of in enumerate(levels):
        inside = of[one] == of[other]
        central = np.bincount(one[inside], weights=weight[inside], minlength=graph.nodes)
        central += np.bincount(other[inside], weights=weight[inside], minlength=graph.nodes)
        order = np.lexsort((np.arange(graph.nodes), -central, of))
        starts = np.flatnonzero(np.diff(of[order], prepend=-1))
        number_of = np.full(graph.nodes, -1, np.int32)
        for members in np.split(order, starts[1:]):
            records = members[members < count]
            if len(records) < 2:
                continue
            number_of[members] = len(found)
            kept = records[:CENTRAL_RECORDS].tolist()
            entities = members[members >= count][:CENTRAL_ENTITIES].tolist()
            found.append(
                _Community(
                    number=len(found),
                    level=level,
                    records=[(node, float(central[node])) for node in kept],
                    entities=[(node, float(central[node])) for node in entities],
                    size=len(records),
                    sentences=dict.fromkeys(kept[:SENTENCES], ""),
                )
            )
        numbered.append(number_of)
    return found, numbered


# ---------------------------------------------------------------------- summaries


def summarise(
    graph: EntityGraph,
    levels: Levels,
    read: Callable[[Sequence[str]], Sequence[Record]],
    *,
    proposer: Proposer | None,
    progress: Progress,
) -> Levels:
    """Add communities with their sentences to the graph's tables; per level the number of each
    node's, -1 where it has none. `read` gives the records of some ids."""
    found, numbered = _gather(graph, levels)
    wanted: dict[int, list[_Community]] = defaultdict(list)
    for each in found:
        for node in each.sentences:
            wanted[node].append(each)
    nodes = sorted(wanted)
    for i in range(0, len(nodes), 500):
        some = nodes[i : i + 500]
        texts = {record.id: record for record in read([graph.ids[node] for node in some])}
        for node in some:
            if (record := texts.get(graph.ids[node])) is None:
                continue
            split = [(s, frozenset(key(s).split())) for s in split_sentences(record)]
            for each in wanted[node] if split else ():
                each.sentences[node] = _choose(split, _topic(graph, each))
        progress("summarising", i + len(some), len(nodes))
    for each in found:
        each.sentences = {node: text for node, text in each.sentences.items() if text}
    if proposer is not None:
        written: dict[int, dict[int, str]] = defaultdict(dict)
        for entity, record_node, _, _, spelling in graph.tables["mentions"]:
            if record_node in wanted:
                written[record_node][entity] = spelling
        for done, each in enumerate(found, 1):
            # only names that those very records write: who sees them may see the summary
            spelt = [
                [written[n].get(entity) for n in each.sentences] for entity, _ in each.entities
            ]
            names = [next(filter(None, some)) for some in spelt if any(some)][:ABOUT]
            each.summary = proposer.summary(names, list(each.sentences.values())) or ""
            progress("describing", done, len(found))
    above = [*numbered[1:], np.full(graph.nodes, -1, np.int32)]
    parents = [int(above[c.level][c.records[0][0]]) for c in found]
    graph.tables |= {
        "communities": [
            (c.number, c.level, parent if parent >= 0 else None, c.size, c.summary)
            for c, parent in zip(found, parents, strict=True)
        ],
        "members": [(c.number, *member) for c in found for member in (*c.records, *c.entities)],
        "sentences": [
            (c.number, place, *said)
            for c in found
            for place, said in enumerate(c.sentences.items())
        ],
    }
    return numbered


def _topic(graph: EntityGraph, each: _Community) -> Mapping[str, float]:
    """Words of its central entities, with what they count."""
    words: dict[str, float] = {}
    for place, (node, _) in enumerate(each.entities[:ABOUT]):
        for word in key(graph.tables["entities"][node - len(graph.ids)][1]).split():
            words.setdefault(word, 1.0 / (1 + place))
    return words


def _choose(split: Sequence[tuple[str, frozenset[str]]], topic: Mapping[str, float]) -> str:
    """The sentence with most of these words; the first of equals."""
    worth = [
        sum(topic[word] for word in words if word in topic) - 0.02 * place
        for place, (_, words) in enumerate(split)
    ]
    return split[worth.index(max(worth))][0]


_BREAK = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*+|>#]|\d+[.)])\s)|(?<=[.!?。！？])\s+(?=\S)|(?<=[。！？])"
)
_UNDERLINED = re.compile(r"^[^\n]*\n([=~^\"'`#*+-])\1{3,}[ \t]*$", re.MULTILINE)
"""A heading of reStructuredText, or of Markdown."""
_ROLE = re.compile(r"(?<![\w:]):[a-z][\w+:-]*:(?=`)")
_LEADING = re.compile(r"^\s*(?:[-*+>|]|\d+[.)])+\s+")
_COMMENTS = re.compile(
    r'"""(.*?)"""|/\*(.*?)\*/|((?:^[ \t]*(?:#|//)(?!!)[^\n]*\n?)+)', re.DOTALL | re.MULTILINE
)


def split_sentences(record: Record) -> Iterator[str]:
    """The prose of a record, sentence by sentence, without its markup."""
    text = record.content[:MOST_TEXT]
    if record.type == "code":  # what is said about it, not what it does
        said = (next(filter(None, found.groups()), "") for found in _COMMENTS.finditer(text))
        text = "\n\n".join(re.sub(r"^[ \t]*(?:#|//|\*)+", "", part, flags=re.M) for part in said)
    text = _UNDERLINED.sub("\n", FENCE.sub("\n\n", strip_front_matter(text)))
    text = _ROLE.sub("", text)
    for part in _BREAK.split(text):
        if part.lstrip().startswith(("#", "|", "<", "=", "---")):
            continue
        plain = " ".join(strip_markup(_LEADING.sub("", part)).split())
        least = SHORTEST_SENTENCE if plain.isascii() else SHORTEST_SENTENCE // 3
        if least <= len(plain) <= LONGEST_SENTENCE:
            yield plain


# ---------------------------------------------------------------------- themes


Voices = tuple[list[str], float]
"""Records of a theme that fit a query, the best first, and what they count together."""


@dataclass(frozen=True, slots=True)
class Theme:
    """One community, as far as it may be seen."""

    number: int
    level: int
    score: float
    title: str
    summary: str
    sentences: tuple[tuple[str, str], ...]
    """(record, sentence)"""
    entities: tuple[str, ...]
    records: tuple[str, ...]
    """Ids: those that fit the query first, then the most central."""
    size: int
    """How many of its records may be seen, of the most central ones that are kept by name."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "score": round(self.score, 6),
            "sentences": [{"id": name, "text": text} for name, text in self.sentences],
            "entities": list(self.entities),
            "records": list(self.records),
        }

    def share(self, terms: Terms) -> float:
        """The share of the query's words that it is described with."""
        return _share(terms, _words(*self.entities, self.title, self.summary))


def search_themes(
    view: GraphView,
    terms: Terms,
    *,
    vector: Vector | None,
    model: str,
    level: int | None = None,
    limit: int = 5,
) -> list[Theme]:
    """The best themes of one level (0 is the finest; by default the middle one)."""
    level = choose_level(view.snapshot, level)
    voices = _voices(view, _evidence(view, terms, vector, model), level)
    best = sorted(voices, key=lambda number: (-voices[number][1], number))[: 3 * limit]
    found = [
        replace(theme, score=theme.score * (1.0 + 0.5 * theme.share(terms)))
        for theme in describe_themes(view, best, voices)
    ]
    found.sort(key=lambda theme: (-theme.score, theme.number))
    if len(found) < limit:
        others = [number for number in largest_themes(view.snapshot, level) if number not in voices]
        found += describe_themes(view, others[: 3 * limit])
    return found[:limit]


def rank_records(themes: Sequence[Theme], *, limit: int) -> list[Candidate]:
    """The records of themes as one list: theme by theme, each less than the one before."""
    found: dict[str, float] = {}
    most = max((theme.score for theme in themes), default=0.0)
    for theme in themes:
        for place, name in enumerate(theme.records):
            score = theme.score / most / (1 + 0.1 * place) if most else 0.0
            found[name] = max(found.get(name, 0.0), score)
    return _candidates(found)[:limit]


def vote_records(
    view: GraphView, terms: Terms, *, vector: Callable[[], Vector | None], model: str
) -> list[Candidate]:
    """Records of the themes, of any level, that are what was asked, as far as words and vectors
    find them. Where no theme is, the store is not asked at all."""
    snapshot = view.snapshot
    if len(terms.words) < WORDS or not len(snapshot.levels):
        return []
    likely = {number for number, said in _labels(snapshot).items() if _share(terms, said) >= SHARE}
    if not likely:
        return []
    evidence = _evidence(view, terms, vector(), model)
    voices: dict[int, Voices] = {}
    for level in range(len(snapshot.levels)):
        voices |= _voices(view, evidence, level)
    themes = describe_themes(view, sorted(likely & voices.keys()), voices)
    fit = [(share, theme) for theme in themes if (share := theme.share(terms)) >= SHARE]
    fit.sort(key=lambda each: (-each[0], -each[1].score, each[1].number))
    found: dict[str, float] = {}
    for share, theme in fit[:THEMES]:
        for name in voices[theme.number][0][:VOICES]:
            found.setdefault(name, PART * share * evidence[name] / 2)
    return _candidates(found)


def _candidates(scores: Mapping[str, float]) -> list[Candidate]:
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Candidate(name, score) for name, score in ranked if score > 0]


def choose_level(snapshot: GraphSnapshot, level: int | None) -> int:
    """The level that is meant; None is the middle one."""
    count = len(snapshot.levels)
    if not count:
        if snapshot.state["entities"]:
            raise ConfigError(MISSING)
        raise InputError("the graph has no themes: it was built from no records")
    if level is None:
        return min(1, count - 1)
    if not 0 <= level < count:
        raise InputError(f"the graph has no level {level}: 0 is the finest, {count - 1} the last")
    return level


def largest_themes(snapshot: GraphSnapshot, level: int) -> list[int]:
    """All themes of a level, the largest first."""
    query = "SELECT number FROM communities WHERE level = ? ORDER BY size DESC, number"
    return [row[0] for row in snapshot.rows(query, level)]


def _labels(snapshot: GraphSnapshot) -> dict[int, frozenset[str]]:
    """What each theme has at most in its names and summary, whoever may see it."""
    if snapshot.labels is None:
        texts: dict[int, list[str]] = defaultdict(list)
        for query in (
            "SELECT number, summary FROM communities",
            "SELECT community, text FROM sentences",
            "SELECT community, name FROM members JOIN entities USING (node)",
        ):
            for number, text in snapshot.rows(query):
                texts[number].append(text)
        snapshot.labels = {number: _words(*some) for number, some in texts.items()}
    return snapshot.labels


def _words(*texts: str) -> frozenset[str]:
    return frozenset(tokens(" ".join(texts)))


def _share(terms: Terms, said: Set[str]) -> float:
    """Of the query's words."""
    there = [not said.isdisjoint(group) for group in terms.words]
    return sum(there) / len(there) if there else 0.0


def _evidence(view: GraphView, terms: Terms, vector: Vector | None, model: str) -> dict[str, float]:
    """How well records fit by themselves, words and meaning alike: at most 2."""
    found: dict[str, float] = {}
    hits = view.store.keyword(terms, view.filter, limit=DEPTH) if terms else []
    for hit in hits:
        found[hit.id] = hit.score / (hits[0].score or 1.0)
    if vector is not None:
        none = traits(model).unrelated
        for hit in view.store.nearest(vector, view.filter, model=model, limit=DEPTH, terms=terms):
            found[hit.id] = found.get(hit.id, 0.0) + max(0.0, nearness(hit.score, none))
    return found


def _voices(view: GraphView, evidence: Mapping[str, float], level: int) -> dict[int, Voices]:
    """By theme of a level."""
    old = view.changed()
    nodes = view.snapshot.nodes_of([name for name in evidence if name not in old])
    fitting: dict[int, list[str]] = defaultdict(list)
    for name in sorted(nodes, key=lambda name: (-evidence[name], name)):
        if (number := int(view.snapshot.levels[level][nodes[name]])) >= 0:
            fitting[number].append(name)
    return {
        number: (some, sum(evidence[name] / (1 + i) for i, name in enumerate(some[:VOICES])))
        for number, some in fitting.items()
    }


def describe_themes(
    view: GraphView, numbers: Sequence[int], voices: Mapping[int, Voices] | None = None
) -> list[Theme]:
    """Communities as they may be seen; those of which nothing is left are left out."""
    snapshot, voices = view.snapshot, voices or {}
    members = snapshot.among(
        """SELECT community, node FROM members
           WHERE community IN (SELECT value FROM json_each(?)) ORDER BY 1, central DESC, node""",
        numbers,
    )
    records: dict[int, list[int]] = defaultdict(list)
    entities: dict[int, list[int]] = defaultdict(list)
    for number, node in members:
        (records if snapshot.is_record(node) else entities)[number].append(node)
    visible = view.visible(node for some in records.values() for node in some)
    about = {
        number: (level, summary)
        for number, level, summary in snapshot.among(
            """SELECT number, level, summary FROM communities
               WHERE number IN (SELECT value FROM json_each(?))""",
            numbers,
        )
    }
    found: list[Theme] = []
    for number in numbers:
        mine = {node: visible[node] for node in records[number] if node in visible}
        if not mine or number not in about:
            continue
        level, summary = about[number]
        names = view.spellings(entities[number], mine)[:SHOWN_ENTITIES]
        said = snapshot.rows(
            "SELECT record, text FROM sentences WHERE community = ? ORDER BY place", number
        )
        sentences = tuple((visible[record], text) for record, text in said if record in visible)
        if len(sentences) < len(said):
            summary = ""  # what a chat model wrote may say what any of its records says
        fitting, score = voices.get(number, ([], 0.0))
        found.append(
            Theme(
                number=number,
                level=level,
                score=score,
                title=", ".join(names[:3]) or next(iter(mine.values())),
                summary=summary or " ".join(dict.fromkeys(text for _, text in sentences)),
                sentences=sentences,
                entities=tuple(names),
                records=tuple(dict.fromkeys([*fitting, *mine.values()]))[:SHOWN_RECORDS],
                size=len(mine),
            )
        )
    return found
