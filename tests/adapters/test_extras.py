"""The adapters as a package: what is not used is not loaded, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

ADAPTERS = [
    ("langchain", "langchain_core", "langchain"),
    ("llama_index", "llama_index.core", "llama-index"),
    ("langgraph", "langgraph.store.base", "langgraph"),
]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("module", "package", "extra"), ADAPTERS)
def test_a_missing_package_is_named_with_what_to_install(
    module: str, package: str, extra: str
) -> None:
    # None in sys.modules is what makes Python say that there is no such module.
    code = f"""
import sys, clew
sys.modules[{package!r}] = None
try:
    import clew.adapters.{module}
except clew.ConfigError as error:
    print(error)
"""
    assert f"pip install 'clew-search[{extra}]'" in run(code)


def test_clew_and_its_memory_import_no_framework() -> None:
    packages = [package.partition(".")[0] for _, package, _ in ADAPTERS]
    code = f"""
import sys, clew
clew.Memory, clew.open
print([name for name in {["clew.adapters", *packages]!r} if name in sys.modules])
"""
    assert run(code) == "[]"
