"""Engine: the only place where the parts are wired together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew import config as settings
from clew import models
from clew.config import Config, check_weights
from clew.errors import ClewError, InputError, ModelError, StoreError, nearest
from clew.filter import Filter
from clew.followed import Followed
from clew.models.current import CurrentModel
from clew.protocols import LLM, Embedder, Progress, Reranker, Source, Store
from clew.ranking.adjust import Adjust
from clew.search import pipeline
from clew.search.collect import Collector
from clew.search.context import QueryContext
from clew.search.pipeline import Clock
from clew.search.plan import check_least, idle, plan
from clew.sources import QUICK, Listing
from clew.sources.configure import Configured, configure, states
from clew.storage.location import FOLDER, has_store, locate
from clew.text import analyser
from clew.text import parse as parsing
from clew.timestamps import Moment, timestamp
from clew.types import GroupBy, Mode, Query, Record, SearchResult, Vector, Vectors
from clew.visibility import visible, wanted_beside

if TYPE_CHECKING:
    from clew.cache import SearchCache
    from clew.graph.knowledge import KnowledgeGraph
    from clew.ingest.sync import IndexReport
    from clew.tree import Walk
    from clew.tree.semantic import SemanticTree

__all__ = ["FOLDER", "Engine", "find_root", "open_engine"]

BUSY = "another process is embedding: run `clew index` again if it leaves something"


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
    root = Path(path).expanduser()
    if root.name == FOLDER:
        root = root.parent
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file: give the folder whose store is meant")
    if not create and not root.exists():
        raise StoreError(f"there is no folder {str(root)!r}: check the path")
    config = settings.load(root, overrides)
    if not create and not locate(config.store, root).file.exists():
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
    if first_query:
        analyser.prepare()  # while the model loads
    return Engine(store, config=config, root=root, embedder=model, overrides=overrides)


def find_root(start: str | Path = ".") -> Path | None:
    """The nearest folder at or above `start` that has a store."""
    here = Path(start).expanduser().absolute()
    return next((p for p in (here, *here.parents) if has_store(p)), None)


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
    return config.model, config.model_url, config.threads, prefixes


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
        overrides: Mapping[str, Any] | None = None,
    ):
        """`sources` take the place of those that the settings name. With `overrides`, what the
        caller had set when opening, edits of clew.toml take effect while the engine is open."""
        self.store = store
        self.config = config or settings.load()
        self.root = root
        self._home = None if root is None else root.absolute()
        self._follow = Followed(root, overrides) if root and overrides is not None else None
        self.sources: dict[str, Source | Listing | Configured] = dict(
            sources or configure(self.config, root or Path())
        )
        if not isinstance(embedder, CurrentModel):
            embedder = CurrentModel(self.config, embedder)
        self._model, self._given = embedder, embedder.given
        self._collector = Collector()
        self._lock = threading.Lock()
        self._reranker = reranker
        self._cache: SearchCache | None = None
        self._tree: SemanticTree | None = None
        self._printed: tuple[Config | None, str] = None, ""

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
                from clew.tree.semantic import SemanticTree

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
        progress: Progress | None = None,
    ) -> IndexReport:
        """Bring the store up to date with its folders, or with `paths` only.

        A path outside the known folders becomes one of them. Text first, then vectors.
        """
        from clew.ingest.sync import Groups, read_folders

        self._take_up_settings()
        begun = time.perf_counter()
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
        )
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
                embedded = self._embed(wait=False, progress=progress)
                if embedded is None:
                    report.notes.append(BUSY)
                report.embedded = embedded or 0
                if missing and self._model.local and self.embedder.dim:
                    report.notes.append(f"the weights of {self.config.model} were fetched (once)")
            except ModelError as error:
                report.notes.append(f"keyword search only: {error}")
            report.seconds["vectors"] = time.perf_counter() - begun
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
        return self._embed(wait=True, progress=progress) or 0

    def _embed(self, *, wait: bool, progress: Progress | None) -> int | None:
        embedder = self._model.load(pull=not self.config.offline, progress=progress)
        if not embedder.dim:
            embedder.embed_query("")  # says why it cannot
        from clew.ingest.embed import embed_all

        folder = None if self.root is None else self.root / FOLDER
        return embed_all(self.store, embedder, folder=folder, wait=wait, progress=progress)

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
        clock = Clock()
        self._take_up_settings()
        config = settings.fused_by(self._weighed(weights), fusion, rrf_k)
        config = settings.grouped(config, group_by, max_per_file)
        may = visible(
            Filter.of(filter),
            include_personal=include_personal,
            skills_only=skills_only,
            personal=self.config.personal,
        )
        asked = parsing.parse(
            query,
            filter=may,
            mode=mode,
            limit=limit,
            depth=self.config.depth if depth is None else depth,
            passages=limit if config.group_by == "passage" and config.max_per_file != 1 else 1,
            now=time.time() if now is None else timestamp(now, name="now"),
            syntax=syntax,
            is_type=partial(self._is_type, may),
        )
        nothing = not asked.raw.strip() and vector is None
        if nothing and not wanted_beside(asked.filter):
            raise InputError("the query is empty: say what to look for, or give a filter")
        named = {n: Configured.of(n, source) for n, source in self.sources.items()}
        if tree is not False:
            from clew.sources.tree_search import asked_tree, patient

            named["tree"] = asked_tree(
                tree,
                named,
                self.tree.snapshot,
                config,
                model=self.model,
                reranker=self.load_reranker,
                root=self.root or Path(),
                explain=explain,
            )
            sources = [*(name for name in sources or () if name != "tree"), "tree"]
            config = patient(config, named["tree"])
        chosen = plan(named, asked, config, only=sources, idle=idle(named, self.store))
        check_least(least, chosen)
        context = QueryContext(self.store, self._model, asked, vector, model=model, home=self._home)
        again = config.rerank if rerank is None else rerank
        if floor is None:
            floor = config.floor if mode == "vector" else 0.0
        floor = settings.coerce("floor", floor, "arguments")
        clock.lap("parse")
        keys = lending = None
        # Nothing is asked for that a key does not tell.
        plain = not adjust and not model and not least and snippets
        if (config.cache if cache is None else cache) and plain:
            from clew.search.kept import Lending, keys_of, look_up  # beside a model that is loading

            keys = keys_of(
                asked,
                chosen,
                self.store,
                vector=vector,
                settings=self._fingerprint(config),
                model=self._model.name,
                syntax=syntax,
                rerank=again,
                strict=strict,
                floor=floor,
                explain=explain,
            )
        if keys is not None:
            kept = look_up(self.cache, keys, clock, asked.raw)
            if kept is not None and context.files.as_shown(kept.hits):
                return self._noted(kept, asked, may)
            if config.semantic_cache and context.may_embed:
                lending = Lending(self.cache, keys.group, chosen, context)
                lending.borrow(config.semantic_cosine, seconds=config.seconds / 2)
                chosen = lending.sources(chosen)
        result = pipeline.run(
            asked,
            chosen,
            context,
            self._collector,
            config,
            clock,
            least=least,
            adjust=adjust or None,
            reranker=self.load_reranker if again else None,
            strict=strict,
            floor=floor,
            explain=explain,
            snippets=snippets,
        )
        if lending is not None:
            result = lending.told(result)
        if config.cache and cache is not False:
            from clew.search.kept import keep

            keep(self.cache, keys, result)
        return self._noted(result, asked, may)

    def _is_type(self, may: Filter, name: str) -> bool:
        """Whether records may be of this type: some are, or some source has its own."""
        sources = (Configured.of(n, source) for n, source in self.sources.items())
        own = all(one.kind in (*QUICK, "graph", "tree") for one in sources if one.enabled)
        wanted = may.narrowed(Filter(type=name))
        return not own or wanted is None or self.store.count(wanted) > 0

    def _noted(self, result: SearchResult, asked: Query, may: Filter) -> SearchResult:
        """With what there is to say of conditions that the text names, and of an edit of the
        settings that makes no sense; also where the answer was kept."""
        if self._follow is not None and self._follow.problem:
            result = replace(result, degraded=(*result.degraded, self._follow.problem))
        if not asked.as_words and (result.hits or not asked.named):
            return result
        from clew.search.advice import notes

        said = notes(asked, may, self.store, found=bool(result.hits))
        return replace(result, notes=said)

    def _fingerprint(self, config: Config) -> str:
        if self._printed[0] is not config:
            from clew.cache import fingerprint

            self._printed = config, fingerprint(config)
        return self._printed[1]

    def _weighed(self, weights: Mapping[str, float] | None) -> Config:
        if weights is None:
            return self.config
        checked = check_weights(weights)
        for name in checked:
            if name not in self.sources:
                raise InputError(f"no source {name!r} to weigh: {nearest(str(name), self.sources)}")
        return replace(self.config, weights={**self.config.weights, **checked})

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
            if before.reranker != self.config.reranker:
                self._reranker = None
            if not self._given and _of_model(before) != _of_model(self.config):
                self._model = CurrentModel(self.config)

    def load_reranker(self) -> Reranker:
        """The configured cross-encoder; a ModelError where its weights are not here."""
        with self._lock:
            if self._reranker is None:
                threads = self.config.threads or None
                self._reranker = models.load_reranker(self.config.reranker, threads=threads)
            return self._reranker

    # ------------------------------------------------------------------ models

    @property
    def model(self) -> str:
        """The name under which the configured model's vectors are kept."""
        return self._model.name

    @property
    def embedder(self) -> Embedder:
        """The configured embedder; a NullEmbedder when its weights are not here."""
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
            "graph": self.graph.status(),
            "tree": self.tree.status(),
        }

    def vacuum(self) -> None:
        """Give back the space of what was deleted, and leave no trace of it: not in the indexes and
        not in kept answers. The tree, whose summaries may still speak of it, is dropped."""
        self.cache.clear()
        with self.graph.restore(no_trace=True):
            self.store.vacuum()
        self.tree.drop()

    def doctor(
        self, *, mend: bool = False, progress: Progress | None = None
    ) -> list[dict[str, Any]]:
        """Examine the store; with `mend`, make derived indexes anew first."""
        if mend:
            with self.graph.restore(progress=progress):
                self.store.indexes.rebuild(progress=progress)
        return [
            {"check": what, "ok": well, "advice": "" if well else advice}
            for what, well, advice in (
                *self.store.check(),
                *self.graph.check(),
                *self.tree.check(),
            )
        ]
