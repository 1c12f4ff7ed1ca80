"""Phrases and exclusions hold in every source."""

from __future__ import annotations

import pytest
from listed import Folder, by

FILES = {
    "CANONICAL.md": "A crane lifts the red boat.\nA crane lifts the blue boat on Saturday.\n",
    "crane-one.md": "---\ntags: [crane]\n---\nThe red boat.\n",
    "crane-two.md": "---\ntags: [crane]\n---\nThe blue boat.\n",
    ".framework/a.md": "A crane for the red boat.\n",
    ".framework/b.md": "A crane for the blue boat.\n",
}
ON = {"sources": {"framework_docs": {}}}


@pytest.mark.parametrize(
    ("source", "red", "blue"),
    [
        ("keyword", "crane-one.md", "crane-two.md"),
        ("tags", "crane-one.md", "crane-two.md"),
        ("filenames", "crane-one.md", "crane-two.md"),
        ("canonical", "CANONICAL.md#L1", "CANONICAL.md#L2"),
        ("framework_docs", ".framework/a.md", ".framework/b.md"),
    ],
)
def test_phrases_and_exclusions_hold(folder: Folder, source: str, red: str, blue: str) -> None:
    engine = folder(FILES, **ON)
    query = "crane lifts" if source in ("canonical",) else "crane"
    assert {red, blue} <= set(by(source, engine, query))
    without = set(by(source, engine, f"{query} -blue"))
    assert red in without and blue not in without
    only = set(by(source, engine, f'{query} "blue boat"'))
    assert blue in only and red not in only
