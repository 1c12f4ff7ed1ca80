"""URLs of stores: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import clew
from clew.config import check_url
from clew.errors import ConfigError, StoreError
from clew.storage import has_store, is_url, locate
from clew.store import open_store
from clew.trust import UntrustedError
from entries import entry, found


def test_nothing_is_the_store_in_the_folder(tmp_path: Path) -> None:
    assert locate("", tmp_path).file == tmp_path / ".clew" / "clew.db"


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("duckdb:///notes.duckdb", "notes.duckdb"),
        ("duckdb:///.clew/notes.duckdb", ".clew/notes.duckdb"),
        ("embedded:///", ".clew/clew.db"),
        ("embedded:///other", "other/.clew/clew.db"),
        ("embedded:///other/.clew", "other/.clew/clew.db"),
        ("embedded:///memory.db", "memory.db"),
    ],
)
def test_a_path_goes_from_the_folder_on(tmp_path: Path, url: str, file: str) -> None:
    assert locate(url, tmp_path).file == tmp_path / file


def test_four_slashes_are_an_absolute_path(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/notes.duckdb"
    assert url.startswith("duckdb:////")
    assert locate(url, Path("elsewhere")).path == tmp_path / "notes.duckdb"
    assert locate(url, tmp_path).url == url


def test_three_slashes_are_one_too_where_only_the_disk_has_that_folder(tmp_path: Path) -> None:
    url = f"duckdb://{tmp_path}/notes.duckdb"
    assert locate(url, Path("elsewhere")).path == tmp_path / "notes.duckdb"
    inside = tmp_path / str(tmp_path).lstrip("/")
    inside.mkdir(parents=True)
    assert locate(url, tmp_path).path == inside / "notes.duckdb"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("notes.duckdb", "duckdb:///notes.duckdb"),
        ("duckdb:notes.duckdb", "duckdb:///notes.duckdb"),
        ("duckdb://notes.duckdb", "three slashes"),
        ("duckdb:///", "names no file"),
        ("duckbd:///x", "did you mean 'duckdb'"),
        ("postgres://host/db", "did you mean 'postgresql'"),
        ("postgresql://", "names no server: write postgresql://user@host"),
        ("qdrant:///", "names no server: write qdrant://host"),
        ("postgresql://ana:hush@ho st/db", "'postgresql://…@ho st/db' names no server"),
    ],
)
def test_what_is_no_store_is_said_with_what_would_be_one(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_url(url)


def test_one_on_a_server_is_the_same_whoever_asks_for_it(tmp_path: Path) -> None:
    mine = locate("postgresql://ana:hush@Host:5432/db?schema=notes&sslmode=require", tmp_path)
    theirs = locate("postgresql://bo:other@host:5432/db/?schema=notes", Path("elsewhere"))
    another = locate("postgresql://ana:hush@host:5432/db?schema=other", tmp_path)
    assert mine.same_as(theirs) and not mine.same_as(another)
    assert not mine.same_as(locate("", tmp_path)) and not locate("", tmp_path).same_as(mine)
    assert mine.path == theirs.path != another.path
    assert "hush" in mine.url
    assert not any("hush" in said for said in (mine.name, mine.identity, str(mine.path)))


def test_a_folder_that_names_a_server_has_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_TRUST", str(tmp_path))
    (tmp_path / "clew.toml").write_text('store = "postgresql://host/db"\n', "utf-8")
    assert has_store(tmp_path)
    (tmp_path / "clew.toml").write_text('store = "duckdb:///notes.duckdb"\n', "utf-8")
    assert not has_store(tmp_path)


def test_a_server_that_a_folder_names_has_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLEW_TRUST", raising=False)
    (tmp_path / "clew.toml").write_text('store = "postgresql://ana:hush@host/db"\n', "utf-8")
    with pytest.raises(UntrustedError, match="records are kept there") as refused:
        clew.open(tmp_path)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("extra", ["postgres", "qdrant"])
def test_a_server_s_client_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, f"clew.servers.{extra}", None)
    url = {"postgres": "postgresql://ana:hush@host/db", "qdrant": "qdrant://host:6333/x"}[extra]
    with pytest.raises(StoreError, match=re.escape(f"pip install 'clew-search[{extra}]'")) as said:
        open_store(url, base=tmp_path)
    assert "hush" not in str(said.value)


def test_a_path_is_no_url() -> None:
    assert is_url("duckdb:///x.duckdb")
    assert not is_url("memory.db")
    assert not is_url(Path("duckdb:///x.duckdb"))


@pytest.mark.parametrize("url", ["duckdb:///a.duckdb", "embedded:///a", "embedded:///a.db"])
def test_a_store_opened_by_its_url_is_there_the_next_time(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_store(url, base=tmp_path, create=False)
    store = open_store(url, base=tmp_path)
    store.put([entry("a", "zebra")])
    store.close()
    again = open_store(url, base=tmp_path, create=False)
    assert found(again, "zebra") == ["a"]
    again.close()


# ---------------------------------------------------------------------- through public names


def test_a_folder_is_indexed_and_searched_in_the_store_its_settings_name(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text('store = "duckdb:///.clew/notes.duckdb"\nmodel = "none"\n')
    (tmp_path / "a.md").write_text("# Anchors\n\nAbout anchors and chains.\n", "utf-8")
    assert not has_store(tmp_path)
    with clew.open(tmp_path) as engine:
        engine.index()
        assert [hit.path for hit in engine.search("anchor")] == ["a.md"]
        assert all(finding["ok"] for finding in engine.doctor())
    assert has_store(tmp_path)
    assert (tmp_path / ".clew" / "notes.duckdb").exists()
    assert not (tmp_path / ".clew" / "clew.db").exists()
    with clew.open(tmp_path, create=False) as engine:
        (hit,) = engine.search("chains")
        assert hit.title == "Anchors"
        assert engine.status()["records"] == 1
        assert engine.index().unchanged == 1


def test_a_memory_may_live_in_a_duckdb_file(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/memory.duckdb"
    with clew.Memory(url, embedding_dim=2) as memory:
        first = memory.remember("the sauna opens at five", embedding=[1, 0], tags="house")
        memory.remember("the boat is in the shed", embedding=[0, 1])
        assert memory.remember("the sauna opens at five")["status"] == "duplicate"
        assert [found["id"] for found in memory.recall("sauna", embedding=[1, 0], k=1)] == [
            first["id"]
        ]
        memory.supersede(first["id"], "the sauna opens at six", embedding=[1, 0])
        assert memory.path == tmp_path / "memory.duckdb"
    with clew.Memory(url, embedding_dim=2, create=False) as memory:
        texts = [found["content"] for found in memory.recall("sauna", k=1)]
        assert texts == ["the sauna opens at six"]
        assert [found["content"] for found in memory.vector_search([0, 1], k=1)] == [
            "the boat is in the shed"
        ]


def test_a_memory_by_url_has_to_be_there_unless_it_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        clew.Memory(f"duckdb:///{tmp_path}/none.duckdb", create=False)
    with pytest.raises(ConfigError, match="no kind of store"):
        clew.Memory("redis:///x")
    assert list(tmp_path.iterdir()) == []


def test_the_example_in_the_documents_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2]
    shutil.copytree(root / "sample", tmp_path / "sample", ignore=shutil.ignore_patterns(".clew"))
    monkeypatch.chdir(tmp_path)
    text = (root / "docs" / "stores.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    (printed,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/stores.md", "exec"), {})
    assert capsys.readouterr().out == printed
