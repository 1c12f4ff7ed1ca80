"""The explanation of a search as one page for a browser: nothing to fetch, no script.

`page` is a pure function from what is shown to the text of the page. Whatever comes from documents
is escaped; a policy in the page forbids scripts and fetching on top of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from clew.cli import view
from clew.errors import InputError, counted
from clew.ingest.readers.html import MADE_BY_CLEW
from clew.storage.ownership import replace_private

COLOURS = 8
TICKS = "".join(
    f'<line class="tick" x1="{x}%" x2="{x}%" y1="0" y2="24"/>' for x in (0, 25, 50, 75, 100)
)


def check_file(file: Path) -> None:
    """Whether a page may be written there; an error that says why not."""
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {str(file.parent)!r} for --html: make it first")
    try:
        if file.is_dir():
            raise InputError(f"{file} is a folder: give --html the name of a file")
        ours = not file.exists() or MADE_BY_CLEW.encode() in file.read_bytes()[:1000]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; give another name") from error
    if not ours:
        raise InputError(f"{file} is not a page that Clew wrote: give --html another name")


def write_page(answer: view.AnswerView, file: Path) -> None:
    """Write the page, whole or not at all."""
    check_file(file)
    try:
        replace_private(file, page(answer))
    except OSError as error:
        raise InputError(
            f"{file} cannot be written: {error.strerror}; give another name"
        ) from error


def page(answer: view.AnswerView) -> str:
    trace = answer.trace or {}
    found_by = (part.source for hit in answer.hits for part in hit.parts)
    asked = dict.fromkeys([*trace.get("sources", {}), *found_by])
    asked.pop("reranker", None)
    colours = {
        source: f"s{i % COLOURS}" + " again" * (i >= COLOURS) for i, source in enumerate(asked)
    }
    colours["reranker"] = "reranker"
    notes = [*answer.notes, *filter(None, [answer.held_back])]
    here = Path(__file__)
    sections = {
        "notes": [f'<section class="notes"><ul>{_items(notes)}</ul></section>'] if notes else [],
        "hits": _hits(answer, colours),
        "time": _time(trace, colours),
        "sources": _sources(answer, trace.get("sources", {}), colours),
        "fusion": _fusion(trace),
        "walks": [line for walk in view.find_walks(trace) for line in _walk(walk)],
    }
    return Template(here.with_name("page.html").read_text("utf-8")).substitute(
        {name: "\n".join(lines) for name, lines in sections.items()},
        mark=MADE_BY_CLEW,
        query=_text(answer.query),
        style=here.with_name("page.css").read_text("utf-8"),
        facts=_items(_facts(answer, trace)),
    )


def _text(value: object) -> str:
    return escape(view.clean(str(value)))


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{_text(text)}</li>" for text in texts)


def _facts(answer: view.AnswerView, trace: Mapping[str, Any]) -> Iterator[str]:
    yield counted(len(answer.hits), "result")
    yield f"{trace.get('total_ms', 0):.1f} ms"
    if "mode" in trace:
        yield f"{trace['mode']} search"
    yield view.name_cache(answer)
    for name, said in (("model", "model {}"), ("embedded", "{:.0%} embedded")):
        if name in trace:
            yield said.format(trace[name])
    if "generation" in trace:
        yield f"generation {trace['generation']}"


# ---------------------------------------------------------------------- what was found


def _hits(answer: view.AnswerView, colours: Mapping[str, str]) -> Iterator[str]:
    if not answer.hits:
        yield '<section class="empty">Nothing found.</section>'
    order = list(colours)  # the same for all, so that hits can be compared
    for rank, shown in enumerate(answer.hits, 1):
        hit = shown.hit
        yield f'<article><span class="rank">{rank}.</span> {_badges(shown)}'
        yield f"<h3>{_text(shown.title)}</h3>"
        if shown.heading:
            yield f'<span class="heading"> › {_text(shown.heading)}</span>'
        yield f'<p class="place">{_text(view.place_of(hit))}</p>'
        if hit.snippet:
            marked = (
                "".join(f"<mark>{_text(t)}</mark>" if style else _text(t) for t, style in pieces)
                for pieces in view.mark_lines(hit)
            )
            yield '<p class="snippet">' + "\n".join(marked) + "</p>"
        if shown.parts:
            parts = sorted(shown.parts, key=lambda part: order.index(part.source))
            yield from _signals(shown, parts, answer.heaviest, colours)
        yield "</article>"


def _badges(shown: view.HitView) -> str:
    hit, badges = shown.hit, ""
    if hit.confidence:
        level = hit.confidence.lower() if hit.confidence in ("HIGH", "MED") else "low"
        badges += f'<span class="badge {level}">{_text(hit.confidence)}</span> '
    if shown.parts:
        badges += f'<span class="badge">fused {hit.rrf_score:.4f}</span> '
    if shown.reranked:
        badges += f'<span class="badge">reranked {hit.score:.4f}</span> '
    return badges


def _signals(
    shown: view.HitView,
    parts: Sequence[view.Part],
    heaviest: float,
    colours: Mapping[str, str],
) -> Iterator[str]:
    """What each source adds to the score, as one bar (on one scale for all hits) and as a table."""
    hit, again = shown.hit, shown.reranked
    bars = body = ""
    start = 0.0
    for part, fused, adds in shown.round_shares(parts, hit.score):
        width = 100 * abs(part.part) / heaviest if heaviest else 0.0
        label = f"{part.source} adds {adds}"
        bars += _rect(start, width, colours[part.source], label, y=0, high=16)
        start += width
        figures = [str(part.rank), f"{part.score:.4f}", _weight(part.weight)]
        cells = _cells([*figures, *[fused] * again, adds])
        body += f"<tr><td>{_named(part.source, colours)}</td>{cells}</tr>"
    if len(parts) > 1:
        sums = ["", "", "", *[f"{hit.rrf_score:.4f}"] * again, f"{hit.score:.4f}"]
        body += f'<tr class="sum"><td>sum</td>{_cells(sums)}</tr>'
    titles = _cells(["rank", "score", "weight", *["fused"] * again, "adds"], tag="th")
    yield f'<svg class="stack" role="img" aria-label="{hit.score:.4f} in all">{bars}</svg>'
    yield f'<div class="wide"><table><tr><th>source</th>{titles}</tr>{body}</table></div>'


# ---------------------------------------------------------------------- how it came about


def _time(trace: Mapping[str, Any], colours: Mapping[str, str]) -> Iterator[str]:
    """The waterfall: a row per stage, and per source while they were collected."""
    spans, total = view.measure_spans(trace)
    if not total:
        return
    yield '<section><h2>Where the time went</h2><table class="time">'
    for span in spans:
        hue = colours[span.name] if span.inside else "stage"
        label = f"{span.name}: {span.ms:.1f} ms from {span.start:.1f} ms on"
        bar = _rect(100 * span.start / total, 100 * span.ms / total, hue, label, y=5, high=14)
        yield f'<tr><td class="{"inside" if span.inside else "step"}">{_text(span.name)}</td>'
        yield _bar_cells(label, TICKS + bar, f"{span.ms:.1f} ms")
    yield f'<tr class="sum"><td>in all</td><td></td><td class="number">{total:.1f} ms</td></tr>'
    yield "</table></section>"


def _sources(
    answer: view.AnswerView, outcomes: Mapping[str, Any], colours: Mapping[str, str]
) -> Iterator[str]:
    if not outcomes:
        return
    asked = "Sources, when they were asked" if answer.cache else "Sources"
    yield f'<section><h2>{asked}</h2><div class="wide"><table>'
    titles = _cells(["weight", "found", "ms"], tag="th")
    yield f"<tr><th>source</th><th>kind</th>{titles}</tr>"
    for source, outcome in outcomes.items():
        row = [_weight(outcome.get("weight")), f"{outcome['count']:,}", f"{outcome['ms']:.1f}"]
        yield f"<tr><td>{_named(source, colours)}</td>"
        yield f"<td>{_text(outcome.get('kind') or source)}</td>{_cells(row)}</tr>"
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
    if said := view.describe_late(trace):
        facts["late interaction"] = "; ".join(said)
    if again := view.describe_reranking(trace):
        facts["reranking"] = again
    yield "<section><h2>How lists became one</h2><dl>"
    yield from (f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items())
    yield "</dl></section>"


def _walk(walk: Mapping[str, Any]) -> Iterator[str]:
    """One bar for each scored node, in its slate; the path to the best leaf stands out."""
    facts = _text(view.describe_walk(walk))
    yield f'<section class="walk"><h2>How the tree was walked</h2><p>{facts}</p>'
    if fallback := walk.get("fallback"):
        note = f" ({fallback['note']})" if fallback["note"] else ""
        yield f"<p><strong>{_text(fallback['to'] or 'nobody')} answered</strong>{_text(note)}</p>"
    path = walk.get("path") or ()
    if path:
        names = (f"{_text(p['name'])} <small>{p['relevance']:.2f}</small>" for p in path)
        yield f"<p>{' › '.join(names)}</p>"
    for step in walk.get("steps") or ():
        yield from _slate(step, {p["key"] for p in path})
    yield "</section>"


def _slate(step: Mapping[str, Any], path: set[int]) -> Iterator[str]:
    nodes = view.rank_nodes(step)
    masked = f", {step['masked']} masked" if step["masked"] else ""
    problem = f" · {step['problem']}" if step["problem"] else ""
    title = (
        f"{step['iteration']}. {step['label']}: {len(nodes)} nodes by {step['scorer']}{masked}, "
        f"bias {step['bias']:+.3f}{problem}"
    )
    opened = ' open="open"' if any(node["key"] in path for node in nodes) else ""
    most = max(1e-9, *(abs(node["relevance"]) for node in nodes))
    yield f'<details{opened}><summary>{_text(title)}</summary><table class="time">'
    for node in nodes:
        chosen = node["key"] in path
        name = _text(f"{'·' if node['leaf'] else '▸'} {node['name']}")
        said = (
            f"score {node['score']:.3f} → calibrated {node['calibrated']:.3f}, "
            f"path relevance {node['relevance']:.3f}{', to compare' if node['other'] else ''}"
        )
        hue = "reranker" if chosen else "stage" if node["other"] else "s0"
        bar = _rect(0.0, 100 * max(0.0, node["relevance"]) / most, hue, said, y=5, high=14)
        yield f"<tr><td>{f'<strong>{name}</strong>' if chosen else name}</td>"
        yield _bar_cells(said, bar, said)
    yield "</table></details>"


# ---------------------------------------------------------------------- pieces


def _bar_cells(label: str, bar: str, number: str) -> str:
    """The rest of a row: a bar, and what it stands for."""
    return (
        f'<td class="bar"><svg role="img" aria-label="{_text(label)}">{bar}</svg></td>'
        f'<td class="number">{number}</td></tr>'
    )


def _rect(start: float, width: float, hue: str, label: str, *, y: int, high: int) -> str:
    """A bar with its meaning as a tooltip; what is not nothing is seen."""
    width = min(max(width, 0.4 if width > 0 else 0.0), 100.0)
    start = min(start, 100.0 - width)
    place = f'x="{start:.3f}%" y="{y}" width="{width:.3f}%" height="{high}"'
    return f'<rect class="{hue}" {place} rx="2"><title>{_text(label)}</title></rect>'


def _named(source: str, colours: Mapping[str, str]) -> str:
    return f'<span class="dot {colours[source]}"></span>{_text(source)}'


def _cells(values: Sequence[str], *, tag: str = "td") -> str:
    return "".join(f'<{tag} class="number">{value}</{tag}>' for value in values)


def _weight(weight: float | None) -> str:
    return "–" if weight is None else f"{weight:.2f}".rstrip("0").rstrip(".")
