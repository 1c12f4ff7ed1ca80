"""clew remove, config…: look after a store."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.engine import Engine
from clew.errors import ModelError
from clew.filter import Filter
from clew.text.parse import parse
from commands import Command


@pytest.fixture
def notes(indexed: Callable[..., Command]) -> Command:
    return indexed(a="About anchors.")


@pytest.mark.parametrize(
    "arguments",
    [
        ("index",),
        ("search", "anchor"),
        ("status",),
        ("config", "depth", "50"),
        ("reembed",),
        ("remove", "a.md"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_store_in_a_folder_that_is_not_there_is_refused(
    command: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = command(*arguments, "--store", "tpyo")
    assert done.code == 1 and "there is no folder 'tpyo'" in done.err
    done = command(*arguments, "--store", "postgresql://ana:secret@db/notes")
    assert done.code == 1 and "CLEW_STORE=URL" in done.err and "secret" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_whole_lines_and_word_of_what_takes_long(
    notes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    printed = notes("config").out.splitlines()
    store = next(said for said in printed if said.startswith("store "))
    assert "postgresql://" in store and "qdrant://" in store
    assert all(said == said.rstrip() for said in printed)
    assert notes("index", "--force").err == ""
    monkeypatch.setattr("clew.cli.terminal.TELL_EVERY", 0.0)
    assert "1 of 1" in notes("index", "--force").err
    assert notes("index", "--force", "--quiet").err == ""
    assert notes("index", "--force", "--json").err == ""


def test_watching_says_what_it_needs(notes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    done = notes("watch", "--quiet")
    assert done.code == 1 and "pip install 'clew-search[serve]'" in done.err


def test_init_names_a_model_where_the_default_cannot_read_the_script(
    command: Command, tmp_path: Path
) -> None:
    for name, text in (("ru", "Лодка стоит у причала, а парус сушится."), ("en", "A boat.")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(text, "utf-8")
        suggested = command("init", name, "--json").data.get("suggested_model", "")
        assert suggested == ("hf:intfloat/multilingual-e5-small" if name == "ru" else "")


def test_a_folder_without_a_store_is_indexed_but_not_searched(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    done = command("search", "anchor", "-C", "new")
    assert done.code == 1 and "clew index new" in done.err
    assert not (tmp_path / "new" / ".clew").exists()
    assert command("index", "-C", "new").code == 0
    assert (tmp_path / "new" / ".clew").is_dir()


def test_a_folder_elsewhere_gets_a_store_of_its_own(
    notes: Command, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Unless this folder's store has it already: it is not put into that unasked."""
    other, known = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("known")
    for folder in (other, known):
        (folder / "b.md").write_text("About buoys.\n", "utf-8")
    assert notes("index", "--quiet", "-C", ".", known).code == 0
    (known / "c.md").write_text("About cleats.\n", "utf-8")
    assert notes("index", known, "--json").data["added"] == ["c.md"]
    done = notes("index", other)
    assert re.search(rf"--store \S*{other.name} ", done.out) and (other / ".clew").is_dir()
    assert not (known / ".clew").exists()
    found = notes("search", "buoys", "--json").data["results"]
    assert [hit["id"] for hit in found] == [f"{known.name}:b.md"]


def test_a_file_that_is_gone_can_be_named(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "a.md").unlink()
    assert notes("index", "a.md", "--json").data["removed"] == ["a.md"]
    for never in ("a.md", tmp_path / "none" / "b.md"):
        done = notes("index", never)
        assert done.code == 1 and "to index: check the path" in done.err
    assert sorted(tmp_path.iterdir()) == [tmp_path / ".clew"]


def test_a_mark_at_the_beginning_of_the_settings_does_no_harm(
    notes: Command, tmp_path: Path
) -> None:
    (tmp_path / "clew.toml").write_bytes(b"\xef\xbb\xbfdepth = 7\r\n")  # as some editors do
    assert notes("config", "depth").out.strip() == "7"
    assert notes("config", "rrf_k", "9").code == 0
    assert (notes("config", "depth").out, notes("config", "rrf_k").out) == ("7\n", "9\n")


def test_a_setting_that_the_environment_overrules_is_said(
    notes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_DEPTH", "5")
    done = notes("config", "depth", "9")
    assert done.out == "5\n" and "CLEW_DEPTH in the environment counts" in done.err
    assert "depth = 9" in (tmp_path / "clew.toml").read_text("utf-8")


def test_programs_are_told_what_was_done(notes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    notes("search", "anchors")
    assert notes("cache", "clear", "--json").data == {"forgotten": 1}
    monkeypatch.setenv("CLEW_MODELS", "none-here")
    assert notes("models", "remove", "minilm", "--json").data == {"removed": False}


def test_the_store_itself_may_be_named(notes: Command, tmp_path: Path) -> None:
    assert notes("config", "depth", "50", "--store", ".clew").out.strip() == "50"
    assert (tmp_path / "clew.toml").exists()
    assert notes("status", "--json", "--store", ".clew").data["records"] == 1


def test_one_thing_is_not_spoken_of_as_several(notes: Command, tmp_path: Path) -> None:
    assert "1 result in" in notes("search", "anchors").out
    assert "1 candidate\n" in re.sub(" +\n", "\n", notes("search", "anchors", "--explain").out)
    assert "1 in 1 passage\n" in re.sub(" +\n", "\n", notes("status").out)
    assert notes("remove", "a.md", "--yes").out == "1 record removed.\n"
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("About anchors.\n", "utf-8")
    assert notes("index", "--quiet").code == 0
    assert "2 results in" in notes("search", "anchors").out
    assert notes("remove", "a.md", "b.md", "--yes").out == "2 records removed.\n"


def test_a_path_to_remove_is_of_one_file_or_of_a_folder(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir()
    for name in ("a.md.md", "drafts/one.md", "drafts/two.md"):
        (tmp_path / name).write_text("About anchors.\n", "utf-8")
    (tmp_path / "log.csv").write_text("id,text\n1,A chain.\n2,A buoy.\n", "utf-8")
    assert notes("index", "--quiet", "--no-embed").code == 0
    assert notes("remove", "", "--yes").code == 1
    assert notes("remove", "a.md", "--json", "--yes").data == {"removed": 1}
    assert notes("remove", "drafts/", "--json", "--yes").data == {"removed": 2}
    assert notes("remove", "log.csv", "--json", "--yes").data == {"removed": 3}
    assert notes("status", "--json").data["records"] == 1


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "enter", "nobody there"])
def test_without_a_yes_nothing_is_removed(
    notes: Command, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    done = notes("remove", "a.md")
    assert done.code == 1 and "nothing was" in done.err and "Aborted" not in done.err
    assert notes("get", "a.md").code == 0


def test_an_interrupt_at_the_question_removes_nothing(
    notes: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(prompt: str = "") -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    done = notes("remove", "a.md")
    assert done.code == 130 and "stopped" in done.err
    assert notes("get", "a.md").code == 0


def test_a_model_that_is_none_is_refused_and_nothing_is_written(
    command: Command, tmp_path: Path
) -> None:
    done = command("config", "model", "nope")
    assert done.code == 1
    for choice in ("'nope'", "bge-small", "minilm", "none", "openai:NAME"):
        assert choice in done.err
    assert not (tmp_path / "clew.toml").exists()


def test_a_wrong_model_in_the_file_can_be_mended_by_the_command(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLEW_MODEL")
    for mend in (("config", "model", "minilm"), ("config", "model", "--unset")):
        (tmp_path / "clew.toml").write_text('model = "nope"\n', "utf-8")
        assert command("config").code == 1
        assert command(*mend).code == 0
        assert command("config").code == 0


def test_settings_that_a_full_disk_refuses_stay_as_they_were(
    command: Command, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    file = tmp_path / "clew.toml"
    file.write_text("# mine\nrrf_k = 30\n", "utf-8")
    file.chmod(0o640)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        done = command("config", "depth", "50")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.code == 1 and "cannot write" in done.err
    assert file.read_text("utf-8") == "# mine\nrrf_k = 30\n"
    assert command("config", "depth", "50").code == 0
    assert file.read_text("utf-8").startswith("# mine\nrrf_k = 30\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["clew.toml"]


@pytest.mark.parametrize("arguments", [("--unset",), ("depth", "5", "--unset")])
def test_unset_needs_a_name_and_nothing_else(command: Command, arguments: tuple[str, ...]) -> None:
    done = command("config", *arguments)
    assert done.code == 2 and "clew config KEY --unset" in done.err


@pytest.mark.parametrize("url", ["duckdb:///.clew/notes.duckdb", "embedded:///"])
def test_a_damaged_store_is_reported_and_said_by_every_command(
    command: Command, tmp_path: Path, url: str
) -> None:
    (tmp_path / "a.md").write_text("About anchors.\n", "utf-8")
    (tmp_path / "clew.toml").write_text(f'store = "{url}"\n', "utf-8")
    assert command("index", "--quiet").code == 0
    file = tmp_path / ".clew" / ("notes.duckdb" if "duckdb" in url else "clew.db")
    data = bytearray(file.read_bytes())
    for place in range(100, len(data), 512):
        data[place] ^= 0xFF
    file.write_bytes(bytes(data))
    for arguments in (
        ("search", "anchors"),
        ("status",),
        ("migrate", "--to", "duckdb:///x.duckdb"),
    ):
        done = command(*arguments)
        assert done.code == 1 and "damaged" in done.err
        assert "Traceback" not in done.err
    examined = command("doctor", "--json")
    assert examined.code == 1
    report = json.loads(examined.out)
    assert not report["ok"]
    assert any("damaged" in finding["advice"] for finding in report["findings"])


def test_where_there_is_no_store_there_is_nothing_to_examine(command: Command) -> None:
    for arguments in (("doctor",), ("doctor", "--db", "none.db"), ("doctor", "-C", ".")):
        done = command(*arguments)
        assert done.code == 1 and done.out == "" and "no " in done.err


def test_the_report_of_an_index_names_a_search_that_works_from_here(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "my notes").mkdir()
    (tmp_path / "my notes" / "a.md").write_text("The keel is lead.")
    assert "clew search --store 'my notes' WORDS" in command("index", "my notes").out
    assert command("search", "--store", "my notes", "keel").code == 0
    (tmp_path / "b.md").write_text("The mast is oak.")
    assert "search it with: clew search WORDS" in command("index", ".").out


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupted_reembedding_goes_on_with_its_model(
    notes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    def embed(engine: Engine, **_: Any) -> int:
        if not begun:
            raise ModelError("its weights cannot be had")
        chunk = engine.store.keyword(parse("anchors").terms, Filter(), limit=1)[0].chunk
        assert chunk is not None
        engine.store.vectors.set([chunk], np.ones((1, 384), np.float32), model=engine.model)
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "embed", embed)
    assert notes("reembed", "minilm").code != 0
    file = tmp_path / "clew.toml"
    assert (file.exists() and 'model = "minilm"' in file.read_text()) is begun


def test_programs_are_not_asked_about_what_can_be_undone(notes: Command) -> None:
    assert notes("remove", "a.md", "--json").data == {"removed": 1}
