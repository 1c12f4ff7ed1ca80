"""The walk: from the root down the most promising nodes, slate by slate (arXiv 2510.13217).

Each iteration expands the best nodes of the frontier. The children of a node are scored as one
slate, all scores so far are calibrated together, and a node's path relevance is α times its
parent's and 1 − α times its own. Inner nodes join the frontier, leaves the answer.

A scorer that sees a slate at a time (a chat model above all) is strict here and generous there.
With s_iv what it said of node v in slate i, the model is s_iv ≈ a · ŝ_v + b_i: one scale for all,
one bias for each slate, by least squares over all that was said: given the biases, the best a · ŝ_v
is the mean of s_iv − b_i over its slates; put back in, that leaves one linear equation for each
slate. What the data cannot say is fixed: the biases are the smallest that fit (by a ridge), and ŝ
has a mean of one half and a spread of one quarter.

Nothing here knows a store: `Ground` says what there is to walk on, `Scorer` what it is worth.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clew.errors import ModelError
from clew.tree import Walk
from clew.tree.hierarchy import ROOT, is_leaf

MASKED, IN_A_ROW = 0.15, 3
"""More masked leaves than this share of those met in so many iterations, and summaries speak of
records that are not there."""
MOSTLY = 0.5  # a node that has lost more than this share of its leaves counts less, in proportion
TIE = 1e-7  # what nearness by embedding adds to a relevance: nothing, unless they are equal
GIVE_UP = 3  # slates in a row that a scorer failed, after which it is not asked again
MIDDLE, SPREAD = 0.5, 0.25  # of calibrated scores
RIDGE, MOST_RIDGE = 1e-3, 100.0
LEAST_RELEVANCE = 0.05
"""Of the spread of what was said, at least this part of the variance is relevance, not noise."""
FLAT = 1e-9  # a spread below this, by the size of the scores, is none: all were given the same
DESCENT = 0.5
"""Once this part of what a walk may spend is gone, and too few leaves are met, it goes straight
down: labels that all look alike would keep it among the upper levels until nothing is left."""


class Ground(Protocol):
    """What is walked on."""

    branching: int

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

    name: str
    absolute: bool
    """Whether a node gets the same score in any slate, so that it is asked for once."""

    def score(self, keys: Sequence[int]) -> Sequence[float]:
        """A number for each; a ModelError where it has none."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One slate, which is put before a scorer together, and what was said of it."""

    iteration: int
    node: int
    children: tuple[int, ...]
    """Of the node, those that may be found."""
    others: tuple[int, ...]
    """Nodes that tie the scores of this slate to those of other slates."""
    leaves: int
    """Leaves of the node, those that may not be found included."""
    masked: int
    """Leaves of the node that may not be found."""
    scores: Mapping[int, float] = field(default_factory=dict)
    scorer: str = ""
    spare: bool = False
    """Scored by the spare scorer, on whose scale the numbers are."""
    problem: str = ""

    @property
    def keys(self) -> tuple[int, ...]:
        return self.children + self.others


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was fitted."""

    scale: float = 0.0
    """a. Nothing: the scorer makes no difference between nodes."""
    biases: tuple[float, ...] = ()
    """b_i, in the order of the slates."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """ŝ_v by node."""


def traverse(
    ground: Ground,
    scorer: Scorer,
    walk: Walk,
    *,
    spare: Scorer | None = None,
    seeds: Iterable[int] = (),
    enough: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Traversal:
    """Walk. `spare` scores what `scorer` fails on. `seeds` are inner nodes that the first iteration
    expands beside the root, because something else than the tree speaks for them. `enough` leaves
    are met if a way down to them can be paid for, whatever the scorer says."""
    found = Traversal(ground, scorer, walk, spare, seeds)
    begun = now = clock()
    for iteration in range(walk.iterations):
        spent = [iteration / walk.iterations, (now - begun) / (walk.seconds or 1.0)]
        if scorer.absolute:
            spent.append(found.scored / walk.nodes)
        down = max(spent) >= DESCENT and found.met < enough
        chosen = found.best(walk.beam if iteration else len(found.frontier), deepest=down)
        if not chosen:
            found.ended = "nothing is left to expand"
            break
        found.iterations = iteration + 1
        for node in chosen:
            if found.ended or not found.expand(node, iteration):
                break
            now = clock()
            if now >= begun + walk.seconds:
                found.ended = f"out of time after {walk.seconds:g} s"
        found.settle(iteration)
        if found.ended:
            break
    else:
        found.ended = f"all {walk.iterations} iterations are done"
    return found


class Traversal:
    """A walk under way, and where it has led."""

    def __init__(
        self,
        ground: Ground,
        scorer: Scorer,
        walk: Walk,
        spare: Scorer | None,
        seeds: Iterable[int],
    ):
        self.ground, self.scorer, self.walk, self.spare = ground, scorer, walk, spare
        self.frontier = {ROOT, *seeds} if ground.open(ROOT) else set[int]()
        self.relevance = dict.fromkeys((ROOT, *self.frontier), 1.0)
        """Of paths."""
        self.calibration = Calibration()
        self.steps: list[Step] = []
        self.iterations = 0
        self.masked: list[float] = []
        """Per iteration that met leaves, the share of them that was masked."""
        self.scored = 0
        self.aborted = False
        self.ended = ""
        """Why it went no further."""
        self.clamped = False
        """Whether children were left out because there were too many of them."""
        self._answer: set[int] = set()
        self._parents: dict[int, int] = {}
        self._known: dict[int, float] = {}
        self._failed = 0
        self._branching = min(walk.branching or ground.branching, ground.branching)

    @property
    def met(self) -> int:
        return len(self._answer)

    @property
    def exhausted(self) -> bool:
        """Whether it has met all that may be found."""
        return not self.frontier and not self.clamped

    @property
    def flat(self) -> bool:
        """Whether the scorer made no difference between any nodes."""
        return bool(self.steps) and not self.calibration.scale

    @cached_property
    def leaves(self) -> list[tuple[int, float]]:
        """Keys with their path relevance, best first, once the walk is over. Where nobody made a
        difference, how deep a leaf lies makes none either."""
        keys = sorted(self._answer)
        near = _pair(keys, self.ground.prior(keys) if keys else ())
        said = {key: MIDDLE if self.flat else round(self.relevance[key], 6) for key in keys}
        # Whoever sorts by these again has the same order: nearness is their last digits.
        worth = {key: said[key] + TIE * near[key] for key in keys}
        return sorted(worth.items(), key=lambda each: (-each[1], -each[0]))

    def telemetry(self) -> dict[str, Any]:
        met = sum(step.leaves for step in self.steps)
        masked = sum(step.masked for step in self.steps)
        return {
            "slates": len(self.steps),
            "scored": self.scored,
            "iterations": self.iterations,
            "leaves": len(self.leaves),
            "masked_leaf_ratio": round(masked / met, 4) if met else 0.0,
            "aborted": self.aborted,
            "ended": self.ended,
        }

    def best(self, count: int, *, deepest: bool = False) -> list[int]:
        """The most promising nodes of the frontier; `deepest`: of those farthest down first."""
        nodes = sorted(self.frontier)
        near = _pair(nodes, self.ground.prior(nodes) if nodes else ())

        def order(node: int) -> tuple[bool, int, float, float, int]:
            left = min(1.0, self.ground.share(node) / MOSTLY)
            worth = left * (MIDDLE if self.flat else self.relevance[node])
            down = self._depth(node) if deepest else 0
            return node != ROOT, -down, -round(worth, 6), -near[node], node

        return sorted(nodes, key=order)[:count]

    def _depth(self, node: int) -> int:
        depth = 0
        while (above := self._parents.get(node)) is not None:
            node, depth = above, depth + 1
        return depth

    def expand(self, node: int, iteration: int) -> bool:
        """Score a node's slate; False: that would be more scorings than there may be."""
        step = self._lay_out(node, iteration)
        fresh = [key for key in step.keys if not (self.scorer.absolute and key in self._known)]
        full = self.scored + len(fresh) > self.walk.nodes
        if self.scorer.absolute and self.steps and full:
            self.ended = f"the next slate would be more than {self.walk.nodes} scorings"
            return False
        self.frontier.discard(node)
        for key in step.children:
            self._parents.setdefault(key, node)
        self.steps.append(self._score(step, fresh))
        self.scored += len(fresh)
        return True

    def _lay_out(self, node: int, iteration: int) -> Step:
        """The slate of a node, not scored yet."""
        children = self.ground.children(node)
        may = [key for key in children if self.ground.open(key)]
        leaves = sum(map(is_leaf, children))
        masked = leaves - sum(map(is_leaf, may))
        if len(may) > self._branching:
            self.clamped = True
            near = _pair(may, self.ground.prior(may))
            may = sorted(may, key=lambda key: (-near[key], key))[: self._branching]
        scores = self.calibration.scores
        above = self._parents.get(node)
        others = choose_others(
            node,
            may,
            siblings={
                key: scores[key]
                for key, parent in self._parents.items()
                if parent == above and key in scores and not is_leaf(key)
            },
            found={key: self.relevance[key] for key in self._answer},
            samples=self.walk.samples,
            seed=(self.walk.seed, len(self.steps)),
        )
        return Step(iteration, node, tuple(may), others, leaves, masked)

    def _score(self, step: Step, fresh: Sequence[int]) -> Step:
        try:
            if self.spare is not None and self._failed >= GIVE_UP:
                raise ModelError(f"{self.scorer.name} failed {GIVE_UP} times in a row")
            said = _pair(fresh, self.scorer.score(fresh) if fresh else ())
        except ModelError as error:
            if self.spare is None:
                raise
            self._failed += 1
            said = _pair(step.keys, self.spare.score(step.keys))
            name, problem = self.spare.name, str(error)
            return replace(step, scores=said, scorer=name, spare=True, problem=problem)
        self._failed = 0
        self._known |= said
        if self.scorer.absolute:
            said = {key: self._known[key] for key in step.keys}
        return replace(step, scores=said, scorer=self.scorer.name)

    def settle(self, iteration: int) -> None:
        """Calibrate all that was said, and let what was new join the frontier or the answer."""
        self.calibration = calibrate(_align_scores(self.steps), biased=self.walk.calibrated)
        alpha = self.walk.alpha
        for key, parent in self._parents.items():  # parents were met before their children
            own = self.calibration.scores.get(key)
            if own is not None:
                above = self.relevance.get(parent, 1.0)
                self.relevance[key] = alpha * above + (1.0 - alpha) * own
        mine = [step for step in self.steps if step.iteration == iteration]
        expanded = {step.node for step in self.steps}
        new = {key for step in mine for key in step.children}
        self._answer |= {key for key in new if is_leaf(key)}
        self.frontier |= {key for key in new if not is_leaf(key)} - expanded
        if met := sum(step.leaves for step in mine):
            self.masked.append(sum(step.masked for step in mine) / met)
        last = self.masked[-IN_A_ROW:]
        if self.walk.abort and len(last) == IN_A_ROW and min(last) > MASKED:
            self.aborted = True
            self.ended = (
                f"more than {MASKED:.0%} of the leaves it met were masked in {IN_A_ROW} iterations "
                f"in a row ({', '.join(f'{share:.0%}' for share in last)})"
            )


def _pair(keys: Sequence[int], scores: Sequence[float]) -> dict[int, float]:
    return {key: float(score) for key, score in zip(keys, scores, strict=True)}


def _align_scores(steps: Sequence[Step]) -> list[Mapping[int, float]]:
    """All slates, those of the spare scorer on the scale of the other: same middle, same spread."""
    own = [score for step in steps if not step.spare for score in step.scores.values()]
    other = [score for step in steps if step.spare for score in step.scores.values()]
    if not own or not other:
        return [step.scores for step in steps]
    middle, off, wide = float(np.mean(own)), float(np.mean(other)), float(np.std(other))
    factor = float(np.std(own)) / wide if wide else 0.0
    return [
        {key: middle + (score - off) * factor for key, score in step.scores.items()}
        if step.spare
        else step.scores
        for step in steps
    ]


# ---------------------------------------------------------------------- slates


def choose_others(
    node: int,
    children: Sequence[int],
    *,
    siblings: Mapping[int, float],
    found: Mapping[int, float],
    samples: int,
    seed: tuple[int, ...],
) -> tuple[int, ...]:
    """Aug(v): beside inner children the best-scoring sibling of v, beside leaves some of those that
    were found already (`found`: leaf → path relevance)."""
    others: list[int] = []
    if any(not is_leaf(key) for key in children):
        rivals = [key for key in siblings if key != node]
        others += sorted(rivals, key=lambda key: (-siblings[key], key))[:1]
    if any(is_leaf(key) for key in children):
        new = {key: relevance for key, relevance in found.items() if key not in children}
        others += sample_leaves(new, samples, seed)
    return tuple(others)


def sample_leaves(found: Mapping[int, float], count: int, seed: tuple[int, ...]) -> list[int]:
    """`count` different leaves, each with a chance in proportion to e to its relevance: the largest
    of relevance plus Gumbel noise."""
    if not found or not count:
        return []
    keys = sorted(found)
    noise = np.random.default_rng(seed).gumbel(size=len(keys)).tolist()
    lot = {k: found[k] + n for k, n in zip(keys, noise, strict=True) if math.isfinite(found[k])}
    return sorted(lot, key=lambda key: (-lot[key], key))[:count]


# ---------------------------------------------------------------------- calibration


def calibrate(slates: Sequence[Mapping[int, float]], *, biased: bool = True) -> Calibration:
    """Fit to all slates, each node → what was said of it there. Not `biased`: every b_i is 0, as if
    slates could be compared as they are."""
    times = Counter(node for slate in slates for node in slate)
    if not times:
        return Calibration(biases=(0.0,) * len(slates))
    biases, error = _fit_biases(slates, times) if biased else (np.zeros(len(slates)), 0.0)
    sums = dict.fromkeys(times, 0.0)
    for slate, bias in zip(slates, biases.tolist(), strict=True):
        for node, score in slate.items():
            sums[node] += score - bias
    latent = np.asarray([sums[node] / count for node, count in times.items()])
    middle, variance = float(latent.mean()), float(latent.var())
    spread = max(variance - error, LEAST_RELEVANCE * variance) ** 0.5
    if spread <= FLAT * max(1.0, float(np.abs(latent).max())):
        return Calibration(0.0, tuple(biases.tolist()), dict.fromkeys(times, MIDDLE))
    scale = spread / SPREAD
    scores = MIDDLE + (latent - middle) / scale
    # What the middle takes out of the scores, the biases get: a · ŝ + b is what was said.
    offset = middle - scale * MIDDLE
    return Calibration(
        scale,
        tuple((biases + offset).tolist()),
        dict(zip(times, scores.tolist(), strict=True)),
    )


def _fit_biases(
    slates: Sequence[Mapping[int, float]], times: Mapping[int, int]
) -> tuple[npt.NDArray[np.float64], float]:
    """The biases by which slates agree best about the nodes they share, and the variance among the
    nodes that comes from noise, and from biases that are not quite right. A node of one slate takes
    any bias without an error, so only those of several have a part in it.

    Solved twice: what is left over the first time tells noise from bias, and so how much ridge the
    biases should have. Where slates differ by noise alone they get next to none.
    """
    shared = [node for node, count in times.items() if count > 1]
    if not shared:
        return np.zeros(len(slates)), 0.0
    column = {node: i for i, node in enumerate(shared)}
    there = np.zeros((len(slates), len(shared)))
    said = np.zeros_like(there)
    for i, slate in enumerate(slates):
        for node, score in slate.items():
            if (at := column.get(node)) is not None:
                there[i, at], said[i, at] = 1.0, score
    count = np.asarray([times[node] for node in shared])
    part = there / count
    links = there.sum(axis=1)
    left = np.diag(links) - part @ there.T
    right = said.sum(axis=1) - part @ said.sum(axis=0)
    eye = np.eye(len(slates))
    biases = np.linalg.solve(left + RIDGE * eye, right)
    rest = said - there * biases[:, None]
    rest -= there * (rest.sum(axis=0) / np.maximum(count, 1))
    free = float((count - 1).sum()) - int((links > 0).sum()) + 1
    if free < 1:
        return biases, 0.0
    noise = float((rest**2).sum()) / free
    tied = links > 0
    moods = float(biases[tied].var()) - noise * float((1.0 / links[tied]).mean())
    ridge = max(RIDGE, min(MOST_RIDGE, noise / moods if moods > 0 else MOST_RIDGE))
    doubt = np.linalg.inv(left + ridge * eye)
    # How the biases get into the nodes: each node has the mean of its slates'.
    single = np.asarray([sum(times[node] == 1 for node in slate) for slate in slates])
    among = ((part / count) @ there.T + np.diag(single)) / len(times)
    mean = (part.sum(axis=1) + single) / len(times)
    error = float((doubt * among).sum() - mean @ doubt @ mean)
    error += (float((1.0 / count).sum()) + float(single.sum())) / len(times)
    return doubt @ right, noise * error
