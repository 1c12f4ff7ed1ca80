"""What every route shares: the stores, the queue, the form of parameters and of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.convertors import PathConvertor, register_url_convertor

from clew.serve.guard import WorkQueue
from clew.serve.jobs import IndexJob
from clew.serve.stores import ServedStores
from clew.validate import escape_unprintable

MOST_QUERY = 10_000
"""Characters of a query."""
MOST_RESULTS = 1_000
"""Of one answer, those that are skipped included."""
MOST_VALUES = 100
"""Of one parameter that may be repeated."""


class WholeConvertor(PathConvertor):
    """The rest of a path, which may have line breaks in it: names of files have."""

    regex = r"[\s\S]*"


register_url_convertor("whole", WholeConvertor())


class Parameters(BaseModel):
    """A name that is not one of these is refused, rather than having no effect."""

    model_config = ConfigDict(extra="forbid")


class StoreParameters(Parameters):
    store: str | None = None


def render_json(
    data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """What --json prints, on one line."""
    return send_json(dump_json(data), status=status, headers=headers)


def dump_json(data: Any) -> bytes:
    return escape_unprintable(_ENCODER.encode(data)).encode()


def send_json(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(body, status, media_type="application/json", headers=headers)


def link_next(query_string: bytes, path: str, *, offset: int) -> dict[str, str]:
    """The header that leads on to what comes from `offset` on."""
    said = query_string.decode("latin-1").replace(">", "%3E").split("&")
    kept = [each for each in said if each and not each.startswith("offset=")]
    return {"Link": f'<{path}?{"&".join((*kept, f"offset={offset}"))}>; rel="next"'}


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


_EVENT = {
    "event": {"type": "string"},
    "data": {"type": "string", "contentMediaType": "application/json"},
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "object", "properties": _EVENT}}}}
}
"""How a stream is described to programs."""


def render_event(name: str, data: Any) -> bytes:
    """One event of a stream (SSE)."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dump_json(data))


# Coroutines, although they wait for nothing: FastAPI has a thread call anything else.
async def _stores(request: Request) -> ServedStores:
    stores: ServedStores = request.app.state.stores
    return stores


async def _work(request: Request) -> WorkQueue:
    work: WorkQueue = request.app.state.work
    return work


async def _jobs(request: Request) -> Mapping[str, IndexJob]:
    jobs: Mapping[str, IndexJob] = request.app.state.jobs
    return jobs


Stores = Annotated[ServedStores, Depends(_stores)]
Work = Annotated[WorkQueue, Depends(_work)]
Jobs = Annotated[Mapping[str, IndexJob], Depends(_jobs)]
