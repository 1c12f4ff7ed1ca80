"""Quality: Clew and its peers on the same texts, the same vectors and the same queries.

    python benchmarks/quality.py --out docs/benchmarks/quality.md --plot docs/benchmarks/quality.png

Per set, every system gets the same texts (title, line break, text), the same vectors (bge-small,
made once by Clew's embedder: one for each text, queries with the model's prefix) and the same
queries, and answers with its ten best. Each runs in a process and an environment of its own, used
as its own documentation recommends (benchmarks/peers/). nDCG@10 is ir-measures' (trec_eval's).
Texts of locomo are "{date} {speaker}: {text}", and each query is searched inside its conversation.

--late adds late interaction: Clew with the setting `on`, and a peer that offers it (LanceDB, by
multivectors) with token vectors by Clew's own model, queries as Clew asks them. They take an hour
for all sets.

A quick look, without the large sets and environments:

    python benchmarks/quality.py --sets nq_utd --peers bm25s,fts5

The first run makes the environments (about 4 GB, ten minutes) and embeds the sets (half an hour);
both are kept in benchmarks/.cache/.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from clew.eval import metrics
from clew.models import load_embedder, load_late_interaction
from clew.protocols import Embedder
from systems import Outcome, System, about, chosen, draw, page, write_job

from corpus import Floats, embed, read_gzipped
from report import Table, figure, options, publish, say

SETS = (
    "scifact",
    "cranfield",
    "locomo",
    "cosqa",
    "k8s_docs",
    "xquad_en",
    "xquad_zh",
    "xquad_ru",
    "xquad_ar",
    "xquad_th",
)
MODES = ("hybrid", "keyword", "vector")
LATE = ("late", "late alone")
CACHE = Path(__file__).parent / ".cache"


@dataclass(frozen=True, slots=True)
class Collection:
    name: str
    texts: list[dict[str, str]]
    queries: list[dict[str, str]]
    qrels: dict[str, dict[str, int]]


def read(data: Path, name: str) -> Collection:
    """A set as every system gets it: only judged queries are asked."""
    folder = data / name
    if not folder.is_dir():
        there = ", ".join(sorted(path.parent.name for path in data.glob("*/qrels.tsv.gz")))
        raise SystemExit(f"there is no set {name} in {data}: there are {there or 'none'}")
    qrels: dict[str, dict[str, int]] = {}
    with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    texts = [
        {
            "id": row["_id"],
            "text": _text(row),
            "scope": row.get("scope", ""),
            "title": row.get("title", "").strip(),
        }
        for row in read_gzipped(folder / "corpus.jsonl.gz")
    ]
    queries = [
        {"id": row["_id"], "text": row["text"], "scope": row.get("scope", "")}
        for row in read_gzipped(folder / "queries.jsonl.gz")
        if row["_id"] in qrels
    ]
    return Collection(name, [text for text in texts if text["text"]], queries, qrels)


def _text(row: dict[str, Any]) -> str:
    text = row["text"].strip()
    speaker = row.get("speaker")
    if speaker and not text.startswith(f"{speaker}:"):
        text = f"{speaker}: {text}"
    if row.get("date"):
        text = f"{row['date']} {text}"
    return "\n".join(part for part in (row.get("title", "").strip(), text) if part)


def embedded(collection: Collection, embedder: Embedder) -> tuple[Floats, Floats]:
    """Vectors of texts and queries, from the cache or made now."""
    texts = [text["text"] for text in collection.texts]
    asked = [query["text"] for query in collection.queries]
    key = hashlib.sha256(json.dumps([embedder.model, texts, asked]).encode()).hexdigest()[:16]
    file = CACHE / f"quality-{collection.name}-{key}.npz"
    if not file.exists():
        say(f"{collection.name}: embedding {len(texts):,} texts and {len(asked):,} queries, once…")
        rows = embed(embedder, texts)
        queries = np.stack([embedder.embed_query(text) for text in asked])
        CACHE.mkdir(exist_ok=True)
        draft = file.with_suffix(".tmp.npz")
        np.savez(draft, texts=rows, queries=queries)
        draft.replace(file)
    with np.load(file) as arrays:
        return arrays["texts"], arrays["queries"]


def encoded(collection: Collection) -> dict[str, list[Any]]:
    """Token vectors of texts and queries, from the cache or made now."""
    model = load_late_interaction("colbert-small")
    texts = [text["text"] for text in collection.texts]
    asked = [query["text"] for query in collection.queries]
    key = hashlib.sha256(json.dumps([model.model, texts, asked]).encode()).hexdigest()[:16]
    file = CACHE / f"tokens-{collection.name}-{key}.npz"
    if not file.exists():
        say(f"{collection.name}: token vectors of {len(texts):,} texts, once…")
        rows: dict[str, list[Any]] = {"tokens": []}
        for i in range(0, len(texts), 256):
            made = model.encode_passages(texts[i : i + 256])
            rows["tokens"] += [of.astype(np.float16) for of in made]
            say(f"  {len(rows['tokens']):,} of {len(texts):,}")
        rows["query_tokens"] = [model.encode_query(text, expand=False) for text in asked]
        arrays = {name: np.concatenate(of) for name, of in rows.items()}
        arrays |= {f"{name}_ends": np.cumsum([len(m) for m in of]) for name, of in rows.items()}
        CACHE.mkdir(exist_ok=True)
        draft = file.with_suffix(".tmp.npz")
        np.savez(draft, **arrays)
        draft.replace(file)
    with np.load(file) as kept:
        names = ("tokens", "query_tokens")
        return {name: np.split(kept[name], kept[f"{name}_ends"][:-1]) for name in names}


def ndcg(found: Mapping[str, Sequence[str]], qrels: dict[str, dict[str, int]]) -> float:
    """Mean nDCG@10 over the judged queries; one that was not answered counts as 0."""
    scores = metrics.per_query(qrels, found, measures=["ndcg@10"])["ndcg@10"]
    return metrics.mean(list(scores.values()))


def measure(system: System, collection: Collection, job: Path) -> tuple[Outcome, dict[str, float]]:
    """nDCG@10 by mode. Nothing for a mode that did not answer every query."""
    say(f"{collection.name}: {system.name}")
    outcome = system.run(job)
    scores = {
        mode: ndcg({answer.id: answer.ids for answer in answers}, collection.qrels)
        for mode, answers in outcome.answers.items()
        if len(answers) == len(collection.queries)
    }
    if outcome.failure:
        say(f"  {outcome.failure}")
    else:
        say("  " + ", ".join(f"{mode} {score:.4f}" for mode, score in scores.items()))
    return outcome, scores


# ---------------------------------------------------------------------- tables

WITH = {
    "hybrid": "hybrid",
    "late": "hybrid with late interaction",
    "late alone": "late interaction alone",
}

Scores = dict[str, dict[str, dict[str, float]]]
"""By system, set and mode."""


def headline(system: System) -> str:
    """The mode a system is compared by: hybrid, or the only one it has."""
    if system.has_hybrid:
        return "hybrid"
    return "keyword" if "keyword" in system.hybrid else "vector"


def tables(sets: list[str], compared: list[System], scores: Scores, failures: str) -> list[Table]:
    figures = [_figure(name, compared, scores) for name in sets]
    rows = [(_label(s), s.key, headline(s)) for s in compared]
    main = _grid("nDCG@10", sets, rows, scores, failures)
    alone = [
        (f"{system.name}, {mode}", system.key, mode)
        for system in compared
        for mode in MODES
        if any(mode in found for found in scores[system.key].values())
        and (mode != headline(system) or system.key == "clew")
    ]
    legs = _grid("Each leg alone", sets, alone, scores, "")
    late = [
        (f"{system.name}, {WITH[mode]}", system.key, mode)
        for system in compared
        for mode in WITH
        if any(mode in found for found in scores[system.key].values())
    ]
    found = [Table("Figures", ("figure", "measured", "wanted", "holds"), figures), main, legs]
    if any(mode in LATE for _, _, mode in late):
        found.append(_grid("Late interaction", sets, late, scores, ""))
    return found


def _figure(name: str, compared: list[System], scores: Scores) -> tuple[str, str, str, str]:
    clew = scores["clew"].get(name, {}).get("hybrid")
    peers = {
        system.name: scores[system.key][name]["hybrid"]
        for system in compared
        if system.key != "clew" and "hybrid" in scores[system.key].get(name, {})
    }
    what = f"hybrid on {name} against the best peer"
    if clew is None or not peers:
        return figure(what, "not measured", "≥", False)
    best = max(peers, key=lambda peer: peers[peer])
    return figure(what, f"{clew:.4f}, {best} {peers[best]:.4f}", "≥", clew >= peers[best])


def _label(system: System) -> str:
    return system.name if system.has_hybrid else f"{system.name} ({headline(system)} only)"


def _grid(
    title: str, sets: list[str], rows: list[tuple[str, str, str]], scores: Scores, note: str
) -> Table:
    """A row for each system and mode, the best of each set in bold."""
    best = {
        name: max((scores[key].get(name, {}).get(mode, -1.0) for _, key, mode in rows), default=-1)
        for name in sets
    }
    lines = []
    for label, key, mode in rows:
        cells = []
        for name in sets:
            score = scores[key].get(name, {}).get(mode)
            text = "–" if score is None else f"{score:.4f}"
            cells.append(f"**{text}**" if score == best[name] else text)
        lines.append((label, *cells))
    return Table(title, ("system", *sets), lines, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sets", help=f"with commas (default: {','.join(SETS)})")
    parser.add_argument("--peers", help="some of them, with commas (see benchmarks/systems.py)")
    parser.add_argument("--late", action="store_true", help="late interaction, too")
    parser.add_argument("--plot", type=Path, help="also draw them into this file (png, svg)")
    parser.add_argument(
        "--patience", type=float, default=1800, help="seconds a system may load, or answer"
    )
    arguments = parser.parse_args()
    sets = arguments.sets.split(",") if arguments.sets else list(SETS)
    compared = chosen(arguments.peers)
    if find_spec("ir_measures") is None:  # before an hour of work, not after it
        raise SystemExit("quality is measured with ir-measures: run `pip install ir-measures`")
    embedder = load_embedder("bge-small")
    if not embedder.dim:
        raise SystemExit("benchmarks need the default model: run `clew models pull bge-small`")
    scores: Scores = {system.key: {} for system in compared}
    latest: dict[str, Outcome] = {}
    remarks: dict[str, list[str]] = {}
    for name in sets:
        collection = read(arguments.data, name)
        vectors, query_vectors = embedded(collection, embedder)
        with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
            job = write_job(
                Path(work) / name,
                texts=collection.texts,
                vectors=vectors,
                queries=collection.queries,
                query_vectors=query_vectors,
                modes=(*MODES, *LATE) if arguments.late else MODES,
                patience=arguments.patience,
                tokens=encoded(collection) if arguments.late else None,
            )
            for system in compared:
                outcome, scores[system.key][name] = measure(system, collection, job)
                if outcome.versions or system.key not in latest:
                    latest[system.key] = outcome
                for remark in filter(None, (outcome.failure, *outcome.notes)):
                    remarks.setdefault(f"{system.name}: {remark}", []).append(name)
    notes = [f"{remark} ({', '.join(where)})." for remark, where in remarks.items()]
    done = tables(sets, compared, scores, " ".join(notes))
    done.append(about(latest.values()))
    publish("Quality", page(__doc__, "quality.py", arguments), done, {"ndcg@10": scores}, arguments)
    if arguments.plot:
        rows = {
            _label(system): [scores[system.key][name].get(headline(system)) for name in sets]
            for system in compared
        }
        draw({"kind": "quality", "sets": sets, "rows": rows}, arguments.plot)


if __name__ == "__main__":
    main()
