"""The answer to a search, as it is printed: for people and agents in lines, for programs in JSON.

The lines are made once, of pieces with a style; a terminal gets them in colour (render.py), a pipe
gets their text. So both say the same. Here is Clew's own form, athena.py has another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from clew import config
from clew.cli.plain import clean, one_line, write
from clew.errors import counted
from clew.types import LOCATION_UNIT, Hit, SearchResult

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = [
    "INDENT",
    "STYLES",
    "Form",
    "Line",
    "Place",
    "Places",
    "after_hits",
    "hit_lines",
    "line",
    "lines",
    "listed",
    "place",
    "reranked",
    "say",
    "show",
    "snippet_lines",
]

Form = Literal["clew", "athena", "json"]
INDENT = 5
"""Where the lines below a hit's first begin."""
STYLES = {"HIGH": "bold green", "MED": "yellow", "LOW": "dim"}


class Line(NamedTuple):
    """One line: pieces with their styles, and how far in it and what it wraps to begins."""

    pieces: tuple[tuple[str, str], ...] = ()
    indent: int = 0
    wraps: bool = True
    """Whether a narrow terminal shows the rest below; else it is cut."""

    @property
    def text(self) -> str:
        return " " * self.indent + "".join(text for text, _ in self.pieces).rstrip()


def line(*pieces: tuple[str, str], indent: int = 0) -> Line:
    """Of words that may come from anywhere."""
    return Line(tuple((clean(text), style) for text, style in pieces), indent)


def say(said: Iterable[Line]) -> None:
    """In colour on a terminal, else as plain text."""
    if sys.stdout.isatty():
        from clew.cli import render

        render.draw(said)
    else:
        write("\n".join(line.text for line in said))


# ---------------------------------------------------------------------- where a hit is


class Place(NamedTuple):
    """As it is shown, and the address that a terminal opens when it is clicked on."""

    text: str
    url: str = ""

    @property
    def piece(self) -> tuple[str, str]:
        return self.text, f"green link {self.url}" if self.url else "green"


def place(hit: Hit) -> str:
    """Where to look: `path:line`, as editors take it, or `path, page 3`."""
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

    def __init__(self, engine: Engine | None):
        self._folders: dict[str, Path] = {}
        if engine is not None and engine.root is not None:
            roots = engine.store.roots()
            self._folders = {name: engine.root / folder for name, folder in roots.items()}
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        wanted = (config.load() if engine is None else engine.config).hyperlinks
        self._links = wanted and sys.stdout.isatty() and not plain

    def __call__(self, hit: Hit) -> Place:
        if hit.path is None or "://" in hit.path:
            return Place(place(hit), self._url(hit.path or "", ""))
        named = (f for n, f in self._folders.items() if hit.id.startswith(f"{n}:{hit.path}"))
        file = next(named, Path()) / hit.path
        if file == Path(hit.path) and not file.is_absolute():
            return Place(place(hit))  # of no folder that is known here
        shown = place(replace(hit, path=_from_here(file.absolute())))
        # With the host, so that a terminal on another machine does not look there, and the line
        # after a #, where kitty, iTerm2 and others look for it; readers of PDF want a page there.
        host = os.uname().nodename if hasattr(os, "uname") else ""
        where = f"file://{host}{file.absolute().as_posix()}"
        unit, line = hit.metadata.get(LOCATION_UNIT), hit.metadata.get("snippet_line", 1)
        return Place(shown, self._url(where, f"#{line}" if unit is None else f"#{unit}={line}"))

    def _url(self, address: str, line: str) -> str:
        if not self._links or not address:
            return ""
        from urllib.parse import quote

        return quote(address, safe="/:" if line else ":/?#[]@!$&'()*+,;=%~") + line


def _from_here(file: Path) -> str:
    try:
        return min(os.path.relpath(file), str(file), key=len)
    except (ValueError, OSError):  # another drive, or this folder is gone
        return str(file)


# ---------------------------------------------------------------------- what is said


def show(
    found: SearchResult,
    *,
    form: Form = "clew",
    explain: bool = False,
    where: Callable[[Hit], Place] | None = None,
) -> None:
    """Print the answer in the form that suits standard output."""
    if form == "json":
        from clew.cli import render

        render.print_json(found.to_dict())
    else:
        say(lines(found, form=form, explain=explain, where=where))


def lines(
    found: SearchResult,
    *,
    form: Form = "clew",
    explain: bool = False,
    where: Callable[[Hit], Place] | None = None,
) -> Iterator[Line]:
    """What there is to say: the hits, and how they came about."""
    if form == "athena":
        from clew.cli import athena
    if explain:
        from clew.cli import explain as explaining

    def told(rank: int, hit: Hit) -> Iterator[Line]:
        if form == "athena":
            yield from athena.hit_lines(rank, hit)
        else:
            yield from hit_lines(rank, hit, where)
        if explain:
            yield from explaining.hit_lines(hit, found, score=form == "clew")

    hits = [list(told(rank, hit)) for rank, hit in enumerate(found, 1)]
    yield from athena.lines(found, hits) if form == "athena" else listed(hits)
    if explain and form == "clew" and found.score_kind:
        yield line((explaining.SCORE.format(kind=found.score_kind), "dim"))
        yield Line()
    if explain:
        yield from explaining.trace_lines(found)
        yield Line()
    yield from after_hits([*(note.text for note in found.notes), *found.degraded])
    if found.suppressed:
        yield line((held_back(found), "yellow"))
    yield line((_summary(found), "dim"))


def held_back(found: SearchResult) -> str:
    """How many hits are not shown, and what for."""
    weaker = counted(found.suppressed, "weaker result")
    floor = found.trace.get("confidence", {}).get("floor")
    return f"{weaker} suppressed by " + ("the setting floor" if floor else "--strict")


def listed(hits: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """The lines of each hit, with a blank one below."""
    empty = True
    for each in hits:
        empty = False
        yield from each
        yield Line()
    if empty:
        yield line(("Nothing found.", ""))
        yield Line()


def after_hits(problems: Iterable[str]) -> Iterator[Line]:
    """What the reader should know of the answer as a whole."""
    yield from (line((f"! {problem}", "yellow")) for problem in problems)


def hit_lines(
    rank: int, hit: Hit, where: Callable[[Hit], Place] | None = None, *, facts: str = ""
) -> Iterator[Line]:
    """Title and badge, place, snippet."""
    pieces = [(f"{rank:3}. ", "bold cyan"), (one_line(hit.title) or one_line(hit.id), "bold")]
    if trail := hit.metadata.get("heading"):
        pieces.append((f" › {one_line(str(trail))}", "dim"))
    if hit.confidence:
        pieces.append((f"  [{hit.confidence}]", STYLES.get(hit.confidence, "")))
    if hit.metadata.get("stale") is True:
        pieces.append(("  changed since it was indexed", "yellow"))
    yield line(*pieces)
    at = where(hit) if where else Place(place(hit))
    yield line(at.piece, (facts, "dim"), indent=INDENT)
    yield from snippet_lines(hit)


def snippet_lines(hit: Hit) -> Iterator[Line]:
    """The lines of the snippet, its matches in a style of their own."""
    at = 0
    for text in map(clean, hit.snippet.split("\n") if hit.snippet else ()):
        pieces, end = [], 0
        for start, stop in hit.highlights:
            start, stop = max(start - at, end), min(stop - at, len(text))
            if start < stop:
                pieces += [(text[end:start], ""), (text[start:stop], "bold yellow")]
                end = stop
        yield Line((*pieces, (text[end:], "")), INDENT)
        at += len(text) + 1


def reranked(hit: Hit) -> bool:
    """Whether the score that decides is another than the fused one."""
    return any("part" in signal for signal in hit.signals.values())


def _summary(found: SearchResult) -> str:
    ms = found.trace.get("total_ms", 0)
    cached = f", from the {found.cache} cache" if found.cache else ""
    return f"{counted(len(found), 'result')} in {ms:.0f} ms{cached}"
