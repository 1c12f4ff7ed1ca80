"""A chat model that reads the passages: once each, with care, and never in the way."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yard import YARD, Opened, page

from clew import Engine
from clew.graph.proposal import AT_ONCE, read_entities
from clew.models.chat import GIVE_UP
from endpoint import Endpoint, body, message, status
from servers import hang

SAID = json.dumps(
    {
        "entities": [{"name": "keel works", "type": "Company"}, "slip"],
        "relations": [{"source": "keel works", "relation": "owns", "target": "slip"}],
    }
)


def with_llm(opened: Opened, endpoint: Endpoint, **settings: Any) -> Engine:
    return opened(llm="m", llm_url=endpoint.url, **settings)


def asked(endpoint: Endpoint) -> int:
    return sum("passage" in r["messages"][1]["content"] for r in endpoint.requests)


def test_names_and_relations_come_from_the_model(opened: Opened, endpoint: Endpoint) -> None:
    endpoint.words = SAID
    engine = with_llm(opened, endpoint)
    engine.add([page("a", "Alpha", "all in small letters: the keel works own the slip.")])
    report = engine.graph.build()
    assert (report.model, report.failures) == ("m", 0)
    works = engine.graph.show("keel works")
    assert works["kind"] == "company"
    assert works["related"][0] == {
        "name": "slip",
        "relation": "owns",
        "direction": "to",
        "weight": 1.0,
    }


def test_a_passage_is_asked_about_once(opened: Opened, endpoint: Endpoint) -> None:
    endpoint.words = SAID
    engine = with_llm(opened, endpoint)
    engine.add(YARD)
    engine.graph.build()
    first = asked(endpoint)
    assert engine.graph.build().asked == 0
    engine.add([{**YARD[2], "content": "Another text about the roaster."}])
    before = len(endpoint.requests)
    engine.graph.build()
    new = [r["messages"][1]["content"] for r in endpoint.requests[before:]]
    assert sum('"passage"' in each for each in new) == 1
    engine.graph.drop()
    before = asked(endpoint)
    report = engine.graph.build()
    assert (asked(endpoint), report.read) == (before, 4)
    assert report.kept > 0 and first >= 4


def test_a_summary_by_the_model_is_for_those_who_see_all_it_read(
    opened: Opened, endpoint: Endpoint
) -> None:
    endpoint.words = SAID + " Boats and what hides below them."
    engine = with_llm(opened, endpoint)
    hidden = page("secret", "Secret slip", "The slip is for the crane.", domain="personal")
    engine.add(
        [
            *YARD[:2],
            {
                **hidden,
                "links": ["crane"],
                "content": "See [[crane]] and its slip, of which nobody should read a word.",
            },
        ]
    )
    engine.graph.build()
    everything = json.dumps(
        engine.graph.query("crane", mode="global", include_personal=True).to_dict()
    )
    assert "what hides below" in everything
    assert "what hides below" not in json.dumps(
        engine.graph.query("crane", mode="global").to_dict()
    )


def test_how_two_are_related_is_told_to_those_who_see_a_record_that_says_so(
    opened: Opened, endpoint: Endpoint
) -> None:
    names = ["Ada Lovelace", "Karl Benz"]
    divorce = {"source": names[0], "relation": "is divorcing", "target": names[1]}

    def reply(body: dict[str, Any]) -> Any:
        told = [divorce] if "lawyer" in json.dumps(body) else []
        return message(content=json.dumps({"entities": names, "relations": told}))

    endpoint.refuses = reply
    engine = with_llm(opened, endpoint)
    engine.add(
        [
            page("a", "Meeting", "Ada Lovelace and Karl Benz came."),
            page("b", "Notes", "Ada Lovelace saw a lawyer for Karl Benz.", domain="personal"),
        ]
    )
    engine.graph.build()
    shown = engine.graph.show("Ada Lovelace")["related"]
    assert "is divorcing" not in json.dumps(shown)
    assert {"Karl Benz": "together"}.items() <= {r["name"]: r["relation"] for r in shown}.items()
    everything = engine.graph.show("Ada Lovelace", include_personal=True)["related"]
    assert everything[0]["relation"] == "is divorcing"


@pytest.mark.parametrize(
    "fault",
    [
        message(content="I'm sorry, but I cannot help with that."),
        message(content='{"entities": "none", "relations": 7}'),
        message(content='{"entities": [{"name": "cut'),
        message(content=None, refusal="no"),
        body(b"<html>"),
        status(500),
        status(401),
    ],
    ids=["words", "wrong types", "cut short", "refused", "no JSON", "500", "401"],
)
def test_rules_do_the_work_of_a_model_that_fails(
    opened: Opened, endpoint: Endpoint, fault: Any
) -> None:
    endpoint.refuses = lambda _: fault
    engine = with_llm(opened, endpoint)
    engine.add(
        [page(f"p{i}", f"Page {i}", f"We met Ada Lovelace again on day {i}.") for i in range(8)]
    )
    report = engine.graph.build()
    assert report.failures == GIVE_UP and len(endpoint.requests) == GIVE_UP
    assert "by rules" in report.notes[0] and "not asked again" in report.notes[0]
    assert engine.graph.show("Ada Lovelace")["mentions"] == 8
    assert engine.graph.status()["behind"] == 0
    endpoint.refuses, endpoint.words = lambda _: None, SAID
    again = engine.graph.build()
    assert (again.read, again.failures, again.notes) == (8, 0, [])


class SlowModel:
    """Counts how many ask it at the same time."""

    model = "slow"

    def __init__(self) -> None:
        self.changed, self.now, self.most = threading.Condition(), 0, 0

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= 2, 10)  # the first waits for a second
        time.sleep(0.005)
        with self.changed:
            self.now -= 1
        return '{"entities": [], "relations": []}'


def test_several_passages_are_read_at_once_and_not_more_than_so_many(opened: Opened) -> None:
    engine, model = opened(), SlowModel()
    engine.add([page(f"p{i}", f"Page {i}", f"Day {i}.") for i in range(24)])
    report = engine.graph.build(llm=model)
    assert report.asked >= 24 and report.failures == 0
    assert 2 <= model.most <= AT_ONCE


def test_a_model_that_hangs_is_left_alone_soon(opened: Opened, endpoint: Endpoint) -> None:
    endpoint.script = [hang] * 50
    engine = with_llm(opened, endpoint, llm_seconds=0.1)
    engine.add(
        [page(f"p{i}", f"Page {i}", f"We met Ada Lovelace again on day {i}.") for i in range(8)]
    )
    report = engine.graph.build()
    assert report.asked == GIVE_UP
    assert "no answer within" in report.notes[0]
    assert engine.graph.show("Ada Lovelace")["mentions"] == 8


def test_no_model_is_asked_unless_it_is_wanted(opened: Opened, endpoint: Endpoint) -> None:
    engine = with_llm(opened, endpoint)
    engine.add(YARD)
    engine.graph.build(llm=False)
    engine.graph.update()
    assert endpoint.requests == []
    assert engine.graph.status()["behind"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        SAID,
        f"```json\n{SAID}\n```",
        f"Sure, here it is: {SAID} Anything else?",
        f'<think>{{"entities": ["x"]}}</think>{SAID}',
    ],
)
def test_an_answer_is_found_wherever_it_stands(answer: str) -> None:
    assert read_entities(answer) == (
        {"keel works": "company", "slip": "name"},
        [("keel works", "owns", "slip")],
    )


@given(st.text() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_any_answer_can_be_read(answer: str) -> None:
    found = read_entities(answer)
    assert found is None or isinstance(found[0], dict)


@given(st.lists(st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.text())))
def test_any_list_of_entities_can_be_read(entities: list[Any]) -> None:
    found = read_entities(json.dumps({"entities": entities, "relations": entities}))
    assert found is not None
    assert all(name.strip() and len(name) <= 80 for name in found[0])
