"""Engine: the only place where the parts are wired together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew import config as settings
from clew import models, trust
from clew.config import Config
from clew.errors import ClewError, ConfigError, ModelError, StoreError, counted
from clew.filter import Filter
from clew.models import CurrentModel
from clew.protocols import LLM, Embedder, LateInteraction, Progress, Reranker, Source, Store
from clew.sources import Configured, Listing, configure, file_state, states
from clew.storage import FOLDER, has_store, is_url, locate
from clew.timestamps import Moment
from clew.types import (
    Adjust,
    GroupBy,
    Mode,
    Record,
    SearchRequest,
    SearchResult,
    Vector,
    Vectors,
)
from clew.validate import guarded

if TYPE_CHECKING:
    from clew.cache import SearchCache
    from clew.graph.knowledge import KnowledgeGraph
    from clew.ingest.sync import IndexReport
    from clew.ingest.workers import Workers
    from clew.ranking.adaptive import Facts
    from clew.ranking.fusion import RankedList
    from clew.search.pipeline import SearchParts
    from clew.search.token_match import TokenReader
    from clew.tree import Walk
    from clew.tree.snapshot import SemanticTree

BUSY = "another process is embedding: run `clew index` again if it leaves something"


@guarded
def open_engine(
    path: str | Path = ".",
    *,
    create: bool = True,
    embedder: Embedder | None = None,
    first_query: str | None = None,
    **overrides: Any,
) -> Engine:
    """Open the store of a folder (in `.clew/` inside it).

    What is missing is made, the folder as well, unless `create` is False: then it is an error.
    `embedder` takes the place of the configured model. `first_query` is for a process that asks
    one thing and ends: it is embedded in the background while the store opens. Other keyword
    arguments are settings (see `clew config`) and win over clew.toml and the environment.
    """
    if is_url(path):
        said = f"{trust.hide_password(str(path))} is no folder"
        raise ConfigError(f"{said}: name one, and where its store is with store=…")
    root = Path(path).expanduser()
    if root.name == FOLDER:
        root = root.parent
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file: give the folder whose store is meant")
    if not create and not root.exists():
        raise StoreError(f"there is no folder {str(root)!r}: check the path")
    config = settings.load(root, overrides)
    if not create and not locate(config.store, root).exists():
        raise StoreError(f"{root} has no Clew store yet: run `clew index {root}` first")
    model = CurrentModel(config, embedder)
    if first_query:
        model.expect(first_query)

    from clew.store import open_store  # numpy, Tantivy: only now

    store = open_store(
        config.store,
        base=root,
        folder=root / FOLDER,
        create=create,
        ivf_threshold=config.ivf_threshold,
        busy_seconds=config.busy_seconds,
        synchronous=config.synchronous,
    )
    try:
        return Engine(store, config=config, root=root, embedder=model, overrides=overrides)
    except BaseException:
        store.close()
        raise


@guarded
def find_root(start: str | Path = ".") -> Path | None:
    """The nearest folder at or above `start` that has a store."""
    # Without `..`, which parents would have; resolve() would follow links as well.
    here = Path(os.path.abspath(Path(start).expanduser()))  # noqa: PTH100
    return next((p for p in (here, *here.parents) if has_store(p)), None)


@guarded
def agentic_search(
    query: str,
    limit: int = 10,
    validate: bool = True,
    *,
    engine: Engine | None = None,
    llm: LLM | None = None,
    **search_options: Any,
) -> dict[str, Any]:
    """The best `limit` records for all that `query` asks, each with the sub-queries it answers.

    Without `engine` the nearest store at or above the current folder is opened for this call. `llm`
    takes the place of the configured chat model. `search_options` are those of `Engine.search`; a
    `vector` is the query's own, so that its parts are embedded as usual.

    Gives plain data: "results" (hits with "found_by"), "sub_queries" (the query itself first),
    "decomposed" (whether there is more than that), and "meta": how it came about.
    """
    from clew.search.agentic import search_agentic

    if engine is not None:
        return search_agentic(engine, query, limit, validate=validate, llm=llm, **search_options)
    if (root := find_root()) is None:
        raise StoreError(
            "no Clew store here or above: run `clew index` in the folder to search, or give an "
            "engine"
        )
    with open_engine(root, create=False) as opened:
        return search_agentic(opened, query, limit, validate=validate, llm=llm, **search_options)


def _of_model(config: Config) -> tuple[Any, ...]:
    prefixes = config.model_document_prefix, config.model_query_prefix
    return config.model, config.model_url, config.keys, config.threads, config.device, prefixes


def _of_reranker(config: Config) -> tuple[Any, ...]:
    return config.reranker, config.threads, config.device


class _SettingsFile:
    """One folder's clew.toml, looked at before every search: one stat, a microsecond or two. While
    it is not in force, what the user agrees to is looked at as well."""

    def __init__(self, root: Path, overrides: Mapping[str, Any]):
        self._root, self._overrides = root, overrides
        self._file = root / settings.FILE_NAME
        self.problem: str | None = None
        """Why the file as it is now is not in force."""
        self._seen = self._look()

    def _look(self) -> str:
        return file_state(self._file, *([trust.trust_file()] if self.problem else ()))

    def changed(self) -> tuple[Config, dict[str, Configured]] | None:
        """The new settings and their sources, if there are any that make sense."""
        state = self._look()
        if state == self._seen:
            return None
        self._seen = state
        try:
            config = settings.load(self._root, self._overrides)
            made = config, configure(config, self._root)
        except ConfigError as error:
            self.problem = f"{error} (until then, the settings before this edit hold)"
            return None
        self.problem = None
        return made


@guarded
class Engine:
    """Index, search and look after one store. Thread-safe; a context manager."""

    def __init__(
        self,
        store: Store,
        *,
        config: Config | None = None,
        root: Path | None = None,
        embedder: Embedder | CurrentModel | None = None,
        sources: Mapping[str, Source | Listing | Configured] | None = None,
        reranker: Reranker | None = None,
        late_interaction: LateInteraction | None = None,
        overrides: Mapping[str, Any] | None = None,
    ):
        """`sources` take the place of those that the settings name. With `overrides`, what the
        caller had set when opening, edits of clew.toml take effect while the engine is open."""
        self.store = store
        self.config = config or settings.load()
        self.root = root
        self._follow = _SettingsFile(root, overrides) if root and overrides is not None else None
        self.sources: dict[str, Source | Listing | Configured] = dict(
            sources or configure(self.config, root or Path())
        )
        if not isinstance(embedder, CurrentModel):
            embedder = CurrentModel(self.config, embedder)
        self._model, self._given = embedder, embedder.given
        from clew.search.collect import Collector  # what searches: beside a model that is loading

        self._collector = Collector()
        self._lock = threading.Lock()
        self._reranker = reranker
        self._late: TokenReader | None = None
        self._late_model = late_interaction
        self._cache: SearchCache | None = None
        self._tree: SemanticTree | None = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._collector.close()
        for name, given in self.sources.items():
            Configured.of(name, given).source.close()
        if self._cache is not None:
            self._cache.close()
        self._tree = None  # its files are mapped, and it knows the engine
        self.store.close()

    @property
    def cache(self) -> SearchCache:
        """Kept answers, in `.clew/cache.db`; in memory only where the store has no folder."""
        if self._cache is None:
            from clew.cache import FILE_NAME, SearchCache

            with self._lock:
                if self._cache is None:
                    self._cache = SearchCache(
                        None if self.root is None else self.root / FOLDER / FILE_NAME,
                        entries=self.config.cache_entries,
                        hours=self.config.cache_hours,
                    )
        return self._cache

    @property
    def graph(self) -> KnowledgeGraph:
        """Entities, relations and themes of the records: `engine.graph.build()` makes it."""
        from clew.graph.knowledge import KnowledgeGraph

        self._take_up_settings()
        return KnowledgeGraph(
            self.store,
            self.config,
            model=self._model.name,
            embed=partial(self.embed_query, seconds=self.config.seconds),
        )

    @property
    def tree(self) -> SemanticTree:
        """A hierarchy of what the records are about: `engine.tree.build()` makes it."""
        with self._lock:
            if self._tree is None:
                from clew.tree.snapshot import SemanticTree

                self._tree = SemanticTree(
                    self.store, model=lambda: self.model, config=self.current_config
                )
            return self._tree

    # ------------------------------------------------------------------ index time

    def index(
        self,
        paths: str | Path | Sequence[str | Path] = (),
        *,
        embed: bool = True,
        force: bool = False,
        workers: int | None = None,
        executor: str | None = None,
        progress: Progress | None = None,
    ) -> IndexReport:
        """Bring the store up to date with its folders, or with `paths` only.

        A path outside the known folders becomes one of them. Text first, then vectors. So many
        `workers`, processes of their own, read and embed; or those of the Dask cluster that
        `executor` names (dask://HOST:PORT).
        """
        if workers is None and executor is None:
            return self._index(paths, embed, force, None, progress)
        from clew.ingest.workers import open_workers

        with closing(open_workers(workers, executor)) as processes:
            return self._index(paths, embed, force, processes, progress)

    def _index(
        self,
        paths: str | Path | Sequence[str | Path],
        embed: bool,
        force: bool,
        workers: Workers | None,
        progress: Progress | None,
    ) -> IndexReport:
        from clew.ingest.sync import Groups, read_folders

        self._take_up_settings()
        begun = time.perf_counter()
        known = self.store.files.roots()
        if self.root is not None and not paths:
            trust.check_roots(self.root, known)
        groups = Groups(self.config.collections, self.config.domains)
        report = read_folders(
            self.store,
            self.root or Path(),
            [paths] if isinstance(paths, (str, Path)) else list(paths),
            max_file_mb=self.config.max_file_mb,
            chunk_size=self.config.chunk_size,
            groups_of=lambda folder: groups,
            force=force,
            progress=progress,
            workers=workers,
        )
        new = {n: f for n, f in self.store.files.roots().items() if n not in known}
        if self.root is not None and any(trust.is_outside(f, self.root) for f in new.values()):
            with suppress(ConfigError):  # then the next time asks
                trust.trust(self.root, roots=new)
        report.note_if_empty()
        if not report.empty:
            report.notes += [
                f"[domains] calls {folder} personal, but no file that was indexed lies there"
                for folder in self.config.own_personal
                if not self.store.count(Filter(within=folder))
            ]
        if report.changed or report.removed:
            self.cache.purge(self.store.changes.generation())
        report.seconds["text"] = time.perf_counter() - begun
        if embed:
            begun = time.perf_counter()
            missing = self._model.why_missing
            try:
                embedded = self._embed(wait=False, progress=progress, workers=workers)
                if embedded is None:
                    report.notes.append(BUSY)
                report.embedded = embedded or 0
                if missing and self._model.local and self.embedder.dim:
                    report.notes.append(f"the weights of {self.config.model} were fetched (once)")
            except ModelError as error:
                report.notes.append(f"keyword search only: {error}")
            report.seconds["vectors"] = time.perf_counter() - begun
            begun = time.perf_counter()
            try:
                report.encoded = self._encode(wait=False, progress=progress)
                if report.encoded:
                    report.seconds["tokens"] = time.perf_counter() - begun
            except ModelError as error:
                report.notes.append(f"no late interaction: {error}")
        changed = report.added or report.changed or report.moved or report.removed
        if changed and self.config.graph_update and self.graph.built:
            begun = time.perf_counter()
            try:
                report.notes += self.graph.update(progress=progress)
            except ClewError as error:
                report.notes.append(f"the graph is not up to date: {error}")
            report.seconds["graph"] = time.perf_counter() - begun
        return report

    def embed(self, *, progress: Progress | None = None) -> int:
        """Give every chunk a vector of the configured model; how many got one.

        Another process that is at it is waited for, and what it left is done.
        """
        embedded = self._embed(wait=True, progress=progress) or 0
        self._encode(wait=True, progress=progress)
        return embedded

    def _embed(
        self, *, wait: bool, progress: Progress | None, workers: Workers | None = None
    ) -> int | None:
        embedder = self._model.load(pull=not self.config.offline, progress=progress)
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
        from clew.ingest.records import EMBED_BATCH, embed_all

        batch = EMBED_BATCH
        # An API has its own machines, and an embedder that was given may be of this process alone.
        if workers is not None and self._model.local and not self._model.given:
            from clew.ingest.workers import WorkersEmbedder

            batch *= workers.count
            embedder = WorkersEmbedder(embedder, workers, self.config)
        return embed_all(
            self.store,
            embedder,
            folder=self._embed_folder,
            wait=wait,
            batch=batch,
            progress=progress,
        )

    @property
    def _embed_folder(self) -> Path | None:
        """Where those who embed or encode wait for each other."""
        return None if self.root is None else self.root / FOLDER

    def _encode(self, *, wait: bool, progress: Progress | None) -> int:
        """Codes for late interaction, where the settings ask for them; of how many passages."""
        setting = self.config.late_interaction
        if setting == "off":
            return 0
        from clew.ingest.records import encode_all

        reader = self.load_token_reader(pull=not self.config.offline, progress=progress)
        return encode_all(
            self.store,
            reader.model,
            reader.codes,
            folder=self._embed_folder,
            wait=wait,
            lazy=setting == "lazy",
            progress=progress,
        )

    def add(
        self,
        records: Iterable[Record | Mapping[str, Any]],
        *,
        vectors: Vectors | Sequence[Sequence[float]] | None = None,
        model: str | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """Insert or replace records by id; per record "created", "updated" or "unchanged".

        They are found by their words at once. Nothing is embedded here, so that adding stays
        quick: `embed()` (or `clew index`) makes the vectors of all that have none. With `vectors`
        (a row per record, of `model`, by default the store's own) each record is one passage;
        without, long ones are cut.
        """
        from clew.ingest.records import add_records

        return add_records(
            self.store,
            records,
            vectors=vectors,
            model=model or (None if vectors is None else self._model.name),
            chunk_size=self.config.chunk_size,
            progress=progress,
        )

    def optimise(self, *, progress: Progress | None = None) -> None:
        """Bring the indexes into their best shape now, at the end of a bulk load. Otherwise a
        later search starts that in the background."""
        self.store.indexes.prepare(self._model.name)
        self.store.indexes.refresh(progress=progress, optimise=True)

    def remove(self, ids: str | Sequence[str] = (), *, collection: str | None = None) -> int:
        """Delete records by id, or a whole collection with its folder's entry."""
        from clew.ingest.records import remove_records

        names = [ids] if isinstance(ids, str) else list(ids)
        removed = remove_records(self.store, names, collection=collection)
        if removed:
            self.cache.purge(self.store.changes.generation())
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
        syntax: bool = True,
        rerank: bool | None = None,
        strict: bool = False,
        include_personal: bool = False,
        skills_only: bool = False,
        cache: bool | None = None,
        fusion: str | None = None,
        rrf_k: int | None = None,
        adjust: Adjust | None = None,
        model: str | None = None,
        snippets: bool = True,
        depth: int | None = None,
        least: Mapping[str, float] | None = None,
        floor: float | None = None,
        tree: bool | str | Walk = False,
        group_by: GroupBy | None = None,
        max_per_file: int | None = None,
    ) -> SearchResult:
        """The best `limit` hits for `query`, with the reasons.

        A filter without words lists what it allows. Without `syntax` the query is words only,
        whatever quotes and hyphens are in it. `weights` are shares of sources, over those of the
        settings. `vector` is the query's embedding where the caller has it already. `rerank` reads
        the head of the list again with a cross-encoder (by default as the settings say). `strict`
        holds back what is of low confidence and counts it as suppressed, and so does `floor` with
        what is less likely than that to be relevant: by default the settings' in mode "vector", and
        else 0. Records of the personal domain are out unless `include_personal`; `skills_only`
        keeps to .agent/skills/. `explain` adds every source's own list to the trace. `cache` False
        asks anew and keeps nothing (by default as the settings say). `fusion` and `rrf_k` take the
        place of the settings', `adjust` makes what is newer, more important or unlike the rest
        count more, and `model` names the one that made `vector`, where that is not the store's own.
        `depth` is how many candidates each source gives, and `least` (source → score) leaves out
        what scores lower there. Without `snippets` hits have none. `tree` walks down the tree of
        the store (`engine.tree`) in the place of all sources, or beside those that `sources` names:
        True as the settings say, or the name of a scorer, or a `Walk`. `group_by` "record" gives
        one hit a record, "passage" also further passages of a long one that win on their own;
        `max_per_file` is how many hits of one file there may be (0: three, and more where nothing
        else is found; both by default as the settings say).
        """
        arguments = {name: value for name, value in locals().items() if name != "self"}
        return self.answer(SearchRequest(**arguments))

    def answer(self, request: SearchRequest) -> SearchResult:
        """What `search` gives for these arguments."""
        from clew.search import pipeline

        return pipeline.search(request, self._parts())

    def find_kept(self, request: SearchRequest) -> SearchResult | None:
        """The kept answer to a request that was answered before, shared with the cache, if nothing
        has changed since; None: it has to be searched for. It waits for nobody where the store is a
        SQLite file: the end of the log is read, and the times of a few files."""
        from clew.search import pipeline

        return pipeline.find_again(request, self._parts(), shared=True)

    def collect_lists(
        self, request: SearchRequest
    ) -> tuple[dict[str, RankedList], Facts, tuple[str, ...]]:
        """What fusion would get for a request: see `clew tune`."""
        from clew.search import pipeline

        return pipeline.collect_lists(request, self._parts())

    def _parts(self) -> SearchParts:
        from clew.search.pipeline import SearchParts

        self._take_up_settings()
        return SearchParts(
            store=self.store,
            model=self._model,
            config=self.config,
            sources={n: Configured.of(n, source) for n, source in self.sources.items()},
            collector=self._collector,
            cache=lambda: self.cache,
            reranker=self.load_reranker,
            tree=lambda: self.tree,
            late=self.load_token_reader,
            root=self.root,
            problem=None if self._follow is None else self._follow.problem,
        )

    def current_config(self) -> Config:
        """The settings with the last edit of clew.toml in them."""
        self._take_up_settings()
        return self.config

    def _take_up_settings(self) -> None:
        """An edit of clew.toml since the last search. One that makes no sense is in the answer's
        `degraded`, and what was in force stays."""
        if self._follow is None or (edited := self._follow.changed()) is None:
            return
        with self._lock:
            before, self.config = self.config, edited[0]
            for name, given in self.sources.items():
                Configured.of(name, given).source.close()
            self.sources = dict(edited[1])
            if _of_reranker(before) != _of_reranker(self.config):
                self._reranker = None
            self._late = None
            if not self._given and _of_model(before) != _of_model(self.config):
                self._model = CurrentModel(self.config)

    def load_reranker(self) -> Reranker:
        """The configured cross-encoder; a ModelError where its weights are not here."""
        with self._lock:
            if self._reranker is None:
                threads = self.config.threads or None
                self._reranker = models.load_reranker(
                    self.config.reranker, threads=threads, device=self.config.device
                )
            return self._reranker

    def load_token_reader(self, **fetch: Any) -> TokenReader:
        """The configured model of late interaction and the codes by it; a ModelError where its
        weights are not here. `fetch` is `pull` and `progress`, to have them fetched."""
        with self._lock:
            if self._late is None:
                from clew.search.token_match import open_token_reader

                self._late = open_token_reader(self.config, self.store, self._late_model, **fetch)
            return self._late

    # ------------------------------------------------------------------ models

    @property
    def model(self) -> str:
        """The name under which the configured model's vectors are kept."""
        return self._model.name

    @property
    def current_model(self) -> CurrentModel:
        """What embeds, by the settings or as it was given; loaded when it is first needed."""
        return self._model

    @property
    def embedder(self) -> Embedder:
        """The configured embedder; a NullEmbeddingProvider when its weights are not here."""
        return self._model.load()

    def embed_query(self, text: str, *, seconds: float | None = None) -> Vector:
        """The query's vector; the last ones are kept. A ModelError where that takes longer than
        `seconds`, if any are given."""
        return self._model.embed_query(text, seconds=seconds)

    # ------------------------------------------------------------------ upkeep

    def source_states(self) -> list[dict[str, Any]]:
        """Every source of the settings: what it is, whether it is on, how the last search went."""
        self._take_up_settings()
        return states(self.sources, self.config, self.cache.sources())

    def get(self, id: str) -> Record | None:
        """One record, whole."""
        found = self.store.get([id])
        return found[0] if found else None

    def status(self) -> dict[str, Any]:
        """Counts, sizes, model, generation, stage of the vector index and its measured recall."""
        model = self._model.name
        stats = self.store.stats(model=model)
        others = {m: n for m, n in stats["models"].items() if m != model}
        return {
            "root": str(self.root) if self.root else None,
            "model": model,
            "embedder": self.config.model,
            "ready": self._model.why_missing is None,
            "why_not": self._model.why_missing,
            "other_models": others,
            "roots": self.store.files.roots(),
            **stats,
            "late_interaction": self._late_status(stats),
            "graph": self.graph.status(),
            "tree": self.tree.status(),
        }

    @property
    def _codes(self) -> TokenReader | None:
        """What reads token by token, where the settings ask for it and it can be had."""
        with suppress(ModelError):
            if self.config.late_interaction != "off":
                return self.load_token_reader()
        return None

    def _late_status(self, stats: dict[str, Any]) -> dict[str, Any]:
        said = {"setting": self.config.late_interaction}
        if said["setting"] == "off":
            return said
        try:
            figures = self.load_token_reader().figures(self.store)
        except ModelError as error:
            return {**said, "problem": str(error)}
        stats["bytes"]["token codes"] = figures["bytes"]
        return {**said, **figures}

    def vacuum(self) -> None:
        """Give back the space of what was deleted, and leave no trace of it: not in the indexes and
        not in kept answers. The tree, whose summaries may still speak of it, is dropped."""
        self.cache.clear()
        with self.graph.restore(no_trace=True):
            self.store.upkeep.vacuum()
        self.tree.drop()
        from clew.index.token_codes import find_codes

        living = list(self.store.vectors.digests().values())
        for codes in find_codes(self.store.folder):  # whatever the settings say by now
            codes.keep_only(living, always=True)

    def backup(
        self, file: str | Path, *, force: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Write the database, as it is at this moment whoever writes meanwhile, and clew.toml to
        one file, which `clew.restore_backup` brings back; what is in it. A file that exists is
        replaced with `force` only, and only by a whole one."""
        return self.store.upkeep.backup(file, root=self.root, force=force, progress=progress)

    def doctor(
        self, *, mend: bool = False, progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        """Examine the store; with `mend`, make what is damaged and derived indexes anew first."""
        mended = self._mend(progress) if mend else []
        return mended + [
            {"check": what, "ok": well, "advice": "" if well else advice}
            for what, well, advice in (
                *self.store.upkeep.check(),
                *self.graph.check(),
                *self.tree.check(),
                *(self._codes.check() if self._codes else ()),
            )
        ]

    def _mend(self, progress: Progress | None) -> list[dict[str, Any]]:
        """What is not as it was written is read from its file again, or cut into passages again; a
        row of the findings for what became of it."""
        dropped, cut, anew = self.store.upkeep.mend()
        if dropped or cut or anew:
            self.add(self.store.get(cut))
            if self.store.files.roots():  # else the current folder would become one
                self.index(embed=False, force=True, progress=progress)
        with self.graph.restore(progress=progress):
            self.store.indexes.rebuild(progress=progress)
        self.tree.mend(progress=progress)
        if self._codes:
            self._codes.mend(self.store)
        findings = []
        if dropped:
            self.cache.clear()
            back = {record.id for record in self.store.get(dropped)}
            lost = ", ".join(name for name in dropped if name not in back)
            advice = f"lost, for their files are gone: {lost}; restore them from a backup"
            what = f"{counted(len(dropped), 'damaged record')} read from their files again"
            findings.append({"check": what, "ok": not lost, "advice": advice * bool(lost)})
        if 0.0 < (share := self.store.indexes.coverage(self._model.name)) < 1.0:
            what = "every passage has a vector"
            advice = f"{1 - share:.2%} of the passages have none: run `clew index` (or `embed()`)"
            findings.append({"check": what, "ok": False, "advice": advice})
        return findings
