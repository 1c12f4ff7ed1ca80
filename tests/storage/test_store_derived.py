"""Derived indexes are lost or damaged: they are made anew, or the examination says so."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from samples import Lived, answers, record, vector, word

from clew.filter import Filter
from clew.storage import log as change_log
from clew.storage.filters import where
from clew.storage.rows import labelled
from clew.storage.sqlite import SqliteTables
from clew.store import EmbeddedStore
from clew.types import Candidate
from entries import MODEL, entry, found, ill, near

Opened = Callable[..., EmbeddedStore]
Examined = Callable[..., list[dict[str, Any]]]


def test_the_sample_has_all_stages(lived: Lived, opened: Opened) -> None:
    """Else damage to some of its files would prove nothing."""
    store = opened()
    assert answers(store) == lived.answers
    stage = store.stats(model=MODEL)["vectors"]
    assert stage["stage"] == "inverted lists"
    assert (stage["sealed"], stage["tail"], stage["rows"]) == (300, 40, 300)
    assert ill(store) == []
    assert list(lived.vectors.glob("ivf-*.faiss"))


# ---------------------------------------------------------------------- lost


LOST = {
    "everything derived": "derived",
    "the keyword index": "derived/keyword-*",
    "the keyword state": "derived/keyword.json",
    "the vectors": "derived/vectors-*",
    "the vector state": "derived/vectors-*/state.json",
    "the inverted lists": "derived/vectors-*/ivf-*.faiss",
    "all states": "derived/**/*.json",
}


def remove(folder: Path, pattern: str) -> None:
    for path in matching(folder, pattern):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def matching(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    assert found, f"there is no {pattern} to damage"
    return found


@pytest.mark.parametrize("what", LOST)
def test_what_is_lost_is_made_anew_by_the_next_search(
    lived: Lived, opened: Opened, what: str
) -> None:
    remove(lived.folder, LOST[what])
    store = opened()
    assert answers(store) == lived.answers
    assert ill(store) == []


@pytest.mark.parametrize("what", ["everything derived", "the keyword index", "the vectors"])
def test_what_is_lost_under_an_open_store_is_made_anew_with_the_next_write(
    lived: Lived, opened: Opened, what: str
) -> None:
    store = opened()
    assert answers(store) == lived.answers
    remove(lived.folder, LOST[what])
    assert answers(store) == lived.answers  # it has the files open still
    store.put([record("new")], model=MODEL)
    assert found(store, word("new")) == near(store, vector("new"), limit=1) == ["new"]
    store.delete(["new"])
    assert answers(store) == lived.answers
    assert ill(store) == []
    store.close()
    assert answers(opened()) == lived.answers


def test_an_index_of_another_store_is_not_taken_for_this_ones(
    lived: Lived, folder: Path, opened: Opened, tmp_path: Path
) -> None:
    other = EmbeddedStore(tmp_path / "other")
    other.put([record(f"o{i}") for i in range(300)], model=MODEL)
    other.indexes.prepare(MODEL)
    other.indexes.refresh()
    other.close()
    shutil.rmtree(folder / "derived")
    shutil.copytree(tmp_path / "other" / "derived", folder / "derived")
    store = opened()
    assert answers(store) == lived.answers
    assert ill(store) == []


# ---------------------------------------------------------------------- damaged


def truncate(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def garble(path: Path, *, seed: int, bytes_at_most: int = 64) -> None:
    """Overwrite a stretch with noise, as a failing disk would."""
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    length = min(len(data), bytes_at_most)
    start = rng.randrange(len(data) - length + 1)
    data[start : start + length] = rng.randbytes(length)
    path.write_bytes(bytes(data))


KEYWORD = [
    "derived/keyword.json",
    "derived/keyword-*/meta.json",
    "derived/keyword-*/.managed.json",
    *(f"derived/keyword-*/*.{kind}" for kind in ("term", "idx", "pos", "fast", "fieldnorm")),
]
VECTORS = [
    f"derived/vectors-*/{name}"
    for name in ("state.json", "rows-*.f32", "cids.i64", "rids.i64", "dead.i64", "ivf-*.faiss")
]


def verdicts(
    lived: Lived,
    examined: Examined,
    patterns: list[str],
    damages: dict[str, Callable[[Path], None]],
) -> list[str]:
    """What is unacceptable after each kind of damage to each kind of file: nothing, it is hoped.

    Acceptable is: repaired by the search itself, or reported by the examination; and mended in
    any case by making everything derived anew.
    """
    copies: dict[str, Path] = {}
    for pattern in patterns:
        for name, damage in damages.items():
            copy = copies[f"{pattern} {name}"] = lived.folder.with_name(f"copy{len(copies)}")
            shutil.copytree(lived.folder, copy)
            for path in matching(copy, pattern):
                damage(path)
    wrong: list[str] = []
    for name, report in zip(copies, examined(*copies.values()), strict=True):
        if report["crash"]:
            wrong.append(f"{name} crashed: {report['crash'].splitlines()[-1]}")
        elif report["answers"] != lived.answers and not report["ill"]:
            wrong.append(f"{name}: another answer, passed off as whole ({report['error']})")
        mended = report.get("mended", lived.answers)
        if mended != lived.answers or report.get("ill after mending"):
            wrong.append(f"{name}: mending did not help")
    return wrong


@pytest.mark.parametrize("patterns", [KEYWORD, VECTORS], ids=["keyword", "vectors"])
def test_a_file_that_is_lost_or_cut_short_is_repaired_or_reported(
    lived: Lived, examined: Examined, patterns: list[str]
) -> None:
    damages: dict[str, Callable[[Path], None]] = {
        "lost": Path.unlink,
        "half": lambda path: truncate(path, 0.5),
        "most": lambda path: truncate(path, 0.99),
    }
    assert "\n".join(verdicts(lived, examined, patterns, damages)) == ""


@pytest.mark.parametrize("patterns", [KEYWORD, VECTORS], ids=["keyword", "vectors"])
def test_a_garbled_file_is_repaired_or_reported(
    lived: Lived, examined: Examined, patterns: list[str]
) -> None:
    damages: dict[str, Callable[[Path], None]] = {
        f"garbled {seed}": lambda path, seed=seed: garble(
            path, seed=seed, bytes_at_most=[4, 64, 4096][seed]
        )
        for seed in range(3)
    }
    assert "\n".join(verdicts(lived, examined, patterns, damages)) == ""


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "17", '{"seq": 3}', "\x00\xff", '{"seq"'])
@pytest.mark.parametrize("pattern", ["derived/keyword.json", "derived/vectors-*/state.json"])
def test_a_state_that_says_nothing_is_made_anew(
    lived: Lived, opened: Opened, pattern: str, text: str
) -> None:
    (path,) = lived.folder.glob(pattern)
    path.write_text(text, "latin-1")
    store = opened()
    ill(store)  # says something, or has it repaired, but does not fall over
    assert answers(store) == lived.answers
    assert ill(store) == []


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        *(("derived/keyword.json", key) for key in ("place", "docs", "folder", "store")),
        *(
            ("derived/vectors-*/state.json", key)
            for key in ("place", "count", "dead", "sealed", "store", "model", "dim")
        ),
    ],
)
def test_a_state_without_one_of_its_entries_is_made_anew(
    lived: Lived, opened: Opened, pattern: str, key: str
) -> None:
    (path,) = lived.folder.glob(pattern)
    state = json.loads(path.read_text())
    del state[key]
    path.write_text(json.dumps(state))
    store = opened()
    ill(store)
    assert answers(store) == lived.answers
    assert ill(store) == []


def test_vectors_missing_from_the_index_are_reported(lived: Lived, opened: Opened) -> None:
    """A state that counts fewer rows than the database has vectors is no whole index."""
    (path,) = lived.folder.glob("derived/vectors-*/state.json")
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "count": 310}))
    store = opened()
    assert answers(store) == lived.answers or ill(store)


def test_what_a_killed_writer_left_in_the_keyword_index_does_not_keep_it_behind_for_ever(
    lived: Lived, opened: Opened, tmp_path: Path
) -> None:
    """New files are there, deletions among them, but what would make them count is not."""
    shutil.copytree(lived.derived, tmp_path / "before")
    store = opened()
    store.delete(["r100", "r200"])
    store.put([record("new"), record("r101", 1)], model=MODEL)
    assert found(store, word("new")) == ["new"]
    store.close()
    (folder,) = lived.derived.glob("keyword-*")
    new = {path.name for path in folder.iterdir()}
    shutil.copy(tmp_path / "before" / "keyword.json", lived.derived)
    shutil.copy(tmp_path / "before" / folder.name / "meta.json", folder)
    for path in (tmp_path / "before" / folder.name).iterdir():
        if path.name not in new:  # the later merges had cleared it away
            shutil.copy(path, folder)
    store = opened()
    assert found(store, word("new")) == ["new"]
    assert found(store, word("r101", 1)) == ["r101"]
    assert [found(store, word(gone)) for gone in ("r100", "r101", "r200")] == [[], [], []]
    assert len(found(store, "zebra")) == 299
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")
    assert ill(store) == []


def test_a_keyword_index_that_is_further_than_its_state_says_is_not_served(
    opened: Opened, folder: Path
) -> None:
    """A process died between the two, or is there now, and there are as many passages as before."""
    store, state = opened(), folder / "derived" / "keyword.json"
    store.put([record(f"r{i:02}") for i in range(40)], model=MODEL)
    store.indexes.refresh()
    before = state.read_bytes()
    store.put([record("r07", 1)], model=MODEL)
    store.indexes.refresh()
    store.close()
    state.write_bytes(before)
    store = opened()
    assert found(store, word("r07", 1)) == ["r07"]
    store.put([record("r07", 2)], model=MODEL)
    assert found(store, word("r07", 1)) == []
    assert found(store, word("r07", 2)) == ["r07"]
    assert ill(store) == []


# ---------------------------------------------------------------------- the log


def test_an_index_further_behind_than_the_log_reaches_is_made_anew(
    lived: Lived, opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(lived.derived, tmp_path / "old")
    monkeypatch.setattr(change_log, "KEEP", 5)
    store = opened()
    for i in range(10):
        store.put([record("r050", i + 1)], model=MODEL)
    store.put([record("r050")], model=MODEL)
    store.indexes.refresh(optimise=True)  # prunes the log
    store.close()
    shutil.rmtree(lived.derived)
    shutil.copytree(tmp_path / "old", lived.derived)
    store = opened()
    assert found(store, word("r050", 9)) == []
    assert near(store, vector("r050"), limit=1) == ["r050"]
    assert answers(store) == lived.answers
    assert ill(store) == []


def test_a_filter_kept_from_before_the_log_was_pruned_is_asked_anew(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "KEEP", 2)
    store, other = opened(), opened()
    store.put([entry("a", "zebra", tags=("x",)), entry("b", "zebra")])
    assert found(other, "zebra", tags="x") == ["a"]
    for i in range(5):
        store.put([entry("a", f"zebra {i}"), entry("b", f"zebra {i}", tags=("x",))])
    store.indexes.refresh(optimise=True)
    assert found(other, "zebra", tags="x") == ["b"]


@pytest.mark.parametrize("search_first", [True, False])
def test_a_database_brought_back_from_a_backup_is_not_served_from_a_later_index(
    opened: Opened, folder: Path, tmp_path: Path, search_first: bool
) -> None:
    """One file to back up means: putting that file back is enough."""
    store = opened()
    store.put([record(f"kept{i}") for i in range(5)], model=MODEL)
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 5
    store.close()
    shutil.copy(folder / "clew.db", tmp_path / "backup")
    store = opened()
    store.put([record(f"lost{i}") for i in range(5)], model=MODEL)
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 10
    store.close()
    shutil.copy(tmp_path / "backup", folder / "clew.db")
    store = opened()
    if search_first:
        assert len(found(store, "zebra")) == 5
    for i in range(20):  # past where the later index had come to
        store.put([record(f"new{i:02}")], model=MODEL)
    expected = [*(f"kept{i}" for i in range(5)), *(f"new{i:02}" for i in range(20))]
    assert sorted(found(store, "zebra")) == expected
    assert sorted(near(store, vector("x"))) == expected
    for name in expected:
        assert found(store, word(name)) == near(store, vector(name), limit=1) == [name]
    assert found(store, word("lost0")) == []
    assert ill(store) == []


def test_a_copy_of_the_database_that_is_put_back_is_searched_as_it_was_then(
    opened: Opened, folder: Path, tmp_path: Path
) -> None:
    store = opened()
    store.put([entry("a", "zebra", vectors=[[1, 0]]), entry("b", "walrus")], model=MODEL)
    assert found(store, "zebra") == ["a"]
    store.close()
    shutil.copy(folder / "clew.db", tmp_path / "copy")
    store = opened()
    store.put([entry("a", "otter", vectors=[[0, 1]]), entry("c", "zebra")], model=MODEL)
    store.delete(["b"])
    assert found(store, "otter") == near(store, [0, 1], limit=1) == ["a"]
    store.indexes.refresh()
    store.close()
    shutil.copy(tmp_path / "copy", folder / "clew.db")
    store = opened()
    assert found(store, "zebra") == near(store, [1, 0]) == ["a"]
    assert (found(store, "walrus"), found(store, "otter")) == (["b"], [])
    store.put([entry("d", "ibis")])
    assert found(store, "ibis") == ["d"] and found(store, "zebra") == ["a"]
    assert ill(store) == []


# ---------------------------------------------------------------------- grown


def steps(folder: Path, ask: Callable[[SqliteTables], object]) -> int:
    """Of SQLite's machine, in thousands: what a query costs, whoever else is at the computer."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(sqlite3.connect(folder / "clew.db", factory=SqliteTables)) as db:
        db.execute("SELECT count(*) FROM records").fetchone()
        db.set_progress_handler(count, 1000)
        ask(db)
    return taken


def test_a_store_that_was_small_is_not_walked_through_once_it_has_grown(
    folder: Path, opened: Opened
) -> None:
    store = opened()
    store.put([record("a"), record("b")], model=MODEL)
    store.indexes.refresh(optimise=True)
    store.put([entry(f"r{i:04}", f"number {i}", tags=("all",)) for i in range(2000)])
    everyone = list(range(1, 101))
    assert steps(folder, lambda db: db.names(everyone)) < 20
    assert steps(folder, lambda db: db.names(list(range(1, 1001)))) > 5  # it does count


def test_the_newest_with_a_label_are_found_without_sorting_all_that_have_it(
    folder: Path, opened: Opened
) -> None:
    store = opened()
    store.put([entry(f"r{i:04}", f"number {i}", tags=("all",)) for i in range(5000)])

    def ask(db: SqliteTables) -> list[Candidate]:
        visible = where(Filter(not_domain="personal"), db)
        groups = [(1.0, ("all",))]
        return labelled(db, ("tag",), groups, visible, limit=10, allowed=None, before=None)

    with closing(sqlite3.connect(folder / "clew.db", factory=SqliteTables)) as db:
        assert len(ask(db)) == 10
    assert steps(folder, ask) < 20


def test_lengths_are_read_while_the_newest_passages_are_deleted(
    folder: Path, opened: Opened
) -> None:
    class Deleting(SqliteTables):
        def execute(self, query: str, *parameters: Any) -> Any:  # type: ignore[override]
            if "cid >= ?" in query:
                super().execute("DELETE FROM chunks WHERE cid > 1")
            return super().execute(query, *parameters)

    opened().put([entry(f"r{i}", "zebra") for i in range(3)])
    with closing(sqlite3.connect(folder / "clew.db", factory=Deleting)) as db:
        assert db.lengths(64) == [5]


def test_lists_that_are_being_built_while_another_process_starts_over_are_no_error(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    import faiss

    store = opened()
    store.put([record(f"r{i}") for i in range(300)], model=MODEL)
    write, calls = faiss.write_index, []

    def write_index(index: object, file: str) -> None:
        calls.append(file)
        shutil.rmtree(folder / "derived")
        write(index, file)

    monkeypatch.setattr(faiss, "write_index", write_index)
    store.indexes.prepare(MODEL)
    store.indexes.refresh(optimise=True)
    assert len(calls) == 1
    assert len(near(store, vector("r1"))) == 300
