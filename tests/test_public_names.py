from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import clew
from clew import errors

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(clew.__path__, "clew.")
    if not module.name.endswith("__main__")
)
HEAVY = [
    "numpy",
    "faiss",
    "onnxruntime",
    "tantivy",
    "tokenizers",
    "typer",
    "rich",
    "openai",
    "yaml",
]


def test_every_public_name_is_there() -> None:
    assert [name for name in clew.__all__ if not hasattr(clew, name)] == []
    assert len(set(clew.__all__)) == len(clew.__all__)
    assert list(clew.__all__) == sorted(clew.__all__)


def test_the_promised_names_of_this_release_are_public() -> None:
    promised = {"open", "Engine", "Record", "Hit", "Filter", "SearchResult", "rrf", "weighted_rrf"}
    promised |= {"agentic_search", "fts_escape"}
    promised |= {
        "ClewError",
        "ConfigError",
        "StoreError",
        "SourceError",
        "ModelError",
        "InputError",
    }
    assert promised <= set(clew.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_the_names_it_announces(name: str) -> None:
    module = importlib.import_module(name)
    announced = getattr(module, "__all__", [])
    assert [each for each in announced if not hasattr(module, each)] == []


def test_importing_clew_loads_nothing_heavy() -> None:
    # In a process of its own: this one has long loaded everything.
    code = f"import sys, clew; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_is_not_there_is_said_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'clew' has no attribute 'serch'"):
        clew.serch  # noqa: B018


def test_every_error_is_a_clew_error() -> None:
    found = {
        thing
        for name in MODULES
        for thing in vars(importlib.import_module(name)).values()
        if inspect.isclass(thing)
        and issubclass(thing, BaseException)
        and thing.__module__.startswith("clew")
    }
    assert found >= {getattr(errors, name) for name in errors.__all__}
    assert [error for error in found if not issubclass(error, clew.ClewError)] == []


def test_the_tree_of_errors_is_the_one_drawn_in_its_docstring() -> None:
    drawn = inspect.getdoc(errors) or ""
    for name in errors.__all__:
        assert name in drawn
        assert issubclass(getattr(errors, name), clew.ClewError)
    assert issubclass(clew.InputError, ValueError)


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_keeps_its_message(name: str) -> None:
    error = getattr(errors, name)("what is wrong: what to do")
    assert str(error) == "what is wrong: what to do"


def test_nearest_names_one_or_all() -> None:
    assert errors.nearest("colour", ["color", "size"]) == "did you mean 'color'?"
    assert errors.nearest("zzz", ["b", "a"]) == "valid: a, b"
