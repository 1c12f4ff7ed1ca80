"""A record is not a file: rows of a mailbox as hits, passages of long pages, who is embedded first.

    python benchmarks/promises_records.py --out docs/benchmarks/promises-records.md

The mailbox is a CSV of 3,000 messages (turns of LoCoMo's conversations, with date and speaker),
indexed as anyone would; its questions are those of LoCoMo whose answer is in one of these turns.
Passages and the order of embedding are those of k8s_docs in its own index (kept in the user's cache
folder as by `clew eval`). Before rows were records, any search in the mailbox gave one hit, the
file; before passages were hits, a page was one; and the shortest passages were embedded first.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import clew
from clew.engine import Engine
from clew.eval import datasets, harness, metrics

from report import Table, figure, options, publish, say

__all__: list[str] = []

MESSAGES = 3_000
SHOWN = 10


def mailbox(data: Path, work: Path | None) -> list[tuple[Any, ...]]:
    dataset = datasets.read(data / "locomo")
    turns = list(dataset.records or ())[:MESSAGES]
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        with (folder / "inbox.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Message-ID", "Date", "From", "Conversation", "Body"])
            for turn in turns:
                said = turn.metadata
                day = datetime.strptime(said["date"], "%I:%M %p on %d %B, %Y").isoformat()
                speaker, _, words = turn.content.partition(": ")
                writer.writerow([turn.id, day, speaker, turn.collection, words])
        with clew.open(folder) as engine:
            report = engine.index()
            say(f"mailbox: {report.rows:,} rows, {report.embedded:,} passages embedded")
            return _asked(engine, dataset, {turn.id for turn in turns}, turns)


def _asked(
    engine: Engine, dataset: datasets.Dataset, there: set[str], turns: Sequence[clew.Record]
) -> list[tuple[Any, ...]]:
    hits = right = asked = 0
    for question in dataset.queries:
        wanted = {name for name, grade in dataset.qrels[question.id].items() if grade > 0}
        if not wanted or not wanted <= there:
            continue
        found = engine.search(
            question.text, filter={"metadata": {"Conversation": question.scope}}, syntax=False
        )
        asked += 1
        hits += len(found)
        right += any(hit.id.rpartition("#")[2] in wanted for hit in found)
    days = sorted(
        datetime.strptime(t.metadata["date"], "%I:%M %p on %d %B, %Y").timestamp() for t in turns
    )
    middle = days[len(days) // 2]
    dated = engine.store.select(clew.Filter(type="table", after=middle), limit=10 * MESSAGES)
    after = sum("#" in record.id for record in dated)  # without the file itself, which is new
    true = sum(day >= middle for day in days)
    return [
        figure(
            "hits of a search in a mailbox of 3,000",
            f"{hits / asked:.1f}",
            "10",
            hits == 10 * asked,
        ),
        figure(
            f"questions ({asked:,}) whose message is among the first ten",
            f"{right / asked:.1%}",
            "0 % before",
            right > 0,
        ),
        figure(
            "messages found by `after:` the median date", f"{after:,}", f"{true:,}", after == true
        ),
    ]


def pages(data: Path) -> tuple[list[tuple[Any, ...]], Table]:
    dataset = datasets.read(data / "k8s_docs")
    engine, _ = harness.open_indexed(dataset)
    with engine:
        ranked: dict[str, dict[str, list[str]]] = {"record": {}, "passage": {}}
        several = 0
        for question in dataset.queries:
            for way, run in ranked.items():
                found = engine.search(
                    question.text,
                    limit=SHOWN,
                    group_by=way,
                    syntax=False,
                    cache=False,  # type: ignore[arg-type]
                )
                run[question.id] = list(dict.fromkeys(hit.id for hit in found))
                several += way == "passage" and len(run[question.id]) < len(found)
        scores = {
            way: metrics.mean(
                list(
                    metrics.per_query(dataset.qrels, run, measures=("ndcg@10",))["ndcg@10"].values()
                )
            )
            for way, run in ranked.items()
        }
        distinct = sum(map(len, ranked["passage"].values())) / len(dataset.queries)
        rows = [
            figure(
                "nDCG@10 of k8s_docs with passages as hits, records as hits",
                f"{scores['passage']:.4f}, {scores['record']:.4f}",
                "at most 0.001 less",
                scores["passage"] >= scores["record"] - 0.001,
            ),
            figure("different pages among ten hits", f"{distinct:.1f}", "most", distinct > 8),
            figure(
                "searches that show a second passage of a page",
                f"{several / len(dataset.queries):.0%}",
                "0 % before",
                several > 0,
            ),
        ]
        return rows, order(engine)


def order(engine: Engine) -> Table:
    """How many pages have a vector after a part of the embedding, by length of text."""
    chunks = engine.store.vectors.pending("nobody's")
    lengths = {cid: len(text) for cid, text in engine.store.vectors.texts(chunks)}
    ids = [record.id for record in engine.store.select(clew.Filter(), limit=10**6)]
    held = engine.store.vectors.chunks(ids)
    page = {each.number: name for name, several in held.items() for each in several}
    total = sum(lengths.values())
    rows = []
    for part in (0.05, 0.125, 0.25, 0.5):
        shares = []
        for listed in (sorted(chunks, key=lambda cid: lengths[cid]), chunks):
            spent, seen = 0, set()
            for cid in listed:
                if (spent := spent + lengths[cid]) > part * total:
                    break
                seen.add(page[cid])
            shares.append(len(seen) / len({*page.values()}))
        rows.append((f"{part:.1%}", *(f"{share:.1%}" for share in shares)))
    columns = (
        "of the text embedded",
        "pages with a vector: shortest first",
        "first of each file first",
    )
    return Table("While vectors are being made, k8s_docs", columns, rows)


def main() -> None:
    arguments = options(__doc__ or "").parse_args()
    rows = mailbox(arguments.data, arguments.work)
    more, table = pages(arguments.data)
    figures = Table("Figures", ("figure", "measured", "wanted", "holds"), [*rows, *more])
    publish("Records, rows and passages", __doc__ or "", [figures, table], {}, arguments)


if __name__ == "__main__":
    main()
