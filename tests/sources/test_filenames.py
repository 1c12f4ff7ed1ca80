from __future__ import annotations

from listed import Folder, by


def test_the_score_is_the_share_of_the_words_in_the_name(folder: Folder) -> None:
    engine = folder(
        {
            "boats/keel-torque-table.md": "x",
            "boats/keel_notes.md": "x",
            "torqueWrench.py": "x = 1",
            "keel/readme.md": "The folder's name does not count.",
            "other.keel": "nor does a suffix",
        }
    )
    assert by("filenames", engine, "the keel torque") == {
        "boats/keel-torque-table.md": 1.0,
        "boats/keel_notes.md": 0.5,
        "torqueWrench.py": 0.5,
    }


def test_the_best_ten_are_given_and_ties_go_by_id(folder: Folder) -> None:
    engine = folder({f"keel-{i:02}.md": "x" for i in range(15)} | {"keel-bolt.md": "x"})
    found = list(by("filenames", engine, "keel bolt"))
    assert found[0] == "keel-bolt.md"
    assert found[1:] == [f"keel-{i:02}.md" for i in range(9)]


def test_filters_hold_and_no_text_is_a_pattern(folder: Folder) -> None:
    engine = folder({"a/keel.md": "x", "b/keel.md": "x", "c/sail.md": "x"})
    assert list(by("filenames", engine, "keel path:b/")) == ["b/keel.md"]
    assert by("filenames", engine, 'k?el k* [a-z]* .* $(ls) "; DROP') == {}
