"""Judgements being made: what to look at, and a file that loses none of them.

Hits of every mode go into one pool, because judging only what one mode found would favour it. Each
mark is on disk before the next question is asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clew.engine import Engine
from clew.errors import InputError, ModelError
from clew.eval.datasets import Question, read_queries
from clew.eval.harness import DEFAULT_MODES, MODES
from clew.eval.template import keep_out
from clew.filter import Filter
from clew.text.lines import lines
from clew.types import Hit

__all__ = ["Judgements", "pool"]


def pool(
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
    within = Filter(collection=question.scope) if question.scope is not None else None
    for mode in modes:
        try:
            asked = {**MODES[mode], "group_by": "record", "syntax": syntax, "cache": False}
            hits = engine.search(question.text, limit=limit, filter=within, **asked)
        except ModelError:
            continue  # no weights: words alone are judged
        for rank, hit in enumerate(hits, 1):
            if hit.id not in best or rank < best[hit.id][0]:
                best[hit.id] = rank, hit
    return [hit for _, hit in sorted(best.values(), key=lambda found: (found[0], found[1].id))]


@dataclass(slots=True)
class Judgements:
    """queries.jsonl and qrels.tsv of a folder, written line by line as marks are made."""

    folder: Path
    questions: list[Question] = field(default_factory=list)
    marks: dict[tuple[str, str], str] = field(default_factory=dict)
    """(query, document) → relevance, as it stands in the file."""

    @classmethod
    def open(cls, folder: Path) -> Judgements:
        """What a folder has already; an empty or missing one is fine."""
        found = cls(folder)
        if found.asked.exists() and found.asked.stat().st_size:
            found.questions = read_queries(found.asked)
        if found.judged.exists():
            for number, line in lines(found.judged):
                cells = line.split("\t")
                if len(cells) != 3:
                    raise InputError(f"{found.judged}:{number}: not query, document, relevance")
                found.marks[cells[0], cells[1]] = cells[2]
        return found

    @property
    def asked(self) -> Path:
        return self.folder / "queries.jsonl"

    @property
    def judged(self) -> Path:
        return self.folder / "qrels.tsv"

    def question(self, wanted: Question | str) -> Question:
        """The question of this text, written down if it is new."""
        text = wanted if isinstance(wanted, str) else wanted.text
        if not text.strip():
            raise InputError("the query is empty: say what to look for")
        scope = None if isinstance(wanted, str) else wanted.scope
        for known in self.questions:
            if (known.text, known.scope) == (text, scope):
                return known
        taken = {known.id for known in self.questions}
        name = "" if isinstance(wanted, str) else wanted.id
        if not name or name in taken:
            name = next(f"q{n}" for n in range(1, len(taken) + 2) if f"q{n}" not in taken)
        row = {"_id": name, "text": text} | ({"scope": scope} if scope is not None else {})
        _append(self.asked, [json.dumps(row, ensure_ascii=False)])
        self.questions.append(Question(name, text, scope))
        return self.questions[-1]

    def to_judge(self, question: Question, hits: Iterable[Hit]) -> list[Hit]:
        """Those without a mark. An id with a tab or line break cannot stand in the file."""
        return [
            hit
            for hit in hits
            if (question.id, hit.id) not in self.marks and not set(hit.id) & set("\t\r\n")
        ]

    def mark(self, question: Question, hit: Hit, relevance: int) -> None:
        """On disk when this returns."""
        heading = [] if self.judged.exists() else ["query-id\tcorpus-id\tscore"]
        _append(self.judged, [*heading, f"{question.id}\t{hit.id}\t{relevance}"])
        self.marks[question.id, hit.id] = str(relevance)


def _append(file: Path, rows: Sequence[str]) -> None:
    if not file.parent.exists():
        keep_out(file.parent)
    with file.open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":  # edited by hand, or cut short by a crash
                stream.write(b"\n")
        stream.write("".join(f"{row}\n" for row in rows).encode())
        stream.flush()
        os.fsync(stream.fileno())
