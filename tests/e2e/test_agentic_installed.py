"""Agentic search on the sample, with the real model: the installed command, and Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from installed import answer, clew, run

from endpoint import Endpoint, status

QUERY = "keel bolt torque of the Kestrel 28 and why does the sauna heater trip the breaker"
FILES = {"protocols/keel-bolts-kestrel-28.md", "journal/2025-05-30-sauna-heater.md"}


def searched(notes: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = answer("search", "--agentic", *arguments, cwd=notes, **environment)
    return found


def test_both_halves_of_a_question_are_answered_at_the_top(notes: Path) -> None:
    found = searched(notes, QUERY, "-n", "3")
    assert found["sub_queries"][1:] == [
        "keel bolt torque of the Kestrel 28",
        "why does the sauna heater trip the breaker",
    ]
    assert {hit["path"] for hit in found["results"]} >= FILES
    meta = found["meta"]
    assert meta["validated"] >= 3 and meta["returned"] == 3 and meta["degraded"] == []


def test_python_gives_what_the_command_gives(notes: Path) -> None:
    code = (
        "import json, clew; "
        f"print(json.dumps(clew.agentic_search({QUERY!r}, limit=3, validate=True)))"
    )
    found = json.loads(run(sys.executable, "-c", code, cwd=notes / "projects").stdout)
    by_command = searched(notes, QUERY, "-n", "3")
    assert found["sub_queries"] == by_command["sub_queries"]
    assert [hit["id"] for hit in found["results"]] == [hit["id"] for hit in by_command["results"]]


def test_people_see_which_part_found_what(notes: Path) -> None:
    shown = clew("search", "--agentic", QUERY, cwd=notes).stdout
    assert shown.startswith("Taken apart by rules:\n")
    assert "found by: the whole query · keel bolt torque of the Kestrel 28" in shown


def test_a_chat_model_decides_and_its_faults_do_not(notes: Path, endpoint: Endpoint) -> None:
    llm = {"CLEW_LLM": "m", "CLEW_LLM_URL": endpoint.url}
    endpoint.words = '["sauna heater breaker"]'
    found = searched(notes, "what went wrong in May", **llm)
    assert found["meta"]["decomposer"] == "llm"
    assert found["sub_queries"] == ["what went wrong in May", "sauna heater breaker"]
    assert "journal/2025-05-30-sauna-heater.md" in {hit["path"] for hit in found["results"]}
    endpoint.script = [status(503)]
    found = searched(notes, QUERY, **llm)
    assert found["meta"]["decomposer"] == "rules" and "answered 503" in found["meta"]["fallback"]
    assert {hit["path"] for hit in found["results"]} >= FILES
