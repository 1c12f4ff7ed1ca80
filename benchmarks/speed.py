"""Speed: Clew and its peers on the same records, the same vectors and the same queries.

    python benchmarks/speed.py --out docs/benchmarks/speed.md --plot docs/benchmarks/speed.png

Records are three real sentences each, with vectors made from bge-small's (corpus.py). One system
after the other loads them in a process and an environment of its own, used as its documentation
recommends (benchmarks/peers/), and answers the same queries with its ten best, each timed once by
the clock of its own process, after a warm-up with other queries. The query's vector is given, so
nobody embeds.

- hybrid: p50 and p95. A system without hybrid search is timed by what it has, and marked.
- recall: the vector leg's ten against the ten truly nearest, on the same timed queries. Where a
  system has a knob (LanceDB, FAISS), the cheapest setting that reaches 0.98 on the warm-up queries.
- load: until everything is searchable. Memory: resident, of the process that loaded and answered,
  after giving back what loading left. Disk: its index; none where a system lives in memory only.

A system that takes longer than --patience seconds to load is stopped and reported as such; one that
takes longer to answer is timed on the queries it managed, and the note says how many.

A quick look:

    python benchmarks/speed.py --records 10000 --peers bm25s,fts5
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from floor import exact, recall
from systems import CLEW, Outcome, about, chosen, draw, page, write_job

import corpus as corpora
from report import Table, figure, options, p, publish, say

MODES = ("hybrid", "keyword", "vector")
"""The first one that a system has is timed."""
TARGET = 0.98
"""The vector recall asked of systems that have a knob for it: about what Clew has here."""
WANTED = {"lancedb": 5.0, "txtai": 5.0}
"""How many times as long as Clew's these peers' hybrid p50 is to be."""


def prepare(arguments: Any, folder: Path) -> tuple[Path, list[list[int]]]:
    """The job, and the truth about its timed queries."""
    size, warm = arguments.records, arguments.warmup
    corpus = corpora.load(arguments.data)
    if warm + arguments.queries > len(corpus.queries):
        raise SystemExit(f"there are {len(corpus.queries):,} queries: ask for fewer")
    asked = corpus.queries[: warm + arguments.queries]
    query_vectors = corpus.query_vectors[: len(asked)]
    say(f"making {size:,} records…")
    made, vectors = corpora.records(corpus, 0, size)
    job = write_job(
        folder,
        texts=({"id": record.id, "text": record.content} for record in made),
        vectors=vectors,
        queries=({"id": str(i), "text": text} for i, text in enumerate(asked)),
        query_vectors=query_vectors,
        modes=MODES,
        patience=arguments.patience,
        warmup=warm,
        target=TARGET,
    )
    return job, exact(np.ascontiguousarray(query_vectors[warm:]), vectors).tolist()


def numbers(outcome: Outcome, truth: list[list[int]], first: int) -> dict[str, Any]:
    """What is reported of one system. `first` is the number of the first timed query."""
    # What a system answered before it failed says nothing; what patience cut short does.
    answers = {
        mode: given
        for mode, given in outcome.answers.items()
        if len(given) == len(truth) or not outcome.failure
    }
    mode = next((mode for mode in MODES if answers.get(mode)), "")
    times = [answer.ms for answer in answers.get(mode, ())]
    nearest = answers.get("vector", [])
    found = [[int(name[1:]) for name in answer.ids] for answer in nearest]
    known = [truth[int(answer.id) - first] for answer in nearest]
    return {
        "system": outcome.system.key,
        "name": outcome.system.name + (f" ({mode} only)" if mode not in ("", "hybrid") else ""),
        "mode": mode,
        "queries": len(times),
        "p50": p(times, 50) if times else None,
        "p95": p(times, 95) if times else None,
        "recall": recall(found, known) if found else None,
        "build_seconds": outcome.build_seconds,
        "memory": outcome.memory,
        "disk_mb": outcome.disk_mb,
        "failure": outcome.failure,
        "notes": outcome.notes,
    }


# ---------------------------------------------------------------------- tables


def tables(rows: list[dict[str, Any]], records: int) -> list[Table]:
    clew = next(row for row in rows if row["system"] == CLEW)
    figures = [_figure(row, clew) for row in rows if row["system"] in WANTED]
    lines, notes = [], []
    for row in rows:
        ratio = row["p50"] / clew["p50"] if row["p50"] and clew["p50"] else None
        memory = row["memory"].get("VmRSS")
        lines.append(
            (
                row["name"],
                *(_cell(row[key], "{:.3g}") for key in ("p50", "p95")),
                _cell(ratio, "{:.2f} ×"),
                _cell(row["recall"], "{:.4f}"),
                _cell(row["build_seconds"], "{:,.1f}"),
                _cell(memory, "{:,.0f}"),
                _cell(row["disk_mb"], "{:,.0f}"),
            )
        )
        remarks = filter(None, (row["failure"], *row["notes"]))
        notes += [f"{row['name']}: {remark}." for remark in remarks]
    times = ("p50 ms", "p95 ms", "of Clew's")
    columns = ("system", *times, "recall@10", "load s", "RSS MB", "disk MB")
    note = f"{max(row['queries'] for row in rows)} queries. {' '.join(notes)}"
    done = [Table(f"Hybrid, top 10, {records:,} records", columns, lines, note)]
    if figures:
        done.insert(0, Table("Figures", ("figure", "measured", "wanted", "holds"), figures))
    return done


def _figure(row: dict[str, Any], clew: dict[str, Any]) -> tuple[str, str, str, str]:
    times = WANTED[row["system"]]
    what = f"hybrid p50 against {row['name']}'s, at equal or better recall"
    wanted = f"≤ 1/{times:.0f}, recall ≥"
    if None in (row["p50"], clew["p50"], row["recall"], clew["recall"]):
        return figure(what, row["failure"] or "not measured", wanted, False)
    holds = clew["p50"] * times <= row["p50"] and clew["recall"] >= row["recall"]
    ratio = f"1/{row['p50'] / clew['p50']:.2f}"
    measured = f"{ratio}, recall {clew['recall']:.4f} against {row['recall']:.4f}"
    return figure(what, measured, wanted, holds)


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="in ten thousands (200,000)")
    parser.add_argument("--queries", type=int, default=200, help="timed ones (default 200)")
    parser.add_argument("--warmup", type=int, default=50, help="queries before them (default 50)")
    parser.add_argument("--peers", help="some of them, with commas (see benchmarks/systems.py)")
    parser.add_argument("--plot", type=Path, help="also draw them into this file (png, svg)")
    parser.add_argument(
        "--patience",
        type=float,
        default=1800,
        help="seconds a system may load, or answer in a mode",
    )
    arguments = parser.parse_args()
    compared = chosen(arguments.peers)
    outcomes: list[Outcome] = []
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        job, truth = prepare(arguments, Path(work) / "job")
        rows = []
        for system in compared:
            say(f"{system.name}…")
            outcomes.append(system.run(job))
            row = numbers(outcomes[-1], truth, arguments.warmup)
            rows.append(row)
            if row["p50"] is None:
                say(f"  {row['failure'] or 'no answers'}")
            else:
                say(f"  p50 {row['p50']:.3g} ms {row['failure']}".rstrip())
    done = [*tables(rows, arguments.records), about(outcomes)]
    publish(
        "Speed",
        page(__doc__, "speed.py", arguments),
        done,
        {"records": arguments.records, "systems": rows},
        arguments,
    )
    if arguments.plot:
        keys = ("name", "p50", "p95", "recall", "failure")
        bars = [{key: row[key] for key in keys} for row in rows]
        draw({"kind": "speed", "records": arguments.records, "rows": bars}, arguments.plot)


if __name__ == "__main__":
    main()
