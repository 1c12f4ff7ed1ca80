"""Files, git and web under [sources.NAME]: sources like the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import clew


def test_a_search_asks_folders_and_repositories_beside_its_store(tmp_path: Path) -> None:
    papers, code = tmp_path / "papers", tmp_path / "code"
    papers.mkdir()
    (papers / "keel.md").write_text("Keel bolts take forty newton metres.\n")
    code.mkdir()
    (code / "boat.py").write_text("def tighten_keel_bolts():\n    return 40\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Tighten the keel"]):
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=code, check=True)
    sources = {
        "papers": {"kind": "files", "folders": [str(papers)], "seconds": 60.0},
        "code": {"kind": "git", "repositories": [str(code)], "seconds": 60.0},
    }
    with clew.open(tmp_path / "s", model="none", sources=sources, deadline=60.0) as engine:
        engine.add([clew.Record("own", "the keel of a boat")])
        found = engine.search("keel", limit=20)
        assert {hit.source for hit in found} >= {"papers", "code"}
        ids = {hit.id for hit in found}
        assert {"own", f"file:{papers / 'keel.md'}", "git:code:boat.py"} <= ids
        (papers / "keel.md").write_text("The ballast is of lead.\n")
        assert [hit.path for hit in engine.search("ballast", sources=["papers"])] == [
            str(papers / "keel.md")
        ]


def test_the_web_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(clew.ConfigError, match="address must be given"):
        clew.open(tmp_path, sources={"web": {}})
    with pytest.raises(clew.ConfigError, match="expected an address"):
        clew.open(tmp_path, sources={"web": {"address": "searx"}})
