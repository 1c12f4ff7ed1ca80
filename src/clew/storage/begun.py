"""How far a copy of a store is: a note in the target, by which it is known again and goes on.

The note has the target's edition after the copy's own last write. As long as that is still its
edition, all that is in it came from the copy; from the first other write on it has work of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from clew.errors import InputError, counted
from clew.filter import EVERYTHING
from clew.protocols import Store

__all__ = ["ITS_OWN", "NOTES", "Begun", "begin", "begin_anew"]

NOTE = "migration"
BEFORE = "migration: there before"
"""Ids that a target had before a copy was merged into it; while that is under way."""
NOTES = frozenset({NOTE, BEFORE})

_OTHERWISE = "give an empty one, or --merge to add to it (records of the same id are replaced)"
ITS_OWN = (
    "the target was copied from there already, and one of the two was written to since: what the "
    f"target has is its own now; {_OTHERWISE}"
)


@dataclass(slots=True)
class Begun:
    """A copy that is under way, or was finished."""

    origin: str
    source: list[int]
    """The source's edition when it began."""
    target: list[int] | None
    """The target's, after the copy's own last write; None: somebody else has written too."""
    after: str = ""
    """The last record that was copied."""
    done: int = 0
    merge: bool = False
    finished: bool = False
    stale: bool = False
    """Whether the source was written to since: then all of it is copied again."""
    before: set[str] = field(default_factory=set)

    def look(self, target: Store) -> None:
        """Whether the target is still as the copy left it; within the transaction of a write."""
        if self.target != list(target.changes.edition()):
            self.target = None

    def write(self, target: Store) -> None:
        """In the transaction of what it tells of."""
        if self.target is not None:
            self.target = list(target.changes.edition())
        state = {
            "from": self.origin,
            "source": self.source,
            "target": self.target,
            "after": self.after,
            "done": self.done,
            "merge": self.merge,
            "finished": self.finished,
        }
        target.notes[NOTE] = json.dumps(state)

    def drop_gone(self, source: Store, target: Store) -> None:
        """Take out again what the copy brought and the source has no more: somebody may have wanted
        it forgotten."""
        there = {row[0] for row in source.lifecycle.ledger(EVERYTHING)}
        with target.atomic():
            self.look(target)
            mine = {row[0] for row in target.lifecycle.ledger(EVERYTHING)} - self.before
            if self.target is not None:
                target.delete(sorted(mine - there))
            self.write(target)

    def finish(self, target: Store, *, source: list[int]) -> None:
        with target.atomic():
            self.look(target)
            self.source, self.finished = source, True
            self.write(target)
            if target.notes.get(BEFORE):
                target.notes[BEFORE] = ""

    def start_over(self, target: Store) -> None:
        """What was copied is not as it should be: the next run copies all of it."""
        with target.atomic():
            self.look(target)
            self.after, self.done = "", 0
            self.write(target)


def begin(source: Store, target: Store, *, origin: str, merge: bool) -> Begun:
    """What to do: go on with an earlier run, or begin. An InputError where the target has work of
    its own that nobody said may be written over."""
    state = _state(target)
    edition = list(source.changes.edition())
    ours, untouched = (
        state.get("from") == origin,
        state.get("target") == list(target.changes.edition()),
    )
    if ours and untouched:
        same = state["source"] == edition
        kept = Begun(origin, edition, state["target"], merge=bool(state["merge"]))
        if state["finished"]:
            if same:
                kept.finished = True
                return kept
        elif merge or not kept.merge:
            kept.stale = not same
            kept.before = set(json.loads(target.notes.get(BEFORE) or "[]"))
            if same:
                kept.after, kept.done = str(state["after"]), int(state["done"])
            return kept
    there = target.count(EVERYTHING)
    if not merge and (there or (ours and not untouched)):  # it may have forgotten all there was
        raise InputError(_refusal(state, origin, there))
    return begin_anew(source, target, origin=origin, merge=merge)


def begin_anew(source: Store, target: Store, *, origin: str, merge: bool) -> Begun:
    with target.atomic():
        before = [row[0] for row in target.lifecycle.ledger(EVERYTHING)]
        begun = Begun(
            origin, list(source.changes.edition()), list(target.changes.edition()), merge=merge
        )
        begun.before = set(before)
        if before:
            target.notes[BEFORE] = json.dumps(before)
        begun.write(target)
    return begun


def _state(target: Store) -> dict[str, Any]:
    try:
        state = json.loads(target.notes.get(NOTE) or "{}")
    except ValueError:
        return {}
    known = ("from", "source", "target", "after", "done", "merge", "finished")
    return state if isinstance(state, dict) and state.keys() >= set(known) else {}


def _refusal(state: dict[str, Any], origin: str, there: int) -> str:
    if state.get("from") != origin:
        return (
            f"the target has {counted(there, 'record')} already, and not from there: {_OTHERWISE}"
        )
    if state["finished"]:
        return ITS_OWN
    if state["merge"] and state["target"] is not None:
        return "a copy with --merge was interrupted: say --merge again to go on with it"
    return f"the target was written to since the copy into it was interrupted: {_OTHERWISE}"
