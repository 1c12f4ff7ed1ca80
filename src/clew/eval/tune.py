"""Which way of fusing suits a collection: tried on training queries, measured on others.

Every query is asked once; each configuration then fuses the lists it gave, as a search would
(ranking/fusion.py). Five folds of the training queries say how far a configuration's figure depends
on which queries they are, and what choosing by four folds is worth on the fifth. What is chosen is
compared with the settings in force, the default, on queries that had no part in the choice;
`compare` refuses any others.

So are the weights of `clew.Search`: every query is looked up once, and each share of meaning ranks
the pool anew. What credibility counts is left as it is: documents of a collection come from no
domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import sub
from statistics import fmean, stdev
from typing import Any, NamedTuple

from clew.config import Config
from clew.engine import Engine
from clew.errors import InputError
from clew.eval import metrics
from clew.eval.datasets import Dataset, Halves, Question, check_enough, hash_id, identify
from clew.eval.harness import SHOWN
from clew.eval.metrics import HEADLINE
from clew.lookup import Search
from clew.lookup_settings import WEIGHTS
from clew.protocols import Progress
from clew.ranking.adaptive import Facts
from clew.ranking.fusion import STRATEGIES, RankedList, weigh_lists
from clew.ranking.lookup_score import hybrid, ordered
from clew.types import SearchRequest

FOLDS = 5
TIE = 0.001
"""nDCG@10 that is no reason to prefer what is less simple."""
SIGNIFICANT = 0.05
SHOWN_TRIALS = 5
SHARES = tuple(tenth / 10 for tenth in range(1, 10))
KS = (10, 20, 40, 60, 80, 100)
RECIPROCAL = ("rrf", "weighted_rrf")
"""The strategies that look at k."""
MEANING_SHARES = tuple(twentieth / 20 for twentieth in range(21))
MEANING_DEFAULT = WEIGHTS["semantic"] / (WEIGHTS["bm25"] + WEIGHTS["semantic"])
PATIENCE = 60.0
"""Seconds the sources have, and a lookup: a list that came late must not decide a setting."""


# ---------------------------------------------------------------------- configurations


@dataclass(frozen=True, slots=True)
class Fusion:
    strategy: str = Config().fusion
    share: float = 0.5
    """Of the vectors, in what words and vectors weigh together; one half: as the settings say."""
    k: int = Config().rrf_k

    @classmethod
    def of(cls, config: Config) -> Fusion:
        return cls(config.fusion, k=config.rrf_k)

    @property
    def weights(self) -> dict[str, float]:
        """Weights that come to two, as without: any other source counts as it did."""
        if self.share == 0.5:
            return {}
        return {"keyword": round(2 - 2 * self.share, 4), "vectors": round(2 * self.share, 4)}

    def settings(self, config: Config) -> dict[str, Any]:
        chosen = {
            "fusion": self.strategy,
            "rrf_k": self.k,
            "weights": {**config.weights, **self.weights},
        }
        return {name: value for name, value in chosen.items() if value != getattr(config, name)}

    def oddity(self, config: Config) -> tuple[Any, ...]:
        """What is simpler comes first: fewer settings changed, then by less."""
        away = abs(self.share - 0.5), abs(self.k - config.rrf_k)
        return (len(self.settings(config)), *away, self.strategy, self.share, self.k)


def grid(config: Config) -> list[Fusion]:
    """All that are tried, the one in force among them."""
    every = [
        Fusion(strategy, share, k)
        for strategy in STRATEGIES
        for share in SHARES
        for k in (KS if strategy in RECIPROCAL else (config.rrf_k,))
    ]
    return list(dict.fromkeys([Fusion.of(config), *every]))


# ---------------------------------------------------------------------- ask once, fuse often


class Asked(NamedTuple):
    """What the sources gave for one query: all that fusion needs."""

    lists: Mapping[str, RankedList]
    facts: Facts

    def rank(self, how: Fusion) -> list[str]:
        """The first ten, as a search with these settings gives them."""
        lists = {
            name: of._replace(weight=how.weights.get(name, of.weight))
            for name, of in self.lists.items()
        }
        found = weigh_lists(lists, self.facts, strategy=how.strategy, k=how.k).fused(SHOWN)
        return [each.id for each in found]


def ask(
    engine: Engine, questions: Sequence[Question], *, progress: Progress | None = None
) -> tuple[dict[str, Asked], dict[str, int]]:
    """Every query's lists; and what could not take part in full → in how many searches."""
    asked: dict[str, Asked] = {}
    degraded: Counter[str] = Counter()
    for done, question in enumerate(questions, 1):
        request = SearchRequest(
            question.text,
            limit=SHOWN,
            group_by="record",
            filter=question.filter,
            syntax=False,
            rerank=False,
        )
        lists, facts, problems = engine.collect_lists(request)
        degraded.update(problems)
        asked[question.id] = Asked(lists, facts)
        if progress:
            progress("queries", done, len(questions))
    return asked, dict(degraded)


def _score(dataset: Dataset, asked: Mapping[str, Asked | LookupPool], how: Any) -> dict[str, float]:
    ranked = {q.id: asked[q.id].rank(how) for q in dataset.queries}
    return metrics.per_query(dataset.qrels, ranked, measures=[HEADLINE])[HEADLINE]


# ---------------------------------------------------------------------- choose


class Trial(NamedTuple):
    how: Fusion
    folds: tuple[float, ...]
    """nDCG@10 of each."""

    @property
    def mean(self) -> float:
        return fmean(self.folds)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen, and how it came about."""

    chosen: Fusion
    config: Config
    """The settings in force, which it has to beat."""
    trials: tuple[Trial, ...]
    unseen: tuple[float, ...]
    """Per fold, nDCG@10 of what the other folds would have chosen."""
    queries: tuple[Question, ...]
    """No figure may be reported on these."""

    @property
    def default(self) -> Fusion:
        return Fusion.of(self.config)

    def trial(self, how: Fusion) -> Trial:
        return next(trial for trial in self.trials if trial.how == how)


def tune(
    dataset: Dataset,
    asked: Mapping[str, Asked],
    config: Config | None = None,
    *,
    among: Sequence[Fusion] | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """The configuration with the best mean over the folds; of equals, the simplest. `config` are
    the settings that the queries were asked under."""
    config = config or Config()
    among = grid(config) if among is None else among
    among = sorted({Fusion.of(config), *among}, key=lambda how: how.oddity(config))
    check_enough(dataset.queries)
    ids = sorted((q.id for q in dataset.queries), key=lambda name: (hash_id(name), name))
    folds = [ids[i::FOLDS] for i in range(FOLDS)]
    trials = []
    for done, how in enumerate(among, 1):
        scores = _score(dataset, asked, how)
        trials.append(Trial(how, tuple(fmean(scores[name] for name in fold) for fold in folds)))
        if progress:
            progress("configurations", done, len(among))
    rest = [[i for i in range(FOLDS) if i != left_out] for left_out in range(FOLDS)]
    unseen = [_best(trials, others).folds[i] for i, others in enumerate(rest)]
    chosen = _best(trials, range(FOLDS)).how
    ranked = sorted(trials, key=lambda trial: (-trial.mean, trial.how.oddity(config)))
    return Tuned(chosen, config, tuple(ranked), tuple(unseen), dataset.queries)


def _best(trials: Sequence[Trial], folds: Sequence[int]) -> Trial:
    """The first of those that are as good as the best, as they come by simplicity."""
    means = [fmean(trial.folds[i] for i in folds) for trial in trials]
    enough = max(means) - TIE
    return next(t for t, mean in zip(trials, means, strict=True) if mean >= enough)


# ---------------------------------------------------------------------- report


def compare(tuned: Tuned, dataset: Dataset, asked: Mapping[str, Asked]) -> dict[str, Any]:
    """The default and the chosen one on queries that were not tuned on; any other is refused."""
    if both := identify(tuned.queries) & identify(dataset.queries):
        raise InputError(
            f"{len(both)} ids or texts were tuned on, {min(both)[1]!r} for one: figures on them "
            "would flatter, report on other queries"
        )
    figures: dict[str, Any] = {"queries": len(dataset.queries)}
    values: dict[str, list[float]] = {}
    for name, how in (("default", tuned.default), ("chosen", tuned.chosen)):
        scores = _score(dataset, asked, how)
        values[name] = [scores[q.id] for q in dataset.queries]
        figures[name] = {
            HEADLINE: round(metrics.mean(values[name]), 4),
            "ci95": metrics.round_interval(values[name]),
        }
    return {**figures, **_measure_gain(values["chosen"], values["default"])}


def _measure_gain(chosen: Sequence[float], default: Sequence[float]) -> dict[str, Any]:
    gap, p = metrics.difference(chosen, default)
    better = gap > 0 and p < SIGNIFICANT
    return {"difference": round(gap, 4), "p": round(p, 4), "better": better}


def write_fragment(name: str, tuned: Tuned, figures: Mapping[str, Any]) -> str:
    """Lines for clew.toml: what differs from the default, if it was better where it counts. Each is
    of one line: a table of its own would take in what is written below it."""
    default = f'fusion = "{tuned.default.strategy}"'
    if tuned.chosen == tuned.default:
        return f"# clew tune {name}: nothing did better than the default.\n{default}\n"
    settings = tuned.chosen.settings(tuned.config)
    if weights := settings.get("weights"):
        settings["weights"] = f"{{ {', '.join(f'{key} = {of!r}' for key, of in weights.items())} }}"
    if "fusion" in settings:
        settings["fusion"] = f'"{settings["fusion"]}"'
    written = [f"{key} = {value}" for key, value in settings.items()]
    found, usual = (figures[which][HEADLINE] for which in ("chosen", "default"))
    said = [
        f"# clew tune {name}: nDCG@10 on {figures['queries']} queries it was not tuned on: "
        f"{found:.4f},",
        f"# the default {usual:.4f}, p = {figures['p']:.4f}.",
    ]
    if figures["better"]:
        return "\n".join([*said, *written, ""])
    instead = "; ".join(written)
    said.append(f"# No significant gain, so this is the default. Chosen was: {instead}")
    return "\n".join([*said, default, ""])


def tune_collection(
    engine: Engine, parts: Halves, *, progress: Progress | None = None
) -> dict[str, Any]:
    """All of it, for the settings of `engine`: what is chosen on the one half, what that is worth
    on the other, and the lines for clew.toml."""
    asked, late = ask(engine, parts.train.queries, progress=progress)
    tuned = tune(parts.train, asked, engine.config, progress=progress)
    asked, later = ask(engine, parts.test.queries, progress=progress)
    pools, unseen = (
        ask_lookups(engine, half.queries, progress=progress) for half in (parts.train, parts.test)
    )
    figures = compare(tuned, parts.test, asked)
    lookups = tune_lookups(parts.train, pools, parts.test, unseen)
    usual = tuned.trial(tuned.default)
    shown = {trial.how: trial for trial in tuned.trials[:SHOWN_TRIALS]}
    shown |= {how: tuned.trial(how) for how in (tuned.chosen, tuned.default)}
    trials = [
        {
            "fusion": trial.how.strategy,
            "weights": trial.how.weights,
            "rrf_k": trial.how.k if trial.how.strategy in RECIPROCAL else None,
            HEADLINE: round(trial.mean, 4),
            "folds": [round(fold, 4) for fold in trial.folds],
            "spread": round(stdev(trial.folds), 4),
            "gain": round(trial.mean - usual.mean, 4),
            "gain_spread": round(stdev(map(sub, trial.folds, usual.folds)), 4),
            "chosen": trial.how == tuned.chosen,
            "default": trial.how == tuned.default,
        }
        for trial in sorted(shown.values(), key=lambda trial: -trial.mean)
    ]
    crossed = {"chosen": fmean(tuned.unseen), "default": usual.mean}
    problems = Counter(late) + Counter(later)
    return {
        "dataset": parts.test.name,
        "model": engine.config.model,
        "store": str(engine.root),
        "train": {"split": parts.train.split, "queries": len(parts.train.queries)},
        "test": {"split": parts.test.split, "queries": len(parts.test.queries)},
        "configurations": len(tuned.trials),
        "trials": trials,
        "cross_validation": {name: round(mean, 4) for name, mean in crossed.items()},
        "chosen_is_default": tuned.chosen == tuned.default,
        "held_out": figures,
        "settings": tuned.chosen.settings(tuned.config) if figures["better"] else {},
        "toml": write_fragment(parts.test.name, tuned, figures) + write_lookup_fragment(lookups),
        "lookup": lookups,
        "notes": [*parts.notes, *(f"{what} ({count} queries)" for what, count in problems.items())],
    }


# ---------------------------------------------------------------------- lookups


class LookupPool(NamedTuple):
    """What was found for one query, with its components."""

    ids: tuple[str, ...]
    components: Mapping[str, tuple[float, ...]]

    def rank(self, share: float) -> list[str]:
        scores = hybrid(self.components, weights=weigh_lookup(share))
        return ordered(self.ids, scores, self.ids)[:SHOWN]


def weigh_lookup(share: float) -> dict[str, float]:
    """Weights by which meaning has this share of what it and words have together."""
    rest = 1 - WEIGHTS["credibility"]
    near = round(rest * share, 4)
    return {**WEIGHTS, "bm25": round(rest - near, 4), "semantic": near}


def ask_lookups(
    engine: Engine, questions: Sequence[Question], *, progress: Progress | None = None
) -> dict[str, LookupPool]:
    """The pool of each query, looked up within its scope."""
    pools: dict[str, LookupPool] = {}
    with ExitStack() as stack:
        searches: dict[str | None, Search] = {}
        for done, question in enumerate(questions, 1):
            scope = question.scope
            if scope not in searches:
                within = None if scope is None else {"collection": scope}
                made = Search(engine, filter=within, cache=False, embed=0, deadline=PATIENCE)
                searches[scope] = stack.enter_context(made)
            found = searches[scope].pool(question.text)
            names = [name for name in WEIGHTS if all(name in hit.signals for hit in found)]
            pools[question.id] = LookupPool(
                tuple(hit.id for hit in found),
                {name: tuple(hit.signals[name]["score"] for hit in found) for name in names},
            )
            if progress:
                progress("lookups", done, len(questions))
    return pools


def tune_lookups(
    train: Dataset,
    asked: Mapping[str, LookupPool],
    test: Dataset,
    unseen: Mapping[str, LookupPool],
) -> dict[str, Any]:
    """The share of meaning that is best on the training queries (of equals, the nearest to the
    default), and what it and the default are worth on the others."""
    shares = {*MEANING_SHARES, MEANING_DEFAULT}
    means = {share: fmean(_score(train, asked, share).values()) for share in shares}
    enough = max(means.values()) - TIE
    good = [share for share, mean in means.items() if mean >= enough]
    chosen = min(good, key=lambda share: (abs(share - MEANING_DEFAULT), share))
    values, usual = (
        list(_score(test, unseen, share).values()) for share in (chosen, MEANING_DEFAULT)
    )
    return {
        "weights": weigh_lookup(chosen),
        "default": {"weights": dict(WEIGHTS), HEADLINE: round(fmean(usual), 4)},
        "chosen": {"weights": weigh_lookup(chosen), HEADLINE: round(fmean(values), 4)},
        **_measure_gain(values, usual),
    }


def write_lookup_fragment(found: Mapping[str, Any]) -> str:
    """A line for clew.toml: a table of its own would take in what is written below it."""
    chosen, usual = (found[which][HEADLINE] for which in ("chosen", "default"))
    shares = ", ".join(f"{name} = {weight:g}" for name, weight in found["weights"].items())
    said = f"# Lookups: nDCG@10 {chosen:.4f}, the default {usual:.4f}, p = {found['p']:.4f}."
    if found["better"]:
        return f"{said}\nlookup = {{ weights = {{ {shares} }} }}\n"
    return f"{said}\n# No significant gain, so they stay. Chosen was: {shares}\n"
