"""A `.clew/` that came with a folder, from an archive or a repository, or that others can write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import clew
from clew import trust
from clew.cache import SearchCache
from clew.cli import run
from clew.types import SearchResult

WORDS = ("rivers", "hills", "lanterns", "bridges")
PRECIOUS = b"precious"


@pytest.fixture(autouse=True)
def nobody_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(trust.ENVIRONMENT)
    be("you", tmp_path, monkeypatch)


def be(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "users" / who))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store that you made."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for word in WORDS:
        (folder / f"{word}.md").write_text(f"# {word}\n\nThe {word} of the north.", "utf-8")
    with clew.open(folder, create=True, model="none") as engine:
        engine.index()
        engine.search("rivers")
    return folder


@pytest.fixture
def strange(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that somebody else made, and you unpacked: so it belongs to you."""
    be("somebody", tmp_path, monkeypatch)
    place = tmp_path / "strange"
    shutil.copytree(folder, place)
    with clew.open(place, model="none") as engine:
        engine.store.indexes.rebuild()
    be("you", tmp_path, monkeypatch)
    return place


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_bytes(PRECIOUS)
    return file


def search(folder: Path, query: str = "rivers") -> list[str]:
    """By the index: a kept answer needs none."""
    with clew.open(folder, create=False, model="none", cache=False) as engine:
        return [hit.id.rpartition(":")[2] for hit in engine.search(query).hits]


def keyword_index(folder: Path) -> Path:
    return next((folder / ".clew" / "derived").glob("keyword-*"))


# ---------------------------------------------------------------------- indexes of a stranger


def test_a_stranger_s_tantivy_index_is_not_opened(strange: Path, victim: Path) -> None:
    managed = keyword_index(strange) / ".managed.json"
    managed.write_text(json.dumps([*json.loads(managed.read_text()), str(victim)]))
    with clew.open(strange, model="none") as engine:
        assert engine.search("rivers").hits
        engine.add([clew.Record(id="new", content="rivers again")])
        engine.store.indexes.refresh(optimise=True)
    assert victim.read_bytes() == PRECIOUS
    assert search(strange)[0] == "rivers.md"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("signature", None),
        lambda state: state.update(signature="0" * 32),
        lambda state: state.update(docs=state["docs"], place=[*state["place"]], more=1),
    ],
)
def test_an_index_without_your_signature_is_made_anew(
    folder: Path, spoil: Callable[[dict[str, object]], None]
) -> None:
    before, index = search(folder), keyword_index(folder)
    file = folder / ".clew" / "derived" / "keyword.json"
    state = json.loads(file.read_text())
    spoil(state)
    file.write_text(json.dumps(state))
    assert search(folder) == before
    assert keyword_index(folder) != index


@pytest.mark.parametrize("spoil", [lambda _: "[" * 200_000, lambda state: f"{state:<{1 << 25}}"])
def test_a_state_that_is_too_deep_or_too_long_is_none(
    folder: Path, spoil: Callable[[str], str]
) -> None:
    """It may be longer than the memory: a file of nothing takes no space on a disk."""
    before, index = search(folder), keyword_index(folder)
    file = folder / ".clew" / "derived" / "keyword.json"
    file.write_text(spoil(file.read_text()))
    assert search(folder) == before
    assert keyword_index(folder) != index


def test_your_own_index_stays(folder: Path) -> None:
    index = keyword_index(folder)
    assert search(folder) and keyword_index(folder) == index


def test_a_folder_that_moved_is_searched_as_before(folder: Path, tmp_path: Path) -> None:
    before = search(folder, "north")
    folder.rename(tmp_path / "moved")
    index = keyword_index(tmp_path / "moved")
    assert search(tmp_path / "moved", "north") == before
    assert keyword_index(tmp_path / "moved") != index


def test_without_a_home_every_process_makes_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file" / "below"))
    assert search(folder)[0] == "rivers.md"

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    assert search(folder)[0] == "rivers.md"
    with pytest.raises(clew.ConfigError, match=trust.ENVIRONMENT):
        trust.trust(folder, stores=[".clew"])


def test_the_secret_is_yours_alone(folder: Path) -> None:
    file = trust.user_folder() / "secret"
    assert len(file.read_bytes()) == 32 and file.stat().st_mode & 0o077 == 0


def test_answers_that_a_stranger_cached_are_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached() -> SearchResult | None:
        with contextlib.closing(SearchCache(tmp_path / "cache.db")) as cache:
            return cache.get("1.key")

    with contextlib.closing(SearchCache(tmp_path / "cache.db")) as cache:
        cache.put("1.key", SearchResult((), suppressed=0, trace={}))
    assert cached() is not None
    be("another", tmp_path, monkeypatch)
    assert cached() is None


def test_a_graph_that_a_stranger_built_is_not_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be("somebody", tmp_path, monkeypatch)
    with clew.open(folder, model="none") as engine:
        engine.graph.build()
        be("you", tmp_path, monkeypatch)
        with pytest.raises(clew.ClewError, match="graph build"):
            engine.graph.show()


# ---------------------------------------------------------------------- links


@pytest.mark.parametrize(
    "name",
    [
        "clew.db-wal",
        "cache.db",
        "derived.lock",
        "embed.lock",
        "graph.lock",
        ".gitignore",
        "derived/vectors-none/rows.f32",
        "derived/keyword.json",
        "derived/tree.lock",
    ],
)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_a_store_is_refused(
    folder: Path, victim: Path, name: str, dangling: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    link = folder / ".clew" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    if dangling:
        victim.unlink()
    assert run(["index", "-q", str(folder), "--model", "none"]) == 1
    assert str(link) in capsys.readouterr().err
    assert run(["search", "rivers", "-C", str(folder)]) == 1
    assert not victim.exists() if dangling else victim.read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", ["clew.db", "derived"])
def test_a_link_in_the_place_of_what_a_store_needs_is_refused(folder: Path, name: str) -> None:
    there = folder / ".clew" / name
    there.rename(folder / "elsewhere")
    there.symlink_to(folder / "elsewhere")
    with pytest.raises(clew.StoreError, match="link"):
        clew.open(folder)


def test_a_pipe_in_a_store_is_refused(folder: Path) -> None:
    os.mkfifo(folder / ".clew" / "derived" / "tree.json")
    with pytest.raises(clew.StoreError, match="no file at all"):
        clew.open(folder)


def test_a_store_on_another_disk_is_opened_when_you_say_so(folder: Path, tmp_path: Path) -> None:
    (folder / ".clew").rename(tmp_path / "disk")
    (folder / ".clew").symlink_to(tmp_path / "disk")
    with pytest.raises(clew.StoreError, match="clew trust"):
        clew.open(folder)
    assert run(["trust", str(folder)]) == 0
    assert search(folder)[0] == "rivers.md"
    (folder / ".clew").unlink()
    shutil.copytree(tmp_path / "disk", tmp_path / "other")
    (folder / ".clew").symlink_to(tmp_path / "other")
    with pytest.raises(clew.StoreError, match="clew trust"):
        clew.open(folder)


def test_a_link_in_a_trusted_store_is_refused_all_the_same(folder: Path, victim: Path) -> None:
    assert run(["trust", str(folder)]) == 0
    (folder / ".clew" / "seal.lock").symlink_to(victim)
    with pytest.raises(clew.StoreError, match=r"seal\.lock"):
        clew.open(folder)


@pytest.mark.parametrize("ending", ["", "-wal", ".clew"])
def test_a_link_beside_a_memory_is_refused(tmp_path: Path, victim: Path, ending: str) -> None:
    file = tmp_path / "memory.db"
    clew.Memory(file, model="none").close()
    link = file.with_name(f"memory.db{ending}")
    if link.exists():
        link.rename(tmp_path / "elsewhere")
        victim = tmp_path / "elsewhere"
    link.symlink_to(victim)
    with pytest.raises(clew.StoreError, match=r"link.*clew trust"):
        clew.Memory(file, model="none").open()


def test_a_link_to_a_memory_is_opened_when_you_say_so(tmp_path: Path) -> None:
    clew.Memory(tmp_path / "memory.db", model="none").close()
    (tmp_path / "link.db").symlink_to(tmp_path / "memory.db")
    with pytest.raises(clew.StoreError, match=r"clew trust .*link\.db"):
        clew.Memory(tmp_path / "link.db", model="none").open()
    assert run(["trust", str(tmp_path / "link.db")]) == 0
    clew.Memory(tmp_path / "link.db", model="none").close()


# ---------------------------------------------------------------------- other users


def test_a_store_of_another_user_is_refused_unless_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(clew.StoreError, match=f"another user.*clew trust {folder} "):
        clew.open(folder)
    with monkeypatch.context() as patch:
        patch.setenv(trust.ENVIRONMENT, str(folder))
        assert search(folder)[0] == "rivers.md"
    assert run(["trust", str(folder)]) == 0
    assert search(folder)[0] == "rivers.md"
    assert run(["trust", str(folder), "--revoke"]) == 0
    with pytest.raises(clew.StoreError, match="another user"):
        clew.open(folder)


def test_what_others_could_write_is_narrowed_and_made_anew(folder: Path) -> None:
    before, index, home = search(folder), keyword_index(folder), folder / ".clew"
    home.chmod(0o775)
    (home / "clew.db").chmod(0o666)
    assert search(folder) == before
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "clew.db").stat().st_mode & 0o777 == 0o600
    assert keyword_index(folder) != index


@pytest.mark.parametrize("url", ["", "duckdb:///notes.duckdb"])
def test_nobody_else_may_read_what_clew_writes(tmp_path: Path, url: str) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "open"
        folder.mkdir()
        (folder / "a.md").write_text("a secret", "utf-8")
        with clew.open(folder, create=True, model="none", store=url) as engine:
            engine.index()
            engine.search("secret")
            inside = [folder / ".clew", *folder.glob("*.duckdb*"), folder / ".clew" / "clew.db"]
            for place in filter(Path.exists, inside):
                assert place.stat().st_mode & 0o077 == 0, place
    finally:
        os.umask(before)


def test_nobody_else_may_read_memories_exports_and_pages(tmp_path: Path, folder: Path) -> None:
    before = os.umask(0)
    try:
        memory, export, page = tmp_path / "m.db", tmp_path / "m.json", tmp_path / "p.html"
        common = ["--db", str(memory)]
        assert run(["remember", "a secret", *common]) == 0
        assert run(["export", str(export), *common]) == 0
        assert run(["search", "rivers", "-C", str(folder), "--html", str(page)]) == 0
        for file in (memory, tmp_path / "m.db.clew", export, page):
            assert file.stat().st_mode & 0o077 == 0, file
    finally:
        os.umask(before)


# ---------------------------------------------------------------------- hostile schemas


def test_a_duckdb_store_with_a_view_is_refused(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    clew.open(tmp_path, create=True, model="none", store="duckdb:///notes.duckdb").close()
    with duckdb.connect(str(tmp_path / "notes.duckdb")) as db:
        db.execute(
            "CREATE OR REPLACE VIEW tags AS SELECT content, 1 AS rid FROM read_text('/etc/*')"
        )
    with pytest.raises(clew.StoreError, match="'tags'"):
        clew.open(tmp_path, model="none", store="duckdb:///notes.duckdb")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER INSERT ON changes BEGIN DELETE FROM records; END",
        "CREATE VIEW evil AS SELECT * FROM records",
        "CREATE VIRTUAL TABLE evil USING fts5(words)",
    ],
)
def test_a_store_with_a_trigger_or_view_is_refused(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / ".clew" / "clew.db")
    db.execute(statement)
    db.close()
    with pytest.raises(clew.StoreError, match="'evil'"):
        clew.open(folder)
