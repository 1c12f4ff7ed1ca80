"""Engine: the only place where the parts are wired together."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew import config as settings
from clew.background import begin
from clew.config import Config, check_weights
from clew.errors import InputError, ModelError, StoreError
from clew.filter import Filter
from clew.moments import Moment, timestamp
from clew.protocols import Embedder, Progress, Source, Store
from clew.query import parse as parsing
from clew.query import pipeline
from clew.query.collect import Collector
from clew.query.pipeline import Clock
from clew.query.plan import plan
from clew.sources import SOURCES
from clew.text import tokenise
from clew.types import Chunk, Document, Entry, Mode, Query, Record, SearchResult, Vector, Vectors

if TYPE_CHECKING:
    from clew.ingest.sync import Report

__all__ = ["FOLDER", "Engine", "find_root", "open_engine"]

FOLDER = ".clew"
ADD_BATCH = 5_000
EXTERNAL = "external"
"""The model name of vectors that came from outside, where the store has no embedder of its own."""


def open_engine(
    path: str | Path = ".",
    *,
    create: bool = True,
    embedder: Embedder | None = None,
    first_query: str | None = None,
    **overrides: Any,
) -> Engine:
    """Open the store of a folder (in `.clew/` inside it), making it if need be.

    `embedder` takes the place of the configured model. `first_query` is for a process that asks
    one thing and ends: it is embedded in the background while the store opens. Other keyword
    arguments are settings (see `clew config`) and win over clew.toml and the environment.
    """
    root = Path(path).expanduser()
    if root.name == FOLDER:
        root = root.parent
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file: give the folder whose store is meant")
    if not create and not (root / FOLDER / "clew.db").exists():
        raise StoreError(f"{root} has no Clew store yet: run `clew index {root}` first")
    config = settings.load(root, overrides)
    begun: Callable[[], Vector] | None = None
    if first_query and embedder is None:
        embedder = _load_embedder(config, brief=True)
        if _can_embed(embedder):
            begun = begin(partial(embedder.embed_query, first_query))

    from clew.store.embedded import EmbeddedStore  # numpy, Tantivy: only now

    store = EmbeddedStore(
        root / FOLDER,
        create=create,
        ivf_threshold=config.ivf_threshold,
        busy_seconds=config.busy_seconds,
        synchronous=config.synchronous,
    )
    engine = Engine(store, config=config, root=root, embedder=embedder)
    if begun is not None and first_query:
        engine.expect(first_query, begun)
        tokenise.prepare()  # while the model loads
    return engine


def find_root(start: str | Path = ".") -> Path | None:
    """The nearest folder at or above `start` that has a store."""
    here = Path(start).expanduser().absolute()
    return next((p for p in (here, *here.parents) if (p / FOLDER / "clew.db").exists()), None)


class Engine:
    """Index, search and look after one store. Thread-safe; a context manager."""

    def __init__(
        self,
        store: Store,
        *,
        config: Config | None = None,
        root: Path | None = None,
        embedder: Embedder | None = None,
        sources: Mapping[str, Source] | None = None,
    ):
        self.store = store
        self.config = config or Config()
        self.root = root
        self.sources = dict(sources or SOURCES)
        self._embedder = embedder
        self._lock = threading.Lock()
        self._collector = Collector()
        self._expected: dict[str, Callable[[], Vector]] = {}
        self._query_vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._collector.close()
        self.store.close()

    # ------------------------------------------------------------------ index time

    def index(
        self,
        paths: str | Path | Sequence[str | Path] = (),
        *,
        embed: bool = True,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Bring the store up to date with its folders, or with `paths` only.

        A path outside the known folders becomes one of them. Text first, then vectors.
        """
        from clew.ingest.sync import Report, sync

        paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
        for path in paths:  # all of them, before anything is read
            if not Path(path).expanduser().exists():
                raise InputError(f"there is no {str(path)!r} to index: check the path")
        report = Report()
        begun = time.perf_counter()
        for collection, root, only in self._targets(paths):
            sync(
                self.store,
                collection,
                root,
                report,
                only=only,
                force=force,
                max_bytes=int(self.config.max_file_mb * 1024 * 1024),
                chunk_size=self.config.chunk_size,
                progress=progress,
            )
        report.seconds["text"] = time.perf_counter() - begun
        if embed:
            begun = time.perf_counter()
            missing = self._why_no_embedder()
            try:
                report.embedded = self.embed(progress=progress)
                if missing and self.embedder.dim:
                    report.notes.append(f"the weights of {self.config.model} were fetched (once)")
            except ModelError as error:
                report.notes.append(f"keyword search only: {error}")
            report.seconds["vectors"] = time.perf_counter() - begun
        return report

    def _targets(self, paths: Sequence[str | Path]) -> list[tuple[str, Path, Path | None]]:
        base = (self.root or Path()).absolute()
        roots = {name: (base / folder).resolve() for name, folder in self.store.roots().items()}
        if not paths and not roots:
            paths = [base]
        if not paths:
            return [(name, folder, None) for name, folder in roots.items()]
        targets: list[tuple[str, Path, Path | None]] = []
        for path in paths:
            place = Path(path).expanduser().resolve()
            within = [
                n for n, folder in roots.items() if place == folder or folder in place.parents
            ]
            if within:
                name = max(within, key=lambda n: len(roots[n].parts))
                targets.append((name, roots[name], None if place == roots[name] else place))
                continue
            folder = place if place.is_dir() else place.parent
            name = _collection_name(folder, set(roots))
            stored = "." if folder == base.resolve() else str(folder)
            self.store.set_root(name, stored)
            roots[name] = folder
            targets.append((name, folder, place if place != folder else None))
        return targets

    def embed(self, *, progress: Progress | None = None) -> int:
        """Give every chunk a vector of the configured model; how many got one."""
        embedder = self.load_embedder(pull=not self.config.offline, progress=progress)
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
        from clew.ingest.embed import embed

        written = embed(self.store, embedder, progress=progress)
        self.store.prepare(embedder.model)
        self.store.refresh(progress=progress, optimise=True)
        return written

    def add(
        self,
        records: Iterable[Record | Mapping[str, Any]],
        *,
        vectors: Vectors | Sequence[Sequence[float]] | None = None,
        model: str | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """Insert or replace records by id; per record "created", "updated" or "unchanged".

        With `vectors` (a row per record, of `model`, by default the store's own) each record is
        one passage; without, long ones are cut into chunks and `embed()` fills in the vectors.
        """
        import numpy as np

        statuses: list[str] = []
        rows = None
        if vectors is not None:
            rows = np.asarray(vectors, dtype=np.float32)
            records = list(records)  # counted before anything is written
            model = model or self._model_name()
            if rows.ndim != 2:
                raise InputError(f"vectors must be a table, a row per record, not {rows.shape}")
            if len(rows) != len(records):
                raise InputError(f"{len(rows)} vectors were given for {len(records)} records")
            if not np.isfinite(rows).all():
                raise InputError("a vector has NaN or infinity in it: nothing was written")
            rows = _unit(rows)
        for batch in _batches(records, ADD_BATCH):
            first = len(statuses)
            entries = [
                _entry(
                    record, None if rows is None else rows[first + i : first + i + 1], self.config
                )
                for i, record in enumerate(batch)
            ]
            statuses += self.store.put(entries, model=model)
            if progress:
                progress("adding", len(statuses), 0)
        if len(statuses) >= ADD_BATCH:
            if model:
                self.store.prepare(model)
            self.store.refresh(progress=progress, bulk=True)
        return statuses

    def optimise(self, *, progress: Progress | None = None) -> None:
        """Bring the indexes into their best shape now, at the end of a bulk load. Otherwise a
        later search starts that in the background."""
        if model := self._model_name():
            self.store.prepare(model)
        self.store.refresh(progress=progress, optimise=True)

    def remove(self, ids: str | Sequence[str] = (), *, collection: str | None = None) -> int:
        """Delete records by id, or a whole collection with its folder's entry."""
        names = [ids] if isinstance(ids, str) else list(ids)
        removed = self.store.delete(names) if names else 0
        if collection is not None:
            scope = Filter(collection=collection)
            while records := self.store.select(scope, limit=1000):
                removed += self.store.delete([record.id for record in records])
            self.store.remove_root(collection)
        return removed

    def reembed(self, *, progress: Progress | None = None) -> int:
        """Replace vectors of any other model by the configured one's."""
        return self.embed(progress=progress)

    # ------------------------------------------------------------------ query time

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        filter: Filter | Mapping[str, Any] | None = None,
        sources: Iterable[str] | None = None,
        weights: Mapping[str, float] | None = None,
        mode: Mode = "hybrid",
        now: Moment | None = None,
        explain: bool = False,
        vector: Vector | Sequence[float] | None = None,
    ) -> SearchResult:
        """The best `limit` records for `query`, with the reasons.

        `vector` is the query's embedding where the caller has it already. `explain` adds every
        source's own list to the trace.
        """
        clock = Clock()
        asked = parsing.parse(
            query,
            filter=Filter.of(filter),
            mode=mode,
            limit=limit,
            depth=self.config.depth,
            now=time.time() if now is None else timestamp(now, name="now"),
        )
        if not asked.raw.strip():
            raise InputError("the query is empty: say what to look for")
        chosen = plan(self.sources, mode=mode, sources=sources)
        context = _Context(self, asked, vector)
        config = self.config
        if weights is not None:
            config = replace(config, weights={**config.weights, **check_weights(weights)})
        clock.lap("parse")
        return pipeline.run(asked, chosen, context, self._collector, config, clock, explain=explain)

    # ------------------------------------------------------------------ models

    @property
    def embedder(self) -> Embedder:
        """The configured embedder; a NullEmbedder when its weights are not here."""
        return self.load_embedder(pull=False)

    def load_embedder(self, *, pull: bool, progress: Progress | None = None) -> Embedder:
        with self._lock:
            if self._embedder is None or (pull and not self._embedder.dim):
                self._embedder = _load_embedder(self.config, pull=pull, progress=progress)
            return self._embedder

    def _model_name(self) -> str:
        """Without loading any weights: the name under which this engine's vectors are kept."""
        if self._embedder is not None:
            return self._embedder.model if _can_embed(self._embedder) else EXTERNAL
        from clew.models import model_name

        return EXTERNAL if self.config.model == "none" else model_name(self.config.model)

    def expect(self, text: str, vector: Callable[[], Vector]) -> None:
        """This query's vector is being made already."""
        self._expected[text] = vector

    def knows(self, text: str) -> bool:
        """Whether this query's vector is among those kept."""
        return (self._model_name(), text) in self._query_vectors

    def embed_query(self, text: str) -> Vector:
        """The query's vector; the last ones are kept."""
        embedder = self.embedder
        key = (embedder.model, text)
        with self._lock:
            if (kept := self._query_vectors.get(key)) is not None:
                self._query_vectors.move_to_end(key)
                return kept
            begun = self._expected.pop(text, None)
        vector = begun() if begun is not None else embedder.embed_query(text)
        with self._lock:
            self._query_vectors[key] = vector
            while len(self._query_vectors) > 1024:
                self._query_vectors.popitem(last=False)
        return vector

    # ------------------------------------------------------------------ upkeep

    def get(self, id: str) -> Record | None:
        """One record, whole."""
        found = self.store.get([id])
        return found[0] if found else None

    def status(self) -> dict[str, Any]:
        """Counts, sizes, model, generation, stage of the vector index and its measured recall."""
        model = self._model_name()
        stats = self.store.stats(model=model)
        others = {m: n for m, n in stats["models"].items() if m != model}
        return {
            "root": str(self.root) if self.root else None,
            "model": model,
            "embedder": self.config.model,
            "ready": self._why_no_embedder() is None,
            "why_not": self._why_no_embedder(),
            "other_models": others,
            "roots": self.store.roots(),
            **stats,
        }

    def _why_no_embedder(self) -> str | None:
        from clew.models import why_missing

        if self._embedder is not None and self._embedder.dim:
            return None
        return why_missing(self.config.model)

    def doctor(
        self, *, mend: bool = False, progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        """Examine the store; with `mend`, make derived indexes anew first."""
        if mend:
            self.store.rebuild(progress=progress)
        return [
            {"check": what, "ok": well, "advice": "" if well else advice}
            for what, well, advice in self.store.check()
        ]


def _can_embed(embedder: Embedder) -> bool:
    try:
        return embedder.dim > 0
    except ModelError:  # an API that does not answer now: whoever embeds will be told why
        return True


def _load_embedder(
    config: Config, *, pull: bool = False, brief: bool = False, progress: Progress | None = None
) -> Embedder:
    from clew.models import load_embedder

    return load_embedder(
        config.model,
        threads=config.threads or None,
        offline=not pull,
        base_url=config.model_url or None,
        progress=progress,
        brief=brief,
    )


class _Context:
    """What the sources of one search share."""

    def __init__(self, engine: Engine, query: Query, vector: Vector | Sequence[float] | None):
        self.store = engine.store
        self.model = engine._model_name()
        self.why_no_vector: str | None = None
        self._engine, self._query = engine, query
        self._given = None if vector is None else _query_vector(engine, self.model, vector)
        self._lock = threading.Lock()
        self._made: Vector | None = None

    @property
    def has_vector(self) -> bool:
        return self._given is not None

    @property
    def at_hand(self) -> bool:
        known = self._given is not None or self._engine.knows(self._query.text)
        return known and self.store.current()

    def query_vector(self) -> Vector | None:
        if self._given is not None:
            return self._given
        with self._lock:
            if self._made is None and self.why_no_vector is None:
                if not self.store.prepare(self.model):
                    reason = self._engine._why_no_embedder()
                    self.why_no_vector = reason or "no vectors yet: `clew index` makes them"
                    return None
                try:
                    self._made = self._engine.embed_query(self._query.text)
                except ModelError as error:
                    self.why_no_vector = str(error)
            return self._made


def _query_vector(engine: Engine, model: str, vector: Vector | Sequence[float]) -> Vector:
    import numpy as np

    row = np.asarray(vector, dtype=np.float32)
    if row.ndim != 1 or not np.isfinite(row).all():
        raise InputError("a query vector is one row of finite numbers")
    dim = engine.store.prepare(model)
    if dim and len(row) != dim:
        raise InputError(
            f"the query vector has {len(row)} dimensions, this store's have {dim}: embed it with "
            f"{model}"
        )
    unit: Vector = _unit(row.reshape(1, -1))[0]
    return unit


def _unit(rows: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return scaled


def _entry(record: Record | Mapping[str, Any], vector: Vectors | None, config: Config) -> Entry:
    if not isinstance(record, Record):
        try:
            record = Record(**record)
        except TypeError as error:
            raise InputError(f"not a record: {error}") from None
    if not record.id or not record.content.strip():
        raise InputError(f"record {record.id!r}: id and content must not be empty")
    if vector is None and len(record.content) > config.chunk_size:
        from clew.ingest.chunk import chunk

        kind = "markdown" if record.type == "markdown" else "text"
        document = Document(record.content, kind, title=record.title)
        return Entry(record, chunk(document, size=config.chunk_size))
    whole = Chunk(0, len(record.content), (1, record.content.count("\n") + 1))
    return Entry(record, (whole,), vectors=vector)


def _collection_name(folder: Path, taken: set[str]) -> str:
    stem = re.sub(r"[^\w.-]+", "-", folder.name.casefold()).strip("-") or "files"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _batches(
    records: Iterable[Record | Mapping[str, Any]], size: int
) -> Iterator[list[Record | Mapping[str, Any]]]:
    batch: list[Record | Mapping[str, Any]] = []
    for record in records:
        batch.append(record)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
