"""Queries to tune on and queries to report on, none in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from clew.errors import InputError
from clew.eval import datasets
from clew.eval.datasets import Dataset, Question

__all__ = ["FEWEST", "Halves", "check_enough", "halves", "names", "number"]

FEWEST = 20
"""Training queries: with fewer than four to a fold, chance chooses."""
TRAINING = 0.7
"""Of the queries, where a collection has a single split."""


@dataclass(frozen=True, slots=True)
class Halves:
    train: Dataset
    test: Dataset
    notes: tuple[str, ...] = ()


def halves(folder: Path | str, *, train: str | None = None, test: str | None = None) -> Halves:
    """Two splits of a folder, or the two parts of its only one."""
    if train is not None and train == test:
        raise InputError(
            f"what was tuned on {train!r} is not reported on {train!r}: name two splits; or none, "
            "and a single one is divided"
        )
    there = datasets.splits(folder)
    if train is None and test is None and len(there) == 1:
        return _divided(datasets.read(folder, split=there[0]))
    test = test or _first(("test", "dev", "train"), there, other=train)
    train = train or _first(("train", "dev", "test"), there, other=test)
    if there and not (train and test):
        raise InputError(
            f"{folder} has no other judgements than those of {there[0]!r}: leave out --train and "
            "--test, and its queries are divided"
        )
    tuned, reported = (datasets.read(folder, split=split or "test") for split in (train, test))
    return _apart(tuned, reported, ())


def _first(order: Sequence[str], there: Sequence[str], *, other: str | None) -> str | None:
    return next((split for split in order if split in there and split != other), None)


def _divided(whole: Dataset) -> Halves:
    first = [q for q in whole.queries if number(q.id) < TRAINING * 2**64]
    chosen = {q.id for q in first}
    second = [q for q in whole.queries if q.id not in chosen]
    note = (
        f"the only split, {whole.split}, was divided by its queries' ids: figures are of the "
        f"{len(second)} queries that were not tuned on"
    )
    return _apart(_only(whole, first), _only(whole, second), (note,))


def _apart(train: Dataset, test: Dataset, notes: tuple[str, ...]) -> Halves:
    """What is in both stays where it is reported on, so that these figures keep their meaning."""
    taken = names(test.queries)
    kept = [q for q in train.queries if not taken & names([q])]
    if dropped := len(train.queries) - len(kept):
        notes = (*notes, f"{dropped} training queries were left out: they are among those reported")
    check_enough(kept)
    if not test.queries:
        raise InputError("no query is left to report on: judge more of them (`clew judge`)")
    said = dict.fromkeys((*train.notes, *test.notes, *notes))
    return Halves(_only(train, kept), test, tuple(said))


def _only(dataset: Dataset, queries: Sequence[Question]) -> Dataset:
    qrels = {q.id: dataset.qrels[q.id] for q in queries}
    return replace(dataset, queries=tuple(queries), qrels=qrels)


def check_enough(queries: Sequence[Question]) -> None:
    if len(queries) < FEWEST:
        raise InputError(
            f"there are {len(queries)} queries to tune on, and {FEWEST} are the least: judge more "
            "of them (`clew judge`), or keep the default"
        )


def names(queries: Iterable[Question]) -> set[tuple[str, str]]:
    """What makes two queries the same: the id, or the words."""
    found: set[tuple[str, str]] = set()
    for query in queries:
        found |= {("id", query.id), ("text", " ".join(query.text.casefold().split()))}
    return found


def number(name: str) -> int:
    """Of a query's id, up to 2⁶⁴: the same at any time and in any order of the file."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())
