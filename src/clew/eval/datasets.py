"""Test collections in BEIR's form: a folder of documents, queries and judgements.

    corpus.jsonl    {"_id", "text", "title"?, "scope"?, "date"?, "speaker"?, …}
    queries.jsonl   {"_id", "text", "scope"?, "category"?}
    qrels.tsv       query-id <tab> corpus-id <tab> relevance (0: looked at, not relevant)

Each may be gzipped. A split other than the test set is `queries_train`, `qrels_train` and so on;
BEIR's own `qrels/train.tsv` is read too. Without a corpus the judgements are about a store that
exists already. Whatever is wrong is said with file and line, because a silently dropped judgement
is a wrong figure.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.text.lines import Complain, find, lines, need, rows
from clew.types import Record

__all__ = ["Dataset", "Question", "about_only", "read", "read_queries", "splits"]

SPLITS = ("test", "train", "dev")
_OWN_FIELDS = frozenset({"_id", "id", "title", "text", "scope"})
GREATEST = 1_000_000
"""Relevance, either way. trec_eval has a counter for every grade up to the greatest: a million take
8 MB, a thousand million more than there is, and then it quietly gives 0 for everything."""


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a collection."""

    id: str
    text: str
    scope: str | None = None
    """The only collection to search in."""
    category: str | None = None
    checked: bool = True
    """False: suggested by `clew eval init`, and nobody has confirmed it yet."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A collection that has been read and checked."""

    name: str
    folder: Path
    split: str
    records: tuple[Record, ...] | None
    """None: there is no corpus file, the documents are in a store."""
    queries: tuple[Question, ...]
    """Those with at least one relevant document, in the order of the file."""
    qrels: Mapping[str, Mapping[str, int]]
    """Per query the relevance of each judged document."""
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where each judgement stands, as file:line, for errors found later."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


@dataclass(slots=True)
class _Problems:
    """Stops at the first flaw; or, if told to, leaves the row out and counts it."""

    skip: bool
    skipped: list[str] = field(default_factory=list)

    def __call__(self, file: Path, line: int, what: str) -> None:
        if not self.skip:
            raise InputError(f"{file}:{line}: {what}")
        self.skipped.append(f"{file.name}:{line}: {what}")


def read(
    folder: Path | str, *, split: str = "test", limit: int | None = None, skip_bad: bool = False
) -> Dataset:
    """Read and check a folder. `limit` takes the first queries only.

    With `skip_bad` a flawed row is left out and named in the notes instead of ending the run.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: give one with queries and qrels")
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}: valid: {', '.join(SPLITS)}")
    problems = _Problems(skip_bad)
    notes: list[str] = []
    corpus = find(folder, "corpus.jsonl")
    records, ids = _records(corpus, problems, notes) if corpus else (None, None)
    judged_in = need(folder, *_judged(split))
    asked_in = need(folder, f"queries{_suffix(split)}.jsonl", "queries.jsonl")
    questions = read_queries(asked_in, problems)
    if records is not None:
        _check_scopes(questions, {record.collection for record in records}, asked_in)
    qrels, places = _judgements(judged_in, {q.id for q in questions}, ids, problems)
    judged = [q for q in questions if any(rel > 0 for rel in qrels.get(q.id, {}).values())]
    if not judged:
        raise InputError(f"{judged_in}: no judgement says that a document is relevant to a query")
    if left_out := len(questions) - len(judged):
        notes.append(f"{left_out} queries without a relevant document are left out of all figures")
    kept = tuple(judged[:limit])
    if unchecked := sum(not q.checked for q in kept):
        notes.append(f"{unchecked} queries are unchecked suggestions, which flatters every mode")
    if problems.skipped:
        first = "; ".join(problems.skipped[:3])
        notes.append(f"{len(problems.skipped)} flawed rows were skipped: {first}")
    kept_qrels = {q.id: qrels[q.id] for q in kept}
    name = folder.resolve().name
    return Dataset(name, folder, split, records, kept, kept_qrels, places, tuple(notes))


def about_only(
    dataset: Dataset, documents: Container[str], *, place: str, skip_bad: bool = False
) -> Dataset:
    """The dataset, once every judgement is about one of `documents`, which are those of `place`.

    With `skip_bad` the other judgements are left out and named in the notes.
    """
    skipped: list[str] = []
    qrels = {query: dict(judged) for query, judged in dataset.qrels.items()}
    for (query, document), where in dataset.places.items():
        if query not in qrels or document in documents:
            continue
        what = f"there is no record {document!r} in {place}"
        if not skip_bad:
            raise InputError(f"{where}: {what}")
        del qrels[query][document]
        skipped.append(f"{Path(where).name}: {what}")
    if not skipped:
        return dataset
    notes = [*dataset.notes, f"{len(skipped)} judgements were skipped: {'; '.join(skipped[:3])}"]
    kept = tuple(q for q in dataset.queries if any(rel > 0 for rel in qrels[q.id].values()))
    if not kept:
        raise InputError(
            f"{dataset.folder}: no judgement is about a record of {place}: give its own store"
        )
    if left_out := len(dataset.queries) - len(kept):
        notes.append(f"{left_out} queries have no relevant document there and are left out")
    kept_qrels = {q.id: qrels[q.id] for q in kept}
    return replace(dataset, queries=kept, qrels=kept_qrels, notes=tuple(notes))


def splits(folder: Path | str) -> list[str]:
    """The splits that have judgements in a folder."""
    folder = Path(folder).expanduser()
    return [split for split in SPLITS if find(folder, *_judged(split))]


def _judged(split: str) -> tuple[str, str]:
    return f"qrels{_suffix(split)}.tsv", f"qrels/{split}.tsv"


def _suffix(split: str) -> str:
    return "" if split == "test" else f"_{split}"


# ---------------------------------------------------------------------- the three files


def _records(
    file: Path, problems: _Problems, notes: list[str]
) -> tuple[tuple[Record, ...], set[str]]:
    records: list[Record] = []
    seen: dict[str, int] = {}
    empty = 0
    for line, row in rows(file, problems):
        if (name := _new_id(row, seen, file, line, problems)) is None:
            continue
        title, text = _text(row, "title"), _text(row, "text")
        if title is None or text is None:
            problems(file, line, "title and text must be strings")
        elif not text.strip() and not title.strip():
            empty += 1
        else:
            records.append(_record(name, title, text, row))
    if not records:
        raise InputError(f"{file}: there is no document in it")
    if empty:
        notes.append(f"{empty} documents have neither title nor text and cannot be found")
    return tuple(records), set(seen)


def _record(id: str, title: str, text: str, row: Mapping[str, Any]) -> Record:
    """A title without a text is the text: it must not be indexed twice."""
    if not text.strip():
        title, text = "", title
    speaker, date = row.get("speaker"), row.get("date")
    if speaker and not text.startswith(f"{speaker}:"):
        text = f"{speaker}: {text}"
    if date:  # when something was said is part of what a conversation's memory knows
        text = f"{date} {text}"
    return Record(
        id=id,
        content=text,
        title=title,
        collection=str(row.get("scope") or "default"),
        metadata={key: value for key, value in row.items() if key not in _OWN_FIELDS},
    )


def read_queries(file: Path, problems: Complain | None = None) -> list[Question]:
    """The queries of one file, checked."""
    complain = problems or _Problems(skip=False)
    questions: list[Question] = []
    seen: dict[str, int] = {}
    for line, row in rows(file, complain):
        if (name := _new_id(row, seen, file, line, complain)) is None:
            continue
        text = _text(row, "text")
        if text is None or not text.strip():
            complain(file, line, f"query {name!r} is empty")
            continue
        scope, category = row.get("scope"), row.get("category")
        questions.append(
            Question(
                name,
                text,
                str(scope) if scope else None,
                str(category) if category not in (None, "") else None,
                row.get("checked") is not False,
            )
        )
    if not questions:
        raise InputError(f"{file}: there is no query in it")
    return questions


def _judgements(
    file: Path, queries: set[str], documents: set[str] | None, problems: _Problems
) -> tuple[dict[str, dict[str, int]], dict[tuple[str, str], str]]:
    qrels: dict[str, dict[str, int]] = {}
    places: dict[tuple[str, str], str] = {}
    count = 0
    for line, text in lines(file):
        cells = text.split("\t")
        if len(cells) != 3:
            problems(file, line, f"a judgement has 3 columns parted by tabs, not {len(cells)}")
            continue
        query, document, grade = cells
        relevance = _whole_number(grade)
        if relevance is None:
            if count == 0 and not places and line == 1:
                continue  # the heading
            problems(file, line, f"relevance {grade!r:.100} is not a whole number")
        elif abs(relevance) > GREATEST:
            problems(file, line, f"relevance {grade:.100} is too large: {GREATEST:,} is the most")
        elif query not in queries:
            problems(file, line, f"there is no query {query!r}")
        elif documents is not None and document not in documents:
            problems(file, line, f"there is no document {document!r} in the corpus")
        elif qrels.get(query, {}).get(document, relevance) != relevance:
            before = places[query, document]
            problems(file, line, f"{query!r}, {document!r} was judged otherwise at {before}")
        else:
            qrels.setdefault(query, {})[document] = relevance
            places[query, document] = f"{file}:{line}"
            count += 1
    if not count:
        raise InputError(f"{file}: there are no judgements in it")
    return qrels, places


def _check_scopes(questions: list[Question], scopes: set[str], file: Path) -> None:
    for question in questions:
        if question.scope is not None and question.scope not in scopes:
            raise InputError(
                f"{file}: query {question.id!r} is to search in scope {question.scope!r}, "
                "which no document has"
            )


# ---------------------------------------------------------------------- cells


def _new_id(
    row: Mapping[str, Any],
    seen: dict[str, int],
    file: Path,
    line: int,
    problems: Complain,
) -> str | None:
    given = row.get("_id", row.get("id"))
    if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
        problems(file, line, 'there is no "_id"')
        return None
    name = str(given)
    if name in seen:
        problems(file, line, f"id {name!r} is there already, at line {seen[name]}")
        return None
    seen[name] = line
    return name


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else None


def _whole_number(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
