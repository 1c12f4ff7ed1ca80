"""Answers with their sources: quoted, or written by a scripted model behind a real endpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.ask import (
    LONGEST_SENTENCE,
    MOST_SENTENCES,
    AskResult,
    Citation,
    Sentence,
    ask,
    split_units,
    stream_answer,
)
from clew.errors import InputError
from endpoint import Endpoint, Handler, event, message, status
from servers import hang

from hashing import HashingEmbedder

NOTES = {
    "epoxy.md": "# Epoxy\n\nAt 18 °C the epoxy is sanded after 24 hours. It never cures at 12 °C."
    "\n\nSee the data sheet of Marlin for more.\n",
    "keel.md": "# Keel bolts\n\n- Tighten the keel bolts to 120 Nm.\n- Ana Sousa checks them.\n",
    "bread.md": "# Bread\n\nThe dough rests overnight in the cold kitchen.\n",
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    for name, text in NOTES.items():
        (tmp_path / name).write_text(text)
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        yield engine


class Scripted:
    """Says what it was told to, all at once."""

    model = "scripted"

    def __init__(self, words: str):
        self.words = words
        self.sent: list[tuple[str, str]] = []

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        self.sent.append((system, prompt))
        return self.words


def answer(engine: clew.Engine, words: str, question: str = "epoxy sanded hours") -> AskResult:
    return ask(engine, question, llm=Scripted(words))


def number(result: AskResult, path: str) -> int:
    return next(each.number for each in result.citations if each.path == path)


# ---------------------------------------------------------------- quoted


def test_the_best_sentences_are_quoted_with_their_lines(engine: clew.Engine) -> None:
    found = ask(engine, "when is the epoxy sanded?")
    assert found.found and found.model is None
    first = found.sentences[0]
    assert first.text == "At 18 °C the epoxy is sanded after 24 hours." and first.supported
    assert first.line == 3
    (source,) = [each for each in found.citations if each.number in first.citations]
    assert source.path == "epoxy.md" and source.location == "line 3"
    lines = (engine.root or Path()).joinpath("epoxy.md").read_text().splitlines()
    assert first.text in lines[first.line - 1]


def test_an_item_of_a_list_is_a_sentence(engine: clew.Engine) -> None:
    found = ask(engine, "to how many Nm are keel bolts tightened?")
    assert "Tighten the keel bolts to 120 Nm." in [each.text for each in found.sentences]


def test_quotations_are_without_markup_and_without_heads_of_callouts(tmp_path: Path) -> None:
    lines = (
        "> [!tip] Sanding of epoxy",
        "> The **epoxy** is sanded by [Greta](people/greta.md) with `grit_80` paper.",
    )
    (tmp_path / "epoxy.md").write_text("\n".join(lines))
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        found = ask(engine, "who is sanding epoxy?")
    assert [each.text for each in found.sentences] == [
        "The epoxy is sanded by Greta with grit_80 paper."
    ]


def test_what_is_not_in_the_files_is_said_to_be_so(engine: clew.Engine) -> None:
    model = Scripted("Paris [1].")
    found = ask(engine, "which wine goes with oysters in Paris", llm=model)
    assert not found.found and found.text == "Not in your files."
    assert model.sent == []  # nobody was asked
    assert found.to_dict()["found"] is False


def test_a_model_may_say_that_it_is_not_there(engine: clew.Engine) -> None:
    found = answer(engine, "NOT IN FILES")
    assert not found.found and found.model == "scripted" and found.citations


def test_an_empty_question_is_refused(engine: clew.Engine) -> None:
    with pytest.raises(InputError, match="empty"):
        ask(engine, "  ")
    with pytest.raises(InputError, match="limit"):
        ask(engine, "epoxy", limit=0)
    nobody: Any
    for nobody in (None, [], [engine, 3], "notes"):
        with pytest.raises(InputError, match="give an engine or a memory"):
            list(stream_answer(nobody, "epoxy"))


def test_the_budget_bounds_what_is_read(engine: clew.Engine) -> None:
    model = Scripted("NOT IN FILES")
    ask(engine, "epoxy keel bolts dough", llm=model, token_budget=20)
    (_, prompt) = model.sent[0]
    read = [text for text in NOTES.values() if text.splitlines()[0] in prompt]
    assert len(read) <= 1


def test_personal_records_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text('[domains]\npersonal = ["diary/"]\n')
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "a.md").write_text("The epoxy secret is walnut oil.\n")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        assert not ask(engine, "epoxy secret oil").found
        assert ask(engine, "epoxy secret oil", include_personal=True).found


# ---------------------------------------------------------------- checked


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("The epoxy is sanded after 24 hours at 18 °C [1].", ""),
        ("The epoxy is sanded after 24 hours at 18 °C. [1]", ""),
        ("The epoxy is sanded after 48 hours at 18 °C [1].", "48 is not in its source"),
        ("At 18 °C the epoxy of Jotun is sanded after 24 hours [1].", "Jotun is not in its source"),
        ("The epoxy is sanded after 24 hours.", "no source is given"),
        ("The epoxy is sanded after 24 hours [9].", "there is no passage 9"),
        (f"The epoxy is sanded after 24 hours [{'9' * 5000}].", "there is no passage 9"),
        ("At 18 °C the epoxy is not sanded after 24 hours [1].", "its source says the opposite"),
        ("The harbour master sells coffee on holidays [1].", "its source says something else"),
        ("The epoxy: see https://evil.example/x [1].", "https://evil.example/x"),
    ],
)
def test_a_sentence_that_its_source_does_not_hold_is_marked(
    engine: clew.Engine, said: str, problem: str
) -> None:
    found = ask(engine, "epoxy sanded", llm=Scripted(said), filter=clew.Filter(path="epoxy.md"))
    (sentence,) = found.sentences
    assert problem in sentence.problem
    assert sentence.supported is (problem == "")
    assert ("(?)" in found.text) is not sentence.supported


def test_meaning_speaks_for_a_sentence_in_other_words(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The epoxy is sanded after a whole day of rest in the shed.\n")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        near = answer(engine, "Epoxy is sanded after a day, say those who rest [1].")
    assert near.sentences[0].supported


def test_sentences_are_split_with_their_sources(engine: clew.Engine) -> None:
    said = "<think>Hm. Yes.</think>It is sanded after 24 hours [1]. Dr. Sousa checks it.[1][2]\n- x"
    found = answer(engine, said, "epoxy sanded Sousa checks keel bolts hours")
    texts = [each.text for each in found.sentences]
    assert texts == ["It is sanded after 24 hours.", "Dr. Sousa checks it.", "x"]
    assert found.sentences[1].citations == (1, 2)


@pytest.mark.parametrize(
    ("said", "texts"),
    [
        ("It closed in 2004 [1]. It is 24 [1].", ["It closed in 2004.", "It is 24."]),
        ("It is kept at - 5 °C or 10 - 20 [1].", ["It is kept at - 5 °C or 10 - 20."]),
        (
            "1. Sanded after 24 hours [1].\n2) Then painted [1].",
            ["Sanded after 24 hours.", "Then painted."],
        ),
    ],
)
def test_nothing_but_the_mark_of_an_item_is_taken_off(
    engine: clew.Engine, said: str, texts: list[str]
) -> None:
    found = answer(engine, said, "epoxy sanded")
    assert [each.text for each in found.sentences] == texts


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["\n", " ", "[1]", "[1] ", "Dr. ", "a ", "[1;", "。[1]", ".\n", "\n["]
)
def test_whatever_a_model_repeats_without_end_is_read_in_time(
    engine: clew.Engine, piece: str
) -> None:
    found = answer(engine, "It is sanded after 24 hours [1]. " + piece * 50_000)
    assert found.sentences[0].text.startswith("It is sanded after 24 hours.")
    assert all(len(each.text) <= LONGEST_SENTENCE for each in found.sentences)


def test_an_answer_has_so_many_sentences_and_no_more(engine: clew.Engine) -> None:
    assert len(answer(engine, "It is sanded [1]. " * 1_000).sentences) == MOST_SENTENCES


@given(st.text(alphabet="ab1. []\n|#-`>", max_size=80))
def test_units_are_where_they_say(text: str) -> None:
    for unit in split_units(text):
        first = unit.text.split()[0]
        assert first in text[unit.start :][: text[unit.start :].find(first) + len(first)]
        assert text[unit.start :].lstrip().startswith(first)


# ---------------------------------------------------------------- over the wire


def test_sentences_come_as_they_are_written(engine: clew.Engine, endpoint: Endpoint) -> None:
    heard = threading.Event()

    def slow(handler: Handler, body: dict[str, Any]) -> None:
        def events() -> Iterator[bytes]:
            yield event("It is sanded after ")
            yield event("24 hours [1]. At")
            assert heard.wait(20)  # the first sentence was there before the second was written
            yield event(" 18 °C [1].")
            yield event(None, "stop")
            yield b"data: [DONE]\n\n"

        handler.stream(events())

    endpoint.script = [slow]
    engine.config = clew.config.load(None, {"llm": "m", "llm_url": endpoint.url})  # type: ignore[attr-defined]
    said = []
    for each in stream_answer(engine, "epoxy sanded hours"):
        said.append(each)
        if isinstance(each, Sentence):
            heard.set()
    kinds = [type(each) for each in said]
    assert kinds == sorted(kinds, key=[Citation, Sentence, AskResult].index)
    last = said[-1]
    assert isinstance(last, AskResult)
    assert [each.text for each in last.sentences] == ["It is sanded after 24 hours.", "At 18 °C."]
    (sent,) = endpoint.requests
    assert sent["stream"] is True


@pytest.mark.parametrize("fault", [status(500), hang, message(content="")])
def test_where_the_model_fails_the_answer_is_quoted(
    engine: clew.Engine, endpoint: Endpoint, fault: Any
) -> None:
    endpoint.script = [fault]
    engine.config = clew.config.load(None, {"llm": "m", "llm_url": endpoint.url})  # type: ignore[attr-defined]
    found = ask(engine, "epoxy sanded hours", seconds=1.0)
    assert found.found and found.model is None
    assert any("is quoted" in each for each in found.degraded)


def test_an_answer_that_breaks_off_says_so(engine: clew.Engine, endpoint: Endpoint) -> None:
    def broken(handler: Handler, body: dict[str, Any]) -> None:
        handler.stream([event("It is sanded [1]. But")])
        hang(handler, body)

    endpoint.script = [broken]
    engine.config = clew.config.load(None, {"llm": "m", "llm_url": endpoint.url})  # type: ignore[attr-defined]
    found = ask(engine, "epoxy sanded hours", seconds=1.0)
    assert found.sentences[0].text == "It is sanded."
    assert any("breaks off" in each for each in found.degraded) and found.model == "m"


# ---------------------------------------------------------------- memories


def test_a_memory_answers_too_and_only_of_its_namespace(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", model="none") as memory:
        memory.remember("Ana is allergic to walnuts", id="nuts")
        memory.remember("Bo is allergic to peanuts", namespace="bo", id="nuts")
        found = ask(memory, "what is Ana allergic to")
        assert [each.text for each in found.sentences] == ["Ana is allergic to walnuts"]
        (source,) = found.citations
        assert (source.id, source.namespace, source.place) == ("nuts", "default", "memory nuts")
        bound = memory.scoped("bo")
        assert "peanuts" in ask(bound, "who is allergic to what").text
        with pytest.raises(InputError, match="bound"):
            ask(bound, "who is allergic", namespace="default")


def test_files_and_memories_answer_together(engine: clew.Engine, tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", model="none") as memory:
        memory.remember("The epoxy is kept in the blue drawer")
        model = Scripted("NOT IN FILES")
        ask([engine, memory], "where is the epoxy kept", llm=model)
        (_, prompt) = model.sent[0]
        assert "blue drawer" in prompt and "epoxy.md" in prompt
