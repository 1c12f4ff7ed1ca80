"""Everything that the backends of a lookup found, each thing once, what it means, and how much of
the query it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from clew.ranking.fusion import Fused
from clew.search.collect import Outcome
from clew.search.decompose import decompose
from clew.search.hits import ShownPassage, make_hit
from clew.sources import ExternalPassage
from clew.sources.web import canonical_address
from clew.text import analyser
from clew.text.passage import HEADINGS, digest, passage
from clew.text.snippet import snippet
from clew.trust import replace_file
from clew.types import Hit, Vector

MOST_VECTORS = 4096
"""Of passages that are in no store, which are kept for later lookups."""
LONGEST = 20_000
"""Characters of a text that are looked at."""
LEAST_K = 5
MOST_REWRITES = 2


@dataclass(slots=True)
class PoolEntry:
    """One thing that was found, by whichever backends."""

    id: str
    passage: ExternalPassage
    backends: list[str]
    also: list[str] = field(default_factory=list)
    """Other ids under which it was found."""
    score: float = 0.0
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vector: Vector | None = None
    similarity: float | None = None

    @property
    def text(self) -> str:
        """The passage's words with the title and the headings they stand under."""
        title = self.passage.record.title
        return passage(title, self.passage.heading, self.passage.text)[:LONGEST]

    @property
    def address(self) -> str | None:
        """Where it is on the web. A path is of this machine, whatever its folders are called."""
        record = self.passage.record
        given = record.metadata.get("url")
        if isinstance(given, str):
            return given
        web = record.path and record.path.startswith(("http://", "https://"))
        return record.path if web else None

    def hit(self, find: analyser.Matcher | None = None) -> Hit:
        """Make a hit of it, with a snippet where there are words to `find`."""
        shown = self.passage.hit
        if shown is None:
            record = replace(self.passage.record, id=self.id)
            fused = Fused(self.id, self.score, "", {})
            shown = make_hit(ShownPassage(fused, replace(self.passage, record=record)), find)
        elif find is not None:
            heading, kind = (str(shown.metadata.get(name) or "") for name in ("heading", "type"))
            known = (shown.title, *heading.split(HEADINGS))
            words = snippet(shown.content[:LONGEST], find, kind=kind, known=known)
            shown = replace(shown, snippet=words.text, highlights=words.highlights)
        told = {"backends": list(self.backends), **({"also": list(self.also)} if self.also else {})}
        return replace(
            shown,
            id=self.id,
            score=self.score,
            source=self.backends[0],
            rrf_score=0.0,
            confidence=None,
            metadata={**shown.metadata, **told},
            signals={**shown.signals, **self.signals},
            record=None,
        )


def pool_outcomes(
    outcomes: Mapping[str, Iterable[Outcome]], now: Mapping[str, str]
) -> list[PoolEntry]:
    """Everything once: by id within a place, by address, by file, and the same text from elsewhere.
    In order of id. `now` has what files say by now: what a store has of them that is no longer so
    is left out."""
    pool: dict[str, PoolEntry] = {}
    known: dict[str, str] = {}
    texts: dict[bytes, tuple[str, str]] = {}
    said = {file: _fold(text) for file, text in now.items()}
    listed = (
        (backend, rank, candidate)
        for backend, some in outcomes.items()
        for outcome in some
        for rank, candidate in enumerate(outcome.candidates, 1)
    )
    for backend, rank, candidate in listed:
        found = candidate.passage
        if found is None:
            continue
        if not isinstance(found, ExternalPassage):
            found = ExternalPassage(
                found.chunk, found.record, found.text, found.lines, found.heading
            )
        folded = _fold(found.text)
        if found.file in said and folded not in said[found.file]:
            continue
        name = _name(found, backend, folded, known, texts)
        entry = pool.setdefault(name, PoolEntry(name, found, []))
        if backend not in entry.backends:
            entry.backends.append(backend)
        own = found.record.id
        if own not in (entry.passage.record.id, *entry.also):
            entry.also.append(own)
        signals = found.signals if found.hit is None else found.hit.signals
        if found.hit is None and not signals:
            signals = {"keyword": {"rank": rank, "score": candidate.score}}
        entry.signals = {**signals, **entry.signals}
        entry.vector = found.vector if entry.vector is None else entry.vector
        if entry.similarity is None:
            entry.similarity = found.similarity
    return [pool[name] for name in sorted(pool)]


def _fold(text: str) -> str:
    return " ".join(text.split())


def _name(
    found: ExternalPassage,
    backend: str,
    folded: str,
    known: dict[str, str],
    texts: dict[bytes, tuple[str, str]],
) -> str:
    """The id of what this is another copy of; else its own, with the backend's name where another
    place has one of that id. Two records of one place that say the same are two records."""
    record = found.record
    place = "storage" if backend.startswith("storage_") else backend
    text = digest(folded)
    address = record.metadata.get("url")
    marks = [f"id {place} {record.id}"]
    if isinstance(address, str):
        marks.append(f"url {canonical_address(address) or address}")
    if found.file is not None:
        marks.append(f"file {found.file}")
    found_at, as_name = texts.get(text, (place, ""))
    name = next((known[mark] for mark in marks if mark in known), None)
    if name is None and found_at != place:
        name = as_name
    elif name is None:
        name = record.id if f"name {record.id}" not in known else f"{backend}:{record.id}"
    for mark in (*marks, f"name {name}"):
        known.setdefault(mark, name)
    texts.setdefault(text, (place, name))
    return name


# ---------------------------------------------------------------------- what passages mean


class TextVectors(dict[tuple[str, bytes], Vector]):
    """Vectors of passages that are in no store, by model and digest of the text; in a file between
    processes. One that cannot be read or written is done without. Bounded."""

    def __init__(self, file: Path | None):
        super().__init__()
        self._file = file
        self._loaded = self._changed = False

    def load(self) -> None:
        """Take in what the file has, the first time."""
        import numpy as np

        if self._file is None or self._loaded:
            return
        self._loaded = True
        with (
            suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
            np.load(self._file, allow_pickle=False) as kept,
        ):
            for n, model in enumerate(kept["models"].tolist()):
                keys, rows = kept[f"keys{n}"], kept[f"rows{n}"]
                if rows.dtype == np.float32 and rows.ndim == 2 and np.isfinite(rows).all():
                    names = map(bytes, keys)
                    self |= {(str(model), k): r for k, r in zip(names, rows, strict=True)}

    def add(self, key: tuple[str, bytes], row: Vector) -> None:
        while len(self) >= MOST_VECTORS:
            del self[next(iter(self))]
        self[key], self._changed = row, True

    def save(self) -> None:
        """Write them, where there are others than the file has."""
        import numpy as np

        if self._file is None or not self._changed:
            return
        every = dict(self)  # a lookup that is late may still add some
        models = list(dict.fromkeys(model for model, _ in every))
        arrays: dict[str, Any] = {"models": np.array(models)}
        for n, model in enumerate(models):
            mine = {key: row for (of, key), row in every.items() if of == model}
            arrays[f"keys{n}"] = np.array([list(key) for key in mine], np.uint8)
            arrays[f"rows{n}"] = np.stack(list(mine.values())).astype(np.float32)
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replace_file(self._file) as opened:
                np.savez(opened, **arrays)
            self._changed = False


# ---------------------------------------------------------------------- too little found


class WordCoverage(NamedTuple):
    """Which words of the query some text that was found has."""

    found: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def gap(self) -> float:
        """The share of the words that nothing has."""
        total = len(self.found) + len(self.missing)
        return len(self.missing) / total if total else 0.0


def measure_coverage(query: str, texts: Iterable[str]) -> WordCoverage:
    groups = {
        analyser.words(word)[0]: word for word in analyser.spelt(query) if analyser.words(word)
    }
    wanted = {group: groups[group] for group in analyser.words(query) if group in groups}
    held = {token for text in texts for token in analyser.tokens(text)}
    has = {group: analyser.has_word(group, held) for group in wanted}
    return WordCoverage(
        tuple(word for group, word in wanted.items() if has[group]),
        tuple(word for group, word in wanted.items() if not has[group]),
    )


def steps_of_k(max_results: int, depth: int) -> list[int]:
    """How many candidates to ask for, doubling until as many as may be."""
    steps = [max(LEAST_K, max_results)]
    while steps[-1] < depth:
        steps.append(min(2 * steps[-1], depth))
    return steps


def rewrite_query(query: str, seen: WordCoverage) -> list[str]:
    """The query in other words: without those that nothing has, without those that say nothing,
    and in its parts. None that is the query itself."""
    proposals: list[Sequence[str]] = [seen.found] if seen.missing else []
    proposals.append([*seen.found, *seen.missing])
    made = [" ".join(words) for words in proposals if words]
    made += decompose(query, syntax=False)[1:]
    folded = " ".join(query.split()).lower()
    new = [text for text in dict.fromkeys(made) if text != folded and analyser.words(text)]
    return new[:MOST_REWRITES]
