"""The resident process: many clients at once, against a bare endpoint; a warm `clew search` against
a cold one; from a saved file to its new text found.

    python benchmarks/serve.py --out docs/benchmarks/serve.md
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import clew

SAMPLE = Path(__file__).parents[1] / "sample"
BARE = """
import sys, uvicorn
from fastapi import FastAPI, Response
from clew.serve.server import listen
app, body = FastAPI(), open(sys.argv[1], "rb").read()
@app.get("/search")
async def search(q: str, limit: int = 10) -> Response:
    return Response(body, media_type="application/json")
socket = listen("127.0.0.1", 0)
print(f"http://127.0.0.1:{socket.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[socket])
"""


ROUNDS = 6
"""Slices in which the server and the bare endpoint take turns: what else the machine does then
meets both."""


class Load(NamedTuple):
    times: list[float]
    errors: int
    seconds: float
    processor: float = 0.0
    """Seconds of it that the server's process took."""

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def percentile(self, percent: int) -> float:
        return 1000 * statistics.quantiles(self.times, n=100)[percent - 1]

    def __add__(self, other: Load) -> Load:  # type: ignore[override]
        return Load(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Running:
    """A server in a process of its own."""

    def __init__(self, *command: str, **environment: str):
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+:\d+", self.process.stdout.readline())
        assert found, "the server did not start"
        self.url = found[0]

    def memory(self) -> float:
        """Resident, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def processor(self) -> float:
        """Seconds that its threads have run, in user and in kernel mode."""
        figures = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, paths: list[str], clients: int, seconds: float, *, rate: float = 0.0) -> Load:
        before = self.processor()
        done = asyncio.run(drive(self.url, paths, clients, seconds, rate=rate))
        return done._replace(processor=self.processor() - before)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}") as answer:
            body: bytes = answer.read()
            return body

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


async def drive(
    url: str, paths: list[str], clients: int, seconds: float, *, rate: float = 0.0
) -> Load:
    """So many clients, each asking again once it has its answer; or all of them together at this
    `rate`, each request timed from when it was due."""
    at, times, errors = urlsplit(url), [], 0
    start, turns, due = time.perf_counter(), itertools.cycle(paths), itertools.count()
    end = start + seconds

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        while (begun := start + next(due) / rate if rate else time.perf_counter()) < end:
            if (early := begun - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            request = f"GET {next(turns)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(request.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            errors += not head.startswith(b"HTTP/1.1 200")
            times.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(times, errors, time.perf_counter() - start)


def take_turns(
    sides: dict[str, tuple[Running, list[str], float]], clients: int, *, memory: Running
) -> tuple[dict[str, Load], list[float]]:
    """Each side (server, paths, seconds) for its time, slice by slice; and how much memory the
    server had, each second of a slice of its own."""
    loads, used = {name: Load([], 0, 0.0) for name in sides}, []
    for _, (name, (server, paths, seconds)) in itertools.product(range(ROUNDS), sides.items()):
        done = threading.Event()

        def watch(done: threading.Event = done, server: Running = server) -> None:
            while not done.wait(1):
                used.extend([memory.memory()] if server is memory else [])

        thread = threading.Thread(target=watch)
        thread.start()
        loads[name] += server.load(paths, clients, seconds / ROUNDS)
        done.set()
        thread.join()
    return loads, used


def make_store(folder: Path, records: int) -> list[str]:
    """Records of words as common as those of a language, unless the folder has them; queries of
    three of them."""
    chance = random.Random(7)
    words = [f"w{number:05d}" for number in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    with clew.open(folder, model="none") as engine:
        there = engine.status()["records"]
        for first in range(there, records, 5_000):
            texts = [chance.choices(words, weights, k=60) for _ in range(5_000)]
            engine.add(
                {"id": f"r{first + at}", "content": " ".join(text), "title": text[0]}
                for at, text in enumerate(texts)
            )
        if there < records:
            engine.optimise()
    chance = random.Random(8)
    return [" ".join(chance.choices(words[50:2_000], k=3)) for _ in range(500)]


def measure_load(records: int, clients: int, seconds: float, store: Path | None) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        folder = store or Path(place)
        queries = make_store(folder, records)
        paths = [f"/search?q={quote(query)}&limit=10" for query in queries]
        server = Running(
            *("-m", "clew", "serve", str(folder), "--port", "0", "--no-watch"), CLEW_MODEL="none"
        )
        fresh = [f"{path}&cache=false" for path in paths]
        for path in (*paths, *paths):  # kept, and found again
            server.get(path)
        body = Path(place, "answer.json")
        body.write_bytes(server.get(paths[0]))
        bare = Running("-c", BARE, str(body))
        brief = min(10.0, seconds)
        one, one_anew = server.load(paths, 1, brief), server.load(fresh, 1, brief)
        one_plain = bare.load(paths, 1, brief)
        for warm_up in (paths, fresh):
            server.load(warm_up, clients, brief)
        sides = {
            "many": (server, paths, seconds),
            "plain": (bare, paths, seconds / 2),
            "anew": (server, fresh, seconds / 2),
        }
        loads, used = take_turns(sides, clients, memory=server)
        many, plain, anew = loads.values()
        pace = many.rate / 2
        calm = server.load(paths, clients, brief, rate=pace)
        server.stop()
        bare.stop()
        size = body.stat().st_size if body.exists() else 0
    tenth = max(1, len(used) // 10)
    start, last = statistics.mean(used[:tenth]), statistics.mean(used[-tenth:])
    rows = (
        ("one client, kept answers", one),
        (f"{clients} clients, kept answers", many),
        ("one client, no cache", one_anew),
        (f"{clients} clients, no cache", anew),
        (f"{clients} clients, kept answers, half of that rate", calm),
        ("one client, a bare FastAPI endpoint, same bytes", one_plain),
        (f"{clients} clients, a bare FastAPI endpoint", plain),
    )
    wait = clients * 1000 / many.rate
    return [
        f"{records:,} records, words only; 500 queries in turn, answers of {size:,} bytes; "
        f"{clients} clients for {seconds:g} s.",
        "",
        "| | requests | errors | requests/s | p50 ms | p99 ms | processor ms a request |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {name} | {len(of.times):,} | {of.errors} | {of.rate:,.0f} "
            f"| {of.percentile(50):.1f} | {of.percentile(99):.1f} "
            f"| {1000 * of.processor / len(of.times):.2f} |"
            for name, of in rows
        ),
        "",
        f"- p99 of {clients} clients is {many.percentile(99) / one.percentile(50):.1f} × the p50 "
        f"of one (wanted: under 20); without the cache "
        f"{anew.percentile(99) / one_anew.percentile(50):.1f} ×; of the bare endpoint itself "
        f"{plain.percentile(99) / one_plain.percentile(50):.1f} ×.",
        f"- {clients} clients that ask again at once wait for each other: one interpreter answers "
        f"in {1000 / many.rate:.2f} ms, so each waits {clients} × that, {wait:.1f} ms: "
        f"{wait / one.percentile(50):.1f} × the p50 of one before anything is uneven. At half of "
        f"that rate p99 is "
        f"{calm.percentile(99) / one.percentile(50):.1f} ×.",
        "- Several processes on one port would share that wait where there are cores for them "
        "(here two, and the clients take one). Each would have its own indexes, watcher, run of "
        "indexing and figures: that is not done.",
        f"- {many.rate / plain.rate:.2f} of the bare endpoint's requests/s (wanted: 0.5); "
        f"without the cache {anew.rate / plain.rate:.2f}.",
        f"- Memory {start:.0f} MB at first, {last:.0f} MB at the end: "
        f"{100 * (last / start - 1):+.1f} % (wanted: within 5 %).",
    ]


def measure_command(runs: int) -> list[str]:
    """On the bundled sample, with its model."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "sample")
        shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns(".clew"))
        with clew.open(folder) as engine:
            engine.index()

        def search() -> float:
            words = f"electric fuse {random.random()}"
            begun = time.perf_counter()
            command = [sys.executable, "-m", "clew", "search", words]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            return time.perf_counter() - begun

        search()
        cold = statistics.median(search() for _ in range(runs))
        server = Running("-m", "clew", "serve", str(folder), "--port", "0")
        for _ in range(5):
            server.get("/search?q=fuse")
        search()
        warm = statistics.median(search() for _ in range(runs))
        found = statistics.median(_save_and_find(server, folder, n) for n in range(runs))
        server.stop()
    return [
        f"- `clew search` on the sample folder, a new query each time, median of {runs}: "
        f"{1000 * cold:.0f} ms by itself, {1000 * warm:.0f} ms with a server: {warm / cold:.2f} of "
        "it (wanted: under 0.33).",
        f"- From a saved file to its new text found over HTTP: {1000 * found:.0f} ms (wanted: "
        "under 1,000).",
    ]


def _save_and_find(server: Running, folder: Path, number: int) -> float:
    time.sleep(1.5)
    word = f"zanzibar{number}{random.randrange(10**6)}"
    begun = time.perf_counter()
    (folder / "saved.md").write_text(f"The {word} is new here.", "utf-8")
    while b'"results":[]' in server.get(f"/search?q={word}&mode=keyword"):
        time.sleep(0.01)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--store", type=Path, help="a folder that keeps the records")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = [
        "# The resident process",
        "",
        "`python benchmarks/serve.py`, both sides in the same run, in turns of a few seconds.",
    ]
    lines += ["", *measure_load(given.records, given.clients, given.seconds, given.store), ""]
    lines += measure_command(given.runs)
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
