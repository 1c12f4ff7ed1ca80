"""What is shown of an answer, made once: rows with their marks and badges, notes, times, shares.

terminal.py prints it as lines of text and page.py as a page for a browser, so both say the same.

Words of documents stand inside a block that an agent may trust, on a terminal that obeys escape
sequences: neither may be steered by what somebody wrote into a file (`clean`).
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import config
from clew.errors import counted
from clew.types import LOCATION_UNIT, Hit, SearchResult

if TYPE_CHECKING:
    from clew.engine import Engine

INDENT = 5
"""Where the lines below a hit's first begin."""
BLOCK = "athena_grounding"
"""The tag around what was found, in Athena's form."""
_TAG = r"[<＜](?=[\s/\\\u00ad\u200b-\u200f\u2060\ufeff\ufffd]*" + BLOCK + ")"
# Control characters, what turns the direction of writing, line separators, what is no character.
_UNSAFE = r"[\x00-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]"
_STRATEGIES = {"rrf": "RRF", "weighted_rrf": "RRF", "dbsf": "DBSF"}

Piece = tuple[str, str]
"""A text and its style."""


def clean(text: str) -> str:
    """Take out whatever a terminal would obey, and the tags of our block.

    Each character is replaced by one other, so that ranges of the text stay where they are.
    """
    if not text.isprintable():
        text = re.sub(_UNSAFE, _picture, text)
    if BLOCK in text.lower():
        text = re.sub(_TAG, "‹", text, flags=re.IGNORECASE)
    return text


def clean_lines(text: str) -> str:
    """The same line by line."""
    return "\n".join(map(clean, text.split("\n")))


def _picture(found: re.Match[str]) -> str:
    """A control character as its picture, as ␛ for escape; white space as a space."""
    character = found[0]
    if character.isspace():
        return " "
    if character < " ":
        return chr(0x2400 + ord(character))
    return "␡" if character == "\x7f" else "\ufffd"


def one_line(text: str) -> str:
    """Clean a text and leave single spaces only: it cannot look like another line of ours."""
    return " ".join(clean(text).split())


def cut(text: str, most: int) -> str:
    """The beginning of what is longer than so many characters."""
    return text if len(text) <= most else f"{text[:most]}…"


class Line(NamedTuple):
    """One line: pieces with their styles, and how far in it and what it wraps to begins."""

    pieces: tuple[Piece, ...] = ()
    indent: int = 0
    wraps: bool = True
    """Whether a narrow terminal shows the rest below; else it is cut."""

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(text for text, _ in self.pieces).rstrip()


def line(*pieces: Piece, indent: int = 0) -> Line:
    """Make a line of words that may come from anywhere."""
    return Line(tuple((clean(text), style) for text, style in pieces), indent)


# ---------------------------------------------------------------------- the model


class Part(NamedTuple):
    """What one source has to do with one hit."""

    source: str
    rank: int
    score: float
    weight: float | None
    contrib: float | None
    """Its share in the fused score; None: it had no say in that, as the reranker."""
    part: float
    """Its share in the score that decides: the same, unless the list was reranked."""


class StageSpan(NamedTuple):
    name: str
    start: float
    ms: float
    inside: bool = False
    """A source, within the stage of collecting."""
    note: str = ""


class HitView(NamedTuple):
    hit: Hit
    where: tuple[Piece, ...] = ()
    """The line below the title: the place as one opens it from here, and facts."""
    more: tuple[Line, ...] = ()

    @property
    def title(self) -> str:
        return one_line(self.hit.title) or one_line(self.hit.id)

    @property
    def heading(self) -> str:
        return one_line(str(self.hit.metadata.get("heading") or ""))

    @property
    def parts(self) -> tuple[Part, ...]:
        """They add up to the score, the largest first."""
        parts = [
            Part(
                source,
                int(signal.get("rank", 0)),
                signal.get("score", 0.0),
                signal.get("weight"),
                None if source == "reranker" else signal["contrib"],
                signal.get("part", signal["contrib"]),
            )
            for source, signal in self.hit.signals.items()
        ]
        return tuple(sorted(parts, key=lambda part: (-part.part, part.source)))

    @property
    def reranked(self) -> bool:
        """Whether the score that decides is another than the fused one."""
        return any("part" in signal for signal in self.hit.signals.values())

    def round_shares(self, parts: Sequence[Part], total: float) -> list[tuple[Part, str, str]]:
        """Each part with what it adds to the fused score and to the total, as they are shown."""
        voters = [part.contrib for part in parts if part.contrib is not None]
        fused = iter(add_up(voters, self.hit.rrf_score))
        adds = add_up([part.part for part in parts], total)
        return [
            (part, "–" if part.contrib is None else next(fused), add)
            for part, add in zip(parts, adds, strict=True)
        ]


class AnswerView(NamedTuple):
    hits: tuple[HitView, ...]
    summary: str
    query: str = ""
    how: str = ""
    """The mode, and how lists became one."""
    notes: tuple[str, ...] = ()
    held_back: str = ""
    """How many hits are not shown, and what for."""
    score_kind: str = ""
    cache: str | None = None
    trace: Mapping[str, Any] | None = None
    """None: there is nothing to say of how it came about."""
    before: tuple[Line, ...] = ()
    after: tuple[Line, ...] = ()
    """What is said below them, if it is asked for, in place of the trace."""

    @property
    def heaviest(self) -> float:
        """The scale on which bars of all hits are drawn."""
        weights = [sum(abs(part.part) for part in hit.parts) for hit in self.hits]
        return max(weights, default=0.0)


def view_result(found: SearchResult, places: Places | None = None) -> AnswerView:
    cached = f", from the {found.cache} cache" if found.cache else ""
    held_back = ""
    if found.suppressed:
        floor = found.trace.get("confidence", {}).get("floor")
        by = "the setting floor" if floor else "--strict"
        held_back = f"{counted(found.suppressed, 'weaker result')} suppressed by {by}"
    return AnswerView(
        hits=tuple(view_hit(hit, places) for hit in found),
        summary=f"{counted(len(found), 'result')} in {found.trace.get('total_ms', 0):.0f} ms"
        + cached,
        query=str(found.trace.get("query", "")),
        how=_name_method(found.trace),
        notes=(*(note.text for note in found.notes), *found.degraded),
        held_back=held_back,
        score_kind=found.score_kind,
        cache=found.cache,
        trace=found.trace,
    )


def view_hit(hit: Hit, places: Places | None = None, *, facts: str = "") -> HitView:
    place = places.locate(hit) if places else (place_of(hit), "green")
    return HitView(hit, (place, (facts, "dim")))


def _name_method(trace: Mapping[str, Any]) -> str:
    if walks := find_walks(trace):
        return f"Tree, {walks[0]['scorer']}"
    mode = str(trace.get("mode", ""))
    if mode != "hybrid":
        return mode.capitalize() or "Listing"
    strategy = trace.get("fusion", {}).get("strategy", "")
    return f"Parallel Hybrid {_STRATEGIES.get(strategy, strategy.capitalize())}".rstrip()


def mark_lines(hit: Hit) -> Iterator[tuple[Piece, ...]]:
    at = 0
    for text in map(clean, hit.snippet.split("\n") if hit.snippet else ()):
        pieces, end = [], 0
        for start, stop in hit.highlights:
            start, stop = max(start - at, end), min(stop - at, len(text))
            if start < stop:
                pieces += [(text[end:start], ""), (text[start:stop], "bold yellow")]
                end = stop
        yield (*pieces, (text[end:], ""))
        at += len(text) + 1


def mark_words(hit: Hit) -> Iterator[Piece]:
    """The snippet on one line: white space at the seam of two pieces counts once."""
    text, end, after = clean(hit.snippet), 0, " "
    ranges = [(a, b, "bold yellow") for a, b in hit.highlights]
    for start, stop, style in [*ranges, (len(text), len(text), "")]:
        for piece, dressed in ((text[end:start], ""), (text[start:stop], style)):
            words = " ".join(piece.split())
            before = " " if piece[:1].isspace() and after != " " else ""
            behind = " " if words and piece[-1:].isspace() else ""
            if said := before + words + behind:
                yield said, dressed
                after = said[-1]
        end = stop


# ---------------------------------------------------------------------- where a hit is


def place_of(hit: Hit) -> str:
    if not hit.path:
        return one_line(hit.id)
    if "://" in hit.path:  # a browser wants no line
        return one_line(hit.path)
    if LOCATION_UNIT in hit.metadata:
        return f"{one_line(hit.path)}, {one_line(hit.location)}"
    return f"{one_line(hit.path)}:{hit.metadata.get('snippet_line', 1)}"


class Places:
    """Where hits are, as somebody who stands in this folder can open it.

    A record's path begins at the folder that was indexed, of which a store may have several.
    """

    def __init__(
        self, engine: Engine | None, *, start: str | None = None, links: bool | None = None
    ):
        """`start` is the folder where that somebody stands, if not this process; `links` says
        whether places are addresses to click on, which is up to the terminal otherwise."""
        self._start = start
        self._folders: dict[str, Path] = {}
        if engine is not None and engine.root is not None:
            roots = engine.store.files.roots()
            self._folders = {name: engine.root / folder for name, folder in roots.items()}
        if links is None:
            links = takes_links(os.environ) and sys.stdout.isatty()
        self._links = links and (config.load() if engine is None else engine.config).hyperlinks

    def locate(self, hit: Hit) -> Piece:
        """The place, with the address that a terminal opens when it is clicked on."""
        if hit.path is None or "://" in hit.path:
            return self._linked(place_of(hit), hit.path or "", "")
        named = (f for n, f in self._folders.items() if hit.id.startswith(f"{n}:{hit.path}"))
        file = next(named, Path()) / hit.path
        if file == Path(hit.path) and not file.is_absolute():
            return place_of(hit), "green"  # of no folder that is known here
        file = file.absolute()
        # With the host, so that a terminal on another machine does not look there, and the line
        # after a #, where kitty, iTerm2 and others look for it; readers of PDF want a page there.
        host = os.uname().nodename if hasattr(os, "uname") else ""
        unit, number = hit.metadata.get(LOCATION_UNIT), hit.metadata.get("snippet_line", 1)
        anchor = f"#{number}" if unit is None else f"#{unit}={number}"
        shown = place_of(replace(hit, path=shorten_path(file, self._start)))
        return self._linked(shown, f"file://{host}{file.as_posix()}", anchor)

    def _linked(self, text: str, address: str, anchor: str) -> Piece:
        if not self._links or not address:
            return text, "green"
        from urllib.parse import quote

        url = quote(address, safe="/:" if anchor else ":/?#[]@!$&'()*+,;=%~") + anchor
        return text, f"green link {url}"


def takes_links(environment: Mapping[str, str]) -> bool:
    return "NO_COLOR" not in environment and environment.get("TERM") != "dumb"


def shorten_path(file: Path, start: str | None = None) -> str:
    """A path as it is shortest from here, or from another folder."""
    try:
        return min(os.path.relpath(file, start), str(file), key=len)
    except (ValueError, OSError):  # another drive, or this folder is gone
        return str(file)


# ---------------------------------------------------------------------- how it came about


def measure_spans(trace: Mapping[str, Any]) -> tuple[list[StageSpan], float]:
    """The stages one after the other, the sources side by side where they were asked; and how long
    all of it took."""
    spans: list[StageSpan] = []
    start = 0.0
    for stage, ms in trace.get("stages_ms", {}).items():
        spans.append(StageSpan(stage, start, ms))
        if stage == "collect":
            for source, outcome in trace.get("sources", {}).items():
                at = start + outcome.get("start_ms", 0.0)
                note = outcome.get("problem") or counted(outcome["count"], "candidate")
                spans.append(StageSpan(source, at, outcome["ms"], True, note))
        start += ms
    ends = [span.start + span.ms for span in spans]
    return spans, max([float(trace.get("total_ms", 0.0)), *ends])


def add_up(values: Sequence[float], total: float) -> list[str]:
    """Round numbers to four digits so that what is shown adds up to the total as it is shown.

    Each is the difference of two rounded running totals, so none is off by more than the last
    digit. Values that do not add up to begin with are not made to.
    """
    shown: list[str] = []
    before = 0
    totals = list(accumulate(values))
    if totals and math.isclose(totals[-1], total, rel_tol=1e-9, abs_tol=1e-9):
        totals[-1] = total
    for running in totals:
        now = int(f"{running:.4f}".replace(".", ""))
        shown.append(f"{(now - before) / 10_000:.4f}")
        before = now
    return shown


def describe_reranking(trace: Mapping[str, Any]) -> str:
    """What the reranker read; empty where there was none."""
    if not (said := trace.get("rerank")):
        return ""
    by = f" by {said['model']}" if said.get("model") else ""
    share = f": {said['blend']:.0%} of the score" if said["read"] else ""
    return f"{said['read']} of {said['of']} passages read again{by}{share}"


def describe_late(trace: Mapping[str, Any]) -> list[str]:
    """What late interaction read, and the words that it saw in each hit; empty: it did not."""
    said = trace.get("late") or {}
    if "share" not in said:
        return []
    read = f"{said['read']} of {said['of']} candidates read token by token by {said['model']}"
    lines = [f"{read}: {said['share']:.0%} of the score"]
    for name, pairs in said.get("words", {}).items():
        lines.append(f"{name}: " + ", ".join(f"{a} → {b} {of:.2f}" for a, b, of in pairs))
    return lines


def name_cache(view: AnswerView) -> str:
    return f"answered by the {view.cache} cache" if view.cache else "no cache answered"


def find_walks(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What sources that walk a tree say of it."""
    said = (outcome.get("how") for outcome in trace.get("sources", {}).values())
    return [walk for walk in said if walk and "slates" in walk]


def describe_walk(walk: Mapping[str, Any]) -> str:
    return (
        f"{counted(walk['slates'], 'slate')}, {counted(walk['scored'], 'node')} scored by "
        f"{walk['scorer']} in {counted(walk['iterations'], 'iteration')}, "
        f"{walk['masked_leaf_ratio']:.0%} of leaves masked; {walk['ended']}"
    )


def rank_nodes(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return sorted(step["nodes"], key=lambda node: (-node["relevance"], node["key"]))
