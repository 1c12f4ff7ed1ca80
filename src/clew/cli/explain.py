"""Why a search gave what it gave: time per stage and source, and each source's part in a hit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from clew.cli.answer import INDENT, Line, reranked
from clew.cli.plain import one_line
from clew.cli.walked import walk_lines, walks
from clew.errors import counted
from clew.types import Hit, SearchResult

__all__ = [
    "Part",
    "Span",
    "adding_up",
    "cache_said",
    "hit_lines",
    "parts",
    "reread",
    "spans",
    "trace_lines",
    "weighed",
]

SCORE = (
    "Scores ({kind}) compare hits of this answer and nothing else; how far one may be trusted is "
    "HIGH, MED or LOW, by its chance of being relevant."
)
BAR = 24
"""Columns of a bar of text."""
EIGHTHS = " ▏▎▍▌▋▊▉█"


class Span(NamedTuple):
    """A stretch of a search's time."""

    name: str
    start: float
    ms: float
    inside: bool = False
    """A source, within the stage of collecting."""
    note: str = ""


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


# ---------------------------------------------------------------------- what there is to know


def spans(trace: Mapping[str, Any]) -> list[Span]:
    """The stages one after the other, the sources side by side where they were asked."""
    found: list[Span] = []
    start = 0.0
    for stage, ms in trace.get("stages_ms", {}).items():
        found.append(Span(stage, start, ms))
        if stage == "collect":
            for source, outcome in trace.get("sources", {}).items():
                begun = start + outcome.get("start_ms", 0.0)
                note = outcome.get("problem") or counted(outcome["count"], "candidate")
                found.append(Span(source, begun, outcome["ms"], True, note))
        start += ms
    return found


def parts(hit: Hit) -> list[Part]:
    """The largest first; they add up to the hit's score."""
    found = [
        Part(
            source,
            int(signal["rank"]),
            signal["score"],
            signal.get("weight"),
            None if source == "reranker" else signal["contrib"],
            signal.get("part", signal["contrib"]),
        )
        for source, signal in hit.signals.items()
    ]
    return sorted(found, key=lambda part: (-part.part, part.source))


def adding_up(values: Sequence[float], total: float, *, digits: int = 4) -> list[str]:
    """Numbers rounded so that what is shown adds up to the total as it is shown.

    Each is the difference of two rounded running totals, so none is off by more than the last
    digit. Values that do not add up to begin with are not made to.
    """
    shown: list[str] = []
    before = 0
    totals = list(accumulate(values))
    if totals and math.isclose(totals[-1], total, rel_tol=1e-9, abs_tol=1e-9):
        totals[-1] = total
    for running in totals:
        now = _units(running, digits)
        sign = "-" if now < before else ""
        whole = f"{abs(now - before):0{digits + 1}}"
        shown.append(f"{sign}{whole[:-digits]}.{whole[-digits:]}")
        before = now
    return shown


def _units(value: float, digits: int) -> int:
    return int(f"{value:.{digits}f}".replace(".", ""))


def weighed(trace: Mapping[str, Any]) -> str:
    """How much the vectors had to say, and why; empty where that was not asked."""
    fusion = trace.get("fusion", {})
    if not (because := fusion.get("because")):
        return ""
    signs = ", ".join(f"{name.replace('_', ' ')} {sign:.2f}" for name, sign in because.items())
    return f"{fusion['share_of_vectors']:.0%} of the say is the vectors': {signs}"


def reread(trace: Mapping[str, Any]) -> str:
    """What the reranker read; empty where there was none."""
    if not (said := trace.get("rerank")):
        return ""
    by = f" by {said['model']}" if said.get("model") else ""
    share = f": {said['blend']:.0%} of the score" if said["read"] else ""
    return f"{said['read']} of {said['of']} passages read again{by}{share}"


def cache_said(found: SearchResult) -> str:
    """Which cache answered."""
    return f"answered by the {found.cache} cache" if found.cache else "no cache answered"


# ---------------------------------------------------------------------- in lines of text


def hit_lines(hit: Hit, found: Iterable[Hit], *, score: bool = False) -> Iterator[Line]:
    """Rank, score, weight and contribution of every source, and the sum; and, with `score`, what is
    to be thought of it."""
    mine = parts(hit)
    if not mine:
        return
    if score:
        chance = hit.chance
        sure = f" · relevant with a chance of {chance:.2f}" if chance is not None else ""
        yield Line(((f"score {hit.score:.4f}{sure}", "dim"),), INDENT)
    wide = max(9, *(len(one_line(part.source)) for part in mine))
    longest = max((sum(abs(p.part) for p in parts(other)) for other in found), default=0.0)
    total = math.fsum(part.part for part in mine)
    raised = not math.isclose(total, hit.score, rel_tol=1e-9, abs_tol=1e-9)
    total = total if raised else hit.score
    adds = adding_up([part.part for part in mine], total)
    voters = [part.contrib for part in mine if part.contrib is not None]
    fused = iter(adding_up(voters, hit.rrf_score))
    again = reranked(hit)
    known = any(part.weight is not None for part in mine)
    for part, add in zip(mine, adds, strict=True):
        weight = "–" if part.weight is None else f"{part.weight:.2f}"
        weight = f"  weight {weight:>5}" if known else ""
        of = f"  fused {next(fused) if part.contrib is not None else '–':>7}" if again else ""
        # what was added for being new or important has no rank
        said = f" rank {part.rank or '–':>3}  score {part.score:>8.4f}{weight}{of}  adds {add:>7}  "
        bar = _bar(abs(part.part) / longest if longest else 0.0)
        pieces = ((f"{one_line(part.source):<{wide}}", "cyan"), (said, "dim"), (bar, "cyan"))
        yield Line(pieces, INDENT, wraps=False)
    if len(mine) > 1:
        gap = wide + len(" rank 123  score 1234.5678") + len(weight)
        of = f"  fused {hit.rrf_score:>7.4f}" if again else ""
        yield Line(((f"{'':{gap}}{of}  sum  {total:>7.4f}", "dim"),), INDENT, wraps=False)
    if raised and total:
        times = f"× {hit.score / total:.2f}, found by several parts of the query: {hit.score:.4f}"
        yield Line(((times, "dim"),), INDENT)


def trace_lines(found: SearchResult) -> Iterator[Line]:
    """The waterfall, and what decided the fusion."""
    trace = found.trace
    drawn = spans(trace)
    total = max([trace.get("total_ms", 0.0), *(span.start + span.ms for span in drawn)])
    wide = max([len(one_line(span.name)) + 2 * span.inside for span in drawn], default=0)
    yield Line((("How this came about", "bold"),))
    for span in drawn:
        name = f"{'  ' * span.inside}{one_line(span.name)}"
        bar = _bar(span.ms / total, skip=span.start / total) if total else ""
        yield Line(
            (
                (f"{name:<{wide}}  ", "dim cyan" if span.inside else "cyan"),
                (f"{bar:<{BAR + 1}}", "blue" if span.inside else "magenta"),
                (f"{span.ms:>8.1f} ms", ""),
                (f"  {one_line(span.note)}", "dim"),
            ),
            indent=2,
            wraps=False,
        )
    for reason in filter(None, (weighed(trace), reread(trace))):
        yield Line(((one_line(reason), ""),))
    for _, how in walks(trace):
        yield from walk_lines(how)
    facts = (
        f"fusion {trace.get('fusion', {}).get('strategy', '–')}",
        f"model {one_line(str(trace.get('model', '–')))}",
        f"{trace.get('embedded', 0):.0%} embedded",
        f"generation {trace.get('generation', '–')}",
        cache_said(found),
    )
    yield Line(((" · ".join(facts), "dim"),))


def _bar(share: float, *, skip: float = 0.0) -> str:
    """A bar in eighths of a column; what is not nothing is seen."""
    skipped = min(BAR, int(skip * BAR))
    eighths = max(1 if share > 0 else 0, round(min(1.0, share) * BAR * 8))
    eighths = min(eighths, (BAR - skipped + 1) * 8)
    full, rest = divmod(eighths, 8)
    return " " * skipped + "█" * full + EIGHTHS[rest].rstrip()
