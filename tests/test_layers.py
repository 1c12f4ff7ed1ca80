"""Packages depend only on those before them, lazy and type-only imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import clew

ROOT = Path(clew.__file__).parent
LAYERS = [
    "resident",
    "errors",
    "validate",
    "timestamps",
    "background",
    "filter",
    "types",
    "protocols",
    "lookup_settings",
    "trust",
    "config",
    "text",
    "models",
    "ranking",
    "storage",
    "index",
    "servers",
    "store",
    "cache",
    "ingest",
    "graph",
    "tree",
    "sources",
    "search",
    "engine",
    "lookup",
    "memory",
    "adapters",
    "eval",
    "ask",
    "client",
    "serve",
    "cli",
]


def package(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "clew"
            names = [f"clew.{a.name}" for a in node.names] if whole else [node.module]
        yield from (name.split(".")[1] for name in names if name.startswith("clew."))


def test_packages_depend_only_on_those_before_them() -> None:
    backwards = {
        (here, there)
        for path in ROOT.rglob("*.py")
        for there in imported(path)
        if (here := package(path)) in LAYERS and there in LAYERS
        if LAYERS.index(there) > LAYERS.index(here)
    }
    assert backwards == set()


def test_every_package_has_its_layer() -> None:
    there = {package(path) for path in ROOT.rglob("*.py")}
    assert there - set(LAYERS) == {"__init__", "__main__"}


def test_the_picture_of_the_packages_is_true() -> None:
    docs = Path(__file__).parent.parent / "docs"
    spec = spec_from_file_location("packages", docs / "packages.py")
    assert spec is not None and spec.loader is not None
    packages = module_from_spec(spec)
    spec.loader.exec_module(packages)
    assert sorted(packages.packages()) == sorted(LAYERS)
    assert (docs / "images" / "packages.svg").read_text("utf-8") == packages.draw()
