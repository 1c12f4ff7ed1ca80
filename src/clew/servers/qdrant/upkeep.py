"""What keeps a store in Qdrant well: passages made anew from their records, weights brought up to
date, everything examined."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clew.errors import StoreError
from clew.protocols import Progress
from clew.servers.qdrant.client import SEARCHED, Json, Server
from clew.servers.qdrant.conditions import fields_of
from clew.servers.qdrant.journal import HEAD, Head, Journal
from clew.servers.qdrant.records import (
    MARK,
    Means,
    Stored,
    StoredPassage,
    read_record,
    sparse_vector,
    text_of,
    vectors_part,
    words_payload,
)
from clew.text import analyser

DRIFT = 0.01
"""By how much the average length may have moved before weights are written anew."""
SMALL = 2_000
"""Passages of a store in which that is done for any change, so few are they."""
_AT_ONCE = 500
_LATE = (
    "the server is older than 1.18.1: while it optimises, a search may miss what was just written; "
    "upgrade it"
)
"""Nothing is lost and nothing is to be mended, so it is no failure."""


def weigh_anew(journal: Journal, progress: Progress | None = None) -> None:
    """Bring the weights of words up to the average length there is now, where it has moved since
    they were written: nothing is made of records that is not in the points of their words."""
    server = journal.server
    if not _stale(journal, journal.head()):
        return
    with journal.writing() as now:
        means = now.head.means
        stale = _stale(journal, now.head)
        for i in range(0, len(stale), _AT_ONCE):
            some = stale[i : i + _AT_ONCE]
            points = []
            for point in server.get("words", some, ["body", "title"]):
                title, words = (point["payload"][field].split() for field in ("title", "body"))
                body = [token for token in words if token[0] != MARK]
                vector = {"words": sparse_vector(title, body, means)}
                points.append({"id": point["id"], "vector": vector})
            noted = {"set_payload": {"payload": {"means": json.dumps(means)}, "points": some}}
            journal.hold()
            server.write("words", [{"update_vectors": {"points": points}}, noted])
            if progress:
                progress("words", min(len(stale), i + _AT_ONCE), len(stale))


def _stale(journal: Journal, head: Head) -> list[int]:
    """Passages whose weights follow from another average length than that there is."""
    slack = DRIFT if head.figures["chunks"] > SMALL else 0.0
    far = {}
    stale = []
    for point in journal.server.scroll("words", None, ["means"], page=10_000):
        journal.hold()
        said = point["payload"]["means"]
        if said not in far:
            pairs = zip(json.loads(said), head.means, strict=True)
            far[said] = any(abs(was - now) > slack * now for was, now in pairs)
        if far[said]:
            stale.append(int(point["id"]))
    return stale


def derive(journal: Journal, progress: Progress | None = None) -> None:
    """Write the words of all passages anew, over those there are, and delete what is nobody's."""
    with journal.writing() as now:
        means, total = now.head.means, now.head.figures["chunks"]
        mine: set[int] = set()
        some: list[Json] = []
        for stored in _every(journal):
            for part in stored.parts:
                mine.add(part.number)
                some.append(_words_point(stored, part, means))
            if len(some) >= _AT_ONCE:
                journal.hold()
                journal.server.write("words", [{"upsert": {"points": some}}])
                some = []
                if progress:
                    progress("words", len(mine), total)
        journal.hold()
        if some:
            journal.server.write("words", [{"upsert": {"points": some}}])
        if progress:
            progress("words", len(mine), total)
        stray = _numbers(journal, "words") - mine
        journal.hold()
        _delete(journal.server, "words", stray)


def _words_point(stored: Stored, part: StoredPassage, means: Means) -> Json:
    title, body = map(analyser.joined, text_of(stored.record, part.chunk))
    return {
        "id": part.number,
        "vector": {"words": sparse_vector(title.split(), body.split(), means)},
        "payload": words_payload(fields_of(stored.record), stored, part, title, body, means),
    }


def _every(journal: Journal) -> Iterator[Stored]:
    for point in journal.server.scroll("records", None, page=200):
        journal.hold()
        if (stored := read_record(point["payload"])) is not None:
            yield stored


def _numbers(journal: Journal, part: str) -> set[int]:
    found: set[int] = set()
    for point in journal.server.scroll(part, None, False, page=10_000):
        journal.hold()
        found.add(int(point["id"]))
    return found


def _delete(server: Server, part: str, numbers: set[int]) -> None:
    if numbers:
        server.write(part, [{"delete": {"points": sorted(numbers)}}])


# ---------------------------------------------------------------------- examination


class _Examined:
    """What does not fit."""

    def __init__(self, journal: Journal):
        server, figures = journal.server, journal.head().figures
        self.damaged: dict[str, bool] = {}
        """Ids of records that are not as they were written, and whether they are from a file."""
        self.records = 0
        parts: dict[int, str] = {}
        for point in server.scroll("records", None, page=500):
            journal.hold()
            payload = point["payload"]
            stored = read_record(payload)
            self.records += 1
            if stored is None:
                self.damaged[str(payload.get("id"))] = bool(payload.get("path"))
            else:
                parts |= {part.number: part.model for part in stored.parts}
        there = _numbers(journal, "words")
        self.lost, self.stray = set(parts) - there, there - set(parts)
        self.unembedded: set[int] = set()
        self.stray_vectors: dict[str, set[int]] = {}
        known = set(server.collections())
        for model, (dim, _) in figures["models"].items():
            name = vectors_part(model, dim)
            rows = _numbers(journal, name) if name in known else set()
            wanted = {number for number, of in parts.items() if of == model}
            self.unembedded |= wanted - rows
            if extra := rows - wanted:
                self.stray_vectors[name] = extra


def check(journal: Journal) -> Iterator[tuple[str, bool, str]]:
    server = journal.server
    try:
        version = server.check_version()
    except StoreError as error:
        yield "the server answers", False, str(error)
        return
    yield "the server answers", True, ""
    if version < SEARCHED:
        yield _LATE, True, ""
    head = journal.head()
    yield "nothing is waiting to be applied", not head.pending, "another process is writing"
    found = _Examined(journal)
    names = ", ".join(sorted(found.damaged)[:5])
    yield (
        "records are as they were written",
        not found.damaged,
        f"{names}: `clew doctor --mend` drops those of files; write others again",
    )
    yield (
        "as many records as were written are there",
        found.records == head.figures["records"],
        f"{found.records} of {head.figures['records']}: restore a snapshot of Qdrant's",
    )
    yield (
        "every passage has its words, and every word its passage",
        not (found.lost or found.stray),
        "`clew doctor --mend` makes them anew",
    )
    yield (
        "every vector is there, and has its passage",
        not (found.unembedded or found.stray_vectors),
        "`clew doctor --mend`, then `clew index`",
    )


def mend(journal: Journal) -> tuple[list[str], list[str], bool]:
    """Damaged records of files are dropped, passages and vectors made to fit the records."""
    with journal.writing():  # nobody writes what would seem astray
        found = _Examined(journal)
        for name, numbers in found.stray_vectors.items():
            journal.hold()
            _delete(journal.server, name, numbers)
    if found.unembedded:
        with journal.writing() as now:
            for stored in list(_every(journal)):
                if any(part.number in found.unembedded for part in stored.parts):
                    name = stored.record.id
                    journal.fetch([name])
                    parts = tuple(
                        part._replace(model="") if part.number in found.unembedded else part
                        for part in stored.parts
                    )
                    now.after[name] = stored._replace(parts=parts)
                    now.touched[name] = None
    from clew.servers.qdrant.batch import delete

    dropped = sorted(name for name, of_file in found.damaged.items() if of_file)
    if dropped:
        delete(journal, dropped)
    derive(journal)
    return dropped, [], False


def sweep(journal: Journal) -> None:
    """Delete pieces of entries that were never made: their writer was killed before."""
    with journal.writing():
        stray: Json = {
            "must_not": [{"has_id": [HEAD]}, {"is_empty": {"key": "piece"}}],
        }
        journal.server.write("meta", [{"delete": {"filter": stray}}])


def sizes(server: Server) -> dict[str, Any]:
    """About the bytes of each collection, as the node that is asked has it."""
    found: dict[str, int] = {}
    try:
        telemetry = server.call("GET", "/telemetry?details_level=4")
    except StoreError:  # a key may not be allowed to ask
        return found
    prefix = server.collection("")
    for each in telemetry["collections"]["collections"] or ():
        name = str(each.get("id", ""))
        if not name.startswith(prefix):
            continue
        total = 0
        for shard in each.get("shards") or ():
            for segment in (shard.get("local") or {}).get("segments") or ():
                info = segment["info"]
                total += info.get("vectors_size_bytes", 0) + info.get("payloads_size_bytes", 0)
        kind = "vectors" if "vectors-" in name else name.removeprefix(prefix)
        found[kind] = found.get(kind, 0) + total
    return found
