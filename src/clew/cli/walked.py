"""A walk down the tree, as lines of text and as a picture for the page that explains a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from clew.cli.answer import Line
from clew.cli.plain import clean, one_line
from clew.errors import counted

__all__ = ["picture", "walk_lines", "walks"]

SHOWN = 5
"""Nodes of a slate that are named in lines of text, the best first."""
WIDE, HIGH, GAP = 1060, 22, 8
LEFT, BAR = 300, 150


def walks(trace: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What sources that walk a tree say of it."""
    said = [(name, of.get("how")) for name, of in trace.get("sources", {}).items()]
    return [(name, how) for name, how in said if how and "slates" in how]


def _facts(how: Mapping[str, Any]) -> str:
    return (
        f"{counted(how['slates'], 'slate')}, {counted(how['scored'], 'node')} scored by "
        f"{how['scorer']} in {counted(how['iterations'], 'iteration')}, "
        f"{how['masked_leaf_ratio']:.0%} of leaves masked; {how['ended']}"
    )


def walk_lines(how: Mapping[str, Any]) -> Iterator[Line]:
    """What was counted, the path to the best leaf, and each slate's best."""
    yield Line((("How the tree was walked", "bold"),))
    yield Line(((one_line(_facts(how)), ""),), 2)
    if fallback := how.get("fallback"):
        note = f" ({fallback['note']})" if fallback["note"] else ""
        yield Line(((one_line(f"{fallback['to'] or 'nobody'} answered{note}"), "yellow"),), 2)
    if how.get("path"):
        steps = [f"{one_line(p['name'])} ({p['relevance']:.2f})" for p in how["path"]]
        yield Line((("path ", "cyan"), (" › ".join(steps), "")), 2)
    for step in how.get("steps") or ():
        yield from _step_lines(step)


def _step_lines(step: Mapping[str, Any]) -> Iterator[Line]:
    masked = f", {step['masked']} masked" if step["masked"] else ""
    head = f"{step['iteration']:>3}. {one_line(step['label'])}"
    facts = f"  {len(step['nodes'])} nodes{masked}, bias {step['bias']:+.3f}"
    yield Line(((head, "cyan"), (facts, "dim")), 2, wraps=False)
    if step["problem"]:
        yield Line(((f"by {step['scorer']}: {one_line(step['problem'])}", "yellow"),), 7)
    for node in _best(step)[:SHOWN]:
        mark = "·" if node["leaf"] else "▸"
        said = (
            f"{mark} {node['score']:>8.3f} → {node['calibrated']:>6.3f}, "
            f"path {node['relevance']:>6.3f}  "
        )
        kind = " (to compare)" if node["other"] else ""
        yield Line(((said, "dim"), (one_line(node["name"]) + kind, "")), 7, wraps=False)


def _best(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return sorted(step["nodes"], key=lambda node: (-node["relevance"], node["key"]))


# ---------------------------------------------------------------------- as a picture


def picture(how: Mapping[str, Any]) -> Iterator[str]:
    """One bar for each scored node, in its slate; the path to the best leaf stands out."""
    yield f'<section class="walk"><h2>How the tree was walked</h2><p>{_text(_facts(how))}</p>'
    if fallback := how.get("fallback"):
        note = f" ({fallback['note']})" if fallback["note"] else ""
        yield f"<p><strong>{_text(fallback['to'] or 'nobody')} answered</strong>{_text(note)}</p>"
    if how.get("path"):
        names = " › ".join(
            f"{_text(p['name'])} <small>{p['relevance']:.2f}</small>" for p in how["path"]
        )
        yield f"<p>{names}</p>"
    path = {p["key"] for p in how.get("path") or ()}
    for step in how.get("steps") or ():
        yield from _slate(step, path)
    yield "</section>"


def _slate(step: Mapping[str, Any], path: set[int]) -> Iterator[str]:
    nodes = _best(step)
    masked = f", {step['masked']} masked" if step["masked"] else ""
    problem = f" · {step['problem']}" if step["problem"] else ""
    title = (
        f"{step['iteration']}. {step['label']}: {len(nodes)} nodes by {step['scorer']}{masked}, "
        f"bias {step['bias']:+.3f}{problem}"
    )
    high = HIGH * len(nodes) + GAP
    chosen = " open" if any(node["key"] in path for node in nodes) else ""
    yield f"<details{' open=' + chr(34) + 'open' + chr(34) if chosen else ''}>"
    yield f"<summary>{_text(title)}</summary>"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="100%" '
        f'role="img" aria-label="{_text(title)}">'
    )
    yield from (_row(node, i, path, nodes) for i, node in enumerate(nodes))
    yield "</svg></details>"


def _row(
    node: Mapping[str, Any], place: int, path: set[int], nodes: Sequence[Mapping[str, Any]]
) -> str:
    on = node["key"] in path
    y = place * HIGH + GAP / 2
    most = max(1e-9, *(abs(n["relevance"]) for n in nodes))
    wide = max(1.0, BAR * max(0.0, node["relevance"]) / most)
    name = _text(node["name"])
    name = name if len(node["name"]) <= 46 else _text(node["name"][:45]) + "…"
    kind = "leaf" if node["leaf"] else "node"
    colour = "#c0392b" if on else "#7f8c8d" if node["other"] else "#2c7fb8"
    weight = ' font-weight="bold"' if on else ""
    said = (
        f"score {node['score']:.3f} → calibrated {node['calibrated']:.3f}, "
        f"path relevance {node['relevance']:.3f}{', to compare' if node['other'] else ''}"
    )
    shape = (
        f'<circle cx="8" cy="{y + 9}" r="4" fill="{colour}"/>'
        if node["leaf"]
        else f'<rect x="3" y="{y + 4}" width="10" height="10" fill="{colour}"/>'
    )
    return (
        f"<g><title>{kind} {name}: {said}</title>{shape}"
        f'<text x="22" y="{y + 13}" font-size="12" fill="currentColor"{weight}>{name}</text>'
        f'<rect x="{LEFT + 40}" y="{y + 2}" width="{wide:.1f}" height="14" fill="{colour}"/>'
        f'<text x="{LEFT + BAR + 60}" y="{y + 13}" font-size="11" fill="currentColor">{said}'
        "</text></g>"
    )


def _text(value: object) -> str:
    return escape(clean(str(value)))
