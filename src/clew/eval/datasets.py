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

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clew.errors import InputError
from clew.filter import Filter
from clew.types import Record
from clew.validate import read_lines

SPLITS = ("test", "train", "dev")
_OWN_FIELDS = frozenset({"_id", "id", "title", "text", "scope"})
FEWEST_TRAINING = 20
"""Queries: with fewer than four to a fold, chance chooses."""
TRAINING_SHARE = 0.7
"""Of the queries, where a collection has a single split."""
GREATEST_GRADE = 1_000_000
"""Relevance, either way. trec_eval has a counter for every grade up to the greatest: a million take
8 MB, a thousand million more than there is, and then it quietly gives 0 for everything."""
Qrels = Mapping[str, Mapping[str, int]]
"""Per query the relevance of each judged document."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    scope: str | None = None
    """The only collection to search in."""
    category: str | None = None
    checked: bool = True
    """False: suggested by `clew eval init`, and nobody has confirmed it yet."""

    @property
    def filter(self) -> Filter | None:
        return Filter(collection=self.scope) if self.scope is not None else None


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
    qrels: Qrels
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where each judgement stands, as file:line, for errors found later."""
    notes: tuple[str, ...] = ()

    def only(self, queries: Sequence[Question], **changes: Any) -> Dataset:
        qrels = changes.pop("qrels", self.qrels)
        kept = {q.id: qrels[q.id] for q in queries}
        return replace(self, queries=tuple(queries), qrels=kept, **changes)


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
    skipped: list[str] | None = [] if skip_bad else None
    notes: list[str] = []
    corpus = find_file(folder, "corpus.jsonl")
    records, ids = _read_records(corpus, skipped, notes) if corpus else (None, None)
    judged_in = need_file(folder, *_qrels_names(split))
    asked_in = need_file(folder, f"queries{_suffix(split)}.jsonl", "queries.jsonl")
    questions = read_queries(asked_in, skipped)
    scopes = {record.collection for record in records or ()} | {None}
    for question in questions:
        if records is not None and question.scope not in scopes:
            raise InputError(
                f"{asked_in}: query {question.id!r} is to search in scope {question.scope!r}, "
                "which no document has"
            )
    qrels, places = _read_judgements(judged_in, {q.id for q in questions}, ids, skipped)
    judged = [q for q in questions if any(rel > 0 for rel in qrels.get(q.id, {}).values())]
    if not judged:
        raise InputError(f"{judged_in}: no judgement says that a document is relevant to a query")
    if left_out := len(questions) - len(judged):
        notes.append(f"{left_out} queries without a relevant document are left out of all figures")
    kept = judged[:limit]
    if unchecked := sum(not q.checked for q in kept):
        notes.append(f"{unchecked} queries are unchecked suggestions, which flatters every mode")
    if skipped:
        notes.append(f"{len(skipped)} flawed rows were skipped: {'; '.join(skipped[:3])}")
    name = folder.resolve().name
    return Dataset(name, folder, split, records, (), qrels, places, tuple(notes)).only(kept)


def _qrels_names(split: str) -> tuple[str, str]:
    return f"qrels{_suffix(split)}.tsv", f"qrels/{split}.tsv"


def _suffix(split: str) -> str:
    return "" if split == "test" else f"_{split}"


# ---------------------------------------------------------------------- the three files


def _read_rows(
    file: Path, skipped: list[str] | None, make: Callable[[int, str], T | None]
) -> list[T]:
    """What `make` makes of each line; a ValueError says what is wrong with one. The first flaw ends
    the run, unless there is a list of what was `skipped`."""
    made: list[T] = []
    for line, text in read_lines(file):
        try:
            one = make(line, text)
        except ValueError as flaw:
            if skipped is None:
                raise InputError(f"{file}:{line}: {flaw}") from None
            skipped.append(f"{file.name}:{line}: {flaw}")
        else:
            made += [] if one is None else [one]
    return made


def _parse_row(line: int, text: str, seen: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """An object of JSON, and its id."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError('each line is an object such as {"_id": "1", "text": "…"}')
    given = row.get("_id", row.get("id"))
    if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
        raise ValueError('there is no "_id"')
    name = str(given)
    if seen.setdefault(name, line) != line:
        raise ValueError(f"id {name!r} is there already, at line {seen[name]}")
    return name, row


def _read_records(
    file: Path, skipped: list[str] | None, notes: list[str]
) -> tuple[tuple[Record, ...], set[str]]:
    seen: dict[str, int] = {}
    empty: list[str] = []

    def make(line: int, given: str) -> Record | None:
        """A title without a text is the text: it must not be indexed twice."""
        name, row = _parse_row(line, given, seen)
        title, text = ("" if row.get(key) is None else row[key] for key in ("title", "text"))
        if not isinstance(title, str) or not isinstance(text, str):
            raise ValueError("title and text must be strings")
        if not text.strip():
            title, text = "", title
        if not text.strip():
            empty.append(name)
            return None
        speaker, date = row.get("speaker"), row.get("date")
        if speaker and not text.startswith(f"{speaker}:"):
            text = f"{speaker}: {text}"
        if date:  # when something was said is part of what a conversation's memory knows
            text = f"{date} {text}"
        return Record(
            id=name,
            content=text,
            title=title,
            collection=str(row.get("scope") or "default"),
            metadata={key: value for key, value in row.items() if key not in _OWN_FIELDS},
        )

    records = _read_rows(file, skipped, make)
    if not records:
        raise InputError(f"{file}: there is no document in it")
    if empty:
        notes.append(f"{len(empty)} documents have neither title nor text and cannot be found")
    return tuple(records), set(seen)


def read_queries(file: Path, skipped: list[str] | None = None) -> list[Question]:
    seen: dict[str, int] = {}

    def make(line: int, given: str) -> Question:
        name, row = _parse_row(line, given, seen)
        text, scope, category = row.get("text"), row.get("scope"), row.get("category")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"query {name!r} is empty")
        return Question(
            name,
            text,
            str(scope) if scope else None,
            str(category) if category not in (None, "") else None,
            row.get("checked") is not False,
        )

    questions = _read_rows(file, skipped, make)
    if not questions:
        raise InputError(f"{file}: there is no query in it")
    return questions


def _read_judgements(
    file: Path, queries: set[str], documents: set[str] | None, skipped: list[str] | None
) -> tuple[dict[str, dict[str, int]], dict[tuple[str, str], str]]:
    qrels: dict[str, dict[str, int]] = {}
    places: dict[tuple[str, str], str] = {}

    def add(line: int, text: str) -> None:
        cells = text.split("\t")
        if len(cells) != 3:
            raise ValueError(f"a judgement has 3 columns parted by tabs, not {len(cells)}")
        query, document, grade = cells
        try:
            number = float(grade)
        except ValueError:
            number = 0.5
        if not number.is_integer():
            if line == 1:
                return  # the heading
            raise ValueError(f"relevance {grade!r:.100} is not a whole number")
        if abs(number) > GREATEST_GRADE:
            raise ValueError(f"relevance {grade:.100} is too large: {GREATEST_GRADE:,} is the most")
        if query not in queries:
            raise ValueError(f"there is no query {query!r}")
        if documents is not None and document not in documents:
            raise ValueError(f"there is no document {document!r} in the corpus")
        if qrels.setdefault(query, {}).setdefault(document, int(number)) != number:
            before = places[query, document]
            raise ValueError(f"{query!r}, {document!r} was judged otherwise at {before}")
        places[query, document] = f"{file}:{line}"

    _read_rows(file, skipped, add)
    if not places:
        raise InputError(f"{file}: there are no judgements in it")
    return qrels, places


# ---------------------------------------------------------------------- halves


class Halves(NamedTuple):
    """Queries to tune on and queries to report on, none in both."""

    train: Dataset
    test: Dataset
    notes: tuple[str, ...] = ()


def read_halves(folder: Path | str, *, train: str | None = None, test: str | None = None) -> Halves:
    """Two splits of a folder, or the two parts of its only one."""
    if train is not None and train == test:
        raise InputError(
            f"what was tuned on {train!r} is not reported on {train!r}: name two splits; or none, "
            "and a single one is divided"
        )
    home = Path(folder).expanduser()
    there = [split for split in SPLITS if find_file(home, *_qrels_names(split))]
    notes: tuple[str, ...] = ()
    if train is None and test is None and len(there) == 1:
        whole = read(folder, split=there[0])
        chosen = {q.id for q in whole.queries if hash_id(q.id) < TRAINING_SHARE * 2**64}
        tuned = whole.only([q for q in whole.queries if q.id in chosen])
        reported = whole.only([q for q in whole.queries if q.id not in chosen])
        notes += (
            f"the only split, {whole.split}, was divided by its queries' ids: figures are of the "
            f"{len(reported.queries)} queries that were not tuned on",
        )
    else:

        def first(order: Sequence[str], other: str | None) -> str | None:
            return next((split for split in order if split in there and split != other), None)

        test = test or first(("test", "dev", "train"), train)
        train = train or first(("train", "dev", "test"), test)
        if there and not (train and test):
            raise InputError(
                f"{folder} has no other judgements than those of {there[0]!r}: leave out --train "
                "and --test, and its queries are divided"
            )
        tuned, reported = (read(folder, split=split or "test") for split in (train, test))
    # What is in both stays where it is reported on, so that these figures keep their meaning.
    taken = identify(reported.queries)
    kept = [q for q in tuned.queries if not taken & identify([q])]
    if dropped := len(tuned.queries) - len(kept):
        notes += (f"{dropped} training queries were left out: they are among those reported",)
    check_enough(kept)
    if not reported.queries:
        raise InputError("no query is left to report on: judge more of them (`clew judge`)")
    said = dict.fromkeys((*tuned.notes, *reported.notes, *notes))
    return Halves(tuned.only(kept), reported, tuple(said))


def check_enough(queries: Sequence[Question]) -> None:
    if len(queries) < FEWEST_TRAINING:
        raise InputError(
            f"there are {len(queries)} queries to tune on, and {FEWEST_TRAINING} are the least: "
            "judge more of them (`clew judge`), or keep the default"
        )


def identify(queries: Iterable[Question]) -> set[tuple[str, str]]:
    """What makes two queries the same: the id, or the words."""
    found: set[tuple[str, str]] = set()
    for query in queries:
        found |= {("id", query.id), ("text", " ".join(query.text.casefold().split()))}
    return found


def hash_id(id: str) -> int:
    """A number up to 2⁶⁴: the same at any time and in any order of the file."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest())


def find_file(folder: Path, *names: str) -> Path | None:
    places = [folder / (name + ending) for name in names for ending in ("", ".gz")]
    return next((place for place in places if place.is_file()), None)


def need_file(folder: Path, *names: str) -> Path:
    found = find_file(folder, *names)
    if found is None:
        raise InputError(f"{folder} has no {names[0]} (or {names[0]}.gz)")
    return found
