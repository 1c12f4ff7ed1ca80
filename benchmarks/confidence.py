"""Confidence: how often HIGH, MED and LOW are right, and what `--strict` keeps and drops.

    python benchmarks/confidence.py --out docs/benchmarks/confidence.md

The sets of benchmarks/quality.py, none of whose queries had a part in the fit of the coefficients
(confidence-fit.md), at most 150 queries of each, searched as anyone searches: default profile,
passages, ten hits. A hit is right if it was judged relevant; what nobody judged counts as wrong, so
the true shares are higher. Each query is asked twice, the second time as if its relevant documents
were not in the store: whatever is marked HIGH then is wrong. Off-topic questions are those of sets
about something else (benchmarks/answerless.py).

The sample folder is asked what benchmarks/sample_questions.toml and its own README have; that
README, which holds the words of each search, is left out. Two training sets stand beside it for
`--strict`; what a fit without them gives there is in confidence-fit.md.

`recall` and a search by meaning alone have a lower line, the setting `floor`. What it costs is
counted on the same answers: recall@10 with it and without, and what is left of the answers to
off-topic questions. longmemeval, chats to train on, is there for that; benchmarks/memory_locomo.py
has what `Memory.recall` itself gives.

Words alone and vectors alone are searches of that mode, a fifth as many. weighted_rrf has Athena's
thresholds on its score; what the chance says of the same hits stands beside it. With reranking the
badges are the same: only the order changes.

--stores names a folder with a ready store for each set, by the set's name; without it they are made
(half an hour, kept in the user's cache folder as those of `clew eval`).
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from answerless import PATIENT, SHOWN, Asked, ask, ask_off_topic, opened, really_without
from clew import config as settings
from clew.engine import Engine
from clew.eval import datasets
from clew.ranking.confidence import confidence
from clew.types import Mode, SearchResult
from quality import SETS

from report import REPOSITORY, Table, figure, options, publish, say

MOST = 150
BADGES = ("HIGH", "MED", "LOW")
TRAINING = ("cisi", "medline1033", "longmemeval")
"""Training sets that are shown beside the others for `--strict` and for the floor."""
PROMISED = ("scifact", "k8s_docs")
"""The sets whose HIGH hits are promised."""
RIGHT, UNANSWERED = 0.7, 0.1
"""How often HIGH is right there at least, and how often a query with no relevant document gets it
at most."""
STRICT = ("sample", "k8s_docs", "cisi", "medline1033")
KEPT, DROPPED = 0.95, 0.9
"""What `--strict` keeps of right first hits, and drops of answers to off-topic questions."""
REMOVED = 25
"""Queries of each promised set for which records are really taken out."""


@dataclass(frozen=True, slots=True)
class Answers:
    asked: Sequence[Asked]
    off_topic: Sequence[SearchResult]


Badges = Callable[[SearchResult], list[str]]


def shown(found: SearchResult) -> list[str]:
    return [hit.confidence or "" for hit in found]


def by_chance(found: SearchResult) -> list[str]:
    """Whatever decides."""
    profile = settings.profile("default")
    high, med = profile["confidence_high"], profile["confidence_med"]
    return [confidence(hit.chance or 0.0, high=high, med=med) for hit in found]


# ---------------------------------------------------------------------- the sample


def sample_questions() -> tuple[dict[str, list[str]], list[str]]:
    """Searches with the files that answer them, and off-topic ones."""
    text = Path(__file__).with_name("sample_questions.toml").read_text("utf-8")
    written = tomllib.loads(text)
    about: dict[str, list[str]] = dict(written["about"])
    for line in (REPOSITORY / "sample" / "README.md").read_text("utf-8").splitlines():
        if row := re.fullmatch(r"\| (.+?) \| (\S+\.\w+) \|", line):
            about.setdefault(row[1], [row[2]])
    return about, written["off_topic"]["questions"]


def ask_sample(work: Path | None, **chosen: Any) -> Answers:
    """What is found with these settings."""
    about, off_topic = sample_questions()
    with TemporaryDirectory(dir=work) as home:
        folder = Path(home) / "sample"
        ignored = shutil.ignore_patterns(".clew", "README.md")
        shutil.copytree(REPOSITORY / "sample", folder, ignore=ignored)
        with clew.open(folder, **PATIENT, **chosen) as engine:
            engine.index()

            def find(text: str) -> SearchResult:
                return engine.search(text, limit=SHOWN, syntax=False, group_by="record")

            asked = [
                Asked(frozenset(f"sample:{file}" for file in files), find(text), SearchResult())
                for text, files in about.items()
            ]
            found = [find(text) for text in off_topic]
    say(f"sample: {len(asked)} searches")
    return Answers(asked, found)


# ---------------------------------------------------------------------- figures


def shares(
    asked: Sequence[Asked], badges: Badges = shown, *, first: int = SHOWN
) -> dict[str, tuple[int, float]]:
    """Per badge: hits of answerable queries, and the share of them that is relevant."""
    right: dict[str, list[bool]] = {badge: [] for badge in BADGES}
    for each in asked:
        for hit, badge in list(zip(each.whole, badges(each.whole), strict=True))[:first]:
            right[badge].append(hit.id in each.relevant)
    return {badge: (len(of), sum(of) / len(of) if of else 0.0) for badge, of in right.items()}


def reached(results: Sequence[SearchResult], badges: Badges = shown) -> dict[str, float]:
    """Per badge: the share of queries whose best hit has it."""
    best = [
        min((BADGES.index(badge) for badge in badges(found)), default=len(BADGES) - 1)
        for found in results
    ]
    return {badge: best.count(i) / len(best) for i, badge in enumerate(BADGES)}


def kept(asked: Sequence[Asked], badges: Badges = shown) -> tuple[int, int]:
    """Right first hits that are not LOW, of how many."""
    right = [badges(e.whole)[0] for e in asked if e.whole and e.whole[0].id in e.relevant]
    return len(right) - right.count("LOW"), len(right)


def dropped(off_topic: Sequence[SearchResult], badges: Badges = shown) -> tuple[int, int]:
    """Answers to off-topic questions that are LOW, of how many."""
    found = [badge for each in off_topic for badge in badges(each)]
    return found.count("LOW"), len(found)


def promises(sets: Mapping[str, Answers]) -> Table:
    rows = []
    for name in STRICT:
        if name not in sets:
            continue
        left, of = kept(sets[name].asked)
        gone, answers = dropped(sets[name].off_topic)
        rows += [
            figure(
                f"right first hits on {name} that `--strict` keeps",
                f"{left / of:.1%} of {of}",
                f"≥ {KEPT:.0%}",
                left >= KEPT * of,
            ),
            figure(
                f"answers to off-topic questions on {name} that it drops",
                f"{gone / answers:.1%} of {answers}",
                f"≥ {DROPPED:.0%}",
                gone >= DROPPED * answers,
            ),
        ]
    for name in PROMISED:
        if name not in sets:
            continue
        count, right = shares(sets[name].asked)["HIGH"]
        high = reached([each.bare for each in sets[name].asked])["HIGH"]
        rows += [
            figure(
                f"HIGH hits on {name} that are relevant",
                f"{right:.1%} of {count}",
                f"≥ {RIGHT:.0%}",
                right >= RIGHT,
            ),
            figure(
                f"queries on {name} with nothing relevant that get a HIGH",
                f"{high:.1%} of {len(sets[name].asked)}",
                f"≤ {UNANSWERED:.0%}",
                high <= UNANSWERED,
            ),
        ]
    return Table("Figures", ("figure", "measured", "wanted", "holds"), rows)


def strict(sets: Mapping[str, Answers]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, answers in sets.items():
        left, of = kept(answers.asked)
        cells: list[Any] = [f"{left / of:.3f} of {of}"]
        if answers.off_topic:
            gone, count = dropped(answers.off_topic)
            silent = reached(answers.off_topic)["LOW"]
            cells += [f"{gone / count:.3f} of {count}", f"{silent:.3f} of {len(answers.off_topic)}"]
        rows.append((name, *cells, *["–"] * (3 - len(cells))))
    title = "What `--strict` keeps and drops"
    columns = ("set", "right first hits kept", "off-topic answers dropped", "questions left silent")
    return Table(title, columns, rows, _NOTES[title])


def right_by_badge(title: str, sets: Mapping[str, Answers], *, first: int) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, answers in sets.items():
        by = shares(answers.asked, first=first).values()
        cells = [f"{share:.2f} of {count:,}" for count, share in by]
        rows.append((name, len(answers.asked), *cells))
    return Table(title, ("set", "queries", *BADGES), rows, _NOTES.get(title, ""))


def best_by_badge(sets: Mapping[str, Answers]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, answers in sets.items():
        there = reached([each.whole for each in answers.asked])
        gone = reached([each.bare for each in answers.asked])
        rows.append((name, *(f"{of[badge]:.2f}" for of in (there, gone) for badge in BADGES)))
    columns = ("set", *BADGES, *(f"{badge} without" for badge in BADGES))
    title = "The best badge that a query gets"
    return Table(title, columns, rows, _NOTES[title])


def legs(sets: Mapping[str, Mapping[Mode, Answers]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, by in sets.items():
        cells = []
        for answers in by.values():
            count, right = shares(answers.asked)["HIGH"]
            without = reached([each.bare for each in answers.asked])["HIGH"]
            left, of = kept(answers.asked)
            gone, off = dropped(answers.off_topic)
            cells += [
                f"{right:.2f} of {count:,}" if count else "–",
                f"{without:.2f}",
                f"{left / of:.2f}" if of else "–",
                f"{gone / off:.2f}" if off else "–",
            ]
        rows.append((name, *cells))
    each = ("without", "kept", "dropped")
    title = "Words alone, vectors alone"
    columns = ("set", "HIGH by words", *each, "HIGH by vectors", *each)
    return Table(title, columns, rows, _NOTES[title])


def floored(sets: Mapping[str, Answers]) -> Table:
    floor = settings.Config().floor
    rows: list[tuple[Any, ...]] = []
    for name, answers in sets.items():
        recalls = [
            sum(
                len(e.relevant.intersection(h.id for h in e.whole if (h.chance or 0) >= least))
                / len(e.relevant)
                for e in answers.asked
            )
            / len(answers.asked)
            for least in (0.0, floor)
        ]
        cells = [f"{recall:.4f}" for recall in recalls]
        if answers.off_topic:
            left = [sum((h.chance or 0) >= floor for h in found) for found in answers.off_topic]
            cells += [f"{sum(left) / len(left):.2f}", f"{left.count(0) / len(left):.2f}"]
        rows.append((name, *cells, *["–"] * (4 - len(cells))))
    title = "The floor"
    columns = ("set", "recall@10 without", "with", "off-topic answers left", "questions silent")
    return Table(title, columns, rows, _NOTES[title].format(floor))


def as_athena(sets: Mapping[str, Answers]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, answers in sets.items():
        for by, badges in (("score", shown), ("chance", by_chance)):
            cells = [f"{share:.2f} of {n:,}" for n, share in shares(answers.asked, badges).values()]
            without = reached([each.bare for each in answers.asked], badges)["HIGH"]
            off = reached(answers.off_topic, badges)["HIGH"]
            rows.append((name, by, *cells, f"{without:.2f}", f"{off:.2f}"))
    title = "weighted_rrf: Athena's thresholds, and the chance"
    columns = ("set", "by", *BADGES, "HIGH without", "HIGH off-topic")
    return Table(title, columns, rows, _NOTES[title])


def removed(engine: Engine, dataset: datasets.Dataset, work: Path | None) -> tuple[Any, ...]:
    """Whether passing over the relevant records comes to the same as taking them out."""
    step = max(1, len(dataset.queries) // REMOVED)
    few = replace(dataset, queries=dataset.queries[::step][:REMOVED])
    over = [each.bare for each in ask(engine, few)]
    pairs = list(zip(over, really_without(engine, few, list(few.queries), work), strict=True))
    same = sum([h.id for h in over] == [h.id for h in out] for over, out in pairs)
    badges = sum(shown(over) == shown(out) for over, out in pairs)
    both = [
        (hit.chance or 0.0, again.chance or 0.0)
        for over, out in pairs
        for hit, again in _both(over, out)
    ]
    say(f"{dataset.name}: {len(pairs)} queries with their records taken out")
    most = max(abs(one - other) for one, other in both)
    return (dataset.name, len(pairs), same, badges, f"{most:.3f}")


def _both(over: SearchResult, out: SearchResult) -> Iterator[tuple[Any, Any]]:
    again = {hit.id: hit for hit in out}
    return ((hit, again[hit.id]) for hit in over if hit.id in again)


_NOTES = {
    "What `--strict` keeps and drops": "`Silent` are off-topic questions of which nothing is left.",
    "All ten hits": "Share that is relevant, of how many. On cranfield the surest hits are "
    "unjudged papers whose titles all but repeat the question: those that it was made from, by the "
    "look of them.",
    "The best badge that a query gets": "Shares of queries; `without`: of the same queries with "
    "their relevant documents gone.",
    "Words alone, vectors alone": "HIGH hits that are relevant, of how many; `without`: the share "
    "of queries that get one although nothing is relevant; right first hits that `--strict` keeps, "
    "and answers to off-topic questions that it drops.",
    "The floor": "Nothing that has a chance below {}. Of ten answers to each off-topic question, "
    "how many are left, and of how many questions none is.",
    "weighted_rrf: Athena's thresholds, and the chance": "Two sources (keyword, vectors) of weight "
    "1. HIGH from 0.03, MED from 0.02 on: the first ranks of both lists pass, whatever they hold. "
    "The chance is in the trace all the same.",
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    parser.add_argument("--sets", help=f"with commas (default: {','.join((*SETS, *TRAINING))})")
    parser.add_argument("--most", type=int, default=MOST, help=f"queries of a set ({MOST})")
    arguments = parser.parse_args()
    sets: dict[str, Answers] = {"sample": ask_sample(arguments.work)}
    alone: dict[str, dict[Mode, Answers]] = {}
    athena: dict[str, Answers] = {}
    out: list[tuple[Any, ...]] = []
    for name in arguments.sets.split(",") if arguments.sets else (*SETS, *TRAINING):
        dataset = datasets.read(arguments.data / name)
        with opened(dataset, arguments.stores) as engine:
            asked = ask(engine, dataset, most=arguments.most)
            sets[name] = Answers(asked, ask_off_topic(engine, dataset))
            if name in TRAINING:
                continue
            alone[name] = {
                mode: Answers(
                    ask(engine, dataset, most=arguments.most // 5, mode=mode),
                    ask_off_topic(engine, dataset, mode=mode),
                )
                for mode in ("keyword", "vector")
            }
            if name in PROMISED:
                athena[name] = Answers(
                    ask(engine, dataset, most=arguments.most, fusion="weighted_rrf"),
                    ask_off_topic(engine, dataset, fusion="weighted_rrf"),
                )
                out.append(removed(engine, dataset, arguments.work))
    twice = {name: of for name, of in sets.items() if name not in ("sample", *TRAINING)}
    columns = ("set", "queries", "same ten hits", "same badges", "largest difference of a chance")
    tables = [
        promises(sets),
        strict(sets),
        right_by_badge("All ten hits", sets, first=SHOWN),
        right_by_badge("The first hit alone", sets, first=1),
        best_by_badge(twice),
        floored(sets),
        legs(alone),
        as_athena(athena),
        Table("Records passed over, against records taken out", columns, out),
    ]
    numbers = {
        name: {"shares": shares(of.asked), "kept": kept(of.asked), "dropped": dropped(of.off_topic)}
        for name, of in sets.items()
    }
    publish("Confidence", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
