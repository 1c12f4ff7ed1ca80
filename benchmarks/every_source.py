"""Stores in which every kind of source has something to say, for benchmarks of all of them at once.

What a folder has not of its own is made of texts that are at hand: an SQLite file with an FTS5
table, an exocortex, CANONICAL.md and framework docs. They are small: what counts is that each is
asked, in a file of its own, and has an answer. The graph has its seat and no content yet.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import clew
from clew.ingest.wikipedia import build_exocortex
from clew.types import Record

import corpus as corpora
from report import say

ROWS = 1_000
"""Of the table and of the exocortex, at most."""
LINES = 100
"""Of CANONICAL.md, and of the framework docs."""


def every_source(folder: Path, texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Make what is missing in `folder`; the setting `sources` that switches all kinds on."""
    rows = [
        (f"{' '.join(text.split()[:6])} {number}", text, f"https://example.org/{number}")
        for number, text in enumerate(texts[:ROWS])
    ]
    with contextlib.closing(sqlite3.connect(folder / "own.db")) as db, db:
        db.execute(
            "CREATE VIRTUAL TABLE pages USING fts5 (title, body, url UNINDEXED, "
            "tokenize = 'porter unicode61')"
        )
        db.executemany("INSERT INTO pages VALUES (?, ?, ?)", rows)
    dump = folder / "abstracts.jsonl"
    named = [dict(zip(("title", "abstract", "url"), row, strict=True)) for row in rows]
    dump.write_text("".join(f"{json.dumps(row)}\n" for row in named), "utf-8")
    build_exocortex(str(dump), folder / "exocortex.db")
    dump.unlink()
    lines = "".join(f"- {' '.join(text.split())}\n" for text in texts[:LINES])
    for page in (folder / "CANONICAL.md", folder / ".framework" / "how-we-work.md"):
        if not page.exists():
            page.parent.mkdir(exist_ok=True)
            page.write_text(f"# Settled\n\n{lines}", "utf-8")
    columns = {"text": "body", "title": "title", "path": "url"}
    return {
        "framework_docs": {},
        "graph": {},
        "sqlite": {"file": "own.db", "table": "pages", **columns},
        "exocortex": {"file": "exocortex.db"},
    }


def open_sample(sample: Path, folder: Path) -> clew.Engine:
    """A copy of the sample folder, indexed, with every source on."""
    shutil.copytree(sample, folder, ignore=shutil.ignore_patterns(".clew"))
    pages = sorted(folder.rglob("*.md"))
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
    texts = [line for line in lines if len(line.split()) >= 6]
    engine = clew.open(folder, sources=every_source(folder, texts))
    engine.index()
    return engine


def open_records(corpus: corpora.Corpus, folder: Path, size: int) -> clew.Engine:
    """So many records with vectors, paths and tags, and every source on."""
    folder.mkdir(parents=True)
    texts = [text for text in islice(corpus.sentences, 5 * ROWS) if len(text.split()) >= 6]
    engine = clew.open(folder, sources=every_source(folder, texts))
    engine.index()
    for first in range(0, size, corpora.BLOCK):
        made, vectors = corpora.records(corpus, first, min(size, first + corpora.BLOCK))
        engine.add([_labelled(r, first // corpora.BLOCK) for r in made], vectors=vectors)
        say(f"  {first + len(made):,} of {size:,} loaded")
    engine.optimise()
    return engine


def _labelled(record: Record, block: int) -> Record:
    name = record.content[:40].replace("/", "-")
    tags = tuple(record.content.lower().split()[:2])
    return replace(record, path=f"notes/{block}/{name}.md", tags=tags)
