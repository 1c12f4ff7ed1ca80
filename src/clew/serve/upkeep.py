"""The stores themselves over HTTP: which there are, how they fare, indexing, figures."""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from clew import __version__
from clew.errors import InputError, StoreError
from clew.filter import EVERYTHING
from clew.serve.jobs import IndexJob
from clew.serve.routing import (
    EVENTS,
    EventStream,
    Jobs,
    Parameters,
    StoreParameters,
    Stores,
    Work,
    render_event,
    render_json,
)
from clew.serve.stores import ServedStore, ServedStores, show_place

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds, of the histogram of answering times."""
LOOK, KEEP_ALIVE = 0.1, 15.0
"""Seconds between looks at a job that is followed, and after which silence is broken."""

routes = APIRouter(tags=["stores"])


class IndexRequest(Parameters):
    force: bool = False
    embed: bool = True


@routes.get("/stores")
async def list_stores(stores: Stores, work: Work) -> Response:
    """Which stores are served, the first being meant where none is named."""
    return render_json(await work.run(_list_stores, stores))


def _count(store: ServedStore) -> int:
    try:
        return store.engine.store.count(EVERYTHING)
    except StoreError:  # gone: whoever asks it for more is told
        return 0


def _list_stores(stores: ServedStores) -> dict[str, Any]:
    listed = [
        {
            "name": each.name,
            "kind": each.kind,
            "place": show_place(each.place),
            "records": _count(each),
        }
        for each in stores
    ]
    return {"stores": listed, "version": __version__}


@routes.get("/status")
async def status(
    asked: Annotated[StoreParameters, Query()], stores: Stores, work: Work
) -> Response:
    """What `clew status --json` prints; of a memory, its `stats`."""
    return render_json(await work.run(_describe_store, stores.folder(asked.store)))


def _describe_store(store: ServedStore) -> dict[str, Any]:
    return store.engine.status() if store.memory is None else store.memory.stats()


@routes.get("/healthz")
async def healthz() -> dict[Literal["status"], Literal["ok"]]:
    """Whether the server answers."""
    return {"status": "ok"}


# ---------------------------------------------------------------------- indexing


def _job(stores: ServedStores, jobs: Jobs, name: str | None) -> IndexJob:
    store = stores.folder(name)
    if store.name not in jobs:
        raise InputError(f"{store.name!r} is a memory: it has no files to index")
    return jobs[store.name]


@routes.post("/index", status_code=202)
async def start_index(
    asked: Annotated[StoreParameters, Query()],
    stores: Stores,
    jobs: Jobs,
    said: IndexRequest | None = None,
) -> Response:
    """Bring a store up to date with its folders, in the background."""
    job, said = _job(stores, jobs, asked.store), said or IndexRequest()
    return render_json(job.start(force=said.force, embed=said.embed), status=202)


@routes.get("/index")
async def show_index(
    asked: Annotated[StoreParameters, Query()], stores: Stores, jobs: Jobs
) -> Response:
    """The run of indexing that is at work, or the last one."""
    return render_json(_job(stores, jobs, asked.store).describe())


@routes.get("/index/progress", responses=EVENTS)
async def follow_index(
    asked: Annotated[StoreParameters, Query()], stores: Stores, jobs: Jobs, request: Request
) -> Response:
    """The same as a stream: an event `job` now and whenever it changes."""
    job = _job(stores, jobs, asked.store)
    return EventStream(_follow(job, request))


async def _follow(job: IndexJob, request: Request) -> AsyncIterator[bytes]:
    seen, silent_since = -1, time.monotonic()
    ending: asyncio.Event = request.app.state.ending
    while not ending.is_set() and not await request.is_disconnected():
        if job.version != seen:
            seen, silent_since = job.version, time.monotonic()
            yield render_event("job", job.describe())
        elif time.monotonic() - silent_since > KEEP_ALIVE:
            silent_since = time.monotonic()
            yield b": still there\n\n"  # whoever has left is noticed by it
        await asyncio.sleep(LOOK)


# ---------------------------------------------------------------------- figures


class Metrics:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()
        self._begun = time.time()

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[method, route, status] += 1
            self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]

    def lines(self, stores: ServedStores, pending: int) -> Iterator[str]:
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
            buckets = {route: list(counts) for route, counts in self._buckets.items()}
        yield "# HELP clew_requests_total Requests by route and status."
        yield "# TYPE clew_requests_total counter"
        for (method, route, status), count in sorted(requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"clew_requests_total{{{labels}}} {count}"
        yield "# HELP clew_request_seconds How long answers took."
        yield "# TYPE clew_request_seconds histogram"
        for route, counts in sorted(buckets.items()):
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
                total += count
                yield f'clew_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'clew_request_seconds_sum{{route="{route}"}} {seconds[route]:.6f}'
            yield f'clew_request_seconds_count{{route="{route}"}} {total}'
        yield "# HELP clew_pending_requests Requests at work or waiting for their turn."
        yield "# TYPE clew_pending_requests gauge"
        yield f"clew_pending_requests {pending}"
        yield "# HELP clew_records Records of a store."
        yield "# TYPE clew_records gauge"
        for each in stores:
            name = each.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            yield f'clew_records{{store="{name}"}} {_count(each)}'
        yield "# HELP clew_start_time_seconds When the server was started."
        yield "# TYPE clew_start_time_seconds gauge"
        yield f"clew_start_time_seconds {self._begun:.3f}"


@routes.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
async def metrics(stores: Stores, work: Work, request: Request) -> Response:
    """Counts and times for Prometheus."""
    told: Metrics = request.app.state.metrics
    lines = await work.run(lambda: list(told.lines(stores, work.pending)))
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")
