"""A tree on disk: arrays to be mapped into memory, in a folder that is swapped as a whole.

`derived/tree-TOKEN/` has the arrays, `derived/tree.json` says which token is meant. A new tree is
written beside the old one; one rename makes it the tree. Whoever has the old one mapped keeps it:
its files are removed, its pages stay until they are let go of.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import SourceError, StoreError
from clew.tree.hierarchy import Texts, Tree

__all__ = ["BUILD", "WORDS", "drop", "peek", "read", "write"]

FORM = 1
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


def write(tree: Tree, derived: Path) -> Tree:
    """Make it the tree, whole or not at all; what it is from now on."""
    import filelock

    token = uuid.uuid4().hex[:12]
    folder = derived / f"tree-{token}"
    lock = filelock.FileLock(derived / "tree.lock")
    try:
        derived.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        folder.mkdir()
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", getattr(tree, name))
        for name in TEXTS:
            texts: Texts = getattr(tree, name)
            np.save(folder / f"{name}_ends.npy", texts.ends)
            np.save(folder / f"{name}_content.npy", texts.content)
        state = {
            "form": FORM,
            "token": token,
            "edition": list(tree.edition),
            "sizes": [len(tree.parents), len(tree.homes)],
            **{name: getattr(tree, name) for name in FACTS},
        }
        beside = derived / f"{STATE}.{os.getpid()}.tmp"
        beside.write_text(json.dumps(state), "utf-8")
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
