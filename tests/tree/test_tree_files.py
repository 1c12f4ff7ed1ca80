"""The tree on disk: whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import clew
from clew.errors import SourceError
from clew.tree import files
from clew.tree.hierarchy import Texts, Tree

from hashing import HashingEmbedder


@pytest.fixture
def derived(engine: clew.Engine, tmp_path: Path) -> Path:
    return tmp_path / ".clew" / "derived"


def read(derived: Path) -> Tree:
    tree = files.read(derived)
    assert tree is not None
    return tree


def test_what_is_read_is_what_was_written(derived: Path, tmp_path: Path) -> None:
    tree = read(derived)
    files.write(tree, tmp_path / "copy")
    again = read(tmp_path / "copy")
    for name in files.ARRAYS:
        assert np.array_equal(getattr(tree, name), getattr(again, name))
    for name in files.TEXTS:
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
    "state", ["", "{", "[]", '{"form": 99}', '{"form": 1, "token": "x"}', "\x00\x00"]
)
def test_a_state_that_makes_no_sense_names_the_command(
    engine: clew.Engine, derived: Path, state: str
) -> None:
    (derived / "tree.json").write_text(state)
    with pytest.raises(SourceError, match="clew tree build"):
        engine.search("oak", tree=True)
    assert engine.status()["records"] == 150  # nothing else is the worse for it
    assert engine.tree.build()["leaves"] == 150


def test_files_that_are_damaged_or_do_not_fit_name_the_command(
    engine: clew.Engine, derived: Path
) -> None:
    folder = derived / f"tree-{json.loads((derived / 'tree.json').read_text())['token']}"
    for name, content in (("kids", b"\x93NUMPY nonsense"), ("parents", b"")):
        whole = (folder / f"{name}.npy").read_bytes()
        (folder / f"{name}.npy").write_bytes(content)
        engine.close()
        with (
            clew.open(derived.parent.parent, embedder=HashingEmbedder()) as again,
            pytest.raises(SourceError, match="clew tree build"),
        ):
            again.search("oak", tree=True)
        (folder / f"{name}.npy").write_bytes(whole)


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "ß∂", "\ud800 lone", "end"]])
def test_texts_are_read_back_one_by_one(texts: list[str]) -> None:
    kept = Texts.of(texts)
    assert list(kept) == texts == [kept[i] for i in range(len(kept))]
    with pytest.raises(IndexError):
        kept[len(texts)]
