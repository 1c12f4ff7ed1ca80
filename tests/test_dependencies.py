"""Licences of all that is installed with Clew, and the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "tools" / "dependencies.py"


def run(word: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), word], capture_output=True, text=True, check=False
    )


def test_no_licence_is_in_the_way() -> None:
    done = run("licences")
    assert done.returncode == 0, done.stderr


def test_the_bill_of_materials_names_every_package_once() -> None:
    bill = json.loads(run("sbom").stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = [each["name"] for each in bill["components"]]
    assert names == sorted(set(names))
    assert {"numpy", "tantivy", "duckdb", "pypdf"} <= set(names)
    assert not {"pytest", "ruff", "mypy", "arriadne"} & set(names)  # for development
    references = {each["bom-ref"] for each in [*bill["components"], bill["metadata"]["component"]]}
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= references
    assert all(each["purl"].startswith("pkg:pypi/") for each in bill["components"])
