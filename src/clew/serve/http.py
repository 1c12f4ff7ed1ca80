"""The HTTP interface: every answer is that of an `Engine` or a `Memory`, in the form of --json.

Here are the application and what finds things; memories.py has memories, upkeep.py the stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clew import __version__
from clew.background import Recent
from clew.config import check_weights
from clew.errors import ClewError, ConfigError, InputError, ModelError
from clew.filter import Filter
from clew.memory.record import UnknownMemoryError
from clew.search.advice import add_notes
from clew.search.citation import UnknownRecordError, find_record
from clew.serve import memories, upkeep
from clew.serve.guard import Guard, Limits, RefusalError, WorkQueue
from clew.serve.jobs import IndexJob
from clew.serve.routing import (
    EVENTS,
    MOST_QUERY,
    MOST_RESULTS,
    MOST_VALUES,
    EventStream,
    StoreParameters,
    Stores,
    Work,
    dump_json,
    link_next,
    render_event,
    render_json,
    send_json,
)
from clew.serve.stores import ServedStore, ServedStores, UnknownStoreError
from clew.types import GroupBy, Mode, Record, SearchRequest
from clew.validate import encodable, read_conditions

PAGE = Path(__file__).parent / "web"
_STATUS: dict[type[ClewError], int] = {
    UnknownRecordError: 404,
    UnknownMemoryError: 404,
    UnknownStoreError: 404,
    InputError: 400,
    ModelError: 503,
}
"""Of errors, the most special first; any other is 409."""


REFUSED: tuple[tuple[int | str, str], ...] = (
    (400, "It makes no sense."),
    (401, "A token is needed."),
    (403, "Requests of other sites are refused."),
    (404, "There is no such thing."),
    (408, "It did not come in time."),
    (409, "Not possible now."),
    (413, "It is too large."),
    (421, "This server has another name."),
    (422, "A parameter has a wrong name or value."),
    (429, "Too many requests."),
    (503, "Overloaded, or a model is missing."),
)


LONGEST_REMEMBERED, MOST_REMEMBERED = 500, 1_000
"""Bytes of an address, and addresses, whose parameters are remembered once they are checked."""
OF_EACH = ("query", "stages_ms", "total_ms", "cache")
"""What the trace of a kept answer says of the search that finds it."""
MOST_AT_ONCE = 50
"""Results of a kept answer that is given at once: each file is looked at."""


class ErrorAnswer(BaseModel):
    """What is wrong, and what to do."""

    error: str
    kind: str


def create_app(
    stores: ServedStores,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
    watch: bool = False,
    routers: Sequence[APIRouter] = (),
    page: Path = PAGE,
) -> FastAPI:
    """The application over these stores, which stay the caller's to close. `watch` has folders
    indexed when they change. `routers` are added to it: what other front ends have."""
    from clew.serve.mcp import MountedServer
    from clew.serve.tools import ServedTools

    limits = limits or Limits()
    work, agents = WorkQueue(limits), MountedServer(ServedTools(stores))
    asking = WorkQueue(limits)  # else four who wait for a chat model keep all searches waiting
    jobs = {each.name: IndexJob(each) for each in stores if each.kind == "folder"}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(agents.run())
            for job in jobs.values() if watch else ():
                job.watch()
            yield
            app.state.ending.set()
        for job in jobs.values():
            await asyncio.to_thread(job.close)
        for queue in (work, asking):
            queue.close()

    app = FastAPI(
        title="Clew",
        version=__version__,
        summary="Find the right passage among your files and memories, and say why.",
        lifespan=lifespan,
        docs_url=None,  # its page would fetch scripts from elsewhere
        redoc_url=None,
        responses={status: {"model": ErrorAnswer, "description": why} for status, why in REFUSED},
    )
    app.state.stores, app.state.work, app.state.jobs = stores, work, jobs
    app.state.asking, app.state.checked = asking, Recent(MOST_REMEMBERED)
    app.state.metrics, app.state.ending = upkeep.Metrics(), asyncio.Event()
    for router in (routes, memories.routes, upkeep.routes, *routers):
        app.include_router(router)
    app.add_exception_handler(ClewError, _say_error)
    app.add_exception_handler(RequestValidationError, _say_invalid)
    app.add_exception_handler(RefusalError, _say_refusal)
    app.add_exception_handler(HTTPException, _say_http)
    app.router.routes.append(Route("/mcp", endpoint=agents, include_in_schema=False))
    app.mount("/web", StaticFiles(directory=page), name="web")
    app.add_api_route("/", lambda: FileResponse(page / "index.html"), include_in_schema=False)
    app.add_middleware(KeptAnswers)
    app.add_middleware(
        Guard, token=token, hosts=hosts, limits=limits, count=app.state.metrics.count
    )
    return app


# ---------------------------------------------------------------------- errors


def _say(status: int, message: str, kind: str = "InputError", **headers: str) -> JSONResponse:
    return JSONResponse({"error": encodable(message), "kind": kind}, status, headers=headers)


async def _say_error(_: Request, error: Exception) -> Response:
    return _say(*describe_error(error))


def describe_error(error: Exception) -> tuple[int, str, str]:
    """The status, the words, and the kind that a caller knows: one of errors.py."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == "clew.errors")
    return status, str(error), known.__name__


async def _say_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(each["loc"] == ("body",) for each in error.errors()):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        sent = "" if kind.endswith("json") else " with the header Content-Type: application/json"
        return _say(422, f"the body must be a JSON object: send it{sent}")
    said = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
    return _say(422, "; ".join(said) or "the request makes no sense")


async def _say_http(_: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such route, a method that it has not."""
    assert isinstance(error, HTTPException)
    return _say(error.status_code, str(error.detail), **dict(error.headers or {}))


async def _say_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    later = {"Retry-After": "1"} if error.status == 503 else {"Connection": "close"}
    return _say(error.status, str(error), "ClewError", **later)


# ---------------------------------------------------------------------- searching

routes = APIRouter(tags=["search"])


_SAME = (
    *("mode", "explain", "rerank", "strict", "include_personal", "skills_only", "cache", "tree"),
    *("group_by", "max_per_file"),
)
"""Parameters that are arguments of `Engine.search` by the same name."""


class FilterParameters(StoreParameters):
    """Which records may be found."""

    tag: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    path: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    type: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    collection: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    after: str | None = None
    before: str | None = None
    meta: list[str] = Field(default_factory=list, max_length=MOST_VALUES)

    def read_filter(self) -> Filter:
        given = {
            "tags": self.tag,
            "path": self.path,
            "type": self.type,
            "collection": self.collection,
            "after": self.after,
            "before": self.before,
            "metadata": read_conditions("meta", self.meta),
        }
        return Filter.of({name: value for name, value in given.items() if value})


class SearchParameters(FilterParameters):
    """What `clew search` takes as options."""

    q: str = Field("", max_length=MOST_QUERY)
    limit: int = Field(10, ge=1, le=MOST_RESULTS)
    offset: int = Field(0, ge=0, le=MOST_RESULTS)
    mode: Mode = "hybrid"
    source: list[str] = Field(default_factory=list, max_length=MOST_VALUES)
    group_by: GroupBy | None = None
    max_per_file: int | None = Field(None, ge=0, le=MOST_RESULTS)
    rerank: bool | None = None
    tree: bool = False
    strict: bool = False
    include_personal: bool = False
    skills_only: bool = False
    cache: bool | None = None
    explain: bool = False

    @cached_property
    def request(self) -> SearchRequest:
        return SearchRequest(
            encodable(self.q),
            limit=min(self.limit + self.offset, MOST_RESULTS),
            filter=self.read_filter(),
            sources=self.source or None,
            **{name: getattr(self, name) for name in _SAME},
        )


@routes.get("/search")
async def search(asked: Annotated[SearchParameters, Query()], request: Request) -> Response:
    """Search a store: what `clew search --json` prints."""
    if len(said := request.scope["query_string"]) < LONGEST_REMEMBERED:
        request.app.state.checked.keep(said, asked)
    return await respond_search(request.scope, asked)


async def respond_search(scope: Scope, asked: SearchParameters) -> Response:
    state = scope["app"].state
    store: ServedStore = state.stores.folder(asked.store)
    body, count = await _choose_queue(scope, asked).run(answer_search, store, asked)
    return send_json(body, headers=_lead_on(scope, asked, count))


def _choose_queue(scope: Scope, asked: SearchParameters) -> WorkQueue:
    """A walk down the tree may ask a chat model for a minute."""
    queue: WorkQueue = scope["app"].state.asking if asked.tree else scope["app"].state.work
    return queue


class KeptAnswers:
    """ASGI middleware: answers at once what was asked before in the same words, if its answer is
    kept. FastAPI takes as long to find the route and to check the parameters as that takes."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/search" and scope["method"] == "GET":
            state = scope["app"].state
            asked = state.checked.use(scope["query_string"])
            with suppress(ClewError):  # said by the route
                found = asked and find_answer(state.stores.folder(asked.store), asked)
                if found:
                    scope["route"] = SEARCH
                    answer = send_json(found[0], headers=_lead_on(scope, asked, found[1]))
                    await answer(scope, receive, send)
                    return
        await self.app(scope, receive, send)


SEARCH = routes.routes[-1]


class SearchBody(SearchParameters):
    """The same, and what has no place in an address."""

    filter_fields: dict[str, Any] | None = Field(None, alias="filter")
    weights: dict[str, float] | None = None

    @cached_property
    def request(self) -> SearchRequest:
        wanted = self.read_filter() & Filter.of(self.filter_fields)
        try:
            check_weights(self.weights or {})
        except ConfigError as error:  # those of a request are no settings
            raise InputError(str(error)) from error
        return super().request._replace(filter=wanted, weights=self.weights)


@routes.post("/search")
async def search_by_body(
    said: SearchBody, asked: Annotated[StoreParameters, Query()], stores: Stores, request: Request
) -> Response:
    """The same with all that a `Filter` can say, and weights of sources."""
    store = stores.folder(said.store or asked.store)
    body, _ = await _choose_queue(request.scope, said).run(answer_search, store, said)
    return send_json(body)


@routes.get("/explain")
async def explain(asked: Annotated[SearchParameters, Query()], request: Request) -> Response:
    """The same with every source's own list in the trace: what `clew search --explain --json`
    prints."""
    return await respond_search(request.scope, asked.model_copy(update={"explain": True}))


def _in_use(store: ServedStore, request: SearchRequest) -> SearchRequest:
    """Of a memory, what has not ended, unless the filter asks for that."""
    wanted = Filter.of(request.filter)
    if store.kind == "folder" or wanted.active is not None or wanted.as_of is not None:
        return request
    return request._replace(filter=wanted & Filter(active=True))


Rendered = tuple[bytes, int]
"""An answer as JSON, and how many results it has."""


def answer_search(store: ServedStore, asked: SearchParameters) -> Rendered:
    engine, wanted = store.engine, Filter.of(asked.request.filter)
    if not asked.q.strip() and not wanted and not asked.skills_only:
        raise InputError("say what to look for: words (q), or a filter such as tag")
    found = engine.answer(_in_use(store, asked.request))
    may = {"include_personal": asked.include_personal, "skills_only": asked.skills_only}
    data = add_notes(found, wanted, engine.store, personal=engine.config.personal, **may).to_dict()
    data["results"] = data["results"][asked.offset :]
    return dump_json(data), len(data["results"])


def _lead_on(scope: Scope, asked: SearchParameters, count: int) -> dict[str, str]:
    after = asked.offset + asked.limit
    if count < asked.limit or after >= MOST_RESULTS:
        return {}
    return link_next(scope["query_string"], scope["path"], offset=after)


def find_answer(store: ServedStore, asked: SearchParameters) -> Rendered | None:
    """The same, where it is kept and that is known at once: to hand it to a thread would take as
    long again, and so would writing it once more. None of a store that is asked over a network."""
    if not store.is_local or asked.offset or asked.limit > MOST_AT_ONCE:
        return None
    found = store.engine.find_kept(_in_use(store, asked.request))
    if not found or found.made is None:
        return None
    made, trace = found.made, found.trace
    own = {name: trace[name] for name in OF_EACH}
    if "json" not in made:
        shared = {name: of for name, of in trace.items() if name not in OF_EACH}
        made["json"] = dump_json({**found.to_dict(), "trace": shared}).removesuffix(b"}}")
    return b"%s,%s}" % (made["json"], dump_json(own)[1:]), len(found)


@routes.get("/records/{id:whole}")
async def get_record(
    id: str, asked: Annotated[StoreParameters, Query()], stores: Stores, work: Work
) -> Response:
    """One record, whole, by its id, its path or a citation: what `clew get --json` prints, and its
    passages."""
    return render_json(await work.run(_describe_record, stores.folder(asked.store), id))


def _describe_record(store: ServedStore, id: str) -> dict[str, Any]:
    tables = store.engine.store
    record = find_record(tables, encodable(id).replace("\0", "\ufffd"))
    held = tables.vectors.chunks([record.id]).get(record.id, ())
    return {
        **{name: getattr(record, name) for name in Record.__slots__},
        "passages": [{"chunk": each.number, **each.chunk._asdict()} for each in held],
    }


# ---------------------------------------------------------------------- graph and tree


class GraphParameters(StoreParameters):
    entity: str | None = Field(None, max_length=500)
    limit: int = Field(20, ge=1, le=MOST_RESULTS)
    level: int | None = Field(None, ge=0, le=100)
    include_personal: bool = False


class PictureParameters(StoreParameters):
    entity: str | None = Field(None, max_length=500)
    limit: int = Field(150, ge=1, le=MOST_RESULTS)
    include_personal: bool = False


class TreeParameters(StoreParameters):
    node: int = Field(0, ge=0)
    depth: int = Field(1, ge=0, le=10)
    include_personal: bool = False


@routes.get("/graph")
async def show_graph(
    asked: Annotated[GraphParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Foremost entities and themes, or all about one entity: what `clew graph show --json`
    prints."""
    options = asked.model_dump(exclude={"store"})
    return render_json(await work.run(stores.folder(asked.store).engine.graph.show, **options))


@routes.get("/graph/picture")
async def draw_graph(
    asked: Annotated[PictureParameters, Query()], stores: Stores, work: Work
) -> Response:
    """Nodes and edges: of the foremost entities, or around one."""
    options = asked.model_dump(exclude={"store"})
    return render_json(await work.run(stores.folder(asked.store).engine.graph.network, **options))


@routes.get("/tree")
async def show_tree(
    asked: Annotated[TreeParameters, Query()], stores: Stores, work: Work
) -> Response:
    """A node of the tree and its children: what `clew tree show --json` prints."""
    options = asked.model_dump(exclude={"store"})
    return render_json(await work.run(stores.folder(asked.store).engine.tree.show, **options))


# ---------------------------------------------------------------------- asking


class AskParameters(FilterParameters):
    question: str = Field(min_length=1, max_length=MOST_QUERY)
    limit: int = Field(8, ge=1, le=100)
    token_budget: int = Field(3_000, ge=1, le=200_000)
    namespace: str | None = None
    include_personal: bool = False
    quote: bool = False


@routes.post("/ask", responses=EVENTS)
async def ask(said: AskParameters, stores: Stores, request: Request) -> Response:
    """Answer a question from a store, sentence by sentence: a stream of events."""
    place, wanted = stores.folder(said.store), said.read_filter()
    if place.memory is not None and wanted:
        raise InputError(f"{place.name!r} is a memory: filters are of folders")
    options = said.model_dump(exclude={*FilterParameters.model_fields, "question"})
    options["filter"] = wanted
    answer = stream_answer(place.memory or place.engine, said.question, **options)
    return EventStream(_stream(answer, request.app.state.asking, request))


def stream_answer(place: Any, question: str, **options: Any) -> Iterator[tuple[str, Any]]:
    from clew import ask as asking

    for part in asking.stream_answer(place, question, **options):
        last = isinstance(part, asking.AskResult)
        yield "done" if last else type(part).__name__.lower(), part.to_dict()


async def _stream(
    parts: Iterator[tuple[str, Any]], work: WorkQueue, request: Request
) -> AsyncIterator[bytes]:
    """Each part once it is there; whoever left is not answered any further."""
    try:
        while not await request.is_disconnected():
            part = await work.run(next, parts, None)
            if part is None:
                return
            yield render_event(*part)
    except ClewError as error:
        _, message, kind = describe_error(error)
        yield render_event("error", {"error": message, "kind": kind})
