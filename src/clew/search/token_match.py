"""The head of a fused list read token by token: late interaction as one more ranked list.

Scores come from codes that were made when the store was indexed (index/token_codes.py). A passage
that has none is encoded on the spot, as long as there is time, and kept; what is left unread keeps
its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.background import begin
from clew.config import Config
from clew.errors import ConfigError, ModelError
from clew.index.token_codes import PREFIX, TokenCodes
from clew.index.vectors import folder_name
from clew.models import load_late_interaction, traits
from clew.protocols import LateInteraction, PassageTokens, Progress, Store, batched
from clew.ranking.adaptive import Facts, late_signs, share_of_late
from clew.ranking.fusion import LATE, Fused, RankedList, WeightedLists, weigh_lists
from clew.search.collect import Outcome
from clew.text.analyser import known_share
from clew.types import Candidate, Vectors

HEAD = 100
"""Records of the fused list that are read."""
PASSAGES = 3
"""Of one record that are read: those that the lists name first."""
LOOKED_AT = 10
"""Passages whose texts tell how long passages are here, and whether they are code."""
AT_ONCE = 4
"""Encoded between looks at the clock."""
KNOWN = 0.9
"""Letters of a query that must be of a script the model knows for it to have a say: one β in a long
one is no harm, but a name in Latin letters in a Chinese question is asked of Chinese passages."""
WORDS = 8
"""Pairs of words that are told of a hit."""


class TokenReader(NamedTuple):
    """A model, and the codes of a store's passages by it."""

    model: LateInteraction
    codes: PassageTokens

    def knows(self, text: str) -> float:
        """The share of a text's letters that are of a script the model knows."""
        return known_share(text, traits(self.model.model).scripts)

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """(what was checked, is it well, what to do if not), as a store says it."""
        problem = self.codes.damaged()
        advice = f"{problem} is not as it was written: run `clew doctor --mend`, then `clew index`"
        yield "token codes can be read", not problem, advice

    def mend(self, store: Store) -> None:
        """Damaged codes go: `clew index` makes them anew."""
        if self.codes.damaged():
            self.codes.keep_only(list(store.vectors.digests().values()), always=True)

    def figures(self, store: Store) -> dict[str, Any]:
        """For `clew status`."""
        texts = set(store.vectors.digests().values())
        share = len(self.codes.find(list(texts))) / len(texts) if texts else 1.0
        return {"model": self.model.model, "share": round(share, 4), **self.codes.figures()}


def open_token_reader(
    config: Config,
    store: Store,
    model: LateInteraction | None = None,
    *,
    pull: bool = False,
    progress: Progress | None = None,
) -> TokenReader:
    """The model of the settings, or the given one, with the codes of a store's passages."""
    model = model or load_late_interaction(
        config.late_model,
        threads=config.threads or None,
        offline=not pull,
        progress=progress,
        device=config.device,
    )
    if (theirs := store.vectors.tokens(model.model, model.dim)) is not None:
        return TokenReader(model, theirs)
    place = store.folder / folder_name(model.model.replace("@", "_"), PREFIX)
    bits = 2 if config.late_codes == "compact" else 4
    return TokenReader(model, TokenCodes(place, model=model.model, dim=model.dim, bits=bits))


class LateStep:
    """Late interaction as a step of one search."""

    def __init__(self, load: Callable[[], TokenReader], text: str, *, seconds: float):
        """The query's rows are made from now on, while others are waited for."""
        self._text, self._seconds = text, seconds
        self._said: dict[str, Any] = {}
        self.outcomes: list[Outcome] = []
        self._reader: TokenReader | None = None
        self._known = 0.0
        try:
            self._reader = reader = load()
        except (ModelError, ConfigError) as error:
            self._said["problem"] = str(error)
            return
        known = reader.knows(text)
        self._known = known if known >= KNOWN else 0.0
        if self._known:
            self._rows = begin(lambda: reader.model.encode_query(text, expand=False))

    def weigh(
        self, votes: WeightedLists, lists: Mapping[str, RankedList], store: Store
    ) -> WeightedLists:
        """The votes with those of late interaction on the head of what they give."""
        if self._reader is None or not self._known:
            return votes
        try:
            head = votes.fused(HEAD)
            if not len(rows := self._rows()):
                return votes
            ranked, seen = match_tokens(
                self._reader, rows, head, lists, votes.facts, store, seconds=self._seconds
            )
        except ModelError as error:
            self._said["problem"] = str(error)
            return votes
        read = len(head) - len(ranked.places)
        part = self._known * read / max(1, len(head))
        facts = votes.facts._replace(late=part * share_of_late(seen, votes.facts))
        because = {name: round(value, 4) for name, value in seen.items()}
        self._said = {"model": self._reader.model.model, "read": read, "of": len(head)}
        if harmed := self._reader.codes.harmed:
            self._said["harmed"] = harmed
        self._said |= {"share": round(facts.late, 4), "because": because}
        self.outcomes = [Outcome(LATE, tuple(ranked.candidates))]
        both = {**lists, LATE: ranked}
        return weigh_lists(both, facts, strategy=votes.strategy, k=votes.k)

    def match(self, name: str, chunk: int | None) -> float | None:
        """The best score of a record, or that of a passage which is judged by itself; None: it was
        not read."""
        found = [c for o in self.outcomes for c in o.candidates if name == c.id]
        found = found or [c for o in self.outcomes for c in o.candidates if chunk == c.chunk]
        return max((c.score for c in found), default=None)

    @property
    def problems(self) -> list[str]:
        """What kept it from reading all that it was to read."""
        said = self._said
        if "problem" in said:
            return [f"late interaction: {said['problem']}"]
        if "harmed" in said:
            what = f"codes of {said['harmed']} passages are not as they were written"
            return [f"late interaction: {what}: run `clew doctor --mend`, then `clew index`"]
        if said.get("read", 0) < said.get("of", 0):
            share = f"{said['read']} of {said['of']} candidates read in time"
            return [f"late interaction: {share}: `clew index` reads all, where it is `on`"]
        return []

    def trace(self, chunks: Mapping[str, int], store: Store) -> dict[str, Any]:
        """What is said of it, with the words that fit best in these passages, by record."""
        if self._reader is None or not self.outcomes:
            return self._said
        rows, reader = self._rows(), self._reader
        found = {n: match_words(reader, rows, self._text, c, store) for n, c in chunks.items()}
        return {**self._said, "words": {n: of for n, of in found.items() if of}}


def match_tokens(
    reader: TokenReader,
    query: Vectors,
    head: Sequence[Fused],
    lists: Mapping[str, RankedList],
    facts: Facts,
    store: Store,
    *,
    seconds: float,
) -> tuple[RankedList, dict[str, float]]:
    """The records of `head` in the order that follows from their tokens, and signs of what that is
    worth."""
    chunks = _chunks(head, lists)
    wanted = [chunk for of in chunks.values() for chunk in of]
    digests = store.vectors.digests(wanted)
    scores = reader.codes.score(query, list(dict.fromkeys(digests.values())))
    missing = [chunk for chunk in wanted if chunk in digests and digests[chunk] not in scores]
    if missing and seconds > 0:
        scores |= _read(reader, query, missing, digests, store, seconds)
    found = [
        Candidate(name, round(scores[digests[chunk]], 6), chunk)
        for name, of in chunks.items()
        for chunk in of
        if digests.get(chunk) in scores
    ]
    found.sort(key=lambda c: (-c.score, c.id, c.chunk))
    read = {c.id for c in found}
    places = {f.id: at for at, f in enumerate(head) if f.id not in read}
    first = {c.id: c.chunk for c in reversed(found)}
    shown = list(dict.fromkeys(c.id for c in found))[:LOOKED_AT]
    texts = store.vectors.texts([chunk for name in shown if (chunk := first[name]) is not None])
    seen = late_signs(found, [f.id for f in head], lists, facts, [text for _, text in texts])
    return RankedList(found, LATE, places=places), seen


def _chunks(head: Sequence[Fused], lists: Mapping[str, RankedList]) -> dict[str, list[int]]:
    """The passages of records that lists name, a few of each."""
    chunks: dict[str, list[int]] = {f.id: [] for f in head}
    for of in lists.values():
        for each in of.candidates:
            mine = chunks.get(each.id)
            if mine is not None and each.chunk and each.chunk not in mine and len(mine) < PASSAGES:
                mine.append(each.chunk)
    return chunks


def _read(
    reader: TokenReader,
    query: Vectors,
    chunks: Sequence[int],
    digests: Mapping[int, bytes],
    store: Store,
    seconds: float,
) -> dict[bytes, float]:
    """Scores of passages that have no codes, as many as there is time for; they are kept."""
    end = time.perf_counter() + seconds
    made: dict[bytes, Vectors] = {}
    for some in batched(chunks, AT_ONCE):
        if time.perf_counter() > end:
            break
        texts = store.vectors.texts(some)
        rows = reader.model.encode_passages([text for _, text in texts])
        made |= {digests[chunk]: of for (chunk, _), of in zip(texts, rows, strict=True)}
    reader.codes.keep(made)
    sums = reader.model.score(query, list(made.values()))
    scores = {digest: of / len(query) for digest, of in zip(made, sums, strict=True)}
    return scores | reader.codes.score(query, list(made))  # as they will be from now on


def match_words(
    reader: TokenReader, query: Vectors, text: str, chunk: int, store: Store
) -> list[tuple[str, str, float]]:
    """The words of a query, each with that of the passage that fits it best."""
    digest = store.vectors.digests([chunk]).get(chunk)
    rows = None if digest is None else reader.codes.rows(digest)
    read = store.vectors.texts([chunk])
    if rows is None or not read:
        return []
    asked = reader.model.words(text, query=True)[: len(query)]
    there = reader.model.words(read[0][1])
    if len(there) != len(rows):
        return []
    counts = np.array([bool(word) for word in there])
    if not counts.any():
        return []
    products = np.where(counts, query @ rows.T, -1.0)
    best = products.argmax(axis=1)
    pairs: dict[str, tuple[str, str, float]] = {}
    for word, at, row in zip(asked, best.tolist(), products, strict=True):
        if word and (word not in pairs or row[at] > pairs[word][2]):
            pairs[word] = word, there[at], round(float(row[at]), 3)
    return sorted(pairs.values(), key=lambda pair: -pair[2])[:WORDS]
