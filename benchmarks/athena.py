"""The athena profile beside the default one, and searching while vectors are being made.

    python benchmarks/athena.py --every 4 --out docs/benchmarks/athena.md

**Layout**: the 1,105 pages of k8s_docs in six collections of Athena's folders, page i of the sorted
ids in collection i mod 6 (case_study, session, protocol, user_profile, framework, reference), with
a CANONICAL.md of twelve lines about the same subjects. The same store is asked with the default
profile and with athena's; so are questions that nothing in it answers (of other sets, and without
any sense), and the lines of CANONICAL.md, word for word.

**While vectors are being made**: a set's passages get their vectors bit by bit, the first of every
record before the second of any, as `clew index` makes them; at each step the queries are asked as a
search is made, and by words alone.

Stores are those of `clew eval` (made if need be; kept in the user's cache folder), and are copied.
--every N takes each Nth query of k8s_docs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from answerless import PATIENT, opened
from clew.engine import Engine
from clew.eval import datasets, metrics
from clew.eval.datasets import Dataset, Question
from clew.filter import EVERYTHING
from clew.storage import FOLDER
from clew.types import Vector

from report import Table, figure, options, publish, say

FOLDERS = {
    "case_study": ".context/case_studies/",
    "session": ".context/sessions/",
    "protocol": ".agent/skills/protocols/",
    "user_profile": ".context/user_profile/",
    "framework": ".framework/",
    "reference": ".context/references/",
}
CANONICAL = """\
The kubelet runs on every node and starts the containers of its pods.
A Service gives a set of pods one stable address.
We never store secrets in a ConfigMap.
Horizontal pod autoscaling is set to a target of 60 percent CPU.
etcd holds the state of the cluster and is backed up nightly.
Ingress rules route traffic from outside to Services.
A DaemonSet runs one copy of a pod on each node.
The staging cluster is named Heron and has six worker nodes.
kubectl drain evicts pods before a node is taken down.
Network policies deny all traffic between namespaces by default.
Nobody deploys to production on a Friday afternoon.
Liveness probes restart a container that hangs.
"""
NONSENSE = (
    "colourless green ideas sleep furiously",
    "purple monkeys dishwasher tango",
    "velvet orchard pirate sermon glacier",
    "blorp fnord wibble",
    "the soup was signed by a violin of Tuesday",
    "quantum chromodynamics",
    "how do I bake sourdough bread",
    "symptoms of vitamin D deficiency",
    "lyrics of a sea shanty",
    "medieval sword fighting techniques",
)
ELSEWHERE = {"nq_utd": 40, "medline1033": 30}
"""Sets whose questions nothing in k8s_docs answers, and how many of them are asked."""
SHARES = (0.0, 0.12, 0.25, 0.5, 0.73, 0.9, 1.0)
SETS = ("k8s_docs", "nq_utd", "cisi")
WITHIN = 0.02


def thinned(dataset: Dataset, every: int) -> Dataset:
    some = dataset.queries[::every]
    return replace(dataset, queries=some, qrels={q.id: dataset.qrels[q.id] for q in some})


def embedded(engine: Engine, questions: Iterable[Question]) -> dict[str, Vector]:
    return {q.id: engine.embed_query(q.text) for q in questions}


def ndcg(
    engine: Engine, dataset: Dataset, vectors: Mapping[str, Vector], **asked: Any
) -> list[float]:
    """Of each query."""
    ranked = {
        q.id: [
            hit.id
            for hit in engine.search(
                q.text,
                vector=vectors[q.id],
                syntax=False,
                snippets=False,
                group_by="record",
                **asked,
            )
        ]
        for q in dataset.queries
    }
    found = metrics.per_query(dataset.qrels, ranked, measures=["ndcg@10"])["ndcg@10"]
    return [found[q.id] for q in dataset.queries]


# ---------------------------------------------------------------------- the layout


def laid_out(dataset: Dataset, work: Path) -> None:
    """A copy of the set's index whose pages lie in six collections; no vector is made anew."""
    with opened(dataset, None) as ready:
        root = ready.root or Path()
    shutil.copytree(root / FOLDER, work / FOLDER)
    names = list(FOLDERS)
    pages = sorted(dataset.records or (), key=lambda record: record.id)
    (work / "CANONICAL.md").write_text(f"# What holds here\n\n{CANONICAL}", "utf-8")
    with clew.open(work, profile="athena", **PATIENT) as engine:
        engine.add(
            replace(page, collection=name, path=f"{FOLDERS[name]}{page.id}.md")
            for i, page in enumerate(pages)
            for name in (names[i % len(names)],)
        )
        engine.index([work])


def layout(work: Path, dataset: Dataset, data: Path) -> tuple[Table, dict[str, Any]]:
    strange = [*NONSENSE]
    for name, most in ELSEWHERE.items():
        strange += [q.text for q in datasets.read(data / name).queries[:most]]
    lines = CANONICAL.splitlines()
    rows: list[tuple[Any, ...]] = []
    numbers: dict[str, Any] = {}
    for profile in ("default", "athena"):
        with clew.open(work, create=False, profile=profile, **PATIENT) as engine:
            vectors = embedded(engine, dataset.queries)
            score = metrics.mean(ndcg(engine, dataset, vectors))
            relevant = _high(engine, [q.text for q in dataset.queries[::5]])
            off = _high(engine, strange)
            ranks = [_rank(engine, line) for line in lines]
        numbers[profile] = {"ndcg@10": round(score, 4), "high": relevant, "off": off}
        numbers[profile]["canonical first"] = sum(rank == 1 for rank in ranks)
        first = f"{sum(rank == 1 for rank in ranks)} of {len(ranks)}"
        rows.append((profile, f"{score:.4f}", f"{relevant:.0%}", f"{off:.0%}", first))
        say(f"{profile}: {score:.4f}")
    columns = ("profile", "nDCG@10", "HIGH, its queries", "HIGH, others'", "lines first")
    note = (
        f"{len(dataset.queries)} queries. HIGH: of all hits shown. Others': {len(strange)} "
        "questions that nothing here answers. Lines: of CANONICAL.md, asked word for word."
    )
    return Table("k8s_docs in six collections", columns, rows, note), numbers


def _high(engine: Engine, texts: Sequence[str]) -> float:
    marks = [hit.confidence for text in texts for hit in engine.search(text, syntax=False)]
    return round(marks.count("HIGH") / max(1, len(marks)), 4)


def _rank(engine: Engine, line: str) -> int | None:
    paths = [hit.path for hit in engine.search(line, syntax=False)]
    return paths.index("CANONICAL.md") + 1 if "CANONICAL.md" in paths else None


# ---------------------------------------------------------------------- while vectors are made


def growing(dataset: Dataset, work: Path | None) -> tuple[float, list[float]]:
    """nDCG@10 by words alone, and of a search at each step."""
    with opened(dataset, None) as ready:
        vectors = embedded(ready, dataset.queries)
        whole = {(name, place): held.vector for name, place, held in _passages(ready)}
        model = ready.model
    scores: list[float] = []
    with TemporaryDirectory(dir=work) as folder, clew.open(folder, **PATIENT) as engine:
        engine.add(dataset.records or ())
        passages = _passages(engine)
        passages.sort(key=lambda p: (p[1], p[2].chunk.end - p[2].chunk.start))
        words = metrics.mean(ndcg(engine, dataset, vectors, mode="keyword"))
        done = 0
        for share in SHARES:
            some = passages[done : round(share * len(passages))]
            done += len(some)
            if some:
                numbers = [held.number for _, _, held in some]
                made = np.stack([whole[name, place] for name, place, _ in some])
                engine.store.vectors.set(numbers, made, model=model)
                engine.store.indexes.refresh()
                engine.store.indexes.prepare(model)
            scores.append(metrics.mean(ndcg(engine, dataset, vectors)))
    say(f"{dataset.name}: {words:.4f} | {' '.join(f'{score:.4f}' for score in scores)}")
    return words, scores


def _passages(engine: Engine) -> list[tuple[str, int, Any]]:
    """(record, place in it, chunk) of all, by record."""
    records = engine.store.select(EVERYTHING, limit=10_000_000)
    held = engine.store.vectors.chunks([record.id for record in records])
    return [(name, i, one) for name in sorted(held) for i, one in enumerate(held[name])]


# ---------------------------------------------------------------------- tables


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--every", type=int, default=1, help="each Nth query of k8s_docs")
    parser.add_argument("--sets", default=" ".join(SETS), help="that are embedded bit by bit")
    arguments = parser.parse_args()
    metrics.require("ir_measures")
    pages = datasets.read(arguments.data / "k8s_docs")
    some = thinned(pages, arguments.every)
    with TemporaryDirectory(dir=arguments.work) as folder:
        laid_out(pages, Path(folder))
        profiles, numbers = layout(Path(folder), some, arguments.data)
    athena, usual = numbers["athena"], numbers["default"]
    gap, first = athena["ndcg@10"] - usual["ndcg@10"], athena["canonical first"]
    lines = len(CANONICAL.splitlines())
    figures = [
        figure("athena − default, nDCG@10", f"{gap:+.4f}", "≥ -0.02", gap >= -WITHIN),
        figure("HIGH where nothing answers", f"{athena['off']:.0%}", "< 10 %", athena["off"] < 0.1),
        figure("lines of CANONICAL.md first", f"{first} of {lines}", "all", first == lines),
    ]
    grown = {
        name: growing(
            some if name == "k8s_docs" else datasets.read(arguments.data / name), arguments.work
        )
        for name in arguments.sets.split()
    }
    if grown:
        least = min(min(scores) - words for words, scores in grown.values())
        figures.append(figure("hybrid − words alone, at least", f"{least:+.4f}", "≥ 0", least >= 0))
    rows = [
        (name, *(f"{score:.4f}" for score in (words, *scores)))
        for name, (words, scores) in grown.items()
    ]
    columns = ("set", "words alone", *(f"{share:.0%}" for share in SHARES))
    tables = [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        profiles,
        Table("nDCG@10 while vectors are being made", columns, rows),
    ]
    numbers |= {"embedding": grown}
    publish("The athena profile", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
