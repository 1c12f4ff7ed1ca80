"""The explanation of a search as one page for a browser: nothing to fetch, no script.

`page` is a pure function from a result to the text of the page. Whatever comes from documents is
escaped; a policy in the page forbids scripts and fetching on top of that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from clew.cli.answer import held_back, place, reranked, snippet_lines
from clew.cli.explain import Part, adding_up, cache_said, parts, reread, spans
from clew.cli.plain import clean
from clew.cli.walked import picture, walks
from clew.errors import InputError, counted
from clew.types import Hit, SearchResult

__all__ = ["check", "page", "write"]

MARK = '<meta name="generator" content="clew search"/>'
"""Tells our pages from other files, which are never overwritten."""
COLOURS = 8
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
TICKS = (0, 25, 50, 75, 100)


def check(file: Path) -> None:
    """Whether a page may be written there; an error that says why not."""
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {str(file.parent)!r} for --html: make it first")
    try:
        if file.is_dir():
            raise InputError(f"{file} is a folder: give --html the name of a file")
        ours = not file.exists() or MARK.encode() in file.read_bytes()[:1000]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; give another name") from error
    if not ours:
        raise InputError(f"{file} is not a page of clew search: give --html another name")


def write(found: SearchResult, file: Path) -> None:
    """The page, whole or not at all."""
    check(file)
    temporary = file.with_name(f".clew-{os.getpid()}.tmp")
    try:
        temporary.write_text(page(found), "utf-8")
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"{file} cannot be written: {error.strerror}; give another name"
        ) from error


def page(found: SearchResult) -> str:
    """All there is to say about a search, as well-formed HTML."""
    colours = _colours(found)
    query = _text(found.trace.get("query", ""))
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">',
            '<head><meta charset="utf-8"/>',
            MARK,
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{query} · clew search</title>",
            f'<link rel="icon" href="data:,"/><style>\n{style}</style></head>',
            f'<body><header><p class="brand">clew search</p><h1>{query}</h1>',
            f'<ul class="facts">{"".join(_facts(found))}</ul></header><main>',
            *_notes(found),
            '<div class="column"><h2>What was found</h2>',
            *_results(found, colours),
            '</div><aside class="column">',
            *_time(found.trace, colours),
            *_sources(found, colours),
            *_fusion(found.trace),
            "</aside></main>",
            *(line for _, how in walks(found.trace) for line in picture(how)),
            "</body></html>\n",
        ]
    )


def _text(value: object) -> str:
    """Anything as text of the page."""
    return escape(clean(str(value)))


def _colours(found: SearchResult) -> dict[str, str]:
    """A class for each source, in the order in which they were asked."""
    named = dict.fromkeys([*found.trace.get("sources", {}), *(s for h in found for s in h.signals)])
    named.pop("reranker", None)
    classes = {
        source: f"s{i % COLOURS}" + " again" * (i >= COLOURS) for i, source in enumerate(named)
    }
    return {**classes, "reranker": "reranker"}


def _facts(found: SearchResult) -> Iterator[str]:
    trace = found.trace
    facts = [counted(len(found), "result"), f"{trace.get('total_ms', 0):.1f} ms"]
    facts += [f"{trace['mode']} search"] if "mode" in trace else []
    facts += [cache_said(found)]
    facts += [f"model {trace['model']}"] if "model" in trace else []
    facts += [f"{trace['embedded']:.0%} embedded"] if "embedded" in trace else []
    facts += [f"generation {trace['generation']}"] if "generation" in trace else []
    return (f"<li>{_text(fact)}</li>" for fact in facts)


def _notes(found: SearchResult) -> Iterator[str]:
    notes = [*(note.text for note in found.notes), *found.degraded]
    if found.suppressed:
        notes.append(held_back(found))
    if notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in notes)
        yield f'<section class="notes"><ul>{items}</ul></section>'


# ---------------------------------------------------------------------- what was found


def _results(found: SearchResult, colours: Mapping[str, str]) -> Iterator[str]:
    if not found:
        yield '<section class="empty">Nothing found.</section>'
    longest = max((sum(abs(part.part) for part in parts(hit)) for hit in found), default=0.0)
    order = list(colours)  # the same for all, so that hits can be compared
    for rank, hit in enumerate(found, 1):
        mine = sorted(parts(hit), key=lambda part: order.index(part.source))
        yield f'<article><span class="rank">{rank}.</span> {_badges(hit)}'
        yield f"<h3>{_text(hit.title or hit.id)}</h3>"
        if heading := hit.metadata.get("heading"):
            yield f'<span class="heading"> › {_text(heading)}</span>'
        yield f'<p class="place">{_text(place(hit))}</p>'
        if hit.snippet:
            yield f'<p class="snippet">{_marked(hit)}</p>'
        if mine:
            yield _stack(hit, mine, longest, colours)
            yield _signals(hit, mine, colours)
        yield "</article>"


def _badges(hit: Hit) -> str:
    badges = ""
    if hit.confidence:
        level = hit.confidence.lower() if hit.confidence in ("HIGH", "MED") else "low"
        badges += f'<span class="badge {level}">{_text(hit.confidence)}</span> '
    if hit.signals:
        badges += f'<span class="badge">fused {hit.rrf_score:.4f}</span> '
    if reranked(hit):
        badges += f'<span class="badge">reranked {hit.score:.4f}</span> '
    return badges


def _marked(hit: Hit) -> str:
    lines = (line.pieces for line in snippet_lines(hit))
    return "\n".join(
        "".join(f"<mark>{_text(text)}</mark>" if style else _text(text) for text, style in pieces)
        for pieces in lines
    )


def _stack(hit: Hit, mine: Sequence[Part], longest: float, colours: Mapping[str, str]) -> str:
    """Bars of all hits are on one scale."""
    label = f"{hit.score:.4f} in all"
    bars, start = "", 0.0
    for part, adds in zip(mine, adding_up([p.part for p in mine], hit.score), strict=True):
        width = 100 * abs(part.part) / longest if longest else 0.0
        bars += _rect(
            start, width, colours[part.source], f"{part.source} adds {adds}", y=0, high=16
        )
        start += width
    return f'<svg class="stack" role="img" aria-label="{label}">{bars}</svg>'


def _signals(hit: Hit, mine: Sequence[Part], colours: Mapping[str, str]) -> str:
    again = reranked(hit)
    adds = adding_up([part.part for part in mine], hit.score)
    voters = [part.contrib for part in mine if part.contrib is not None]
    fused = iter(adding_up(voters, hit.rrf_score))
    head = ["rank", "score", "weight", *["fused"] * again, "adds"]
    rows = [
        [
            str(part.rank),
            f"{part.score:.4f}",
            _weight(part.weight),
            *([next(fused) if part.contrib is not None else "–"] if again else []),
            add,
        ]
        for part, add in zip(mine, adds, strict=True)
    ]
    body = "".join(
        f"<tr><td>{_named(part.source, colours)}</td>{_numbers(row)}</tr>"
        for part, row in zip(mine, rows, strict=True)
    )
    if len(mine) > 1:
        sums = ["", "", "", *[f"{hit.rrf_score:.4f}"] * again, f"{hit.score:.4f}"]
        body += f'<tr class="sum"><td>sum</td>{_numbers(sums)}</tr>'
    titles = "".join(f'<th class="number">{title}</th>' for title in head)
    return f'<div class="wide"><table><tr><th>source</th>{titles}</tr>{body}</table></div>'


# ---------------------------------------------------------------------- how it came about


def _time(trace: Mapping[str, Any], colours: Mapping[str, str]) -> Iterator[str]:
    """The waterfall: a row per stage, and per source while they were collected."""
    drawn = spans(trace)
    total = max([trace.get("total_ms", 0.0), *(span.start + span.ms for span in drawn)])
    if not total:
        return
    ticks = "".join(f'<line class="tick" x1="{x}%" x2="{x}%" y1="0" y2="24"/>' for x in TICKS)
    yield '<section><h2>Where the time went</h2><table class="time">'
    for span in drawn:
        hue = colours[span.name] if span.inside else "stage"
        label = f"{span.name}: {span.ms:.1f} ms from {span.start:.1f} ms on"
        bar = _rect(100 * span.start / total, 100 * span.ms / total, hue, label, y=5, high=14)
        yield f'<tr><td class="{"inside" if span.inside else "step"}">{_text(span.name)}</td>'
        yield f'<td class="bar"><svg role="img" aria-label="{_text(label)}">{ticks}{bar}</svg></td>'
        yield f'<td class="number">{span.ms:.1f} ms</td></tr>'
    yield f'<tr class="sum"><td>in all</td><td></td><td class="number">{total:.1f} ms</td></tr>'
    yield "</table></section>"


def _sources(found: SearchResult, colours: Mapping[str, str]) -> Iterator[str]:
    outcomes = found.trace.get("sources", {})
    if not outcomes:
        return
    asked = "Sources, when they were asked" if found.cache else "Sources"
    titles = "".join(f'<th class="number">{title}</th>' for title in ("weight", "found", "ms"))
    yield f'<section><h2>{asked}</h2><div class="wide"><table>'
    yield f"<tr><th>source</th><th>kind</th>{titles}</tr>"
    for source, outcome in outcomes.items():
        row = [_weight(outcome.get("weight")), f"{outcome['count']:,}", f"{outcome['ms']:.1f}"]
        yield f"<tr><td>{_named(source, colours)}</td>"
        yield f"<td>{_text(outcome.get('kind') or source)}</td>{_numbers(row)}</tr>"
        if outcome.get("problem"):
            yield f'<tr><td class="problem" colspan="5">{_text(outcome["problem"])}</td></tr>'
    yield "</table></div></section>"


def _fusion(trace: Mapping[str, Any]) -> Iterator[str]:
    fusion = trace.get("fusion", {})
    facts = {"strategy": fusion.get("strategy", "–")}
    if "k" in fusion:
        facts["k"] = str(fusion["k"])
    if "share_of_vectors" in fusion:
        facts["share of vectors"] = f"{fusion['share_of_vectors']:.0%}, because of"
    for sign, value in fusion.get("because", {}).items():
        facts[sign.replace("_", " ")] = f"{value:.2f}"
    if terms := trace.get("terms"):
        facts["words"] = ", ".join(group[0] for group in terms if group)
    if again := reread(trace):
        facts["reranking"] = again
    yield "<section><h2>How lists became one</h2><dl>"
    for name, value in facts.items():
        yield f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"
    yield "</dl></section>"


# ---------------------------------------------------------------------- pieces


def _rect(start: float, width: float, hue: str, label: str, *, y: int, high: int) -> str:
    """A bar with its meaning as a tooltip; what is not nothing is seen."""
    width = min(max(width, 0.4 if width > 0 else 0.0), 100.0)
    start = min(start, 100.0 - width)
    place = f'x="{start:.3f}%" y="{y}" width="{width:.3f}%" height="{high}"'
    return f'<rect class="{hue}" {place} rx="2"><title>{_text(label)}</title></rect>'


def _named(source: str, colours: Mapping[str, str]) -> str:
    return f'<span class="dot {colours[source]}"></span>{_text(source)}'


def _numbers(values: Sequence[str]) -> str:
    return "".join(f'<td class="number">{value}</td>' for value in values)


def _weight(weight: float | None) -> str:
    return "–" if weight is None else f"{weight:.2f}".rstrip("0").rstrip(".")
