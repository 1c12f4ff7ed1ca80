"""The seams of Clew: what a part must offer to take another's place."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from clew.errors import StoreError
from clew.filter import Filter
from clew.types import (
    Answer,
    Candidate,
    Document,
    Entry,
    FileState,
    Held,
    LabelKind,
    Life,
    Passage,
    Query,
    Record,
    Terms,
    Vector,
    Vectors,
)

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total) during long work."""


def ignore_progress(stage: str, done: int, total: int) -> None:
    """The progress of those who do not ask for it."""


@contextmanager
def hold_lock(
    file: Path, *, wait: bool = True, needed: bool = True, progress: Progress | None = None
) -> Iterator[bool]:
    """Whether nobody else, in any process, is at what the lock stands for. It is the operating
    system's: free as soon as its holder ends, however that comes about. Where there can be none, as
    on a read-only disk, a StoreError; or, unless it is `needed`, nobody else is."""
    import filelock

    lock, mine = filelock.FileLock(file), True
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        mine = wait
        if wait and progress:
            progress("waiting", 0, 0)
        if wait:
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        if needed:
            raise StoreError(
                f"{file.parent} cannot be written ({error}): copy the store to where it can"
            ) from error
    try:
        yield mine
    finally:
        lock.release()  # nothing, where it was not acquired


class Reader(Protocol):
    """Turns the bytes of one kind of file into text with structure."""

    def __call__(self, data: bytes, path: str) -> Document: ...


class Embedder(Protocol):
    """Turns text into vectors of length 1."""

    @property
    def model(self) -> str:
        """Names model and weights; kept beside each vector, so that two are never mixed."""

    @property
    def dim(self) -> int:
        """Length of a vector; 0: this embedder cannot embed (see `models`)."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors: ...

    def embed_query(self, text: str) -> Vector: ...


class Reranker(Protocol):
    """Reads query and passage together."""

    @property
    def model(self) -> str: ...

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """One number per passage, higher is better; comparable within one query only."""


class LateInteraction(Protocol):
    """Gives every token a vector of length 1, so that each token of a query can be looked up in a
    passage by itself; those of passages are made beforehand."""

    @property
    def model(self) -> str:
        """Names model and weights, as an embedder's."""

    @property
    def dim(self) -> int: ...

    def encode_passages(self, texts: Sequence[str]) -> list[Vectors]:
        """A table per text, with a row for each token that counts."""

    def encode_query(self, text: str, *, expand: bool = True) -> Vectors:
        """A row for each token of it, and for what may be meant as well; or for its words alone."""

    def score(self, query: Vectors, passages: Sequence[Vectors]) -> list[float]:
        """Sum, for each passage, over the query's rows of the best product with any row of it."""

    def words(self, text: str, *, query: bool = False) -> list[str]:
        """What each row of a text stands for; empty for those that are no part of it."""


class PassageTokens(Protocol):
    """The vectors of passages' tokens by one model, named by the digests of their texts."""

    harmed: int
    """Of those that were scored last, how many are not as they were written."""

    @property
    def outgrown(self) -> bool:
        """Whether what they are kept with was made for far fewer."""

    def find(self, digests: Sequence[bytes]) -> Mapping[bytes, Any]:
        """The vectors of those that have any."""

    def score(self, query: Vectors, digests: Sequence[bytes]) -> dict[bytes, float]:
        """Score those that have any: the mean over the query's rows of the best product."""

    def rows(self, digest: bytes) -> Vectors | None: ...

    def figures(self) -> dict[str, Any]: ...

    def damaged(self) -> str:
        """What is not as it was written; empty: nothing."""

    def train(self, rows: Vectors, *, tokens: int) -> None:
        """Get ready for about so many, of which these are a sample."""

    def retrain(self) -> None:
        """Get ready for as many as there are."""

    def add(self, passages: Mapping[bytes, Vectors]) -> bool: ...

    def keep(self, passages: Mapping[bytes, Vectors]) -> None:
        """What a search had to make, where it can be kept."""

    def keep_only(self, living: Sequence[bytes], *, always: bool = False) -> None:
        """Drop those of texts that are gone, `always` or when they are many."""


class LLM(Protocol):
    """Answers in words."""

    @property
    def model(self) -> str: ...

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        """What it says, at most `seconds` later; a ModelError where that is nothing."""


@runtime_checkable
class StreamingLLM(LLM, Protocol):
    """One that can be listened to while it answers."""

    def stream(self, system: str, prompt: str, *, seconds: float) -> Iterator[str]:
        """What `complete` gives, piece by piece."""


@runtime_checkable
class Source(Protocol):
    """One ranked list, best first: at most `query.depth` records, with at most `query.passages`
    entries each.

    A class that has this one as its base inherits every hook. A plain function of (query, context)
    is given them by `FunctionSource` (sources/__init__.py).
    """

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer: ...

    def freshness(self, store: Store) -> str | None:
        """What changes with all that the source reads outside the store; "" where that is nothing.
        None: it cannot tell, and no search that asks it is kept."""
        return None

    def reads(self, query: Query) -> Hashable | None:
        """All of the query's words that its list follows from: then it is lent to another query of
        the same filter, phrases, limits and sources that gives the same here. None: never lent."""
        return None

    def idle(self, store: Store) -> bool:
        """Whether there is nothing to look in yet: then it is asked only by name."""
        return False

    def alone(self) -> Source:
        """The source for where nobody else is asked: one that is reticent otherwise says all."""
        return self

    def behind(
        self, query: Query, context: Context, hits: Sequence[str]
    ) -> Mapping[str, Sequence[Candidate]]:
        """Records that have their place right behind one of the first hits, by that hit: what the
        query asks for by way of it. No fusion takes that place away, nor any reranker."""
        return {}

    def read_files(self, files: Iterable[str]) -> Mapping[str, str]:
        """What those of these files that it has read say by now; nothing, where they are gone."""
        return {}

    def leave(self, query: Query) -> None:
        """Its answer to this query is late, and nobody waits for it any more."""
        return

    def close(self) -> None:
        """Let go of what it has opened. It may be asked again."""
        return


class Context(Protocol):
    """What a source may use: the store, and the query's vector (embedded once, on first use)."""

    @property
    def store(self) -> Store: ...

    @property
    def model(self) -> str: ...

    def query_vector(self) -> Vector | None: ...

    @property
    def current(self) -> bool:
        """Whether the store's indexes are here and up to date: then what asks them waits for
        nobody."""

    @property
    def at_hand(self) -> bool:
        """Whether the query's vector is here as well."""


class Embeddings(Protocol):
    """The vectors of a store's chunks, and the texts that still have none."""

    def pending(self, model: str) -> list[int]:
        """Chunks without a vector of this model: the first of every file before the second of any,
        then the newest, then the shortest."""

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        """(chunk, text to embed) of those that still exist."""

    def digests(self, chunks: Sequence[int] | None = None) -> dict[int, bytes]:
        """What names the text of each of these chunks, or of all: equal texts have equal ones."""

    def known(self, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
        """Vectors that chunks with the very same text have: no text is embedded twice."""

    def tokens(self, model: str, dim: int) -> PassageTokens | None:
        """The vectors of tokens by a model of late interaction, where the server compares them;
        None: they are kept in the folder."""

    def set(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        """Vectors for chunks; those gone or changed in the meantime are passed over."""

    def of(self, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
        """The model and a row per chunk, of records all of whose chunks have one of that model."""

    def chunks(self, ids: Sequence[str]) -> dict[str, list[Held]]:
        """The chunks of records that have any, in reading order, with the vectors they have."""

    def missing(self, filter: Filter, *, model: str) -> dict[tuple[str, int] | None, int]:
        """How many of the records that match have a passage without a vector of this model, by what
        it has instead: one of another model, of that dimension; None: none."""


class Lifecycle(Protocol):
    """How records fare. None of it but an end or a return changes what is found."""

    def get(self, ids: Sequence[str]) -> dict[str, Life]:
        """The lives of those that exist."""

    def set(self, lives: Mapping[str, Life]) -> None: ...

    def count_accesses(self, counts: Mapping[str, int], *, at: float) -> None:
        """Add so many accesses to each, the last at that moment."""

    def rate(self, id: str, *, useful: int = 0, useless: int = 0) -> bool:
        """Add to what users thought of it; whether there is such a record."""

    def end(
        self, ids: Sequence[str], *, at: float, reason: str, successor: str | None = None
    ) -> list[str]:
        """End records; those that had not ended before."""

    def revive(self, ids: Sequence[str]) -> list[str]:
        """Take an end back; those that had ended."""

    def ledger(self, filter: Filter) -> list[tuple[str, float, float, Life]]:
        """(id, importance, created_at, life) of every record that matches, by id."""

    def tally(self) -> list[tuple[str, str, str, int]]:
        """(collection, type, why they ended or "", how many) of all records. Of what was written
        as ended already, and nobody said why: "ended"."""

    def next_change(self, at: float) -> float | None:
        """The first moment after `at` when a record that has not ended begins or ceases to be
        true: until then, what is true stays so. Cheap: asked on every recall."""

    def predecessors(self, id: str) -> list[str]:
        """The records that this one took the place of, newest first."""


class FileStates(Protocol):
    """The folders that were indexed, and how their files were then."""

    def roots(self) -> dict[str, str]:
        """Indexed folders: collection → folder, absolute or relative to the store's own."""

    def set_root(self, collection: str, folder: str) -> None: ...

    def remove_root(self, collection: str) -> None: ...

    def states(self, collection: str, paths: Sequence[str] | None = None) -> dict[str, FileState]:
        """The states of all indexed files of a folder, or of those among these."""

    def set_states(self, collection: str, states: Mapping[str, FileState]) -> None:
        """Note that files were looked at and had not changed."""

    def forget(self, collection: str, paths: Sequence[str]) -> None:
        """Forget that these were looked at. Those of records go with them."""


class ChangeLog(Protocol):
    """What was written, and when anything was last."""

    def generation(self) -> int:
        """Grows with every write, by whichever process."""

    def edition(self) -> tuple[int, int]:
        """The generation, and a token of the write that made it: a store that is brought back from
        a backup and written to reaches an old number again, never an old edition."""

    def touched(self, edition: tuple[int, int]) -> list[str] | None:
        """The records of this store, by id, of which something was written since that edition,
        their vectors included; None: this store's log does not (or no longer) have it."""


class SearchIndexes(Protocol):
    """What a store searches with, derived from its records: it can be made anew at any time."""

    def current(self) -> bool:
        """Whether they have everything that was written."""

    @property
    def remote(self) -> bool:
        """Whether somebody else computes while this thread waits: then several are asked at once.
        Not within a write, which other threads do not see."""

    @property
    def behind(self) -> int:
        """Changes that are not searchable yet; usually 0."""

    @property
    def behind_because(self) -> str:
        """Why: another process is at it, the disk is full…"""

    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        """Bring them up to the truth; `optimise` also does slow, optional work, `bulk` (more of the
        same follows) only as much of it as cannot wait."""

    def prepare(self, model: str) -> int:
        """Get ready to search vectors of this model; their dimension, 0 when there are none."""

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Throw them away and make them anew."""

    def coverage(self, model: str) -> float:
        """The share of chunks that have a vector of this model. Cheap: asked on every search."""

    def reach(self, terms: Terms, filter: Filter) -> float:
        """About the most that a passage with all these words could score by `keyword`."""

    def lengths(self) -> Sequence[int]:
        """How many characters passages have, on a sample. Cheap: asked on every search."""


class Upkeep(Protocol):
    """What keeps a store well."""

    def check(self) -> Iterable[tuple[str, bool, str]]:
        """(what was checked, is it well, what to do if not)."""

    def mend(self) -> tuple[list[str], list[str], bool]:
        """Take out what is not as it was written and can be made anew: vectors, and records that
        are from files. The ids of those records, and of others whose passages have to be cut
        again; all else that is damaged stays, and is named by `check`. And whether the database
        had to be put together from what can be read: then files have to be read again."""

    def vacuum(self) -> None:
        """Give the space of what was deleted back, leaving no trace of it."""

    def backup(
        self,
        file: str | Path,
        *,
        root: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Write all that cannot be derived to a file, with the settings of the folder `root`; what
        is in it."""


class Store(Protocol):
    """Where records live. Writes are durable when they return; reads see every write before them.

    `limit` counts records, never chunks, and filters hold before it: `limit` records come back
    wherever that many match, each with at most `per_record` candidates, its best passages.
    """

    @property
    def folder(self) -> Path:
        """Where what is derived from the records may be kept."""

    @property
    def vectors(self) -> Embeddings: ...

    @property
    def lifecycle(self) -> Lifecycle: ...

    @property
    def files(self) -> FileStates: ...

    @property
    def notes(self) -> MutableMapping[str, str]:
        """What others wrote down, by name."""

    @property
    def changes(self) -> ChangeLog: ...

    @property
    def indexes(self) -> SearchIndexes: ...

    @property
    def upkeep(self) -> Upkeep: ...

    def view(self) -> Store:
        """This store as one search sees it: where the change log ends is read now, and not again;
        indexes are brought up to that once; each filter's set of records and each model's coverage
        are computed once, whichever thread asks. What is written meanwhile, by whomever, may or may
        not be found. It costs next to nothing, and needs no closing. Of a view it gives a later
        one; all of them have the very `files` of the store."""

    # --- writing
    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        """Insert or replace by record id; per entry "created", "updated" or "unchanged"."""

    def put_new(
        self, entries: Sequence[Entry], *, model: str | None = None
    ) -> list[tuple[str, str]]:
        """Insert only what is new; per entry ("created", its id), or ("duplicate", the id of the
        record of the same collection, type and text that has not ended). An id that another text
        has is an InputError, and nothing is written."""

    def atomic(self) -> AbstractContextManager[None]:
        """The writes of this thread within the block: all of them or none. Its reads see them,
        nobody else's do. A write or a block within it that fails is the end of it: then nothing is
        written, also where the error was caught."""

    def delete(self, ids: Sequence[str]) -> int: ...

    def rename(self, old_id: str, entry: Entry) -> None:
        """A moved file: new id and path, same chunks and vectors."""

    # --- reading
    @property
    def damaged(self) -> set[str] | None:
        """Ids of records that a view has left out because they are not as they were written. None:
        it is no view, and to read such a record is a StoreError."""

    def get(self, ids: Sequence[str]) -> list[Record]: ...

    def select(
        self, filter: Filter, *, limit: int, after: str = "", newest: bool = False
    ) -> list[Record]:
        """Records that match: by id, from `after` on, or the newest first."""

    def count(self, filter: Filter) -> int:
        """How many records match. Cheap: asked on every search of some sources."""

    def counts(self, field: str, filter: Filter) -> dict[str, int]:
        """How many of the records that match have each collection, type, path, tag, or key of
        metadata ("key")."""

    def passages(self, candidates: Sequence[Candidate]) -> list[Passage | None]:
        """The best passage of each candidate (its first where none is named)."""

    # --- legs
    def keyword(
        self, terms: Terms, filter: Filter, *, limit: int, per_record: int = 1
    ) -> list[Candidate]: ...

    def nearest(
        self,
        vector: Vector,
        filter: Filter,
        *,
        model: str,
        limit: int,
        terms: Terms | None = None,
        per_record: int = 1,
    ) -> list[Candidate]:
        """Rank by inner product; of `terms` only phrases and exclusions count."""

    def labelled(
        self,
        kinds: Sequence[LabelKind],
        groups: Sequence[tuple[float, Sequence[str]]],
        filter: Filter,
        *,
        limit: int,
        terms: Terms | None = None,
    ) -> list[Candidate]:
        """Records that have any of these tags or one below it, lie in a folder of such a name, or
        have such a word (a token) in their file's name. Each group of labels is (what it is worth,
        its labels); the score is the sum of the groups of which a record has one. Of `terms` only
        phrases and exclusions count. Of a label that very many have, the newest records may do."""

    def stats(self, *, model: str) -> dict[str, Any]: ...

    def close(self) -> None: ...


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many at a time, as `itertools.batched` has it from Python 3.12 on."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def read_pages(
    store: Store, scope: Filter, size: int, *, after: str = ""
) -> Iterator[list[Record]]:
    """All records of a scope by id, those after this one, so many at a time."""
    while page := store.select(scope, limit=size, after=after):
        yield page
        after = page[-1].id
