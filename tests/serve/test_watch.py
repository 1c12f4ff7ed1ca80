"""Files are indexed as they change, whatever an editor, git or a user does to them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

import clew
from clew.ingest.watch import choose_paths, watch_folders
from clew.serve.jobs import IndexJob
from clew.serve.stores import ServedStores

PATIENCE = 60


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def job(stores: ServedStores) -> Iterator[IndexJob]:
    job = IndexJob(stores.folder())
    job.watch()
    wait_for(lambda: job.describe()["state"] == "done")
    yield job
    job.close()


def found(stores: ServedStores, words: str) -> list[str]:
    hits = stores.folder().engine.search(words, mode="keyword")
    return [hit.path or "" for hit in hits]


def test_a_saved_file_is_found_and_a_deleted_one_is_not(
    job: IndexJob, stores: ServedStores, notes: Path
) -> None:
    (notes / "new.md").write_text("A sextant measures angles.", "utf-8")
    wait_for(lambda: found(stores, "sextant") == ["new.md"])
    (notes / "new.md").unlink()
    wait_for(lambda: not found(stores, "sextant"))
    wait_for(lambda: "1 file removed: new.md" in [e["text"] for e in job.describe()["events"]])


def test_an_editor_that_renames_over_the_file_is_followed(
    job: IndexJob, stores: ServedStores, notes: Path
) -> None:
    for word in ("halyard", "bowline"):
        (notes / ".kitchen.txt.swp").write_text("editor's own", "utf-8")
        (notes / "kitchen.txt~").write_text(f"Walnut bread and {word}.", "utf-8")
        (notes / "kitchen.txt~").replace(notes / "kitchen.txt")
        (notes / ".kitchen.txt.swp").unlink()
        wait_for(lambda word=word: found(stores, word) == ["kitchen.txt"])
    assert found(stores, "halyard") == []


def test_a_branch_switch_with_thousands_of_changes(
    job: IndexJob, stores: ServedStores, notes: Path
) -> None:
    for number in range(2000):
        (notes / f"many-{number}.txt").write_text(f"capstan number {number}", "utf-8")
    wait_for(lambda: stores.folder().engine.store.stats(model="none")["records"] == 2003)
    for number in range(2000):
        (notes / f"many-{number}.txt").unlink()
    wait_for(lambda: stores.folder().engine.store.stats(model="none")["records"] == 3)


def test_a_folder_that_is_deleted_and_comes_back(
    job: IndexJob, stores: ServedStores, notes: Path, tmp_path: Path
) -> None:
    away = tmp_path / "elsewhere"
    shutil.copytree(notes, away, ignore=shutil.ignore_patterns(".clew"))
    engine = stores.folder().engine
    engine.index(away)
    engine.store.notes["x"] = "y"
    job.close()
    again = IndexJob(stores.folder())
    again.watch()
    wait_for(lambda: again.describe()["state"] == "done")
    shutil.rmtree(away)
    wait_for(lambda: any("gone" in event["text"] for event in again.describe()["events"]))
    away.mkdir()
    (away / "back.md").write_text("The anchor is back.", "utf-8")
    wait_for(lambda: found(stores, "anchor") == ["back.md"])
    (away / "more.md").write_text("And so is the windlass.", "utf-8")
    wait_for(lambda: found(stores, "windlass") == ["more.md"])
    again.close()


def test_a_folder_that_nobody_indexed_is_not_indexed_unasked(stores: ServedStores) -> None:
    """A store may have records that were given alone; or what there was of a folder was removed."""
    engine = stores.folder().engine
    engine.remove(collection="notes")
    engine.add([{"id": "one", "content": "A sextant measures angles."}])
    job = IndexJob(stores.folder())
    job.watch()
    wait_for(lambda: any("no folder" in event["text"] for event in job.describe()["events"]))
    assert engine.store.stats(model="none")["records"] == 1
    engine.index()
    wait_for(lambda: job.describe()["state"] == "done")
    job.close()
    assert len(engine.search("keel", mode="keyword")) == 1


def test_no_folder_at_all_is_waited_for(tmp_path: Path) -> None:
    folder, stop, synced, said = tmp_path / "later", threading.Event(), [], []
    thread = threading.Thread(
        target=watch_folders,
        args=(lambda: [folder], synced.append),
        kwargs={"stop": stop, "notice": said.append},
    )
    thread.start()
    wait_for(lambda: said)
    folder.mkdir()
    wait_for(lambda: len(synced) >= 2)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive() and synced[:2] == [[], []]


def test_what_failed_is_tried_again_without_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.ingest.watch.RETRY", 0.0)
    stop, synced, said = threading.Event(), list[Sequence[Path]](), list[str]()

    def sync(paths: Sequence[Path]) -> None:
        synced.append(paths)
        if len(synced) in (3, 4):
            raise clew.StoreError("another process is writing to it")

    thread = threading.Thread(
        target=watch_folders,
        args=(lambda: [tmp_path], sync),
        kwargs={"stop": stop, "notice": said.append},
    )
    thread.start()
    wait_for(lambda: len(synced) == 2)
    (tmp_path / "new.md").write_text("sextant", "utf-8")
    wait_for(lambda: len(synced) == 5)
    stop.set()
    thread.join(PATIENCE)
    assert synced == [[], [], [tmp_path / "new.md"], [], []]
    assert len(said) == 1 and "another process" in said[0]


def test_many_paths_or_a_rule_mean_everything() -> None:
    few = [Path(f"{n}.md") for n in range(3)]
    assert choose_paths([*few, few[0]]) == few
    assert choose_paths([*few, Path(".gitignore")]) == []
    assert choose_paths([Path(f"{n}.md") for n in range(100)]) == []


def test_a_store_that_was_deleted_and_made_anew_is_opened_again(
    stores: ServedStores, notes: Path, tmp_path: Path, web: TestClient
) -> None:
    def ask(words: str) -> httpx.Response:
        return web.get("/search", params={"q": words})

    assert ask("keel").json()["results"] and ask("keel").json()["cache"] == "exact"
    shutil.rmtree(notes / ".clew")
    assert ask("keel").status_code == 409 and "clew index" in ask("keel").json()["error"]
    assert {each["name"] for each in web.get("/stores").json()["stores"]} == {"notes", "memory"}
    assert web.post("/index", json={}).status_code == 202  # and says why it cannot
    (notes / "new.txt").write_text("The halyard is new.", "utf-8")
    with clew.open(notes) as engine:
        engine.index()
    assert [hit["path"] for hit in ask("halyard").json()["results"]] == ["new.txt"]
    web.post("/index", json={"embed": False})
    with clew.open(notes) as engine:
        assert engine.status()["records"] == 4
    # what is remembered is in a file that somebody can open, or is not acknowledged
    for file in tmp_path.glob("memory.db*"):
        file.unlink() if file.is_file() else shutil.rmtree(file)
    assert web.post("/memories", json={"content": "Ana sails"}).status_code == 409
    clew.Memory(tmp_path / "memory.db").close()
    assert web.post("/memories", json={"content": "Ana sails"}).status_code == 201
    with clew.Memory(tmp_path / "memory.db") as memory:
        assert [each.content for each in memory.latest()] == ["Ana sails"]
