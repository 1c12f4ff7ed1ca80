"""Memories over HTTP: every route is a method of `Memory`, by the names of the command line."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from clew.errors import InputError
from clew.memory import Memory
from clew.memory.record import UnknownMemoryError, check_id, make_scope
from clew.serve.routing import (
    MOST_QUERY,
    MOST_RESULTS,
    MOST_VALUES,
    Parameters,
    Stores,
    Work,
    link_next,
    render_json,
)
from clew.types import FusionName, MemoryType
from clew.validate import read_conditions

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=1_000_000)]
GivenMoment = Annotated[str, Field(max_length=40)] | float
MOST_OFFSET = 100_000
"""Memories that are skipped at most: `clew export` gives all."""
Id = Annotated[str, Field(min_length=1, max_length=500)]

routes = APIRouter(tags=["memories"])


class _Which(Parameters):
    """Which memories are meant."""

    store: str | None = None
    namespace: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    type: list[MemoryType] = Field(default_factory=list, max_length=MOST_VALUES)
    tag: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    meta: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    metadata: str | None = Field(None, max_length=MOST_QUERY)
    """As JSON, with what `meta` cannot say: texts that look like numbers, ranges."""
    importance_min: Share | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None

    @property
    def scope(self) -> dict[str, Any]:
        return {
            "type_filter": list(self.type) or None,
            "tags": self.tag or None,
            "metadata": {**read_conditions("meta", self.meta), **_read_object(self.metadata)}
            or None,
            "importance_min": self.importance_min,
            "time_range": (self.since, self.until),
            "as_of": self.as_of,
        }


def _read_object(text: str | None) -> dict[str, Any]:
    try:
        said = json.loads(text or "{}")
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise InputError(f"metadata must be a JSON object, not {text!r:.100}")
    return said


class RecallParameters(_Which):
    q: str = Field(min_length=1, max_length=MOST_QUERY)
    k: int = Field(5, ge=1, le=MOST_RESULTS)
    recency: Share = 0.0
    importance_boost: Share = 0.0
    mmr: Share = 0.0
    rerank: bool = False
    fusion: FusionName | None = None
    floor: Share | None = None
    record_access: bool = True


class ListParameters(_Which):
    ended: bool = False
    limit: int = Field(20, ge=1, le=MOST_RESULTS)
    offset: int = Field(0, ge=0, le=MOST_OFFSET)


class OneParameters(Parameters):
    store: str | None = None
    namespace: str | None = None


class ForgetParameters(OneParameters):
    hard: bool = False


class MemoryChanges(Parameters):
    """Fields of a memory."""

    content: Text | None = None
    type: MemoryType | None = None
    importance: Share | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    valid_from: GivenMoment | None = None
    valid_to: GivenMoment | None = None


class NewMemory(MemoryChanges):
    content: Text
    namespace: str | None = None
    id: Id | None = None
    created_at: GivenMoment | None = None


class Successor(MemoryChanges):
    content: Text
    new_id: Id | None = None


class Feedback(Parameters):
    useful: bool


@routes.get("/recall")
async def recall(
    asked: Annotated[RecallParameters, Query()], stores: Stores, work: Work
) -> Response:
    """The memories that fit, best first: what `clew recall --json` prints."""
    return render_json(await work.run(_recall, stores.memory(asked.store), asked))


def _recall(memory: Memory, asked: RecallParameters) -> dict[str, Any]:
    scope = asked.scope
    found = memory.recall(
        asked.q,
        k=asked.k,
        namespace=asked.namespace or "default",
        recency_boost=asked.recency,
        importance_boost=asked.importance_boost,
        mmr=asked.mmr,
        rerank=asked.rerank,
        fusion=asked.fusion,
        floor=asked.floor,
        record_access=asked.record_access,
        **scope,
    )
    wanted = asked.namespace, asked.tag, scope["metadata"]
    return found.to_dict([] if found else memory.explain_absence(*wanted))


@routes.get("/memories")
async def list_memories(
    asked: Annotated[ListParameters, Query()], stores: Stores, work: Work, request: Request
) -> Response:
    """Memories, newest first: what `clew memories --json` prints."""
    data = await work.run(_list_memories, stores.memory(asked.store), asked)
    after, scope = asked.offset + asked.limit, request.scope
    leads = data["more"] and after <= MOST_OFFSET
    return render_json(
        data,
        headers=link_next(scope["query_string"], scope["path"], offset=after) if leads else None,
    )


def _list_memories(memory: Memory, asked: ListParameters) -> dict[str, Any]:
    scope = make_scope(asked.namespace or None, active=not asked.ended, **asked.scope)
    found, more = memory.list_newest(scope, limit=asked.limit, offset=asked.offset)
    return {"memories": [each.to_dict() for each in found], "more": more}


@routes.post("/memories", status_code=201)
async def remember(
    said: NewMemory, asked: Annotated[OneParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Keep a memory: what `clew remember --json` prints."""
    given = said.model_dump(exclude_none=True)
    if asked.namespace is not None:
        given.setdefault("namespace", asked.namespace)
    made = await work.run(stores.memory(asked.store).remember_many, [given])
    return render_json(dict(made[0]), status=201)


@routes.get("/memories/{id:whole}")
async def get_memory(
    id: Id, asked: Annotated[OneParameters, Query()], stores: Stores, work: Work
) -> Response:
    """A memory and those it took the place of, newest first: what `clew history --json` prints."""
    memory = stores.memory(asked.store)
    found = await work.run(memory.history, id, namespace=asked.namespace)
    return render_json({"memories": [each.to_dict() for each in found]})


@routes.patch("/memories/{id:whole}")
async def update(
    id: Id,
    said: MemoryChanges,
    asked: Annotated[OneParameters, Query()],
    stores: Stores,
    work: Work,
) -> Response:
    """Change a memory in place."""
    given = said.model_dump(exclude_none=True)
    memory = stores.memory(asked.store)
    return render_json(dict(await work.run(memory.update, id, namespace=asked.namespace, **given)))


@routes.delete("/memories/{id:whole}")
async def forget(
    id: Id, asked: Annotated[ForgetParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Forget a memory, softly or for good."""
    return render_json(await work.run(_forget, stores.memory(asked.store), id, asked))


def _forget(memory: Memory, id: str, asked: ForgetParameters) -> dict[str, Any]:
    if memory.get(check_id(id), namespace=asked.namespace) is None:
        raise UnknownMemoryError(f"there is no memory {id!r}: `clew memories` lists them")
    done = memory.forget(id, hard=asked.hard, namespace=asked.namespace)
    return {"forgotten": [id] if done else [], "hard": asked.hard}


@routes.post("/memories/{id:whole}/supersede", status_code=201)
async def supersede(
    id: Id, said: Successor, asked: Annotated[OneParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Say that a memory is no longer true, and what is: what `clew supersede --json` prints."""
    given = said.model_dump(exclude_none=True)
    memory = stores.memory(asked.store)
    made = await work.run(memory.supersede, id, namespace=asked.namespace, **given)
    return render_json({**made, "superseded": id}, status=201)


@routes.post("/memories/{id:whole}/restore")
async def restore(
    id: Id, asked: Annotated[OneParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Bring back what was forgotten, superseded, evicted or consolidated."""
    memory = stores.memory(asked.store)
    return render_json({"restored": await work.run(memory.restore, id, namespace=asked.namespace)})


@routes.post("/memories/{id:whole}/feedback")
async def feedback(
    id: Id, said: Feedback, asked: Annotated[OneParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Say whether a memory helped."""
    memory = stores.memory(asked.store)
    return render_json(await work.run(memory.feedback, id, said.useful, namespace=asked.namespace))
