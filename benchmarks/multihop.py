"""Questions over two pages, made by a rule from pages that are linked or share a term.

A question names one page, A, by its title, and asks for something that stands in another, B: a
heading of B. B is what A links to, or the only other page that has a term which A puts in code
marks. B alone must not have every word of the question, so that words cannot simply be matched; A
must not have the heading's words in its own headings. Nothing here looks at the graph that is
measured: links and terms are read from the text by the few lines below.

- heading of B: the first from level 2 on with one to six words of content, none in A's title;
- at most `PER_PAGE` questions name one page, at most one asks for each pair;
- of more than `most` questions those with the least digest of their pair are taken.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import NamedTuple

from clew.text.analyser import STOPWORDS, tokens
from clew.types import Record

PER_PAGE = 2
_LINK = re.compile(r"\[\[([^\[\]|#\n]+)[^\[\]\n]*\]\]|\]\(([^()\s#?]+)[^()]*\)")
_HEADING = re.compile(r"^#{2,4}[ \t]+(.+?)[ \t#]*(?:\{#[^{}]*\})?[ \t]*$", re.MULTILINE)
_TERM = re.compile(r"`([A-Za-z][\w./-]{5,50})`")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


class Question(NamedTuple):
    id: str
    text: str
    names: str
    """The page that the question names."""
    answer: str
    by: str
    """link, term or hand"""


def questions(records: Sequence[Record], *, most: int) -> list[Question]:
    pages = {record.id: record for record in records if record.title}
    found: list[Question] = []
    for by, pairs in (("link", _linked(pages)), ("term", _sharing(pages))):
        named: dict[str, int] = defaultdict(int)
        made: list[tuple[str, Question]] = []
        for first, second in sorted(set(pairs), key=_digest):
            if named[first] < PER_PAGE and (text := _asked(pages[first], pages[second])):
                named[first] += 1
                name = f"{by}-{_digest((first, second))[:8]}"
                made.append((_digest((first, second)), Question(name, text, first, second, by)))
        found += [question for _, question in sorted(made)[:most]]
    return found


def _digest(pair: tuple[str, str]) -> str:
    return blake2b("\0".join(pair).encode(), digest_size=8).hexdigest()


def _asked(first: Record, second: Record) -> str:
    """The question, or nothing where the rule does not hold."""
    title, whole = set(_content(first.title)), {*tokens(second.title), *tokens(second.content)}
    if not title or title <= whole:
        return ""
    there = {token for heading in _headings(first) for token in _content(heading)}
    for heading in _headings(second):
        words = set(_content(heading))
        if 1 <= len(words) <= 6 and words.isdisjoint(title) and words.isdisjoint(there):
            return f"{first.title}: {heading}"
    return ""


def _content(text: str) -> list[str]:
    words = [word for word in re.findall(r"\w+", text) if word.lower() not in STOPWORDS]
    return tokens(" ".join(words))


def _headings(record: Record) -> list[str]:
    return [found[1].strip("*_` ") for found in _HEADING.finditer(_FENCE.sub("", record.content))]


def _linked(pages: Mapping[str, Record]) -> Iterator[tuple[str, str]]:
    places: dict[str, list[str]] = defaultdict(list)
    stems: dict[str, list[str]] = defaultdict(list)
    for name, page in pages.items():
        path = _bare(page.path or name)
        places[path].append(name)
        stems[PurePosixPath(path).name].append(name)
    for name, page in pages.items():
        here = posixpath.dirname(page.path or name)
        for wiki, target in _LINK.findall(_FENCE.sub("", page.content)):
            rooted = target.startswith("/")
            path = target.lstrip("/") if rooted else posixpath.join(here, target)
            hits = stems.get(wiki.strip()) if wiki else places.get(_bare(posixpath.normpath(path)))
            if hits and len(hits) == 1 and hits[0] != name:
                yield name, hits[0]


def _bare(path: str) -> str:
    return re.sub(r"\.(md|rst|html|txt)$", "", path.strip("/"))


def _sharing(pages: Mapping[str, Record]) -> Iterator[tuple[str, str]]:
    holders: dict[str, set[str]] = defaultdict(set)
    for name, page in pages.items():
        for term in set(_TERM.findall(_FENCE.sub("", page.content))):
            holders[term].add(name)
    for two in holders.values():
        if len(two) == 2:
            first, second = sorted(two)
            yield from ((first, second), (second, first))


HAND_WRITTEN: tuple[tuple[str, str, str], ...] = (
    (
        "On which days may the owner of the hull crawler be booked?",
        "projects/limpet-hull-crawler.md",
        "people/lukasz-brandt.md",
    ),
    (
        "What is the owner of Limpet, the hull crawler, allergic to?",
        "projects/limpet-hull-crawler.md",
        "people/lukasz-brandt.md",
    ),
    (
        "Review of the crane near miss: until when is the licence of the crane driver valid?",
        "meetings/2026-04-22-crane-near-miss.md",
        "people/greta-oltmanns.md",
    ),
    (
        "Keel bolts, Kestrel 32: ratio by weight for repairs of the laminate",
        "protocols/keel-bolts-kestrel-32.md",
        "protocols/protocol-137-epoxy-cure.md",
    ),
    (
        "Rewiring the sloop Marlin: cross-section for 10 A over five metres",
        "projects/marlin-rewiring.md",
        "reference/marine-wire-gauge.md",
    ),
    (
        "Rebuild of the drum roaster: temperature at first crack",
        "projects/roaster-rebuild.md",
        "recipes/harbour-espresso-blend.md",
    ),
    (
        "Harbour espresso blend: what did the new rear bearing cost?",
        "recipes/harbour-espresso-blend.md",
        "projects/roaster-rebuild.md",
    ),
    (
        "Kickoff, hull cleaning robot: what does the milled frame weigh?",
        "meetings/2025-02-11-limpet-kickoff.md",
        "projects/limpet-hull-crawler.md",
    ),
    (
        "The sauna heater trips the breaker: which certificate does its owner hold?",
        "journal/2025-05-30-sauna-heater.md",
        "people/zoe-marchetti.md",
    ),
    (
        "Moving the label service: where do units belong in our code?",
        "projects/label-service.md",
        "reference/python-conventions.md",
    ),
    (
        "Solar panels on the slipway roof: how many boats stand in the hall over winter?",
        "projects/slipway-solar.md",
        "projects/winterlager-halle.md",
    ),
    (
        "Pixel at the vet: what languages does her keeper speak?",
        "journal/2025-11-08-pixel-vet-visit.md",
        "people/zoe-marchetti.md",
    ),
)
"""(question, page it leads through, page with the answer) in sample/, written before any of them
was asked."""
