"""What a community is about: its central entities, and a sentence from each of its central records.

Every sentence is kept with the record it stands in, so that whoever may not see the record does not
see the sentence either. What a chat model writes is kept with all records it has read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from clew.graph.assemble import Assembled
from clew.graph.names import key
from clew.graph.proposed import Proposer
from clew.protocols import Progress
from clew.types import Record

__all__ = ["Community", "sentences", "summarised"]

CENTRAL_RECORDS, CENTRAL_ENTITIES = 40, 25
"""Members that are kept by name, those that hang together with most of the others."""
SENTENCES = 3
SHORTEST, LONGEST = 40, 320
ABOUT = 8
"""Names by which a sentence is chosen."""


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


def grouped(
    graph: Assembled, levels: Sequence[npt.NDArray[np.int32]]
) -> tuple[list[Community], list[npt.NDArray[np.int32]]]:
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
            number = len(found)
            number_of[members] = number
            entities = members[members >= count][:CENTRAL_ENTITIES]
            found.append(
                Community(
                    number,
                    level,
                    None,
                    [(int(n), float(central[n])) for n in records[:CENTRAL_RECORDS]],
                    [(int(n), float(central[n])) for n in entities],
                    len(records),
                )
            )
        numbered.append(number_of)
    for each in found:
        if each.level + 1 < len(levels):
            parent = int(numbered[each.level + 1][each.records[0][0]])
            each.parent = parent if parent >= 0 else None
    return found, numbered


def summarised(
    graph: Assembled,
    levels: Sequence[npt.NDArray[np.int32]],
    read: Callable[[Sequence[str]], Sequence[Record]],
    *,
    proposer: Proposer | None = None,
    progress: Progress | None = None,
) -> tuple[list[Community], list[npt.NDArray[np.int32]]]:
    """Communities with their sentences. `read` gives the records of some ids."""
    found, numbered = grouped(graph, levels)
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
            split = [(s, _words(s)) for s in sentences(record)]
            for each in wanted[node]:
                if chosen := _chosen(split, _about(graph, each)):
                    each.sentences.append((node, chosen))
        if progress:
            progress("summarising", i + len(some), len(nodes))
    for each in found:
        order = {node: rank for rank, (node, _) in enumerate(each.records)}
        each.sentences.sort(key=lambda pair: order[pair[0]])
    if proposer is not None:
        written = _written(graph, {node for each in found for node, _ in each.sentences})
        for done, each in enumerate(found, 1):
            said = [written[node] for node, _ in each.sentences]
            # only names that those very records write: who sees them may see the summary
            named = [next((by[n] for by in said if n in by), "") for n, _ in each.entities]
            names = [name for name in named if name][:ABOUT]
            each.summary = proposer.summary(names, [text for _, text in each.sentences]) or ""
            if progress:
                progress("describing", done, len(found))
    return found, numbered


def _written(graph: Assembled, records: set[int]) -> dict[int, dict[int, str]]:
    """How each of these records writes the entities it names, by node."""
    found: dict[int, dict[int, str]] = {node: {} for node in records}
    for entity, record, _, _, written in graph.mentions:
        if record in found:
            found[record][len(graph.ids) + entity] = written
    return found


def _about(graph: Assembled, each: Community) -> Mapping[str, float]:
    """Words of its central entities, with what they count."""
    words: dict[str, float] = {}
    for place, (node, _) in enumerate(each.entities[:ABOUT]):
        for word in key(graph.entities[node - len(graph.ids)].name).split():
            words.setdefault(word, 1.0 / (1 + place))
    return words


def _words(sentence: str) -> frozenset[str]:
    return frozenset(key(sentence[:LONGEST]).split())


def _chosen(split: Sequence[tuple[str, frozenset[str]]], about: Mapping[str, float]) -> str:
    """The sentence with most of these words; the first of equals."""
    best, most = "", -1.0
    for place, (sentence, words) in enumerate(split):
        score = sum(about[word] for word in words if word in about) - 0.02 * place
        if score > most or not best:
            best, most = sentence, score
    return best


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
MOST_TEXT = 20_000


def sentences(record: Record) -> Iterator[str]:
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
        least = SHORTEST if plain.isascii() else SHORTEST // 3
        if least <= len(plain) <= LONGEST:
            yield plain
