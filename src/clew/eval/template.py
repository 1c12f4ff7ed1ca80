"""Queries about a person's own documents, suggested for them to correct.

A suggestion is made of the document's own words, so any keyword search finds it: until a person has
rewritten it, it measures little. That is why each row says `"checked": false`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from clew.errors import InputError, StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.text.analyser import STOPWORDS
from clew.types import Record

__all__ = ["keep_out", "suggest", "write_template"]

PAGE = 500
LONGEST = 80
"""Characters of a suggested query."""
_WORD = re.compile(r"[^\W\d_][\w'’-]{2,}")
_HEADING = re.compile(r"^#{1,6}\s+(.+)$", re.MULTILINE)

_README = """\
Queries to measure Clew on your own documents

queries.jsonl   one query per line. The suggestions are made of the documents' own words, which is
                too easy. Write each as you would really ask it, then set "checked" to true.
                Delete lines you do not want (and their lines in qrels.tsv).
qrels.tsv       query-id, id of a document, how relevant it is: 3 exactly, 2 well, 1 somewhat,
                0 not at all. Add a line for every other document that answers the query.

{judge}   shows hits one by one and writes your marks into qrels.tsv.
{eval}   measures.
"""


def write_template(store: Store, folder: Path, *, number: int) -> int:
    """Write the files; how many queries there are. Nothing that exists is overwritten."""
    files = [folder / name for name in ("queries.jsonl", "qrels.tsv", "README.txt")]
    for file in files:
        if file.exists():
            raise InputError(f"{file} exists and may hold your judgements: give another --out")
    chosen = _spread(store, number)
    if not chosen:
        raise StoreError("the store is empty: run `clew index` first")
    common = Counter(word for record in chosen for word in _words(record))
    queries, qrels = [], ["query-id\tcorpus-id\tscore"]
    for i, record in enumerate(chosen, 1):
        row = {"_id": f"q{i}", "text": suggest(record, common), "checked": False}
        queries.append(json.dumps(row, ensure_ascii=False))
        qrels.append(f"q{i}\t{record.id}\t1")
    keep_out(folder)
    readme = _README.format(judge=f"clew judge --queries {files[0]}", eval=f"clew eval {folder}")
    for file, text in zip(
        files, ("\n".join(queries) + "\n", "\n".join(qrels) + "\n", readme), strict=True
    ):
        file.write_text(text, "utf-8")
    return len(chosen)


def keep_out(folder: Path) -> None:
    """Make a folder for queries that no index takes in: they would be found as documents."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".clewignore"
    if not ignore.exists():
        ignore.write_text("*\n", "utf-8")


def suggest(record: Record, common: Counter[str]) -> str:
    """A title or heading that says something; else the words fewest other documents have."""
    name = PurePosixPath(record.path).stem if record.path else ""
    headings = [found.strip() for found in _HEADING.findall(record.content)[:1]]
    for title in (record.title.strip(), *headings):
        if len(title.split()) > 1 and title not in (name, record.path):
            return str(title[:LONGEST])
    words = sorted(_words(record), key=record.content.lower().find)
    rarest = sorted(words, key=lambda word: (common[word], -len(word), word))[:4]
    in_order = [word for word in words if word in rarest]
    return " ".join(in_order) or record.title.strip() or " ".join(record.content.split())[:LONGEST]


def _words(record: Record) -> set[str]:
    found = {word.lower() for word in _WORD.findall(record.content[:20_000])}
    return found - STOPWORDS


def _spread(store: Store, number: int) -> list[Record]:
    """Evenly over all records by id: the same store gives the same choice."""
    ids = list(_ids(store))
    if len(ids) <= number:
        picked = ids
    else:
        picked = [ids[(2 * i + 1) * len(ids) // (2 * number)] for i in range(number)]
    by_id = {record.id: record for record in store.get(picked)}
    return [by_id[name] for name in picked if name in by_id]


def _ids(store: Store) -> Iterator[str]:
    last = ""
    while records := store.select(Filter(), limit=PAGE, after=last):
        # A tab or a line break cannot stand in a column of qrels.tsv.
        yield from (r.id for r in records if not re.search(r"[\t\r\n]", r.id))
        last = records[-1].id
