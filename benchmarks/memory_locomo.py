"""Memory on LoCoMo: how much of what was said in long conversations comes back.

    python benchmarks/memory_locomo.py --out docs/benchmarks/memory_locomo.md

Every turn of a conversation is a memory of its own, remembered with the speaker and the date that
stand in the collection; each conversation is a namespace. Every question is asked once by
`Memory.recall(question, k=10)` with the default model, and once with each leg alone. recall@k is
the share of the turns that hold the answer among the first k, as ir-measures counts it; a turn that
repeats another word for word is kept once, and counts as that one.

The file of memories is kept in benchmarks/.cache; making it embeds 5,882 turns (two minutes).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import clew
from clew.eval import datasets, metrics

from report import Table, figure, options, publish, say

CACHE = Path(__file__).with_name(".cache")
WANTED = 0.70
MEASURES = ("recall@1", "recall@5", "recall@10", "ndcg@10")
Ask = Callable[[str, str], list[str]]


def remembered(dataset: datasets.Dataset) -> tuple[clew.Memory, dict[str, str]]:
    """The memories, and under which id each turn is kept."""
    CACHE.mkdir(exist_ok=True)
    texts = json.dumps([(r.id, r.content) for r in dataset.records])
    name = hashlib.blake2b(texts.encode(), digest_size=6).hexdigest()
    memory = clew.Memory(CACHE / f"memory-locomo-{name}.db", threads=2)
    items = [
        {
            "id": record.id,
            "content": record.content,
            "type": "episodic",
            "namespace": record.collection,
            "created_at": when(str(record.metadata["date"])),
            "metadata": {"speaker": record.metadata["speaker"]},
        }
        for record in dataset.records
    ]

    def tell(stage: str, done: int, total: int) -> None:
        say(f"{stage}: {done} of {total}")

    made = memory.remember_many(items, progress=tell)
    if memory.reembed():  # what an interrupted run left
        say("embedded the rest")
    return memory, {r.id: m.id for r, m in zip(dataset.records, made, strict=True)}


def when(date: str) -> float:
    """`1:56 pm on 8 May, 2023`."""
    moment = dt.datetime.strptime(date, "%I:%M %p on %d %B, %Y")
    return moment.replace(tzinfo=dt.UTC).timestamp()


def main() -> None:
    parser = options(__doc__ or "")
    arguments = parser.parse_args()
    dataset = datasets.read(arguments.data / "locomo")
    memory, kept = remembered(dataset)
    ways: dict[str, Ask] = {
        "recall (words and meaning)": lambda q, ns: [
            m.id for m in memory.recall(q, k=10, namespace=ns, record_access=False)
        ],
        "plain reciprocal rank fusion": lambda q, ns: [
            m.id for m in memory.recall(q, k=10, namespace=ns, fusion="rrf", record_access=False)
        ],
        "words alone": lambda q, ns: [m.id for m in memory.fts_search(q, k=10, namespace=ns)],
    }
    qrels = {
        question: {kept[name]: grade for name, grade in relevant.items()}
        for question, relevant in dataset.qrels.items()
    }
    asked = [question for question in dataset.queries if question.id in qrels]
    scores: dict[str, dict[str, list[float]]] = {}
    for way, ask in ways.items():
        found = {q.id: ask(q.text, str(q.scope)) for q in asked}
        by = metrics.per_query(qrels, found, measures=MEASURES)
        scores[way] = {m: [by[m][q.id] for q in asked] for m in MEASURES}
        say(f"{way}: asked {len(asked)} questions")
    overall = [
        (way, *(metrics.mean(by[measure]) for measure in MEASURES)) for way, by in scores.items()
    ]
    best = scores["recall (words and meaning)"]
    categories = sorted({str(q.category) for q in asked})
    rows = []
    for category in categories:
        chosen = [i for i, q in enumerate(asked) if str(q.category) == category]
        means = (metrics.mean([best[m][i] for i in chosen]) for m in MEASURES)
        rows.append((category, len(chosen), *means))
    reached = metrics.mean(best["recall@10"])
    wanted = figure(
        f"recall@10 over {len(asked)} questions",
        f"{reached:.3f}",
        f"at least {WANTED}",
        reached >= WANTED,
    )
    publish(
        "Memory on LoCoMo",
        __doc__ or "",
        [
            Table("What was wanted", ("figure", "measured", "wanted", "holds"), [wanted]),
            Table("All questions", ("way", *MEASURES), overall),
            Table("`recall` by category", ("category", "questions", *MEASURES), rows),
        ],
        {"overall": overall, "categories": rows},
        arguments,
    )
    memory.close()


if __name__ == "__main__":
    main()
