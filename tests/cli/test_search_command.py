"""clew search: what is a word and what is an option."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import Command

from hashing import Words


@pytest.fixture
def notes(indexed: Callable[..., Command]) -> Command:
    return indexed(
        bar="foo and bar",
        nimbus="foo below a nimbus",
        history="foo has a history, tagged #draft",
    )


def found(notes: Command, *arguments: str) -> set[str]:
    hits = notes("search", "--json", *arguments).data["results"]
    return {hit["path"].removesuffix(".md") for hit in hits}


def test_metadata_is_asked_for_as_a_table_keeps_it(tmp_path: Path, command: Command) -> None:
    rows = "order,zip,count\n12345678901234567890,01234,7\n5,80331,8\n"
    (tmp_path / "orders.csv").write_text(rows)
    assert command("index", "--quiet").code == 0
    for pair in ("order=12345678901234567890", "zip=01234", "count=7"):
        hits = command("search", "--json", "--meta", pair).data["results"]
        assert [hit["metadata"]["zip"] for hit in hits] == ["01234"], pair


def test_metadata_is_found_in_whatever_form_a_file_has_it(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text("id,active,rank\nlow,true,1\nhigh,TRUE,2\nnot,false,3\n")
    (tmp_path / "b.jsonl").write_text('{"id": "json", "active": true, "rank": "1"}\n')
    note = '---\nactive: yes\nrank: "1"\n---\nwords\n'
    (tmp_path / "note.md").write_text(note)
    assert command("index", "--quiet").code == 0

    def ids(*pairs: str) -> set[str]:
        asked = [part for pair in pairs for part in ("--meta", pair)]
        hits = command("search", "--json", *asked).data["results"]
        return {hit["id"].partition(":")[2] for hit in hits}

    active = {"a.csv#low", "a.csv#high", "b.jsonl#json", "note.md"}
    assert ids("active=true") == ids("active=True") == active
    assert ids("active=yes") == {"note.md"} and ids("active=FALSE") == {"a.csv#not"}
    assert ids("rank=1") == {"a.csv#low", "b.jsonl#json", "note.md"}
    assert ids("rank=1", "rank=2", "active=true") == active
    many = [part for number in range(500) for part in ("--meta", f"rank={number}")]
    assert "tags_all and metadata values" in command("search", *many).err


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["foo", "-bar"], {"nimbus", "history"}),
        (["-bar", "foo"], {"nimbus", "history"}),
        (["foo", "-nimbus"], {"bar", "history"}),  # -n is an option, -nimbus is not
        (["foo", "-history", "-bar"], {"nimbus"}),  # and so it is with -h
        (["foo", "-tag:draft"], {"bar", "nimbus"}),
        (["-bar foo"], {"nimbus", "history"}),
        (["--", "foo", "-bar"], {"nimbus", "history"}),
        (["foo", "--mode", "keyword", "-bar", "--path", "nimbus.md"], {"nimbus"}),
    ],
)
def test_a_word_after_a_hyphen_is_left_out(
    notes: Command, words: list[str], left: set[str]
) -> None:
    assert found(notes, *words) == left


@pytest.mark.parametrize("option", [["-n", "1"], ["-n1"], ["--limit", "1"], ["--limit=1"]])
def test_options_stay_options(notes: Command, option: list[str]) -> None:
    assert len(found(notes, "foo", *option, "-bar")) == 1
    assert len(found(notes, *option, "foo", "-bar")) == 1


def test_a_mistyped_option_is_an_error_with_the_nearest(notes: Command) -> None:
    done = notes("search", "foo", "--limt", "3")
    assert done.code == 2 and "--limit" in done.err


@pytest.mark.parametrize("option", ["--limit", "-n", "--tag"])
def test_an_option_without_its_value_is_an_error(notes: Command, option: str) -> None:
    done = notes("search", "foo", option)
    assert done.code == 2 and option in done.err


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        (["--tag", "draft"], {"history"}),
        (["--type", "markdown"], {"bar", "nimbus", "history"}),
        (["--path", "nim*", "--"], {"nimbus"}),
        (["--tag", "draft", ""], {"history"}),
        (["--tag", "absent"], set()),
    ],
)
def test_filters_alone_list_what_matches(
    notes: Command, options: list[str], listed: set[str]
) -> None:
    assert found(notes, *options) == listed


def test_a_filter_lists_the_same_as_an_option_and_as_a_word(notes: Command) -> None:
    as_option = notes("search", "--json", "--tag", "draft").data["results"]
    as_word = notes("search", "--json", "tag:draft").data["results"]
    assert as_option == as_word != []
    assert "history.md" in notes("search", "--tag", "draft", "--explain").out


def test_help_and_a_search_for_nothing(notes: Command) -> None:
    assert "Usage: clew search" in notes("search", "-h").out
    for nothing in ([], ["--"], [""], ["--limit", "3"], ["--mode", "keyword", " "]):
        done = notes("search", *nothing)
        assert done.code == 2 and "words, or a filter such as --tag" in done.err


@pytest.fixture
def skills(tmp_path: Path, command: Command) -> Command:
    for name, text in {
        ".agent/skills/knots.md": "# Knots\n\nThe bowline, step by step.",
        "diary.md": "---\ndomain: personal\n---\n# Diary\n\nTied my first bowline.",
        "boat.md": "# Boat\n\nA bowline holds the dinghy.",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", "utf-8")
    assert command("index", "--quiet").code == 0
    return command


def test_what_is_personal_is_shown_only_when_asked_for(skills: Command) -> None:
    assert found(skills, "bowline") == {".agent/skills/knots", "boat"}
    assert found(skills, "bowline", "--include-personal") >= {"diary", "boat"}


def test_skills_only_leaves_out_everything_else(skills: Command) -> None:
    assert found(skills, "bowline", "--skills-only") == {".agent/skills/knots"}


def test_strict_holds_back_what_is_weak_and_counts_it(skills: Command, tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text("confidence_med = 1000\nconfidence_high = 2000\n", "utf-8")
    loose = skills("search", "--json", "bowline").data
    assert len(loose["results"]) == 2 and loose["suppressed"] == 0
    assert {hit["confidence"] for hit in loose["results"]} == {"LOW"}
    strict = skills("search", "--json", "bowline", "--strict").data
    assert strict["results"] == [] and strict["suppressed"] == 2 and strict["message"]
    assert "2 weaker results suppressed by --strict" in skills("search", "bowline", "--strict").out


def test_without_a_cache_the_answer_is_the_same(skills: Command) -> None:
    assert found(skills, "bowline", "--no-cache") == found(skills, "bowline")


# ---------------------------------------------------------------------- what was not meant


def test_an_option_that_no_record_meets_is_said_with_the_nearest(notes: Command) -> None:
    done = notes("search", "keel", "--type", "markdwon")
    assert done.code == 0 and done.out.startswith("Nothing found.")
    assert "! no record is of the type 'markdwon'; did you mean type:markdown?" in done.out
    (note,) = notes("search", "keel", "--type", "markdwon", "--json").data["notes"]
    assert note["field"] == "type" and "markdown" in note["known"]
    shown = notes("search", "--agentic", "keel and bolts tag:none-such").out
    assert "! no record has the tag 'none-such'" in shown
    shown = notes("search", "--agentic", "keel and bolts", "--tag", "none-such").out
    assert "! no record has the tag 'none-such'" in shown


@pytest.mark.parametrize("other", [("--source", "tags"), ("--tree",)])
def test_who_is_asked_is_said_once(notes: Command, other: tuple[str, ...]) -> None:
    done = notes("search", "foo", "--mode", "keyword", *other)
    assert done.code == 2 and "--mode says who is asked" in done.err


def test_what_looks_like_an_option_and_is_a_word_is_said(notes: Command) -> None:
    done = notes("search", "keel", "-k", "--json")
    assert done.code == 0 and done.data
    assert done.err == "clew: -k was read as one of the words: short options are -C, -h, -n\n"
    done = notes("search", "keel", "-limit", "-polyester", "-5")
    assert done.err == "clew: -limit was read as one of the words: the option is --limit\n"
    assert notes("search", "--", "keel", "-k").err == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["serch", "keel"], "search"),
        (["memorys"], "memories"),
        (["search", "--limti", "3", "keel"], "--limit"),
        (["graph", "biuld"], "build"),
    ],
)
def test_a_name_that_is_mistyped_is_answered_with_the_nearest(
    notes: Command, typed: list[str], meant: str
) -> None:
    done = notes(*typed)
    assert done.code == 2 and f"'{meant}'" in done.err
    assert "valid: " in notes("zzz").err


# ---------------------------------------------------------------------- completion


def completed(*words: str) -> list[str]:
    """What bash offers for the last of these words by the script that `clew completion` prints."""
    clew = Path(sys.executable).with_name("clew")
    script = (
        f'source <({clew} completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_clew_completion clew; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(clew), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": f"{clew.parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_options_and_choices() -> None:
    assert completed("sea") == ["search"]
    assert completed("search", "--inc") == ["--include-personal"]
    assert completed("search", "--format", "a") == ["athena"]
    assert completed("graph", "bu") == ["build"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(command: Command, shell: str) -> None:
    assert f"_CLEW_COMPLETE={shell}_complete" in command("completion", shell).out
    assert command("completion", "cmd").code == 2


def test_get_prints_the_lines_that_are_named(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "CANONICAL.md").write_text("# Facts\nThe keel is lead.\nThe mast is 12 m.\n")
    assert notes("index", "--quiet").code == 0
    hit = notes("search", "--json", "--source", "canonical", "keel lead").data["results"][0]
    cited = f"{hit['id']}#L{hit['lines'][0]}"
    assert (hit["lines"], hit["content"]) == ([2, 2], "The keel is lead.")
    assert notes("get", "--json", cited).data["content"] == hit["content"]
    assert notes("get", cited.replace("L2", "L00002")).out.splitlines()[2:] == [hit["content"]]
    assert notes("get", "CANONICAL.md#L2-L3").out.endswith("lead.\nThe mast is 12 m.\n")
    for wrong in (
        "CANONICAL.md#L9",
        "none.md#L1",
        "CANONICAL.md#L0",
        f"CANONICAL.md#L{'9' * 5000}",
    ):
        done = notes("get", wrong)
        assert done.code == 1 and wrong.partition("#")[0] in done.err


def test_an_id_with_half_a_character_is_of_no_record(notes: Command) -> None:
    for asked in (("get", "q\udcff"), ("remove", "\udcff", "--yes")):
        done = notes(*asked)
        assert done.code == 1 and "there is no record" in done.err


def test_get_and_remove_take_what_search_prints_wherever_one_stands(
    notes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "boat.md").write_text("About halyards.\n")
    assert notes("index", "--quiet").code == 0
    for place in (tmp_path / "sub", tmp_path.parent):
        monkeypatch.chdir(place)
        shown = notes("search", "halyards", "-C", tmp_path).out.splitlines()[1].strip()
        assert shown == os.path.relpath(tmp_path / "sub" / "boat.md") + ":1"
        assert notes("get", shown, "-C", tmp_path, "--json").data["path"] == "sub/boat.md"
    named = shown.removesuffix(":1")
    assert notes("remove", named, "-C", tmp_path, "--json").data == {"removed": 1}


def test_remove_takes_out_what_is_named_and_nothing_else(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("n[1].md", "n1.md", "n1.md.txt", "a/x.md", "a/y.md", "ab.md"):
        (tmp_path / name).write_text("words\n")
    (tmp_path / "t[1].csv").write_text("id,what\n" + "".join(f"r{n},x\n" for n in range(3)))
    assert notes("index", "--quiet").code == 0

    def left() -> set[str]:
        hits = notes("search", "--path", "**", "-n", "50", "--json", "--max-per-file", "9")
        return {hit["id"].partition(":")[2] for hit in hits.data["results"]}

    def gone(*named: str) -> set[str]:
        before = left()
        assert notes("remove", *named, "--yes").code == 0
        return before - left()

    assert notes("get", "t[1].csv:3", "--json").data["metadata"]["id"] == "r1"
    assert gone("n[1].md") == {"n[1].md"}
    assert gone("n1.md") == {"n1.md"}
    assert gone("a") == {"a/x.md", "a/y.md"}
    assert gone("t[1].csv") == {"t[1].csv", *(f"t[1].csv#r{n}" for n in range(3))}
    for nothing in ("", "n", "n*"):
        assert "there is no record" in notes("remove", nothing, "--yes").err


def test_names_are_found_however_they_are_spelt(notes: Command, tmp_path: Path) -> None:
    apart, together = (unicodedata.normalize(form, "Café.md") for form in ("NFD", "NFC"))
    for name in (apart, "odd [1]*.md"):
        (tmp_path / name).write_text("words\n")
    assert notes("index", "--quiet").code == 0
    for asked in (apart, together):
        assert notes("get", asked, "--json").data["path"] == apart
    assert found(notes, "--path", "odd [1]*.md") == {"odd [1]*"}
    assert found(notes, "words", 'path:"odd [1]"') == {"odd [1]*"}


def test_get_takes_what_search_prints(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    rows = 'id,subject\nm1,hello\nm2,"a mast\nof oak"\nm3,sail\n'
    (tmp_path / "mail" / "inbox.csv").write_text(rows)
    (tmp_path / "Sourdough.md").write_text("# Bread\nFlour and water.\n")
    assert notes("index", "--quiet").code == 0

    def subject(id: str) -> str:
        return notes("get", id, "--json").data["metadata"]["subject"]

    assert [subject(f"mail/inbox.csv:{line}") for line in (2, 3, 4, 5)] == [
        "hello", "a mast\nof oak", "a mast\nof oak", "sail",
    ]  # fmt: skip
    assert subject("mail/inbox.csv#m3") == "sail"
    assert notes("get", "mail/inbox.csv:1", "--json").data["content"] == "id; subject"
    assert (
        notes("get", "Sourdough.md:2", "--json").data == notes("get", "Sourdough.md", "--json").data
    )
    for wrong in ("mail/inbox.csv:9", "Sourdough.md:9", "Sourdough.md:0"):
        assert "has no line" in notes("get", wrong).err
    assert "did you mean 'Sourdough.md'?" in notes("get", "Sourdoug.md").err
    assert "did you mean 'Sourdough.md'?" in notes("get", "sourdoug.md:2").err
    assert "shows ids" in notes("get", "nothing like it").err


def test_late_interaction_is_told_of_by_status_and_explain(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = "clew.search.token_match.load_late_interaction"
    monkeypatch.setattr(load, lambda *_, **__: Words())
    (tmp_path / "crane.md").write_text("A crane lifts the engine, and is inspected every year.\n")
    assert command("config", "late_interaction", "on").code == 0
    assert "1 passage, for late interaction" in command("index").out
    assert "on, 100.0% of passages by words@1" in command("status").out
    assert command("status", "--json").data["late_interaction"]["passages"] == 1
    shown = command("search", "--explain", "when is the crane inspected").out
    assert "1 of 1 candidates read token by token by words@1" in shown
    assert "crane → crane 1.00" in shown


def test_weights_of_late_interaction_that_are_missing_are_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "none"))
    monkeypatch.setenv("CLEW_LATE_INTERACTION", "on")
    (tmp_path / "crane.md").write_text("A crane lifts the engine.\n")
    advice = "clew models pull colbert-small"
    assert advice in command("index", "--offline").out
    assert advice in command("status").out
    found = command("search", "crane", "--json")
    assert found.code == 0 and found.data["results"][0]["path"] == "crane.md"
    assert any(advice in problem for problem in found.data["degraded"])
