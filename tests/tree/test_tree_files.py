"""The tree on disk: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.errors import SourceError
from clew.tree import snapshot
from clew.tree.hierarchy import Texts, Tree

from hashing import HashingEmbedder


@pytest.fixture
def derived(engine: clew.Engine, tmp_path: Path) -> Path:
    return tmp_path / ".clew" / "derived"


def read(derived: Path) -> Tree:
    tree = snapshot.read_tree(derived)
    assert tree is not None
    return tree


def test_what_is_read_is_what_was_written(derived: Path, tmp_path: Path) -> None:
    tree = read(derived)
    snapshot.write_tree(tree, tmp_path / "copy")
    again = read(tmp_path / "copy")
    for name in snapshot.ARRAYS:
        assert np.array_equal(getattr(tree, name), getattr(again, name))
    for name in snapshot.TEXTS:
        assert list(getattr(tree, name)) == list(getattr(again, name))
    assert again.edition == tree.edition and again.model == tree.model


def test_arrays_are_mapped_not_read(derived: Path) -> None:
    tree = read(derived)
    assert isinstance(tree.facets, np.memmap) and isinstance(tree.kids, np.memmap)


def test_one_tree_is_on_disk_and_a_reader_of_the_old_one_keeps_it(
    engine: clew.Engine, derived: Path
) -> None:
    old = read(derived)
    engine.tree.build(mode="top-down")
    assert len(list(derived.glob("tree-*/"))) == 1
    assert read(derived).mode == "top-down"
    assert old.mode == "bottom-up" and old.children(0) and old.summaries[0]


def test_a_tree_that_was_never_finished_is_not_served(derived: Path) -> None:
    before = read(derived)
    half = derived / "tree-0123456789ab"
    half.mkdir()
    (half / "parents.npy").write_bytes(b"half of it")
    assert read(derived).token == before.token


@pytest.mark.parametrize(
    "state", ["", "{", "[]", '{"form": 99}', '{"form": 2}', '{"form": 2, "token": "x"}', "\x00\x00"]
)
def test_a_state_that_makes_no_sense_names_the_command(
    engine: clew.Engine, derived: Path, state: str
) -> None:
    (derived / "tree.json").write_text(state)
    with pytest.raises(SourceError, match="clew tree build"):
        engine.search("oak", tree=True)
    assert engine.status()["records"] == 150  # nothing else is the worse for it
    assert engine.tree.build()["leaves"] == 150


def zeroed(content: bytes) -> bytes:
    return content[:128] + bytes(len(content) - 128)


def junk(content: bytes) -> bytes:
    return content[:128] + bytes(n * 37 % 251 for n in range(len(content) - 128))


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [zeroed, junk, halved, emptied])
def test_any_file_that_is_damaged_names_the_command_and_the_doctor_sees_it(
    engine: clew.Engine, derived: Path, damage: Callable[[bytes], bytes]
) -> None:
    engine.close()
    folder = derived / f"tree-{json.loads((derived / 'tree.json').read_text())['token']}"
    tried = 0
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        if damage(whole) == whole:
            continue
        tried += 1
        file.write_bytes(damage(whole))
        with clew.open(derived.parent.parent, embedder=HashingEmbedder()) as again:
            with pytest.raises(SourceError, match="clew tree build"):
                again.search("oak", tree=True)
            with pytest.raises(SourceError, match="clew tree build"):
                again.tree.show()
            assert "clew tree build" in again.status()["tree"]["problem"]
            (said,) = [each for each in again.doctor() if "tree" in each["check"]]
            assert not said["ok"] and "clew tree build" in said["advice"]
        file.write_bytes(whole)
    assert tried > 10
    file.write_bytes(damage(whole) + b"!")
    with clew.open(derived.parent.parent, embedder=HashingEmbedder()) as again:
        assert again.doctor(mend=True) and again.search("oak", tree=True)
    with clew.open(derived.parent.parent, embedder=HashingEmbedder()) as again:
        assert again.search("oak", tree=True)
        assert [each["ok"] for each in again.doctor() if "tree" in each["check"]] == [True]


def test_the_doctor_says_nothing_of_a_tree_that_is_not_there(engine: clew.Engine) -> None:
    engine.tree.drop()
    assert not [each for each in engine.doctor() if "tree" in each["check"]]


# ---------------------------------------------------------------------- others write, too


@pytest.fixture
def meanwhile(
    engine: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[clew.Engine], object]], None]:
    """Has somebody else do something with the tree while it catches up."""

    def does(what: Callable[[clew.Engine], object]) -> None:
        assert engine.root is not None
        real, done = snapshot.update_tree, list[bool]()

        def slow(*args: Any, **options: Any) -> Tree:
            tree = real(*args, **options)
            if not done:
                done.append(True)
                with clew.open(engine.root, embedder=HashingEmbedder(), cache=False) as other:
                    what(other)
            return tree

        monkeypatch.setattr(snapshot, "update_tree", slow)

    return does


def test_a_tree_that_somebody_builds_while_another_catches_up_stays(
    engine: clew.Engine, derived: Path, meanwhile: Any
) -> None:
    engine.add([clew.Record(id="new", content="violin cello tempo chord")])
    engine.embed()
    meanwhile(lambda other: other.tree.build(mode="top-down", branching=12))
    assert "new" in [hit.id for hit in engine.search("violin cello tempo chord", tree=True)]
    assert (read(derived).mode, read(derived).branching) == ("top-down", 12)
    assert engine.status()["tree"]["mode"] == "top-down"


def test_a_tree_that_somebody_drops_while_another_catches_up_stays_dropped(
    engine: clew.Engine, derived: Path, meanwhile: Any
) -> None:
    engine.add([clew.Record(id="new", content="violin cello tempo chord")])
    engine.embed()
    meanwhile(lambda other: other.tree.drop())
    with pytest.raises(SourceError, match="no tree yet"):
        engine.search("violin cello tempo chord", tree=True)
    assert snapshot.read_tree(derived) is None and not list(derived.glob("tree-*/"))


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "ß∂", "\ud800 lone", "end"]])
def test_texts_are_read_back_one_by_one(texts: list[str]) -> None:
    kept = Texts.of(texts)
    assert list(kept) == texts == [kept[i] for i in range(len(kept))]
    with pytest.raises(IndexError):
        kept[len(texts)]
