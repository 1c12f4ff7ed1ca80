"""What people met at the front: boilerplate, unreadable snippets, aliases, filters that were none.

Each figure is taken through the public API and the command line, so that the same command measures
any version (PYTHONPATH names its src/). Four folders are made for it:

- pages of k8s_docs in English, and as many "translations" (paragraphs of cmrc2018_zh, each under a
  comment with the English original, as the Kubernetes website has them), asked real questions about
  the English pages;
- source files, all with the same licence at their top;
- a vault as Obsidian writes them;
- the bundled sample.

With --folder DIR --english en --other zh-cn the first is measured on a real checkout as well, such
as content/ of kubernetes/website: its questions are the titles of the English pages.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew

from report import REPOSITORY, Table, options, publish, say

TOP = 5
LICENCE = """/*
Copyright 2014 The Boatyard Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
*/

"""
SOURCES = {
    "crane": "// Crane lifts boats of up to nine tons.\nfunc Crane(tons int) {}\n",
    "sauna": "// Sauna heats for an hour before anybody comes.\nfunc Sauna() {}\n",
    "copying": "// Copying applies each change that the log has agreed on.\nfunc Copying() {}\n",
}
VAULT = {
    "Velosolex": "---\naliases: [Mofa, pedelec ancestor]\ntags: [project/bike]\n---\nAn engine.\n",
    "Bridge": "---\nalias: overpass\n---\nBy canal: [[2025-09-03-pricing|September quote]].\n",
    "2025-09-03-pricing": "---\ntags: [meeting/board]\n---\nWe settled what an hour costs.\n",
    "Rowing": "#project/boat\nA pedelec ancestor rusts beside the mofa shed, under an overpass.\n",
    "Sheds": "A mofa, a mofa and another mofa; the overpass; no pedelec ancestor.\n",
}
ASKED = (("mofa", "Velosolex"), ("pedelec ancestor", "Velosolex"), ("overpass", "Bridge"))
TABLES = (
    "wire gauge current",
    "who to ask electrics",
    "insulation measured",
    "crane hours",
    "昆布 材料",
)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--pages", type=int, default=100, help="English pages, and others")
    parser.add_argument("--folder", type=Path, help="a real folder of pages in two languages")
    parser.add_argument("--english", default="en", help="its subfolder of English pages")
    parser.add_argument("--other", default="zh-cn", help="its subfolder of translations")
    parser.add_argument("--model", default="bge-small", help="embedder; none: words alone")
    args = parser.parse_args()
    rows: list[tuple[str, str]] = []
    with TemporaryDirectory(dir=args.work) as work:
        for part in (_translations, _licences, _vault, _printed):
            say(part.__name__.strip("_"))
            folder = Path(work) / part.__name__.strip("_")
            folder.mkdir()
            rows += part(folder, args)
        if args.folder:
            say(str(args.folder))
            store = Path(work) / "real"
            store.mkdir()
            rows += _real(store, args)
    table = Table("What is met at the front", ("figure", "measured"), list(rows))
    publish("The front", __doc__ or "", [table], {"figures": dict(rows)}, args)


def _asked(
    folder: Path, queries: Sequence[str], model: str, **options: Any
) -> list[clew.SearchResult]:
    with clew.open(folder, model=model) as engine:
        engine.index()
        return [engine.search(query, cache=False, **options) for query in queries]


# ---------------------------------------------------------------- boilerplate


def _translations(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    pages = {page["_id"]: page for page in _lines(args.data / "k8s_docs" / "corpus.jsonl.gz")}
    answers: dict[str, list[str]] = {}
    with gzip.open(args.data / "k8s_docs" / "qrels.tsv.gz", "rt") as judged:
        for query, page, *_ in (row.split("\t") for row in judged):
            answers.setdefault(query, []).append(page)
    chosen = sorted(pages)[:: max(1, len(pages) // args.pages)][: args.pages]
    questions = [
        (query["text"], answers[query["_id"]])
        for query in _lines(args.data / "k8s_docs" / "queries.jsonl.gz")
        if set(answers.get(query["_id"], ())) & set(chosen)
    ][:100]
    paragraphs = _lines(args.data / "cmrc2018_zh" / "corpus.jsonl.gz")
    for name in chosen:
        text = pages[name]["text"]
        _write(folder / "en" / f"{name}.md", f"# {pages[name]['title']}\n\n{text}\n")
        parts = [part for part in text.split("\n\n") if "```" not in part]
        other = "".join(
            f"<!--\n{part}\n-->\n{next(paragraphs)['text'][:200]}\n\n" for part in parts[:12]
        )
        _write(folder / "zh" / f"{name}.md", f"# 文档\n\n<!-- overview -->\n{other}")
    found = _asked(folder, [text for text, _ in questions], args.model, limit=TOP)
    yield from _places(found, "zh/", f"{len(questions)} questions in English")
    right = sum(
        any(hit.path == f"en/{page}.md" for hit in result for page in wanted)
        for result, (_, wanted) in zip(found, questions, strict=True)
    )
    yield f"… with the right page among the first {TOP}", f"{right} of {len(questions)}"


def _places(found: Sequence[clew.SearchResult], other: str, of: str) -> Iterator[tuple[str, str]]:
    hits = [hit for result in found for hit in result]
    wrong = sum(str(hit.path).startswith(other) for hit in hits)
    yield f"{of}: places among the first {TOP} taken by translations", f"{wrong} of {len(hits)}"
    shown = sum(bool(re.search(r"<!--|\{\{[<%]|\{%", hit.snippet)) for hit in hits)
    yield "… snippets that show comments or template tags", f"{shown} of {len(hits)}"


def _real(store: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    titles = re.compile(r"^title:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
    pages = sorted((args.folder / args.english).rglob("*.md"))[:: args.pages // 10 or 1]
    queries = [
        named[1] for page in pages if (named := titles.search(page.read_text("utf-8")[:2000]))
    ]
    with clew.open(store, model=args.model) as engine:
        engine.index([args.folder / args.english, args.folder / args.other])
        found = [engine.search(query, cache=False, limit=TOP) for query in queries[:100]]
    hits = [hit for result in found for hit in result]
    other = sum(hit.id.startswith(f"{args.other}:") for hit in hits)
    yield f"{args.folder.name}: places taken by {args.other}", f"{other} of {len(hits)}"


def _licences(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for name, code in SOURCES.items():
        _write(folder / f"{name}.go", LICENCE + code)
    found = _asked(folder, ["applicable law warranties", "apache licence conditions"], "none")
    yield (
        "source files found by words of their licence",
        f"{sum(map(len, found))} of {2 * len(SOURCES)}",
    )


# ---------------------------------------------------------------- Obsidian and filters


def _vault(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for name, text in VAULT.items():
        _write(folder / f"{name}.md", text)
    for mode in ("keyword", "vector"):
        found = _asked(folder, [query for query, _ in ASKED], args.model, mode=mode, limit=1)
        first = [result[0].title if result else "" for result in found]
        right = sum(title == page for title, (_, page) in zip(first, ASKED, strict=True))
        yield f"vault, {mode}: pages that come first by their alias", f"{right} of {len(ASKED)}"
    queries = ["tag:project", "tag:project/bike", "-tag:project", "tag:meeting pricing"]
    counts = [str(len(result)) for result in _asked(folder, queries, "none")]
    yield f"vault: records found by {', '.join(queries)}", ", ".join(counts)
    linking = _asked(folder, ["September quote", "pricing"], "none")
    names = sum("Bridge" in {hit.title for hit in result} for result in linking)
    yield "vault: the linking note by a link's words, and by its target", f"{names} of 2"
    odd = _asked(folder, ["engine type:Velosolex", "engine tag:projekt"], "none")
    said = [f"{len(r)} found, {len(getattr(r, 'notes', ()))} notes" for r in odd]
    yield "vault: engine type:Velosolex; engine tag:projekt", "; ".join(said)


# ---------------------------------------------------------------- what is printed


def _printed(folder: Path, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    notes = folder / "sample"
    shutil.copytree(REPOSITORY / "sample", notes, ignore=shutil.ignore_patterns(".clew"))
    with clew.open(notes, model="none") as engine:
        engine.index()
    lines = [line for query in TABLES for line in _clew(notes, "search", query, "-n", "3")]
    rows = [line for line in lines if " | " in line]
    folded = sum(bool(re.search(r"\| \||\|-+", line)) for line in rows)
    yield "sample: printed lines with several rows of a table in one", f"{folded} of {len(rows)}"
    marks = re.compile(r"^ {5}.*(?:\*\*|\]\(|\[\[|#{2,} )")
    yield (
        "sample: printed lines with marks of Markdown",
        f"{sum(map(bool, map(marks.match, lines)))}",
    )
    below = notes / "journal"
    printed = [line for q in TABLES for line in _clew(below, "search", q, "-n", "3")]
    places = [m[1] for line in printed if (m := re.match(r" {5}(?:📁 )?(\S+\.\w+):\d+$", line))]
    there = sum((below / place).exists() for place in places)
    yield "sample: printed paths that open from a subfolder", f"{there} of {len(places)}"
    typed = _clew(notes, "serch", "keel") + _clew(notes, "search", "--limti", "3", "keel")
    yield (
        "clew serch, clew search --limti: name the right one",
        f"{'search' in str(typed)}, {'--limit' in str(typed)}",
    )


def _clew(folder: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "clew", *arguments]
    env = {**os.environ, "CLEW_MODEL": "none"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)
    # What a usage line repeats is no suggestion.
    return [*done.stdout.splitlines(), *(e for e in done.stderr.splitlines() if "Error" in e)]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
