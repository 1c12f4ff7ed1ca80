"""The walk: from the root down the most promising nodes, slate by slate (arXiv 2510.13217).

Each iteration expands the best nodes of the frontier. The children of a node are scored as one
slate, all scores so far are calibrated together, and a node's path relevance is α times its
parent's and 1 − α times its own. Inner nodes join the frontier, leaves the answer.

Nothing here knows a store: `Ground` says what there is to walk on, `Scorer` what it is worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clew.errors import ModelError
from clew.tree.calibrate import Calibration, calibrate
from clew.tree.hierarchy import ROOT, is_leaf
from clew.tree.slate import Slate, augmented
from clew.tree.walk import Walk

__all__ = ["Found", "Ground", "Scorer", "Step", "traverse"]

MASKED = 0.15
"""More masked leaves than this share of those met, …"""
IN_A_ROW = 3
"""… in so many iterations, and summaries speak of records that are not there."""
MOSTLY = 0.5
"""A node that has lost more than this share of its leaves counts less, in proportion."""
TIE = 1e-7
"""What nearness by embedding adds to a relevance: nothing, unless they are equal."""
GIVE_UP = 3
"""Slates in a row that a scorer failed, after which it is not asked again."""


class Ground(Protocol):
    """What is walked on."""

    @property
    def branching(self) -> int: ...

    def children(self, node: int) -> list[int]: ...

    def open(self, key: int) -> bool:
        """Whether a leaf may be found, or anything below a node."""
        ...

    def share(self, node: int) -> float:
        """The part of a node's leaves that may be found."""
        ...

    def prior(self, keys: Sequence[int]) -> Sequence[float]:
        """Nearness by embedding: decides where nothing else does."""
        ...


class Scorer(Protocol):
    """Says how much the nodes of a slate have to do with the query; higher is better."""

    @property
    def name(self) -> str: ...

    @property
    def absolute(self) -> bool:
        """Whether a node gets the same score in any slate, so that it is asked for once."""
        ...

    def score(self, keys: Sequence[int]) -> Sequence[float]:
        """A number for each; a ModelError where it has none."""
        ...


@dataclass(slots=True)
class Step:
    """One slate, and what was said of it."""

    iteration: int
    slate: Slate
    scores: dict[int, float]
    scorer: str
    spare: bool = False
    """Scored by the spare scorer, on whose scale the numbers are."""
    problem: str = ""


@dataclass(slots=True)
class Found:
    """Where the walk led."""

    leaves: list[tuple[int, float]] = field(default_factory=list)
    """Keys with their path relevance, best first."""
    relevance: dict[int, float] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    steps: list[Step] = field(default_factory=list)
    iterations: int = 0
    scored: int = 0
    masked: list[float] = field(default_factory=list)
    """Per iteration that met leaves, the share of them that was masked."""
    aborted: bool = False
    ended: str = ""
    """Why it went no further."""

    def telemetry(self) -> dict[str, Any]:
        met = sum(step.slate.leaves for step in self.steps)
        masked = sum(step.slate.masked for step in self.steps)
        return {
            "slates": len(self.steps),
            "scored": self.scored,
            "iterations": self.iterations,
            "leaves": len(self.leaves),
            "masked_leaf_ratio": round(masked / met, 4) if met else 0.0,
            "aborted": self.aborted,
            "ended": self.ended,
        }


def traverse(
    ground: Ground,
    scorer: Scorer,
    walk: Walk,
    *,
    spare: Scorer | None = None,
    seeds: Iterable[int] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Walk. `spare` scores what `scorer` fails on. `seeds` are inner nodes that the first iteration
    expands beside the root, because something else than the tree speaks for them."""
    walking = _Walking(ground, scorer, walk, spare)
    end = clock() + walk.seconds
    found = walking.found
    walking.begin(seeds)
    for iteration in range(walk.iterations):
        chosen = walking.best(walk.beam if iteration else len(walking.frontier))
        if not chosen:
            found.ended = "nothing is left to expand"
            break
        found.iterations = iteration + 1
        for node in chosen:
            if found.ended or not walking.expand(node, iteration):
                break
            if clock() >= end:
                found.ended = f"out of time after {walk.seconds:g} s"
        walking.settle(iteration)
        if found.ended:
            break
    else:
        found.ended = f"all {walk.iterations} iterations are done"
    return walking.close()


class _Walking:
    """A walk under way."""

    def __init__(self, ground: Ground, scorer: Scorer, walk: Walk, spare: Scorer | None):
        self.ground, self.scorer, self.walk, self.spare = ground, scorer, walk, spare
        self.found = Found(relevance={ROOT: 1.0})
        self.frontier: set[int] = set()
        self.answer: set[int] = set()
        self.parents: dict[int, int] = {}
        self.known: dict[int, float] = {}
        self.failed = 0
        self.branching = min(walk.branching or ground.branching, ground.branching)

    def begin(self, seeds: Iterable[int]) -> None:
        if self.ground.open(ROOT):
            self.frontier = {ROOT, *seeds}
            self.found.relevance |= dict.fromkeys(self.frontier, 1.0)

    def best(self, count: int) -> list[int]:
        if not self.frontier:
            return []
        nodes = sorted(self.frontier)
        near = dict(zip(nodes, self.ground.prior(nodes), strict=True))

        def order(node: int) -> tuple[float, float, int]:
            left = min(1.0, self.ground.share(node) / MOSTLY)
            return -round(self.found.relevance[node] * left, 6), -near[node], node

        return sorted(nodes, key=order)[:count]

    def expand(self, node: int, iteration: int) -> bool:
        """Score a node's slate; False: that would be more scorings than there may be."""
        slate = self._slate(node)
        fresh = [key for key in slate.keys if not (self.scorer.absolute and key in self.known)]
        full = self.found.scored + len(fresh) > self.walk.nodes
        if self.scorer.absolute and self.found.steps and full:
            self.found.ended = f"the next slate would be more than {self.walk.nodes} scorings"
            return False
        self.frontier.discard(node)
        for key in slate.children:
            self.parents.setdefault(key, node)
        self.found.steps.append(self._scored(slate, fresh, iteration))
        self.found.scored += len(fresh)
        return True

    def _slate(self, node: int) -> Slate:
        children = self.ground.children(node)
        leaves = [key for key in children if is_leaf(key)]
        open_ = [key for key in children if self.ground.open(key)]
        masked = sum(1 for key in leaves if not self.ground.open(key))
        if len(open_) > self.branching:
            near = dict(zip(open_, self.ground.prior(open_), strict=True))
            open_ = sorted(open_, key=lambda key: (-near[key], key))[: self.branching]
        others = augmented(
            node,
            open_,
            siblings={
                key: self.found.calibration.scores[key]
                for key, parent in self.parents.items()
                if parent == self.parents.get(node) and key in self.found.calibration.scores
                if not is_leaf(key)
            },
            found={key: self.found.relevance[key] for key in self.answer},
            samples=self.walk.samples,
            seed=(self.walk.seed, len(self.found.steps)),
        )
        return Slate(node, tuple(open_), others, masked, len(leaves))

    def _scored(self, slate: Slate, fresh: Sequence[int], iteration: int) -> Step:
        problem, spare = "", False
        said: dict[int, float] = {}
        if self.failed < GIVE_UP or self.spare is None:
            try:
                said = _numbers(fresh, self.scorer.score(fresh) if fresh else ())
                self.failed = 0
            except ModelError as error:
                if self.spare is None:
                    raise
                problem, spare = str(error), True
                self.failed += 1
        else:
            problem, spare = f"{self.scorer.name} failed {GIVE_UP} times in a row", True
        if spare and self.spare is not None:
            said = _numbers(slate.keys, self.spare.score(slate.keys))
            name = self.spare.name
        else:
            self.known |= said
            if self.scorer.absolute:
                said = {key: self.known[key] for key in slate.keys}
            name = self.scorer.name
        return Step(iteration, slate, said, name, spare, problem)

    def settle(self, iteration: int) -> None:
        """Calibrate all that was said, and let what was new join the frontier or the answer."""
        found = self.found
        found.calibration = calibrate(_history(found.steps), biased=self.walk.calibrated)
        alpha = self.walk.alpha
        for key, parent in self.parents.items():  # parents were met before their children
            own = found.calibration.scores.get(key)
            if own is not None:
                above = found.relevance.get(parent, 1.0)
                found.relevance[key] = alpha * above + (1.0 - alpha) * own
        mine = [step for step in found.steps if step.iteration == iteration]
        expanded = {step.slate.node for step in found.steps}
        for step in mine:
            for key in step.slate.children:
                if is_leaf(key):
                    self.answer.add(key)
                elif key not in expanded:
                    self.frontier.add(key)
        met = sum(step.slate.leaves for step in mine)
        if met:
            found.masked.append(sum(step.slate.masked for step in mine) / met)
        last = found.masked[-IN_A_ROW:]
        if self.walk.abort and len(last) == IN_A_ROW and min(last) > MASKED:
            found.aborted = True
            found.ended = (
                f"more than {MASKED:.0%} of the leaves it met were masked in {IN_A_ROW} iterations "
                f"in a row ({', '.join(f'{share:.0%}' for share in last)})"
            )

    def close(self) -> Found:
        relevance = self.found.relevance
        keys = sorted(self.answer)
        near = dict(zip(keys, self.ground.prior(keys), strict=True)) if keys else {}
        # Whoever sorts by these again has the same order: nearness is their last digits.
        worth = {key: round(relevance[key], 6) + TIE * near[key] for key in keys}
        keys.sort(key=lambda key: (-worth[key], -key))
        self.found.leaves = [(key, worth[key]) for key in keys]
        return self.found


def _numbers(keys: Sequence[int], scores: Sequence[float]) -> dict[int, float]:
    return {key: float(score) for key, score in zip(keys, scores, strict=True)}


def _history(steps: Sequence[Step]) -> list[Mapping[int, float]]:
    """All slates, those of the spare scorer on the scale of the other: same middle, same spread."""
    own = [score for step in steps if not step.spare for score in step.scores.values()]
    other = [score for step in steps if step.spare for score in step.scores.values()]
    if not own or not other:
        return [step.scores for step in steps]
    middle, spread = _about(own)
    off, wide = _about(other)
    factor = spread / wide if wide else 0.0
    return [
        {key: middle + (score - off) * factor for key, score in step.scores.items()}
        if step.spare
        else step.scores
        for step in steps
    ]


def _about(values: Sequence[float]) -> tuple[float, float]:
    middle = sum(values) / len(values)
    return middle, (sum((value - middle) ** 2 for value in values) / len(values)) ** 0.5
