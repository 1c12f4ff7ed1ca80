"""clew ask: what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Command
from endpoint import Endpoint


@pytest.fixture
def notes(command: Command, tmp_path: Path) -> Path:
    (tmp_path / "epoxy.md").write_text("# Epoxy\n\nThe epoxy is sanded after 24 hours.\n")
    assert command("index", ".").code == 0
    return tmp_path


def test_sentences_are_quoted_with_their_places(command: Command, notes: Path) -> None:
    done = command("ask", "when", "is", "epoxy", "sanded?")
    assert done.code == 0
    assert "“The epoxy is sanded after 24 hours.” [1]" in done.out
    assert "[1] epoxy.md, line 3" in done.out


@pytest.mark.parametrize(
    "outside",
    [("--after", "2999-01-01"), ("--collection", "no"), ("--meta", "a=b"), ("--tag", "t")],
)
def test_an_answer_keeps_to_the_filters(
    command: Command, notes: Path, outside: tuple[str, str]
) -> None:
    assert command("ask", "when is epoxy sanded?", "--type", "markdown").code == 0
    done = command("ask", "when is epoxy sanded?", *outside)
    assert done.code == 3 and ("no record" in done.err or "no collection" in done.err)


def test_json_is_the_form_of_python(command: Command, notes: Path) -> None:
    data = command("ask", "when is epoxy sanded?", "--json").data
    assert data["found"] and data["by"] == "quotes"
    assert data["sentences"][0]["citations"] == [1]
    assert data["citations"][0]["place"] == "epoxy.md, line 3"


def test_what_is_not_there_has_an_exit_code_of_its_own(command: Command, notes: Path) -> None:
    done = command("ask", "who won the world cup")
    assert done.code == 3 and "Not in your files." in done.out
    done = command("ask", "who won the world cup", "--json")
    assert done.code == 3 and json.loads(done.out)["found"] is False


def test_a_model_writes_and_is_checked(
    command: Command, notes: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.words = "After 24 hours the epoxy is sanded [1]. It takes 90 hours [1]."
    monkeypatch.setenv("CLEW_LLM", "m")
    monkeypatch.setenv("CLEW_LLM_URL", endpoint.url)
    done = command("ask", "when is epoxy sanded?")
    assert "After 24 hours the epoxy is sanded. [1]\n" in done.out
    assert "It takes 90 hours. [1] (? 90 is not in its source)" in done.out
    endpoint.requests.clear()
    assert command("ask", "when is epoxy sanded?", "--quote").code == 0
    assert endpoint.requests == []


def test_a_memory_is_asked(command: Command, tmp_path: Path) -> None:
    assert command("remember", "Ana is allergic to walnuts", "--id", "nuts").code == 0
    done = command("ask", "what is Ana allergic to", "--db", "memory.db")
    assert "Ana is allergic to walnuts" in done.out and "memory nuts" in done.out
    assert command("ask", "Ana", "--namespace", "x").code == 2
    assert command("ask", "Ana", "--db", "memory.db", "--tag", "x").code == 2


def test_without_a_store_it_says_what_to_do(command: Command) -> None:
    done = command("ask", "anything")
    assert done.code == 1 and "clew index" in done.err


@pytest.mark.parametrize("option", [("--port", "8000"), ("--host", "::1"), ("--token", "x")])
def test_what_is_of_http_is_refused_on_standard_input(
    command: Command, option: tuple[str, str]
) -> None:
    done = command("mcp", *option)
    assert done.code == 2 and f"{option[0]}: " in done.err and "--http" in done.err
