"""KnowledgeGraph: the graph of one store, built, looked at, asked and dropped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.config import Config
from clew.errors import ClewError, InputError, ModelError, StoreError, check_known
from clew.filter import Filter, visible
from clew.graph import REBUILD, is_built, naming_damage
from clew.protocols import LLM, Progress, Store
from clew.text import parse as parsing
from clew.types import Query, Vector
from clew.validate import guarded

if TYPE_CHECKING:
    from clew.graph.build import Report
    from clew.graph.snapshot import GraphSnapshot, GraphView

MODES = ("local", "global")
LARGE = 20_000
"""Records up to which a graph is brought up to date in passing: joining takes seconds by then."""
NONE_YET = "no graph is built yet: run `clew graph build`, or call `engine.graph.build()`"


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """What the graph says to a question."""

    query: str
    mode: str
    named: tuple[str, ...] = ()
    """Entities that the question names (local)."""
    entities: tuple[tuple[str, float], ...] = ()
    """What lies near them, the nearest first (local)."""
    records: tuple[Mapping[str, Any], ...] = ()
    themes: tuple[Mapping[str, Any], ...] = ()
    """(global)"""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "named": list(self.named),
            "entities": [{"name": name, "score": round(s, 6)} for name, s in self.entities],
            "records": [dict(record) for record in self.records],
            "themes": [dict(theme) for theme in self.themes],
            "seconds": round(self.seconds, 4),
        }


@guarded
class KnowledgeGraph:
    """Entities, relations and themes of a store's records. Get it as `engine.graph`."""

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        model: str = "",
        embed: Callable[[str], Vector] | None = None,
    ):
        self._store, self._config = store, config
        self._model, self._embed = model, embed

    # ------------------------------------------------------------------ making

    def build(
        self,
        *,
        force: bool = False,
        llm: bool | LLM = True,
        progress: Progress | None = None,
    ) -> Report:
        """Make the graph, or bring it up to date: only records that changed are read again.

        Where the settings name a chat model it reads the passages, unless `llm` is False; one that
        fails is reported, and rules do its work. `force` reads every record again.
        """
        from clew.graph.build import build

        config = self._config
        model = None if isinstance(llm, bool) else llm
        if llm is True and (config.llm or config.llm_url):
            from clew.models.chat import load_llm

            model = load_llm(config)
        return build(
            self._store, llm=model, seconds=config.llm_seconds, force=force, progress=progress
        )

    def update(self, *, progress: Progress | None = None) -> list[str]:
        """Bring what is built up to date, by the means it was built with; what there is to say.
        Where nothing is built, nothing is; what is very large is left for `build`."""
        if (state := self._state()) is None:
            return []
        if state["records"] > LARGE:
            return ["the graph is large and was left as it is: run `clew graph build`"]
        from clew.graph.communities import MISSING

        notes = self.build(llm=bool(state["model"]), progress=progress).notes
        return [note for note in notes if note != MISSING]  # `build` has said it

    def _state(self) -> dict[str, Any] | None:
        from clew.graph.snapshot import folder_of

        return folder_of(self._store).state()

    @contextlib.contextmanager
    def restore(
        self, *, no_trace: bool = False, progress: Progress | None = None
    ) -> Iterator[None]:
        """Around what throws derived indexes away: if there was a graph, there is one afterwards.
        With `no_trace` nothing is left that a record said which is gone."""
        built, state = self.built, self._state()
        yield
        llm = bool(state and state["model"])
        if no_trace:
            self.drop(answers=not llm)
        if built:
            self.build(llm=llm, progress=progress)

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """(what was checked, is it well, what to do if not), as a store says it."""
        if self.built:
            problem = ""
            try:
                if file := self._snapshot().damaged():
                    problem = f"the graph's {file} is not as it was written: {REBUILD}"
            except ClewError as error:
                problem = str(error)
            yield "graph can be read", not problem, problem

    def drop(self, *, answers: bool = False) -> bool:
        """Delete it; whether there was one. With `answers` also what a chat model said, which the
        next build would otherwise use again."""
        from clew.graph.build import drop

        return drop(self._store, answers=answers)

    @property
    def built(self) -> bool:
        """Whether there is one, whatever its state."""
        return is_built(self._store)

    def status(self) -> dict[str, Any]:
        """Whether it is built, from which generation, how many records it is behind."""
        if not self.built:
            return {"built": False, "behind": None, "problem": None}
        from clew.graph.build import count_behind

        try:
            state = self._snapshot().state
        except ClewError as error:
            return {"built": False, "behind": None, "problem": str(error)}
        same = state["edition"] == list(self._store.changes.edition())
        return {
            "built": True,
            "generation": state["edition"][0],
            "behind": 0 if same else count_behind(self._store, model=state["model"]),
            **{name: state[name] for name in ("records", "entities", "links", "relations")},
            "communities": list(state["levels"]),
            "model": state["model"],
            "built_at": state["built_at"],
            "bytes": sum(state["files"].values()),
            "problem": None,
        }

    def _snapshot(self) -> GraphSnapshot:
        from clew.graph.snapshot import open_graph

        if (snapshot := open_graph(self._store)) is None:
            raise StoreError(NONE_YET)
        return snapshot

    def _view(
        self, include_personal: bool, skills_only: bool = False, filter: Filter | None = None
    ) -> GraphView:
        from clew.graph.snapshot import GraphView

        may = visible(
            filter or Filter(),
            include_personal=include_personal,
            skills_only=skills_only,
            personal=self._config.personal,
        )
        if (view := GraphView.open(self._store, may)) is None:
            raise StoreError(NONE_YET)
        return view

    # ------------------------------------------------------------------ asking

    def query(
        self,
        text: str,
        *,
        mode: str = "local",
        limit: int = 10,
        level: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,
        include_personal: bool = False,
        skills_only: bool = False,
    ) -> GraphAnswer:
        """Records near what the question names (local), or the themes that fit it (global).

        `level` is that of the themes: 0 is the finest. What may not be seen has no part in either.
        """
        check_known("unknown mode", MODES, mode)
        begun = time.perf_counter()
        view = self._view(include_personal, skills_only, Filter.of(filter))
        query = parsing.parse(text, filter=view.filter, limit=limit, now=time.time())
        if not query.text.strip():
            raise InputError("the question is empty: say what to look for")
        with naming_damage(self._store):
            if mode == "global":
                found = self._query_themes(view, query, level)
            else:
                found = self._query_near(view, query)
        return GraphAnswer(query.raw, mode, **found, seconds=time.perf_counter() - begun)

    def _query_near(self, view: GraphView, query: Query) -> dict[str, Any]:
        from clew.graph.search import parts_of, search_near

        found = search_near(view, query.text, query.terms, limit=query.limit)
        named = [match.node for match in found.matched]
        near = list(found.entities)[:30]
        seen = view.entities([*named, *near], parts=parts_of(found.matched))
        passages = self._store.passages(found.candidates)
        return {
            "named": tuple(dict.fromkeys(seen[node].name for node in named if node in seen)),
            "entities": tuple(
                (seen[node].name, found.entities[node])
                for node in near
                if node in seen and node not in named
            )[:15],
            "records": tuple(
                {
                    "id": one.id,
                    "title": passage.record.title,
                    "path": passage.record.path,
                    "score": round(one.score, 6),
                    "lines": list(passage.lines),
                    "text": passage.text,
                }
                for one, passage in zip(found.candidates, passages, strict=True)
                if passage is not None
            ),
        }

    def _query_themes(self, view: GraphView, query: Query, level: int | None) -> dict[str, Any]:
        from clew.graph.communities import search_themes

        vector = None
        if self._embed is not None and self._store.indexes.prepare(self._model):
            with contextlib.suppress(ModelError):
                vector = self._embed(query.text)
        found = search_themes(
            view, query.terms, vector=vector, model=self._model, level=level, limit=query.limit
        )
        return {"themes": tuple(theme.to_dict() for theme in found)}

    # ------------------------------------------------------------------ looking

    def show(
        self,
        entity: str | None = None,
        *,
        limit: int = 20,
        level: int | None = None,
        include_personal: bool = False,
    ) -> dict[str, Any]:
        """The graph in figures, with its foremost entities and themes; or all about one entity."""
        from clew.graph.search import describe_entity, describe_graph

        view = self._view(include_personal)
        with naming_damage(self._store):
            if entity is None:
                return describe_graph(view, limit=limit, level=level)
            return describe_entity(view, entity, limit=limit)

    def network(
        self, entity: str | None = None, *, limit: int = 150, include_personal: bool = False
    ) -> dict[str, Any]:
        """What a picture shows, as plain data: "nodes" and "edges" of the foremost entities and
        the records that name several of them; or what is around one entity."""
        from clew.graph.search import describe_network

        view = self._view(include_personal)
        with naming_damage(self._store):
            return describe_network(view, entity, limit=limit)

    def picture(
        self,
        file: str | Path,
        *,
        entity: str | None = None,
        limit: int = 160,
        include_personal: bool = False,
    ) -> dict[str, int]:
        """Write an interactive picture, of what is around an entity if one is named: one HTML file
        that needs nothing else. How many nodes and edges it has."""
        from clew.graph.search import draw

        with naming_damage(self._store):
            return draw(self._view(include_personal), Path(file), entity=entity, limit=limit)
