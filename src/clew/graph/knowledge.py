"""KnowledgeGraph: the graph of one store, built, looked at, asked and dropped."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from clew.config import Config
from clew.errors import ClewError, InputError, ModelError, SourceError, StoreError, nearest
from clew.filter import Filter
from clew.graph import is_built
from clew.protocols import LLM, Progress, Store
from clew.text import parse as parsing
from clew.types import Query, Vector
from clew.visibility import visible

if TYPE_CHECKING:
    from clew.graph.build import Report
    from clew.graph.snapshot import Snapshot

__all__ = ["GraphAnswer", "KnowledgeGraph"]

MODES = ("local", "global")
LARGE = 20_000
"""Records up to which a graph is brought up to date in passing: joining takes seconds by then."""
REBUILD = "run `clew graph build --force`"
NONE_YET = "no graph is built yet: run `clew graph build`, or call `engine.graph.build()`"


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """What the graph says to a question."""

    query: str
    mode: str
    named: tuple[str, ...]
    """Entities that the question names (local)."""
    entities: tuple[tuple[str, float], ...]
    """What lies near them, the nearest first (local)."""
    records: tuple[Mapping[str, Any], ...]
    themes: tuple[Mapping[str, Any], ...]
    """(global)"""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "mode": self.mode,
            "named": list(self.named),
            "entities": [{"name": name, "score": round(s, 6)} for name, s in self.entities],
            "records": [dict(record) for record in self.records],
            "themes": [dict(theme) for theme in self.themes],
            "seconds": round(self.seconds, 4),
        }


P = ParamSpec("P")
T = TypeVar("T")


def _sound(ask: Callable[P, T]) -> Callable[P, T]:
    """What damage leads to that nobody has noticed before is said in words."""

    @functools.wraps(ask)
    def asked(*args: P.args, **options: P.kwargs) -> T:
        try:
            return ask(*args, **options)
        except ClewError:
            raise
        except (LookupError, TypeError, ValueError) as error:
            for given in args[:1]:
                if isinstance(given, KnowledgeGraph) and (file := given._damaged()):
                    raise SourceError(f"the graph's {file} is damaged: {REBUILD}") from error
            raise  # the graph is as it was written: a mistake of somebody's

    return asked


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

        return build(
            self._store,
            llm=self._llm(llm),
            seconds=self._config.llm_seconds,
            force=force,
            progress=progress,
        )

    def _llm(self, given: bool | LLM) -> LLM | None:
        if not isinstance(given, bool):
            return given
        if not given or not (self._config.llm or self._config.llm_url):
            return None
        from clew.models.llm import load_llm

        return load_llm(self._config)

    def update(self, *, progress: Progress | None = None) -> list[str]:
        """Bring what is built up to date, by the means it was built with; what there is to say.
        Where nothing is built, nothing is; what is very large is left for `build`."""
        from clew.graph.snapshot import folder_of

        if (state := folder_of(self._store).state()) is None:
            return []
        if state["records"] > LARGE:
            return ["the graph is large and was left as it is: run `clew graph build`"]
        return self.build(llm=bool(state["model"]), progress=progress).notes

    @contextlib.contextmanager
    def made_anew(
        self, *, no_trace: bool = False, progress: Progress | None = None
    ) -> Iterator[None]:
        """Around what throws derived indexes away: if there was a graph, there is one afterwards.
        With `no_trace` nothing is left that a record said which is gone."""
        from clew.graph.build import ANSWERS
        from clew.graph.snapshot import folder_of

        built, state = self.built, folder_of(self._store).state()
        yield
        llm = bool(state and state["model"])
        if no_trace and not llm and (self._store.folder / ANSWERS).exists():
            self.drop(answers=True)
        if built:
            self.build(llm=llm, progress=progress)

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """(what was checked, is it well, what to do if not), as a store says it."""
        if self.built:
            problem = ""
            try:
                if file := self._damaged():
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
        from clew.graph.build import behind

        try:
            state = dict(self._opened().state)
        except ClewError as error:
            return {"built": False, "behind": None, "problem": str(error)}
        same = state["edition"] == list(self._store.edition())
        late = 0 if same else behind(self._store, model=state["model"])
        return {
            "built": True,
            "generation": state["edition"][0],
            "behind": late,
            "records": state["records"],
            "entities": state["entities"],
            "links": state["links"],
            "relations": state["relations"],
            "communities": list(state["levels"]),
            "model": state["model"],
            "built_at": state["built_at"],
            "bytes": sum(state["files"].values()),
            "problem": None,
        }

    def _opened(self) -> Snapshot:
        from clew.graph.snapshot import open_graph

        if (snapshot := open_graph(self._store)) is None:
            raise StoreError(NONE_YET)
        return snapshot

    def _damaged(self) -> str:
        """Which of its files is not as it was written."""
        return self._opened().damaged()

    def _serving(self) -> Snapshot:
        from clew.graph.snapshot import serve_graph

        if (snapshot := serve_graph(self._store)) is None:
            raise StoreError(NONE_YET)
        return snapshot

    # ------------------------------------------------------------------ asking

    @_sound
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
        if mode not in MODES:
            raise InputError(f"unknown mode {mode!r}: {nearest(str(mode), MODES)}")
        begun = time.perf_counter()
        snapshot = self._serving()
        may = self._visible(Filter.of(filter), include_personal, skills_only)
        asked = parsing.parse(text, filter=may, limit=limit, now=time.time())
        if not asked.text.strip():
            raise InputError("the question is empty: say what to look for")
        if mode == "global":
            return self._global(snapshot, asked, level, begun)
        return self._local(snapshot, asked, begun)

    def _visible(self, wanted: Filter, personal: bool, skills_only: bool = False) -> Filter:
        return visible(
            wanted,
            include_personal=personal,
            skills_only=skills_only,
            personal=self._config.personal,
        )

    def _local(self, snapshot: Snapshot, asked: Query, begun: float) -> GraphAnswer:
        from clew.graph import local
        from clew.graph.shown import name_entities

        found = local.search(
            snapshot, self._store, asked.text, asked.terms, asked.filter, limit=asked.limit
        )
        near = list(found.entities)[:30]
        nodes = [one.entity.node for one in found.matched]
        names = name_entities(
            snapshot, self._store, asked.filter, [*nodes, *near], matched=found.matched
        )
        passages = self._store.passages(found.candidates)
        return GraphAnswer(
            query=asked.raw,
            mode="local",
            named=tuple(dict.fromkeys(names[node] for node in nodes if node in names)),
            entities=tuple(
                (names[node], found.entities[node])
                for node in near
                if node in names and node not in nodes
            )[:15],
            records=tuple(
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
            themes=(),
            seconds=time.perf_counter() - begun,
        )

    def _global(
        self, snapshot: Snapshot, asked: Query, level: int | None, begun: float
    ) -> GraphAnswer:
        from clew.graph import themes

        found = themes.search(
            snapshot,
            self._store,
            asked.terms,
            asked.filter,
            vector=self._vector(asked.text),
            model=self._model,
            level=level,
            limit=asked.limit,
        )
        return GraphAnswer(
            query=asked.raw,
            mode="global",
            named=(),
            entities=(),
            records=(),
            themes=tuple(theme.to_dict() for theme in found),
            seconds=time.perf_counter() - begun,
        )

    def _vector(self, text: str) -> Vector | None:
        """The question's, where there are vectors to compare it with."""
        if self._embed is None or not self._store.prepare(self._model):
            return None
        try:
            return self._embed(text)
        except ModelError:
            return None

    # ------------------------------------------------------------------ looking

    @_sound
    def show(
        self,
        entity: str | None = None,
        *,
        limit: int = 20,
        level: int | None = None,
        include_personal: bool = False,
    ) -> dict[str, Any]:
        """The graph in figures, with its foremost entities and themes; or all about one entity."""
        from clew.graph.shown import overview, portrait

        may = self._visible(Filter(), include_personal)
        snapshot = self._serving()
        if entity is None:
            return overview(snapshot, self._store, may, limit=limit, level=level)
        return portrait(snapshot, self._store, may, entity, limit=limit)

    @_sound
    def picture(
        self, file: str | Path, *, limit: int = 300, include_personal: bool = False
    ) -> dict[str, int]:
        """Write an interactive picture: one HTML file that needs nothing else. How many nodes and
        edges it has."""
        from clew.graph.picture import draw

        may = self._visible(Filter(), include_personal)
        return draw(self._serving(), self._store, may, Path(file), limit=limit)
