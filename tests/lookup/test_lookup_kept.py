"""What is read of folders and repositories stays between processes; what cannot be is named."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handles import look_up
from repositories import BOAT, Repository, boat, environment

import clew
from clew import ExternalLookupResult, Search
from clew.cache import build_cache_key
from clew.lookup import pool
from clew.sources import files
from clew.sources.git_repository import Git
from entries import ids

from hashing import HashingEmbedder

PATIENT = 60.0


def lookup(query: str, max_results: int = 20, **places: Any) -> ExternalLookupResult:
    """By a Search of its own, as another process would."""
    with Search(deadline=PATIENT, **places) as search:
        return look_up(search, query, max_results)


def notes(found: ExternalLookupResult, backend: str = "local_git") -> str:
    return " ".join(found.trace["backends"][backend]["notes"])


def kinds(found: ExternalLookupResult) -> set[str]:
    return {hit.metadata["kind"] for hit in found}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEW_LOOKUPS", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return boat(tmp_path / "boat")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths and commits that git is asked for the content of."""
    asked: list[str] = []
    blobs, diffs = Git.read_files, Git.read_diffs

    def read_files(self: Git, some: Sequence[Any]) -> Any:
        asked.extend(blob.path for blob in some)
        return blobs(self, some)

    def read_diffs(self: Git, some: Sequence[Any], *rest: Any, **more: Any) -> Any:
        asked.extend(commit.subject for commit in some)
        return diffs(self, some, *rest, **more)

    monkeypatch.setattr(Git, "read_files", read_files)
    monkeypatch.setattr(Git, "read_diffs", read_diffs)
    return asked


# ---------------------------------------------------------------------- between processes


def test_a_second_process_reads_nothing_again(repository: Repository, read: list[str]) -> None:
    first = lookup("torque", repositories=[repository.folder])
    assert sorted(read) == ["Model the keel", "README.md", "Raise the torque", "boat.py"]
    read.clear()
    again = lookup("torque", repositories=[repository.folder])
    assert read == [] and [hit.id for hit in again] == [hit.id for hit in first]
    repository.commit("Paint it", {"paint.md": "torque of the paint mixer"})
    later = lookup("paint mixer", repositories=[repository.folder])
    assert sorted(read) == ["Paint it", "paint.md"] and "git:boat:paint.md" in ids(later)


def test_files_that_did_not_change_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.ingest import sync

    folder = tmp_path / "papers"
    folder.mkdir()
    for word in ("keel", "mast"):
        (folder / f"{word}.md").write_text(f"The {word} of a sloop")
        os.utime(folder / f"{word}.md", (1e9, 1e9))
    opened: list[str] = []
    real = sync.HeldFolder.read

    def read(self: Any, path: str, **more: Any) -> bytes:
        opened.append(path)
        return real(self, path, **more)

    monkeypatch.setattr(sync.HeldFolder, "read", read)
    assert len(lookup("sloop", folders=[folder])) == 2 and sorted(opened) == ["keel.md", "mast.md"]
    opened.clear()
    assert len(lookup("sloop", folders=[folder])) == 2 and opened == []
    (folder / "mast.md").write_text("A mast of spruce for a sloop")
    assert "spruce" in lookup("mast", folders=[folder])[0].content and set(opened) == {"mast.md"}
    (folder / "keel.md").unlink()
    assert len(lookup("sloop", folders=[folder])) == 1


def test_two_processes_that_see_other_commits_do_not_mislead_each_other(
    repository: Repository,
) -> None:
    first = repository.git("rev-parse", "HEAD")
    with Search(repositories=[repository.folder], deadline=PATIENT) as search:
        assert search.external_lookup("torque")
        repository.commit("Add a winch", {"winch.md": "A winch with a torque limiter"})
        assert "git:boat:winch.md" in ids(lookup("winch", repositories=[repository.folder]))
        repository.git("checkout", "-q", first)
        assert "git:boat:winch.md" not in ids(search.external_lookup("winch"))


def test_a_reading_that_was_broken_off_goes_on_where_it_was(
    repository: Repository, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Git, "list_commits", lambda *_, **__: 1 / 0)
        assert lookup("torque", repositories=[repository.folder]).degraded
    assert sorted(read) == ["README.md", "boat.py"]
    read.clear()
    found = lookup("torque", repositories=[repository.folder])
    assert sorted(read) == ["Model the keel", "Raise the torque"]
    assert kinds(found) == {"file", "commit", "diff"} and not found.degraded


@pytest.mark.parametrize("damage", ["database", "note", "link"])
def test_what_is_kept_and_damaged_is_made_anew(
    repository: Repository, kept: Path, damage: str, tmp_path: Path
) -> None:
    before = ids(lookup("torque", repositories=[repository.folder]))
    (place,) = kept.glob("git-*")
    if damage == "database":
        for file in (place / ".clew").glob("*.db*"):
            file.write_bytes(b"damaged")
    elif damage == "note":
        with clew.open(place, model="none") as engine:
            engine.store.notes["git boat"] = "{damaged"
    else:
        elsewhere = tmp_path / "elsewhere" / "store"
        (place / ".clew").rename(elsewhere)
        (place / ".clew").symlink_to(elsewhere)
    again = lookup("torque", repositories=[repository.folder], include_personal=True)
    assert ids(again) == before and not again.degraded


def test_nothing_is_kept_where_that_is_not_wanted(repository: Repository, kept: Path) -> None:
    assert lookup("torque", repositories=[repository.folder], keep=False)
    assert not kept.exists()


def test_only_the_user_may_read_what_is_kept(repository: Repository, kept: Path) -> None:
    lookup("torque", repositories=[repository.folder])
    (place,) = kept.glob("git-*")
    assert place.stat().st_mode & 0o077 == 0


def test_what_nobody_uses_makes_room(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_KEPT", 1)
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("keel")
        assert lookup("keel", folders=[tmp_path / name])
        for used in kept.glob("*/used"):
            os.utime(used, (1e9, 1e9))
    assert len(list(kept.glob("files-*"))) == 2  # room is made before another one comes


@pytest.mark.parametrize("damaged", [b"", b"no file of vectors", None])
def test_what_passages_mean_is_kept_too(
    repository: Repository, kept: Path, damaged: bytes | None
) -> None:
    one, two = HashingEmbedder(), HashingEmbedder()
    first = lookup("torque", repositories=[repository.folder], embedder=one)
    assert one.embedded and (kept / "vectors.npz").stat().st_mode & 0o077 == 0
    if damaged is not None:
        (kept / "vectors.npz").write_bytes(damaged)
    again = lookup("torque", repositories=[repository.folder], embedder=two)
    assert two.embedded == ([] if damaged is None else one.embedded)
    assert [(h.id, h.score) for h in again] == [(h.id, h.score) for h in first]


def test_new_vectors_take_the_place_of_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_VECTORS", 2)
    names = [("m", bytes([n] * 16)) for n in range(3)]
    for name in names:
        some = pool.TextVectors(tmp_path / "vectors.npz")
        some.load()
        some.add(name, np.ones(4, np.float32))
        some.save()
    some = pool.TextVectors(tmp_path / "vectors.npz")
    some.load()
    assert list(some) == names[1:]


# ---------------------------------------------------------------------- what cannot be read


def partial_clone(repository: Repository, folder: Path, *options: str) -> Path:
    """Of an origin that is gone by now."""
    repository.git("config", "uploadpack.allowFilter", "true")
    subprocess.run(
        ["git", "clone", "-q", *options, f"file://{repository.folder}", str(folder)],
        check=True,
        capture_output=True,
        env=environment(),
    )
    repository.folder.rename(folder.with_name("gone"))
    return folder


def test_a_partial_clone_whose_origin_is_gone_is_read_as_far_as_it_goes(
    tmp_path: Path, repository: Repository
) -> None:
    repository.commit("Add a winch", {"winch.md": "A winch with a torque limiter"})
    clone = partial_clone(repository, tmp_path / "clone", "--filter=blob:none")
    found = lookup("torque", repositories=[clone])
    assert not found.degraded and kinds(found) >= {"file", "commit"}
    assert "git:clone:boat.py" in ids(found)
    # the first state of the keel is not here, so what was changed of it cannot be told
    assert "2 changes not in this clone" in notes(found) and "boat.py" in notes(found)
    winch = lookup("winch limiter", repositories=[clone])[0]
    assert winch.path == "winch.md" and winch.metadata["kind"] == "file"


def test_of_one_without_any_file_messages_are_found(tmp_path: Path, repository: Repository) -> None:
    clone = partial_clone(repository, tmp_path / "c", "--no-checkout", "--filter=blob:none")
    found = lookup("torque gale", repositories=[clone])
    assert kinds(found) == {"commit"} and not found.degraded
    assert "2 files not in this clone" in notes(found) and "README.md" in notes(found)


def test_of_one_without_trees_messages_are_found_and_the_rest_is_named(
    tmp_path: Path, repository: Repository
) -> None:
    clone = partial_clone(repository, tmp_path / "c", "--no-checkout", "--filter=tree:0")
    found = lookup("torque gale", repositories=[clone])
    assert kinds(found) == {"commit"} and "git ls-tree" in found.degraded[0]
    assert "2 changes not in this clone" in notes(found)


def damage(repository: Repository, name: str, *, head: bool) -> None:
    """Spoil an object: its first bytes, or those after them, which are looked at later."""
    file = repository.folder / ".git" / "objects" / name[:2] / name[2:]
    data = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(b"damaged" if head else data[: len(data) // 2])


@pytest.mark.parametrize("head", [True, False])
def test_one_damaged_file_does_not_take_the_others_down(repository: Repository, head: bool) -> None:
    words = {f"{n}.md": f"Note {n} on torque\n" + f"line {n} and more\n" * 400 for n in range(5)}
    repository.commit("Add notes", dict(words))
    damage(repository, repository.git("rev-parse", "HEAD:2.md"), head=head)
    (repository.folder / "2.md").unlink()  # git would compare what is checked out
    found = lookup("torque", repositories=[repository.folder])
    there = {hit.path for hit in found if hit.metadata["kind"] == "file"}
    assert there == {"0.md", "1.md", "3.md", "4.md", "boat.py"} and not found.degraded
    assert "1 file not in this clone, or damaged: 2.md" in notes(found)
    assert "1 change not in this clone, or damaged:" in notes(found)


def test_one_damaged_folder_does_not_take_the_others_down(repository: Repository) -> None:
    last = repository.commit("Rig", {"rig/deep/mast.md": "Torque", "rig/sail.md": "Torque of it"})
    damage(repository, repository.git("rev-parse", "HEAD:rig/deep"), head=True)
    found = lookup("torque", repositories=[repository.folder])
    assert {"git:boat:boat.py", "git:boat:rig/sail.md"} <= set(ids(found))
    assert "1 folder not in this clone, or damaged: rig/deep/" in notes(found)
    assert f"1 change not in this clone, or damaged: {last[:12]}" in notes(found)
    diffs = {hit.path for hit in lookup("newton metres 40", repositories=[repository.folder])}
    assert "boat.py" in diffs and not found.degraded


def test_a_file_that_was_fetched_after_all_is_found_by_the_next_process(
    repository: Repository,
) -> None:
    name = repository.git("rev-parse", "HEAD:README.md")
    file = repository.folder / ".git" / "objects" / name[:2] / name[2:]
    file.rename(repository.folder / "aside")
    assert "README.md" in notes(lookup("sloop wood", repositories=[repository.folder]))
    (repository.folder / "aside").rename(file)
    found = lookup("sloop wood", repositories=[repository.folder])
    assert "git:boat:README.md" in ids(found) and "1 file" not in notes(found)


def test_one_damaged_state_of_the_past_costs_its_own_diffs_only(repository: Repository) -> None:
    old = repository.git("rev-parse", "HEAD~1:boat.py")
    repository.commit("Fit a winch", {"winch.md": "A winch with a torque limiter"})
    damage(repository, old, head=False)
    found = lookup("torque winch", repositories=[repository.folder])
    diffs = {hit.path for hit in found if hit.metadata["kind"] == "diff"}
    assert "boat.py" not in diffs and "git:boat:boat.py" in ids(found)
    assert "2 changes not in this clone, or damaged" in notes(found) and not found.degraded


def test_history_before_a_damaged_commit_is_left_out_and_said(repository: Repository) -> None:
    for n in range(3):
        repository.commit(f"Torque note {n}", {"note.md": f"torque {n}"})
    damage(repository, repository.git("rev-parse", "HEAD~3"), head=True)
    found = lookup("torque", repositories=[repository.folder])
    assert "git:boat:boat.py" in ids(found) and "history ends early" in notes(found)


# ---------------------------------------------------------------------- one passage, one result


def test_a_file_and_the_diff_that_made_it_so_are_one_result(repository: Repository) -> None:
    last = repository.git("rev-parse", "HEAD")
    found = lookup("torque newton", repositories=[repository.folder])
    file = next(hit for hit in found if hit.metadata["kind"] == "file")
    assert file.path == "boat.py" and last in file.metadata["changed_in"]
    assert f"git:boat@{last}:boat.py" not in ids(found)
    # what the first commit added is no longer so: that is another passage
    first = repository.git("rev-parse", "HEAD~1")
    assert f"git:boat@{first}:boat.py" in ids(found)


def test_what_only_a_diff_took_away_is_found_in_the_diff(repository: Repository) -> None:
    repository.commit("Use plain words", {"boat.py": BOAT.replace("newton metres", "force")})
    found = lookup("torque newton metres", repositories=[repository.folder])
    last = repository.git("rev-parse", "HEAD")
    assert f"git:boat@{last}:boat.py" in ids(found)


# ---------------------------------------------------------------------- keys from before


def old_cache(file: Path, form: str, query: str, backend: str, **more: Any) -> Path:
    """A table as the system before has left it."""
    key = build_cache_key(query=query, backend=backend, **more)
    forms = {"v2": key.aliases[0], "legacy": key.legacy, "typed": query.upper()}
    row = {"query": forms[form], "backend": backend, "results": [{"id": "old", "content": "keel"}]}
    file.write_text(json.dumps({"_default": {"1": row}}))
    return file


def pages(query: str, limit: int) -> list[dict[str, str]]:
    return [{"id": "new", "text": "keel of today"}]


@pytest.mark.parametrize(
    ("form", "slot"), [("v2", "alias"), ("legacy", "legacy"), ("typed", "legacy")]
)
@pytest.mark.parametrize("beside", [False, True])
def test_an_older_key_answers_and_is_written_anew(
    tmp_path: Path, form: str, slot: str, beside: bool
) -> None:
    """Alone, and beside a folder, whose files say how fresh they are: each backend by itself."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "keel.md").write_text("The keel of a sloop")
    more: dict[str, Any] = {"folders": [tmp_path / "papers"]} if beside else {}
    file = old_cache(tmp_path / "old.json", form, "keel", "pages")
    for expected in (slot, "primary"):  # the second time from what the first has written
        found = lookup("Keel", backends={"pages": pages}, cache_file=file, **more)
        told = found.trace["cache"]
        assert (told["backends"]["pages"] if beside else told["slot"]) == expected
        assert ids(found.by_backend["pages"]) == ["old"]
        assert len(found) == 1 + beside
    saved = json.loads(file.read_text())["answers"]
    assert any(
        set(build_cache_key(query="keel", backend="pages").candidates()) == set(r["keys"])
        for r in saved
    )


def test_a_v2_key_of_the_very_same_state_answers_for_a_storage(tmp_path: Path) -> None:
    """It has the state of the storage in it; a legacy key has not, and must not answer."""
    with clew.open(tmp_path / "storage", model="none") as engine:
        engine.add([clew.Record(id="now", content="keel of today")])
        file = tmp_path / "kept.json"
        with Search(engine, cache_file=file) as search:
            search.external_lookup("keel")
        (saved,) = json.loads(file.read_text())["answers"]
        for start, expected in (("v2:", ["old"]), ("backend=", ["now"])):
            key = next(name for name in saved["keys"] if name.startswith(start))
            row = {"query": key, "backend": "x", "results": [{"id": "old", "content": "keel"}]}
            file.write_text(json.dumps({"_default": {"1": row}}))
            with Search(engine, cache_file=file) as search:
                assert ids(search.external_lookup("keel")) == expected
        engine.add([clew.Record(id="later", content="keel of tomorrow")])
        with Search(engine, cache_file=file) as search:
            assert "later" in ids(search.external_lookup("keel"))
