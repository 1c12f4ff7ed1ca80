"""A walk as plain data: what was counted, and every slate with its scores."""

from __future__ import annotations

from typing import Any

from clew.tree.hierarchy import ROOT, is_leaf
from clew.tree.traverse import Found, Step
from clew.tree.view import View
from clew.tree.walk import Walk

__all__ = ["told"]


def told(found: Found, view: View, walk: Walk, *, whole: bool) -> dict[str, Any]:
    """For a trace; names of nodes are those that the user may see. Only the `whole` of it has every
    slate, because that reads the title of every leaf that was met."""
    keys = {key for key, _ in found.leaves[:1]}
    if whole:
        keys |= {key for step in found.steps for key in step.slate.keys if is_leaf(key)}
    titles = view.titles(sorted(keys))
    names = {key: titles.get(key, view.tree.ids[~key]) for key in keys}
    steps = [
        _step(step, bias, found, view, names)
        for step, bias in zip(found.steps, found.calibration.biases, strict=False)
        if whole
    ]
    return {
        "scorer": walk.scorer,
        **found.telemetry(),
        "branching": min(walk.branching or view.branching, view.branching),
        "scale": round(found.calibration.scale, 6),
        "path": _path(found, view, names),
        "tree": {"mode": view.tree.mode, "nodes": len(view.tree), "leaves": view.records},
        **({"steps": steps} if whole else {}),
    }


def _step(
    step: Step, bias: float, found: Found, view: View, names: dict[int, str]
) -> dict[str, Any]:
    return {
        "iteration": step.iteration + 1,
        "node": step.slate.node,
        "label": view.said(step.slate.node).label,
        "scorer": step.scorer,
        "problem": step.problem,
        "bias": round(bias, 6),
        "leaves": step.slate.leaves,
        "masked": step.slate.masked,
        "nodes": [
            {
                "key": key,
                "leaf": is_leaf(key),
                "id": view.tree.ids[~key] if is_leaf(key) else None,
                "name": names[key] if is_leaf(key) else view.said(key).label,
                "score": round(score, 6),
                "calibrated": round(found.calibration.scores[key], 6),
                "relevance": round(found.relevance.get(key, 0.0), 6),
                "other": key in step.slate.others,
            }
            for key, score in step.scores.items()
        ],
    }


def _path(found: Found, view: View, names: dict[int, str]) -> list[dict[str, Any]]:
    """From the root to the best leaf."""
    if not found.leaves:
        return []
    path = [found.leaves[0][0]]
    while path[-1] != ROOT:
        path.append(view.tree.parent(path[-1]))
    return [
        {
            "key": key,
            "name": names[key] if is_leaf(key) else view.said(key).label,
            "relevance": round(found.relevance.get(key, 1.0), 6),
        }
        for key in reversed(path)
    ]
