"""A folder from somebody else: its clew.toml and its store reach nothing outside of it."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import clew
from clew import ClewError
from clew.cli import run
from clew.trust import UntrustedError, sign, trust, trusted
from endpoint import Endpoint


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that nobody trusts yet, and a user with no settings."""
    monkeypatch.delenv("CLEW_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "cloned"
    folder.mkdir()
    (folder / "note.md").write_text("The keel bolts are torqued to 90 Nm.")
    return folder


OUTWARD = {
    "model": 'model = "openai:text-embedding-3-small"',
    "any-api": 'model = "auto-api"',
    "hub-model": 'model = "hf:tiny/words"',
    "model_url": 'model_url = "http://127.0.0.1:9/v1"',
    "llm": 'llm = "gpt-5"',
    "llm_url": 'llm_url = "http://127.0.0.1:9/v1"',
    "store": 'store = "duckdb:////{outside}/x.duckdb"',
    "store-up": 'store = "embedded:///../elsewhere"',
    "store-server": 'store = "postgresql://someone@127.0.0.1:9/db"',
    "store-qdrant": 'store = "qdrant://127.0.0.1:9/name"',
    "sqlite": '[sources.s]\nkind = "sqlite"\nfile = "{outside}/s.db"\ntable = "t"\ntext = "x"',
    "home": '[sources.s]\nkind = "sqlite"\nfile = "~/s.db"\ntable = "t"\ntext = "x"',
    "link": '[sources.s]\nkind = "sqlite"\nfile = "link/s.db"\ntable = "t"\ntext = "x"',
    "web": '[sources.w]\nkind = "web"\naddress = "http://127.0.0.1:9"',
    "lookup-web": '[lookup]\nweb = "http://127.0.0.1:9"',
    "lookup-folders": '[lookup]\nfolders = ["../../"]',
    "lookup-repositories": '[lookup]\nrepositories = ["repository"]',
    "lookup-answers": '[lookup]\ncache_file = "answers.json"',
    "loop": '[sources.s]\nkind = "sqlite"\nfile = "loop/s.db"\ntable = "t"\ntext = "x"',
    "athena": 'profile = "athena"',
    "shards": '[sources.tags]\nshards = ["/etc/passwd"]',
}


@pytest.mark.parametrize("line", OUTWARD.values(), ids=OUTWARD)
def test_what_reaches_outside_is_refused_with_the_command_that_allows_it(
    line: str, strange: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (strange / "link").symlink_to(tmp_path)
    (strange / "loop").symlink_to("loop")
    (strange / ".context").mkdir()
    (strange / ".context" / "TAG_INDEX_A-M.md").symlink_to("/etc/passwd")
    alternates = strange / "repository" / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True)
    alternates.write_text(f"#{'x' * 200_000}\n{tmp_path}\n")  # the place is far down in it
    (strange / "clew.toml").write_text(line.replace("{outside}", str(tmp_path)))
    with pytest.raises(UntrustedError, match=f"clew trust {strange}"):
        clew.open(strange)
    assert run(["index", str(strange)]) == 1
    assert f"clew trust {strange}" in capsys.readouterr().err
    assert not (strange / ".clew").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("sources = 3", "lookup = 3", "[sources]\na = 3", 'store = "duckdb:///a\\u0000b"'),
        '[lookup]\nrepositories = ["a\\u0000b"]',
        '[sources.s]\nkind = "sqlite"\nfile = "a\\u0000b"\ntable = "t"\ntext = "x"',
    ],
)
def test_settings_that_make_no_sense_are_an_error(
    line: str, strange: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (strange / "clew.toml").write_text(f'model = "none"\n{line}')
    for command in ("config rrf_k 30 -C", "trust", "index", "search x -C", "lookup x -C"):
        assert run([*command.split(), str(strange)]) in (0, 1)
    assert "clew: " in (said := capsys.readouterr().err)
    assert "make no sense" not in said and "doctor" not in said


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_has_no_end_is_not_read_as_a_list_of_tags(what: str, strange: Path) -> None:
    shard = strange / "tags.md"
    os.mkfifo(shard) if what == "pipe" else shard.symlink_to("/dev/zero")
    sources = {"tags": {"shards": ["tags.md"]}}
    with clew.open(strange, model="none", sources=sources, cache=False) as engine:
        engine.index()
        found = engine.search("keel")
    assert found and [said for said in found.degraded if "tags.md cannot be read" in said]


def test_settings_that_stay_inside_take_effect_at_once(strange: Path) -> None:
    (strange / "clew.toml").write_text(
        'rrf_k = 30\nstore = "duckdb:///notes.duckdb"\n[collections]\nnotes = ["notes/"]\n'
        '[sources.tags]\nshards = ["tags/a.md"]'
    )
    with clew.open(strange, model="none") as engine:
        assert engine.config.rrf_k == 30
    assert not trusted()


def test_no_key_and_no_text_leaves_before_the_user_agrees(
    strange: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    settings = f'model = "openai:m"\nmodel_url = "{endpoint.url}"\n'
    (strange / "clew.toml").write_text(settings)
    for command in (["index", str(strange)], ["search", "keel", "-C", str(strange)]):
        assert run(command) == 1
    assert endpoint.requests == []
    assert run(["trust", str(strange)]) == 0
    assert run(["index", str(strange)]) == 0
    assert len(endpoint.requests) > 0


def test_a_changed_file_asks_again_and_trust_can_be_taken_back(strange: Path) -> None:
    file = strange / "clew.toml"
    file.write_text('llm_url = "http://127.0.0.1:9/v1"')
    assert run(["trust", str(strange)]) == 0
    clew.open(strange, model="none").close()
    file.write_text('llm_url = "http://127.0.0.2:9/v1"')
    with pytest.raises(UntrustedError):
        clew.open(strange)
    assert run(["trust", str(strange)]) == 0
    clew.open(strange, model="none").close()
    assert run(["trust", str(strange), "--revoke"]) == 0
    with pytest.raises(UntrustedError):
        clew.open(strange)


def test_of_those_that_agree_at_once_none_is_lost(strange: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"f{number}" for number in range(40)]
    together = threading.Barrier(8)

    def agree(some: list[Path]) -> bytes:
        together.wait()
        for folder in some:
            trust(folder, content=b"x")
        return sign(b"x")

    with ThreadPoolExecutor(8) as pool:
        signed = set(pool.map(agree, [folders[i::8] for i in range(8)]))
    assert trusted().keys() == {str(folder.resolve()) for folder in folders}
    assert len(signed) == 1


def test_what_is_agreed_to_takes_effect_where_the_folder_is_open(strange: Path) -> None:
    file = strange / "clew.toml"
    file.write_text("rrf_k = 30")
    with clew.open(strange, model="none") as engine:
        engine.index()
        file.write_text('rrf_k = 40\nllm_url = "http://127.0.0.1:9/v1"')
        assert any("clew trust" in said for said in engine.search("keel").degraded)
        assert engine.config.rrf_k == 30
        assert run(["trust", str(strange)]) == 0
        assert not any("clew trust" in said for said in engine.search("keel").degraded)
        assert engine.config.rrf_k == 40


def test_all_that_is_trusted_is_shown(strange: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (strange / "clew.toml").write_text('llm_url = "http://me:word@127.0.0.1:9/v1"')
    assert run(["trust", str(strange)]) == 0
    assert "word" not in capsys.readouterr().out
    assert run(["trust", "--json"]) == 0
    assert str(strange) in json.loads(capsys.readouterr().out)
    file = Path(os.environ["XDG_CONFIG_HOME"], "clew", "trust.json")
    assert file.stat().st_mode & 0o077 == 0


def test_the_users_own_settings_and_the_environment_need_no_trust(
    strange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"], "clew", "clew.toml")
    own.parent.mkdir(parents=True)
    own.write_text('llm_url = "http://127.0.0.1:9/v1"\nrrf_k = 20')
    (strange / "clew.toml").write_text("rrf_k = 30")
    monkeypatch.setenv("CLEW_LLM", "gpt-5")
    with clew.open(strange, model="none", model_url="http://127.0.0.1:9/v1") as engine:
        assert engine.config.llm_url == "http://127.0.0.1:9/v1"
        assert (engine.config.llm, engine.config.rrf_k) == ("gpt-5", 30)


def test_who_sets_it_by_command_trusts_it(strange: Path) -> None:
    assert run(["config", "llm_url", "http://127.0.0.1:9/v1", "-C", str(strange)]) == 0
    clew.open(strange, model="none").close()


def test_a_command_does_not_sign_for_what_a_stranger_wrote(strange: Path) -> None:
    (strange / "clew.toml").write_text('llm_url = "http://127.0.0.1:9/v1"')
    assert run(["config", "rrf_k", "30", "-C", str(strange)]) == 1
    with pytest.raises(UntrustedError):
        clew.open(strange)


def test_an_edit_while_an_engine_is_open_is_not_in_force(
    strange: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(strange, model="none") as engine:
        engine.index(strange)
        (strange / "clew.toml").write_text(f'llm_url = "{endpoint.url}"')
        answer = engine.search("keel")
        assert engine.config.llm_url == ""
    assert any("clew trust" in problem for problem in answer.degraded)
    assert len(answer) == 1


def test_folders_that_a_strange_store_names_are_not_read(strange: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary.md").write_text("Nobody may read this.")
    with clew.open(strange, model="none") as engine:
        engine.store.files.set_root("home", str(home))  # as somebody may ship it
        with pytest.raises(UntrustedError, match=str(home)):
            engine.index()
        assert engine.get("home:diary.md") is None
    assert run(["trust", str(strange)]) == 0
    with clew.open(strange, model="none") as engine:
        engine.index()
        assert engine.get("home:diary.md") is not None


def test_folders_that_the_user_gave_are_read_again(strange: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("one")
    with clew.open(strange, model="none") as engine:
        engine.index([strange, other])
        (other / "b.md").write_text("two")
        assert engine.index().added == ["b.md"]


def test_a_spoilt_list_of_the_trusted_is_said(strange: Path) -> None:
    trust(strange, content=b"")
    Path(os.environ["XDG_CONFIG_HOME"], "clew", "trust.json").write_text("{")
    (strange / "clew.toml").write_text('llm = "gpt-5"')
    with pytest.raises(ClewError, match=r"trust\.json cannot be read"):
        clew.open(strange)


def test_passwords_in_addresses_are_not_shown(
    strange: Path,
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = endpoint.url.replace("//", "//me:hushhush@").replace(str(endpoint.server_port), "9")
    monkeypatch.setenv("CLEW_MODEL", "openai:m")
    monkeypatch.setenv("CLEW_MODEL_URL", url)
    for command in ("index", "search keel", "status", "config --json", "config", "doctor"):
        word, *others = command.split()
        run([word, *others, *(["-C"] if word != "index" else []), str(strange)])
    told = capsys.readouterr()
    assert "hushhush" not in told.out + told.err
    assert "127.0.0.1" in told.out + told.err
