"""Judgements about a person's own documents: a template to correct, and marks made one by one.

Hits of every mode go into one pool, because judging only what one mode found would favour it. Each
mark is on disk before the next question is asked. A suggested query is made of the document's own
words, so any keyword search finds it: until a person has rewritten it, it measures little. That is
why each row of a template says `"checked": false`.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath

from clew.engine import Engine
from clew.errors import InputError, ModelError, StoreError
from clew.eval.datasets import Question, read_queries
from clew.eval.harness import DEFAULT_MODES, MODES
from clew.filter import Filter
from clew.protocols import Store, read_pages
from clew.text.analyser import STOPWORDS
from clew.types import Hit, Record
from clew.validate import read_lines

HEADING = "query-id\tcorpus-id\tscore"
IDS_PAGE = 500
LONGEST_SUGGESTION = 80
"""Characters."""
_WORD = re.compile(r"[^\W\d_][\w'’-]{2,}")
_HEADING = re.compile(r"^#{1,6}\s+(.+)$", re.MULTILINE)
_BREAKS = re.compile(r"[\t\r\n]")
"""Ids with one of these cannot stand in a column of qrels.tsv."""
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


def pool_hits(
    engine: Engine,
    question: Question,
    *,
    limit: int,
    modes: Sequence[str] = DEFAULT_MODES,
    syntax: bool = False,
) -> list[Hit]:
    """The hits of all modes, each once, by their best rank in any of them, then by id.

    The query is words only unless `syntax`, as where it is evaluated: what is judged are the hits
    that will be measured.
    """
    best: dict[str, tuple[int, Hit]] = {}
    for mode in modes:
        try:
            asked = {**MODES[mode], "group_by": "record", "syntax": syntax, "cache": False}
            hits = engine.search(question.text, limit=limit, filter=question.filter, **asked)
        except ModelError:
            continue  # no weights: words alone are judged
        for rank, hit in enumerate(hits, 1):
            if hit.id not in best or rank < best[hit.id][0]:
                best[hit.id] = rank, hit
    return [hit for _, hit in sorted(best.values(), key=lambda found: (found[0], found[1].id))]


class Judgements:
    """queries.jsonl and qrels.tsv of a folder, written line by line as marks are made. What is
    there already counts; an empty or missing folder is fine."""

    def __init__(self, folder: Path):
        self.asked, self.judged = folder / "queries.jsonl", folder / "qrels.tsv"
        known = self.asked.exists() and self.asked.stat().st_size
        self.questions = read_queries(self.asked) if known else []
        self.marks: dict[tuple[str, str], str] = {}
        """(query, document) → relevance, as it stands in the file."""
        for number, line in read_lines(self.judged) if self.judged.exists() else ():
            cells = line.split("\t")
            if len(cells) != 3:
                raise InputError(f"{self.judged}:{number}: not query, document, relevance")
            self.marks[cells[0], cells[1]] = cells[2]

    def question(self, wanted: Question | str) -> Question:
        """The question of this text, written down if it is new."""
        given = Question("", wanted) if isinstance(wanted, str) else wanted
        if not given.text.strip():
            raise InputError("the query is empty: say what to look for")
        for known in self.questions:
            if (known.text, known.scope) == (given.text, given.scope):
                return known
        taken = {known.id for known in self.questions}
        name = given.id
        if not name or name in taken:
            name = next(f"q{n}" for n in range(1, len(taken) + 2) if f"q{n}" not in taken)
        row = {"_id": name, "text": given.text}
        row |= {"scope": given.scope} if given.scope is not None else {}
        _append(self.asked, [json.dumps(row, ensure_ascii=False)])
        self.questions.append(Question(name, given.text, given.scope))
        return self.questions[-1]

    def to_judge(self, question: Question, hits: Iterable[Hit]) -> list[Hit]:
        """Hits without a mark that can stand in the file."""
        unmarked = (hit for hit in hits if (question.id, hit.id) not in self.marks)
        return [hit for hit in unmarked if not _BREAKS.search(hit.id)]

    def mark(self, question: Question, hit: Hit, relevance: int) -> None:
        """Write a mark down: it is on disk when this returns."""
        heading = [] if self.judged.exists() else [HEADING]
        _append(self.judged, [*heading, f"{question.id}\t{hit.id}\t{relevance}"])
        self.marks[question.id, hit.id] = str(relevance)


def _append(file: Path, rows: Sequence[str]) -> None:
    if not file.parent.exists():
        _make_folder(file.parent)
    with file.open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":  # edited by hand, or cut short by a crash
                stream.write(b"\n")
        stream.write("".join(f"{row}\n" for row in rows).encode())
        stream.flush()
        os.fsync(stream.fileno())


def _make_folder(folder: Path) -> None:
    """A folder for queries that no index takes in: they would be found as documents."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".clewignore"
    if not ignore.exists():
        ignore.write_text("*\n", "utf-8")


# ---------------------------------------------------------------------- a template


def write_template(store: Store, folder: Path, *, number: int) -> int:
    """Write the files; how many queries there are. Nothing that exists is overwritten."""
    names = ("queries.jsonl", "qrels.tsv", "README.txt")
    for file in (folder / name for name in names):
        if file.exists():
            raise InputError(f"{file} exists and may hold your judgements: give another --out")
    found = chain.from_iterable(read_pages(store, Filter(), IDS_PAGE))
    ids = [record.id for record in found if not _BREAKS.search(record.id)]
    if not ids:
        raise StoreError("the store is empty: run `clew index` first")
    if len(ids) > number:  # evenly over all: the same store gives the same choice
        ids = [ids[(2 * i + 1) * len(ids) // (2 * number)] for i in range(number)]
    by_id = {record.id: record for record in store.get(ids)}
    chosen = [by_id[name] for name in ids if name in by_id]
    common = Counter(word for record in chosen for word in _words(record))
    queries, qrels = "", f"{HEADING}\n"
    for i, record in enumerate(chosen, 1):
        row = {"_id": f"q{i}", "text": suggest_query(record, common), "checked": False}
        queries += f"{json.dumps(row, ensure_ascii=False)}\n"
        qrels += f"q{i}\t{record.id}\t1\n"
    judge = f"clew judge --queries {folder / names[0]}"
    readme = _README.format(judge=judge, eval=f"clew eval {folder}")
    _make_folder(folder)
    for name, text in zip(names, (queries, qrels, readme), strict=True):
        (folder / name).write_text(text, "utf-8")
    return len(chosen)


def suggest_query(record: Record, common: Counter[str]) -> str:
    """A title or heading that says something; else the words fewest other documents have."""
    name = PurePosixPath(record.path).stem if record.path else ""
    headings = [found.strip() for found in _HEADING.findall(record.content)[:1]]
    for title in (record.title.strip(), *headings):
        if len(title.split()) > 1 and title not in (name, record.path):
            return str(title[:LONGEST_SUGGESTION])
    words = sorted(_words(record), key=record.content.lower().find)
    rarest = sorted(words, key=lambda word: (common[word], -len(word), word))[:4]
    in_order = " ".join(word for word in words if word in rarest)
    beginning = " ".join(record.content.split())[:LONGEST_SUGGESTION]
    return in_order or record.title.strip() or beginning


def _words(record: Record) -> set[str]:
    found = {word.lower() for word in _WORD.findall(record.content[:20_000])}
    return found - STOPWORDS
