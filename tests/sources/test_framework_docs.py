from __future__ import annotations

from listed import Folder, by

FILES = {
    ".framework/rules.md": "Plans are short.\n\nA plan names its risk and its owner.\n",
    ".context/memory_bank/active.md": "The risk of the week is weather.\n",
    "notes/plan.md": "The plan names risk and owner too, in another folder.\n",
}
ON = {"sources": {"framework_docs": {"weight": 2.5}}}


def test_the_best_line_decides_and_other_folders_do_not_count(folder: Folder) -> None:
    assert by("framework_docs", folder(FILES, **ON), "plan risk owner") == {
        ".framework/rules.md": 1.0,
        ".context/memory_bank/active.md": 0.3333,
    }


def test_the_best_five_are_given(folder: Folder) -> None:
    many = {f".framework/{i}.md": "risk" for i in range(9)}
    assert len(by("framework_docs", folder(many, **ON), "risk")) == 5


def test_a_filter_elsewhere_leaves_nothing(folder: Folder) -> None:
    engine = folder(FILES, **ON)
    assert by("framework_docs", engine, "risk path:notes/") == {}
    assert by("framework_docs", engine, "risk", skills_only=True) == {}


def test_folders_are_an_option(folder: Folder) -> None:
    settings = {"sources": {"framework_docs": {"folders": ["notes/"]}}}
    assert list(by("framework_docs", folder(FILES, **settings), "risk")) == ["notes/plan.md"]
