"""Whatever a client sends by the OpenAPI of the server, or against it, is answered as that says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import clew
from clew.serve.http import create_app
from clew.serve.stores import ServedStores

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    folder: Path = tmp_path_factory.mktemp("notes")
    (folder / "keel.md").write_text("# Keel\n\nTorque the keel bolts.\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEW_MODEL", "none")
        with clew.open(folder) as engine:
            engine.index()
        with ServedStores() as stores:
            stores.open_folder(folder)
            stores.open_memory(folder / "memory.db").memory.remember("Ana", id="ana")  # type: ignore[union-attr]
            app = create_app(stores, hosts=["testserver"])
            yield schemathesis.openapi.from_asgi("/openapi.json", app)


def test_every_answer_is_as_described(served: schemathesis.BaseSchema) -> None:
    asked = []
    for found in served.get_all_operations():
        operation = found.ok()
        if operation.path == "/index/progress":  # it does not end
            continue

        @given(case=operation.as_strategy())
        @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        check()
        asked.append(operation.label)
    assert {"GET /search", "POST /search", "POST /memories", "GET /recall"} <= set(asked)
