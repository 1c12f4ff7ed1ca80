"""Communities: records and entities that have more to do with each other than with the rest.

Leiden (Traag, Waltman, van Eck, 2019) by igraph, fine groups first; these become the nodes of the
next, coarser level, so that each group lies within one of the level above. The seed is fixed and
the groups are numbered by size, so the same graph always gives the same communities.

What a community is about are its central entities, and a sentence from each of its central records.
Every sentence is kept with the record it stands in, so that whoever may not see the record does not
see the sentence either. What a chat model writes is kept with all records it has read.
"""

from __future__ import annotations

import random
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.errors import ConfigError
from clew.graph.names import key
from clew.protocols import Progress
from clew.types import Record

if TYPE_CHECKING:
    from clew.graph.assemble import Edges, EntityGraph
    from clew.graph.extract import Proposer

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

Levels = Sequence[npt.NDArray[np.int32]]
"""Per level, from fine to coarse, the community of each node."""


@dataclass(slots=True)
class Community:
    """One group at one level."""

    number: int
    level: int
    parent: int | None
    records: list[tuple[int, float]]
    """Nodes with how central they are, the most central first; so are the entities."""
    entities: list[tuple[int, float]]
    size: int
    """How many records it has in all."""
    sentences: list[tuple[int, str]] = field(default_factory=list)
    """(record, sentence)"""
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


def _gather(graph: EntityGraph, levels: Levels) -> tuple[list[Community], Levels]:
    """Communities of two records or more, numbered through all levels; and per level the number of
    each node's, -1 where it has none."""
    one, other, weight = graph.edges
    found: list[Community] = []
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
            entities = members[members >= count][:CENTRAL_ENTITIES]
            found.append(
                Community(
                    number=len(found),
                    level=level,
                    parent=None,
                    records=[(int(n), float(central[n])) for n in records[:CENTRAL_RECORDS]],
                    entities=[(int(n), float(central[n])) for n in entities],
                    size=len(records),
                )
            )
        numbered.append(number_of)
    for each in found:
        if each.level + 1 < len(levels):
            parent = int(numbered[each.level + 1][each.records[0][0]])
            each.parent = parent if parent >= 0 else None
    return found, numbered


# ---------------------------------------------------------------------- summaries


def summarise(
    graph: EntityGraph,
    levels: Levels,
    read: Callable[[Sequence[str]], Sequence[Record]],
    *,
    proposer: Proposer | None,
    progress: Progress,
) -> tuple[list[Community], Levels]:
    """Communities with their sentences, and per level the number of each node's, -1 where it has
    none. `read` gives the records of some ids."""
    found, numbered = _gather(graph, levels)
    wanted: dict[int, list[Community]] = defaultdict(list)
    for each in found:
        for node, _ in each.records[:SENTENCES]:
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
                each.sentences.append((node, _choose(split, _topic(graph, each))))
        progress("summarising", i + len(some), len(nodes))
    for each in found:
        order = {node: rank for rank, (node, _) in enumerate(each.records)}
        each.sentences.sort(key=lambda pair: order[pair[0]])
    if proposer is not None:
        written: dict[int, dict[int, str]] = defaultdict(dict)
        for entity, record_node, _, _, spelling in graph.mentions:
            if record_node in wanted:
                written[record_node][len(graph.ids) + entity] = spelling
        for done, each in enumerate(found, 1):
            said = [written[node] for node, _ in each.sentences]
            # only names that those very records write: who sees them may see the summary
            named = [next((by[n] for by in said if n in by), "") for n, _ in each.entities]
            names = [name for name in named if name][:ABOUT]
            each.summary = proposer.summary(names, [text for _, text in each.sentences]) or ""
            progress("describing", done, len(found))
    return found, numbered


def _topic(graph: EntityGraph, each: Community) -> Mapping[str, float]:
    """Words of its central entities, with what they count."""
    words: dict[str, float] = {}
    for place, (node, _) in enumerate(each.entities[:ABOUT]):
        for word in key(graph.entities[node - len(graph.ids)].name).split():
            words.setdefault(word, 1.0 / (1 + place))
    return words


def _choose(split: Sequence[tuple[str, frozenset[str]]], topic: Mapping[str, float]) -> str:
    """The sentence with most of these words; the first of equals."""
    worth = [
        sum(topic[word] for word in words if word in topic) - 0.02 * place
        for place, (_, words) in enumerate(split)
    ]
    return split[worth.index(max(worth))][0]


_FRONT = re.compile(r"\A(---|\+\+\+)\n.*?\n(?:---|\+\+\+|\.\.\.)\n", re.DOTALL)
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_BREAK = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*+|>#]|\d+[.)])\s)|(?<=[.!?。！？])\s+(?=\S)|(?<=[。！？])"
)
_MARKUP = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|!?\[([^\[\]]*)\]\([^()]*\)")
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
    text = _FENCED.sub("\n\n", _FRONT.sub("", text))
    for part in _BREAK.split(text):
        if part.lstrip().startswith(("#", "|", "<", "=", "---")):
            continue
        plain = _MARKUP.sub(lambda found: found[1] or found[2] or "", _LEADING.sub("", part))
        plain = " ".join(plain.replace("**", "").replace("`", "").split())
        least = SHORTEST_SENTENCE if plain.isascii() else SHORTEST_SENTENCE // 3
        if least <= len(plain) <= LONGEST_SENTENCE:
            yield plain
