from __future__ import annotations

from pathlib import Path

import pytest
from listed import Folder, by

NOTES = {
    "a.md": "---\ntags: [risk]\n---\nOne.",
    "b.md": "Two, with #risk-management inline.",
    "risk/c.md": "Three.",
    "d.md": "Four has no tag, though it speaks of risk.",
    "z.md": "---\ntags: [zeta, risk]\n---\nFive.",
}


def test_tags_come_from_front_matter_inline_tags_and_folder_names(folder: Folder) -> None:
    engine = folder(NOTES)
    assert by("tags", engine, "risk") == {"a.md": 1.0, "risk/c.md": 0.95, "z.md": 0.9}
    assert by("tags", engine, "#Risk!") == by("tags", engine, "risk")


def test_a_tag_of_several_words_comes_first(folder: Folder) -> None:
    found = by("tags", folder(NOTES), "notes on risk management")
    assert next(iter(found)) == "b.md"
    assert found["b.md"] == 1.0


def test_each_shard_has_its_own_votes(folder: Folder) -> None:
    many = {f"k{i:02}.md": "---\ntags: [keel]\n---\nx" for i in range(14)}
    engine = folder({**many, **{f"s{i}.md": "---\ntags: [sail]\n---\nx" for i in range(3)}})
    found = by("tags", engine, "keel sail")
    assert sum(name.startswith("k") for name in found) == 10
    assert sum(name.startswith("s") for name in found) == 3
    assert sorted(found.values(), reverse=True) == list(found.values())
    assert found["k09.md"] == round(1 - 0.05 * 9, 4)
    assert found["s0.md"] == 1.0


def test_part_of_a_tag_is_no_match_and_no_text_is_a_pattern(folder: Folder) -> None:
    engine = folder(NOTES)
    for query in ("ris", "risk.*", "r[i]sk", "x %", "x _", "' OR 1=1 --", "$(rm -rf x)"):
        assert by("tags", engine, query) == {}, query


def test_filters_hold_before_the_votes_are_cut(folder: Folder) -> None:
    many = {f"a/k{i:02}.md": "---\ntags: [keel]\n---\nx" for i in range(14)}
    engine = folder({**many, "b/last.md": "---\ntags: [keel]\n---\nx"})
    assert list(by("tags", engine, "keel path:b/")) == ["b/last.md"]


# ---------------------------------------------------------------------- shard files

SHARDS = {"sources": {"tags": {"shards": ["TAGS_A-M.txt", "TAGS_N-Z.txt"]}}}


@pytest.fixture
def workspace() -> dict[str, str | bytes]:
    return {
        "plain.md": "Untagged.",
        "secret.md": "---\ndomain: personal\n---\nAlso untagged.",
        "TAGS_A-M.txt": "# Index\n#keel: plain.md, secret.md, gone.md\n",
        "TAGS_N-Z.txt": "- #sail\n  - plain.md\n",
    }


def test_a_workspace_may_keep_shard_files_of_its_own(
    folder: Folder, workspace: dict[str, str | bytes]
) -> None:
    engine = folder(workspace, **SHARDS)
    assert list(by("tags", engine, "keel")) == ["plain.md"]
    assert list(by("tags", engine, "sail")) == ["plain.md"]
    assert list(by("tags", engine, "keel", include_personal=True)) == ["plain.md", "secret.md"]


def test_a_missing_shard_is_named_and_the_other_still_counts(
    folder: Folder, workspace: dict[str, str | bytes], tmp_path: Path
) -> None:
    engine = folder(workspace, **SHARDS)
    (tmp_path / "TAGS_A-M.txt").unlink()
    found = engine.search("sail", sources=["tags"])
    assert [hit.path for hit in found] == ["plain.md"]
    assert found.degraded == ("tags: TAGS_A-M.txt is missing",)


def test_a_shard_that_is_not_utf_8_is_named_and_the_other_still_counts(
    folder: Folder, workspace: dict[str, str | bytes], tmp_path: Path
) -> None:
    engine = folder(workspace, **SHARDS)
    (tmp_path / "TAGS_A-M.txt").write_bytes(b"#keel: plain.md\n\xff\xfe")
    found = engine.search("sail keel", sources=["tags"])
    assert [hit.path for hit in found] == ["plain.md"]
    assert "TAGS_A-M.txt is not UTF-8" in found.degraded[0]


def test_a_folder_without_any_shard_file_is_not_degraded(folder: Folder) -> None:
    assert list(by("tags", folder(NOTES, **SHARDS), "zeta")) == ["z.md"]
