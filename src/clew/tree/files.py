"""A tree on disk: arrays to be mapped into memory, in a folder that is swapped as a whole.

`derived/tree-TOKEN/` has the arrays, `derived/tree.json` says which token is meant. A new tree is
written beside the old one; one rename makes it the tree. Whoever has the old one mapped keeps it:
its files are removed, its pages stay until they are let go of.

The state has a checksum of every file, compared once when a tree is opened: numbers that a bad disk
has changed would send a walk round in circles.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import SourceError, StoreError
from clew.tree.hierarchy import Texts, Tree

__all__ = ["BUILD", "WORDS", "SupersededError", "drop", "peek", "read", "write"]

FORM = 2
"""Of the files. Another form is built anew."""
DERIVED = "derived"
"""Within the store's folder."""
STATE = "tree.json"
WORDS = "tree-words.jsonl"
"""What a chat model wrote, by content."""
BUILD = "run `clew tree build`"
TEXTS = ("ids", "labels", "summaries")
ARRAYS = (
    *("parents", "starts", "kids", "facets", "weights", "homes", "gone", "prints"),
    *("examples", "written", "told", "moved"),
)
FACTS = ("mode", "model", "branching", "unplaced", "built")
BLOCK = 1 << 20


class SupersededError(SourceError):
    """Another process has put another tree in the place of the one that was to be replaced."""


def peek(derived: Path) -> dict[str, Any] | None:
    """What the state file says; None: there is no tree."""
    try:
        state = json.loads((derived / STATE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SourceError(f"the tree's state cannot be read ({error}): {BUILD}") from None
    if not isinstance(state, dict) or state.get("form") != FORM:
        raise SourceError(f"the tree is of another version of Clew: {BUILD}")
    if not isinstance(state.get("token"), str):
        raise SourceError(f"the tree's state does not name its files: {BUILD}")
    return state


def read(derived: Path) -> Tree | None:
    """The tree that is on disk now, mapped."""
    for _ in range(3):  # another process may swap it between the two steps
        if (state := peek(derived)) is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            return _mapped(derived / f"tree-{state['token']}", state)
    raise SourceError(f"the tree's files are not there: {BUILD}")


def _mapped(folder: Path, state: dict[str, Any]) -> Tree:
    def array(name: str) -> Any:
        file = folder / f"{name}.npy"
        if _checksum(file) != state["checksums"][name]:
            raise ValueError(f"{name} is not as it was written")
        # what is empty cannot be mapped
        return np.load(file, mmap_mode="r" if file.stat().st_size > 128 else None)

    try:
        texts: dict[str, Any] = {n: Texts(array(f"{n}_ends"), array(f"{n}_content")) for n in TEXTS}
        arrays: dict[str, Any] = {name: array(name) for name in ARRAYS}
        facts: dict[str, Any] = {name: state[name] for name in FACTS}
        whole = [len(arrays["parents"]), len(arrays["homes"])] == state["sizes"]
        edition = (int(state["edition"][0]), int(state["edition"][1]))
    except FileNotFoundError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise SourceError(f"the tree's files are damaged ({error}): {BUILD}") from None
    if not whole:
        raise SourceError(f"the tree's files do not belong together: {BUILD}")
    return Tree(edition=edition, token=str(state["token"]), **facts, **texts, **arrays)


def write(tree: Tree, derived: Path, *, over: str | None = None) -> Tree:
    """Make it the tree, whole or not at all; what it is from now on. With `over`, only in the place
    of the tree of that token: SupersededError where that is not the tree any more."""
    import filelock

    token = uuid.uuid4().hex[:12]
    folder = derived / f"tree-{token}"
    lock = filelock.FileLock(derived / "tree.lock")
    try:
        derived.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        if over is not None and _token(derived) != over:
            raise SupersededError
        folder.mkdir()
        arrays: dict[str, Any] = {name: getattr(tree, name) for name in ARRAYS}
        for name in TEXTS:
            texts: Texts = getattr(tree, name)
            arrays |= {f"{name}_ends": texts.ends, f"{name}_content": texts.content}
        state = {
            "form": FORM,
            "token": token,
            "edition": list(tree.edition),
            "sizes": [len(tree.parents), len(tree.homes)],
            "checksums": {name: _saved(folder, name, array) for name, array in arrays.items()},
            **{name: getattr(tree, name) for name in FACTS},
        }
        beside = derived / f"{STATE}.{os.getpid()}.tmp"
        with beside.open("w", encoding="utf-8") as stream:
            stream.write(json.dumps(state))
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(derived / STATE)
        _sweep(derived, token)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(
            f"the tree cannot be written to {derived}: {error.strerror}; is the disk full?"
        ) from error
    finally:
        lock.release()
    tree.token = token
    return tree


def _token(derived: Path) -> str:
    """Of the tree that is there; a state that cannot be read names none."""
    try:
        state = peek(derived)
    except SourceError:
        return ""
    return "" if state is None else str(state["token"])


def _saved(folder: Path, name: str, array: Any) -> int:
    """Write one array, down to the disk; its checksum."""
    file = folder / f"{name}.npy"
    with file.open("wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())
    return _checksum(file)


def _checksum(file: Path) -> int:
    found = 0
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            found = zlib.crc32(block, found)
    return found


def drop(derived: Path) -> bool:
    """Remove the tree and all that was kept for it; whether there was one."""
    import filelock

    if not (there := (derived / STATE).exists()) and not (derived / WORDS).exists():
        return False
    with filelock.FileLock(derived / "tree.lock"):
        (derived / STATE).unlink(missing_ok=True)
        (derived / WORDS).unlink(missing_ok=True)
        _sweep(derived, "")
    return there


def _sweep(derived: Path, token: str) -> None:
    """Remove the trees of before, and what a crash has left. Under the lock: nobody else writes."""
    for folder in derived.glob("tree-*"):
        if folder.is_dir() and folder.name != f"tree-{token}":
            shutil.rmtree(folder, ignore_errors=True)
