"""The values that travel through Clew. All of them are frozen and slotted: steps make new ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import Field, dataclass, field, fields
from itertools import product
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypedDict, overload

from clew.errors import InputError
from clew.filter import PERSONAL, Filter, domain_of
from clew.timestamps import Moment, timestamp
from clew.validate import check_number

if TYPE_CHECKING:  # numpy costs most of what importing clew may take, and types need none of it
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    """One embedding, shape (dim,), length 1."""
    Vectors = npt.NDArray[np.float32]
    """Several embeddings, shape (n, dim)."""
else:
    Vector = Vectors = Any

Mode = Literal["hybrid", "keyword", "vector"]
GroupBy = Literal["record", "passage"]
FusionName = Literal["adaptive", "convex", "dbsf", "rrf", "weighted_rrf"]
MemoryType = Literal["semantic", "episodic", "procedural"]
LabelKind = Literal["tag", "folder", "name"]
LOCATION_UNIT = "location_unit"
"""The metadata that says what a record's `lines` count, where that is not lines: page, slide,
paragraph, row."""


# ---------------------------------------------------------------- index time


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that can be found: a file, a memory, a row. `id` is stable across re-indexing.

    A value that makes no sense is an InputError that names the field. A single tag or link may be
    given as a string, a time also as an ISO date or a datetime. Of several domains the most private
    one counts: see `domain_of`.
    """

    id: str
    content: str
    title: str = ""
    path: str | None = None
    collection: str = "default"
    type: str = "text"
    domain: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    importance: float = 0.5
    created_at: float | None = None
    """Seconds since the epoch. None: the time of the first write."""
    updated_at: float | None = None
    """When the content was last changed (a file's mtime). None: the time of the write."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ended_at: float | None = None
    """When it was taken out of use: it is kept, and found by those who ask for a time before."""
    valid_from: float | None = None
    """Since when what it says is true, whenever it was written. None: since `created_at`."""
    valid_to: float | None = None
    """Till when, that moment not included. None: no end is known."""

    def __post_init__(self) -> None:
        # Every hit of every search is one: what is as it should be passes within a microsecond.
        kinds = (
            *(type(self.id), type(self.content), type(self.title), type(self.collection)),
            *(type(self.type), type(self.domain), type(self.importance), type(self.metadata)),
            *(type(self.tags), type(self.links), type(self.path)),
            *(type(self.created_at), type(self.updated_at), type(self.ended_at)),
            *(type(self.valid_from), type(self.valid_to)),
        )
        if kinds not in _USUAL or not {str}.issuperset(map(type, (*self.tags, *self.links))):
            self._check()
        if self.domain and self.domain != PERSONAL:
            object.__setattr__(self, "domain", domain_of(self.domain))
        if not 0 <= self.importance <= 1:
            raise self._wrong("importance", "a number from 0 to 1")

    def _check(self) -> None:
        if isinstance(self.domain, (list, tuple, set, frozenset)):
            object.__setattr__(self, "domain", domain_of(self.domain))
        for name in ("id", "content", "title", "collection", "type", "domain"):
            if not isinstance(getattr(self, name), str):
                raise self._wrong(name, "text")
        if not isinstance(self.path, (str, NoneType)):
            raise self._wrong("path", "text or None")
        if not isinstance(self.metadata, Mapping):
            raise self._wrong("metadata", "a mapping")
        if isinstance(self.importance, bool) or not isinstance(self.importance, (int, float)):
            raise self._wrong("importance", "a number from 0 to 1")
        for name in ("tags", "links"):
            object.__setattr__(self, name, self._names(name))
        for name in ("created_at", "updated_at", "ended_at", "valid_from", "valid_to"):
            if (moment := getattr(self, name)) is not None:
                seconds = timestamp(moment, name=f"record {self.id!r}: {name}")
                object.__setattr__(self, name, seconds)

    def _names(self, name: str) -> tuple[str, ...]:
        given: Any = getattr(self, name)
        if isinstance(given, str):
            return (given,) if given else ()
        if not isinstance(given, (Sequence, Set)) or not all(
            isinstance(each, str) for each in given
        ):
            raise self._wrong(name, "a string or several")
        return tuple(sorted(given)) if isinstance(given, Set) else tuple(given)

    def _wrong(self, name: str, expected: str) -> InputError:
        of = f"record {self.id!r}" if name != "id" else "a record"
        return InputError(f"{of}: {name} must be {expected}, not {getattr(self, name)!r:.100}")


_USUAL = frozenset(
    (*[str] * 6, float, dict, tuple, tuple, path, *moments)
    for path in (str, NoneType)
    for moments in product((float, NoneType), repeat=5)
)


class Life(NamedTuple):
    """How a record has fared: kept beside it, and written without touching any index."""

    accesses: int = 0
    strength: float = 1.0
    """Grows with every access: what is used is forgotten later."""
    accessed_at: float | None = None
    useful: int = 0
    useless: int = 0
    """What was said of it by those who used it."""
    reason: str = ""
    """Why it ended: superseded, evicted, forgotten, consolidated."""
    successor: str | None = None
    """The record that took its place."""


class Chunk(NamedTuple):
    """A passage of a record: `content[start:end]`, with its place in the source file."""

    start: int
    end: int
    lines: tuple[int, int] = (1, 1)
    heading: str = ""
    """The trail of headings (or enclosing definitions) above it: "Setup › Linux"."""


class Held(NamedTuple):
    """A chunk as a store has it: its number there, and its vector with the model that made it."""

    number: int
    chunk: Chunk
    model: str | None = None
    vector: Vector | None = None


class TableRow(NamedTuple):
    """One row of a table, before it becomes a record."""

    key: str
    """Names it within its file: the value of a key column, or its number."""
    text: str
    lines: tuple[int, int]
    title: str = ""
    tags: tuple[str, ...] = ()
    created_at: float | None = None
    updated_at: float | None = None
    metadata: Mapping[str, Any] = {}
    """Its columns."""
    of_dates: tuple[bool, bool] = (False, False)
    """Whether its table has columns for `created_at` and `updated_at`: then a row that has none has
    no date, and its file's time says nothing of it."""


class Document(NamedTuple):
    """What a reader makes of one file, before it is cut into chunks."""

    text: str
    kind: str
    """The record's type: markdown, text, rst, html, code, table, document."""
    title: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    body: int = 0
    """Where the text to be searched begins (past the front matter)."""
    headings: tuple[tuple[int, int, str], ...] = ()
    """(offset in text, level from 1, words) in reading order; for code: definitions."""
    line_numbers: tuple[int, ...] | None = None
    """For text extracted from another format: the source line (or page) of each of its lines."""
    unit: str = "line"
    """What `line_numbers` count: lines, pages, slides, paragraphs."""
    rows: tuple[TableRow, ...] = ()
    """Those of a table, each of which becomes a record of its own beside the file's."""
    warnings: tuple[str, ...] = ()
    """What the reader had to work around; shown in the index report."""


class FileState(NamedTuple):
    """What tells whether a file has changed since it was indexed."""

    size: int
    mtime_ns: int
    digest: str
    indexed_ns: int


class Entry(NamedTuple):
    """One record as it goes into a store, with its chunks and, where known, their vectors."""

    record: Record
    chunks: tuple[Chunk, ...]
    vectors: Vectors | None = None
    """One row per chunk, of the model `Store.put` is told; None: to be embedded later."""
    file: FileState | None = None


# ---------------------------------------------------------------- query time


@dataclass(frozen=True, slots=True)
class Terms:
    """A query's words after analysis, as a keyword leg needs them."""

    words: tuple[tuple[str, ...], ...] = ()
    """Per word: its whole token first, then its parts (`getUserName` → whole, get, user, name)."""
    phrases: tuple[tuple[str, ...], ...] = ()
    """Token sequences a record must contain."""
    excluded: tuple[tuple[str, ...], ...] = ()
    """Token sequences a record must not contain."""

    def __bool__(self) -> bool:
        return bool(self.words or self.phrases)

    @property
    def tokens(self) -> list[str]:
        """The tokens of its words, each once."""
        return list(dict.fromkeys(token for group in self.words for token in group))

    @property
    def narrows(self) -> bool:
        """Whether it leaves records out, whatever they score."""
        return bool(self.phrases or self.excluded)


class SearchRequest(NamedTuple):
    """A search as it was asked for: the arguments of `Engine.search`, which says what each means.
    None: as the settings say."""

    query: str
    limit: int = 10
    filter: Filter | Mapping[str, Any] | None = None
    sources: Iterable[str] | None = None
    weights: Mapping[str, float] | None = None
    mode: Mode = "hybrid"
    now: Moment | None = None
    explain: bool = False
    vector: Vector | Sequence[float] | None = None
    syntax: bool = True
    rerank: bool | None = None
    strict: bool = False
    include_personal: bool = False
    skills_only: bool = False
    cache: bool | None = None
    fusion: str | None = None
    rrf_k: int | None = None
    adjust: Adjust | None = None
    model: str | None = None
    snippets: bool = True
    depth: int | None = None
    least: Mapping[str, float] | None = None
    floor: float | None = None
    tree: object = False
    """A bool, the name of a scorer, or a `clew.tree.Walk`."""
    group_by: GroupBy | None = None
    max_per_file: int | None = None


@dataclass(frozen=True, slots=True)
class Adjust:
    """What counts beside relevance, each from 0 (not at all) to 1 (as much as the best hit's
    score)."""

    recency: float = 0.0
    importance: float = 0.0
    diversity: float = 0.0
    """Maximal marginal relevance: how much being like an earlier hit counts against one."""
    half_life_days: float = 30.0
    """The age at which recency counts half."""

    def __post_init__(self) -> None:
        for name in ("recency", "importance", "diversity"):
            check_number(name, getattr(self, name))
        if not isinstance(self.half_life_days, (int, float)) or not self.half_life_days > 0:
            raise InputError(f"half_life_days must be above 0, not {self.half_life_days!r}")

    def __bool__(self) -> bool:
        return bool(self.recency or self.importance or self.diversity)


@dataclass(frozen=True, slots=True)
class Query:
    """One search, fully spelt out: everything that decides the answer is in here."""

    text: str
    """The words to look for, with the query syntax taken out."""
    raw: str
    """What the user typed."""
    terms: Terms = field(default_factory=Terms)
    filter: Filter = field(default_factory=Filter)
    mode: Mode = "hybrid"
    limit: int = 10
    depth: int = 100
    """How many records each source names."""
    passages: int = 1
    """How many passages of one record it may name."""
    floor: float = 0.0
    """The least that a candidate has on the source's own scale from 0 to 1, where it has one."""
    now: float = 0.0
    named: Filter = field(default_factory=Filter)
    """The part of the filter that the text asks for."""
    as_words: tuple[tuple[str, str], ...] = ()
    """(field, value) of what looks like a condition and was taken as words."""


class Candidate(NamedTuple):
    """One vote of one source. `chunk` is the store's number of the best passage.

    A tuple, since a search makes a hundred of them and tuples are made faster.
    """

    id: str
    score: float
    chunk: int | None = None
    passage: Passage | None = None
    """What to show, where the record is not one of the store's or a certain line is meant."""


class Answer(NamedTuple):
    """What a source gives when it could look only in part: candidates, and what was in the way. Or
    when there is more to say of how it came by them."""

    candidates: Sequence[Candidate]
    problem: str = ""
    trace: Mapping[str, Any] | None = None
    """For the trace of the search, as plain data."""
    places: Mapping[str, int] = {}
    """Records that it cannot judge yet, each with the place, from 0, that its words would give it
    in the list: their keyword vote counts as much more as that place does."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with its words, as it is read back for a hit or for embedding."""

    chunk: int
    record: Record
    text: str
    lines: tuple[int, int]
    heading: str = ""


class FieldMapping(Mapping[str, Any]):
    """A dataclass that is a mapping as well, of those of its fields that are compared."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__ or not self.__dataclass_fields__[key].compare:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (name for name, of in self.__dataclass_fields__.items() if of.compare)

    def __len__(self) -> int:
        return sum(1 for _ in self)  # no list, which would ask for its length


@dataclass(frozen=True, slots=True)
class Hit(FieldMapping):
    """One result. Also a mapping of its fields: `hit["id"]`, `dict(hit)`."""

    id: str
    content: str
    score: float = 0.0
    source: str = ""
    rrf_score: float = 0.0
    title: str = ""
    path: str | None = None
    lines: tuple[int, int] | None = None
    confidence: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per source that found it: rank, score, contribution."""
    snippet: str = ""
    highlights: tuple[tuple[int, int], ...] = ()
    """Character ranges of the snippet that match the query."""
    chunk: int | None = None
    """The store's number of the passage that was found."""
    chance: float | None = None
    """Of being relevant, from 0 to 1: see ranking/confidence.py."""
    record: Record | None = field(default=None, repr=False, compare=False)
    """What it is a passage of, whole, where a search without snippets has read it; no key of the
    mapping."""

    @property
    def location(self) -> str:
        """Where in its file it stands, as one would cite it: line 12, page 3, Stock row 17."""
        if self.lines is None:
            return ""
        unit = self.metadata.get(LOCATION_UNIT)
        if unit is None:
            return f"line {self.metadata.get('snippet_line', self.lines[0])}"
        first, last = self.lines
        where = f"{unit} {first}" if first == last else f"{unit}s {first}–{last}"
        return f"{self.metadata['sheet']} {where}" if "sheet" in self.metadata else where

    def changed(self, **values: Any) -> Hit:
        """The same with these values. Made of every hit of every list, so it is copied slot by
        slot: `replace` takes longer."""
        made = object.__new__(Hit)
        for name, read, write in _HIT_SLOTS:
            write(made, values[name] if name in values else read(self))
        return made

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Hit:
        """The hit that `to_dict` made plain data of."""
        given = {name: data[name] for name in _HIT_FIELDS if name in data}
        given["lines"] = tuple(data["lines"]) if data.get("lines") else None
        given["highlights"] = tuple((start, end) for start, end in data.get("highlights", ()))
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data, ready for JSON."""
        return {
            "id": self.id,
            "content": self.content,
            "source": self.source,
            "score": self.score,
            "rrf_score": self.rrf_score,
            "confidence": self.confidence,
            "chance": self.chance,
            "title": self.title,
            "path": self.path,
            "lines": list(self.lines) if self.lines else None,
            "location": self.location,
            "chunk": self.chunk,
            "snippet": self.snippet,
            "highlights": [list(span) for span in self.highlights],
            "metadata": dict(self.metadata),
            "signals": {name: dict(signal) for name, signal in self.signals.items()},
        }


_HIT_FIELDS = tuple(f.name for f in fields(Hit) if f.name != "record")
_HIT_SLOTS = tuple(
    (name, getattr(Hit, name).__get__, getattr(Hit, name).__set__)
    for name in (*_HIT_FIELDS, "record")
)


class Note(NamedTuple):
    """What to know of a condition that no record meets."""

    field: str
    """tag, type, collection or path; empty: several that no record meets at once."""
    value: str
    read_as: Literal["filter", "words"]
    known: tuple[str, ...]
    """Names that records have instead, the commonest first."""
    text: str
    """All this in words."""


class SourceTrace(TypedDict, total=False):
    """What a trace says of one source."""

    kind: str
    weight: float
    part: bool
    """Whether it looks at a part of the store only."""
    count: int
    ms: float
    start_ms: float
    problem: str | None
    how: Mapping[str, Any]
    """What it says itself of how it came by its list."""
    below: int
    """How many scored less than the least that was asked for."""
    places: Mapping[str, int]
    behind: Mapping[str, Sequence[str]]
    """What it put right behind single hits, by hit."""


class Trace(TypedDict, total=False):
    """How an answer came about, as plain data. It is for people: no step of a search reads it."""

    query: str
    canonical: str
    mode: Mode
    sources: dict[str, SourceTrace]
    stages_ms: dict[str, float]
    total_ms: float
    generation: int
    model: str
    embedded: float
    truncated: bool
    fusion: dict[str, Any]
    confidence: dict[str, Any]
    rerank: dict[str, Any]
    late: dict[str, Any]
    cache: Mapping[str, Any]
    terms: list[list[str]]
    lists: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """The answer: a sequence of hits, and how it came about."""

    hits: tuple[Hit, ...] = ()
    suppressed: int = 0
    """Hits held back because their confidence was too low."""
    degraded: tuple[str, ...] = ()
    """What could not take part in full, and why. Empty: everything did."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    cache: Literal["exact", "semantic"] | None = None
    notes: tuple[Note, ...] = ()
    """What was read as a filter and no record meets, or as words though it looks like one."""
    made: dict[str, bytes] | None = field(default=None, repr=False, compare=False)
    """Of an answer that is shared with the cache: what front ends have made of it. It lives as long
    as the answer is kept."""

    @property
    def score_kind(self) -> str:
        """What `score` is: "adaptive", "rrf" and so on by the fusion of this query's lists, and
        "reranked" where a cross-encoder had a say. It compares hits of this answer and nothing
        else; how likely one is relevant says its `confidence`. Empty: nothing was scored."""
        if self.trace.get("rerank", {}).get("read"):
            return "reranked"
        return str(self.trace.get("fusion", {}).get("strategy", ""))

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SearchResult:
        """The answer that `to_dict` made plain data of."""
        return cls(
            hits=tuple(map(Hit.of, data["results"])),
            suppressed=data["suppressed"],
            degraded=tuple(data["degraded"]),
            trace=data["trace"],
            cache=data["cache"],
            notes=tuple(Note(**{**each, "known": tuple(each["known"])}) for each in data["notes"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data, ready for JSON."""
        answer: dict[str, Any] = {
            "results": [hit.to_dict() for hit in self.hits],
            "score_kind": self.score_kind,
            "suppressed": self.suppressed,
            "degraded": list(self.degraded),
            "notes": [{**note._asdict(), "known": list(note.known[:100])} for note in self.notes],
            "cache": self.cache,
            "trace": dict(self.trace),
        }
        if not self.hits:
            answer["message"] = "nothing found"
        return answer
