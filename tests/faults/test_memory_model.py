"""Whatever happens to memories, in whatever order, they are what a dictionary would say."""

from __future__ import annotations

import itertools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import clew
from entries import WORDS

from hashing import HashingEmbedder

SPACES = ("default", "ana", "ben")
spaces = st.sampled_from(SPACES)
words = st.sampled_from(WORDS[:6])
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)
EXAMPLES = int(os.environ.get("CLEW_MODEL_EXAMPLES", "8"))
BEGIN = 1_700_000_000


@dataclass
class Known:
    """What the model knows of a memory."""

    content: str
    namespace: str
    importance: float
    created_at: float
    reason: str = ""
    successor: str | None = None


Key = tuple[str, str]


class MemoryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.known: dict[Key, Known] = {}
        self.numbers = itertools.count()
        self.open()

    def open(self) -> None:
        file = Path(self.place.name) / "memory.db"
        self.memory = clew.Memory(file, embedder=HashingEmbedder(dim=32))

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()
            self.place.cleanup()

    def _live(self, space: str | None = None) -> list[Key]:
        return [
            key
            for key, each in self.known.items()
            if not each.reason and space in (None, each.namespace)
        ]

    # ------------------------------------------------------------------ writing

    @rule(text=texts, space=spaces, importance=st.sampled_from((0.2, 0.5, 0.9)))
    def remember(self, text: str, space: str, importance: float) -> None:
        number = next(self.numbers)
        content, at = f"{text} item{number}", float(BEGIN + number)
        made = self.memory.remember(
            content, importance=importance, namespace=space, id=f"m{number}", created_at=at
        )
        assert (made.id, made.status) == (f"m{number}", "created")
        self.known[space, made.id] = Known(content, space, importance, at)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), importance=st.sampled_from((0.2, 0.9)))
    def remember_again(self, data: st.DataObject, importance: float) -> None:
        """The same words are kept once, and are as important as they ever were."""
        space, name = data.draw(st.sampled_from(self._live()))
        known = self.known[space, name]
        made = self.memory.remember(known.content, importance=importance, namespace=space)
        assert made.id == name
        assert made.status == ("updated" if importance > known.importance else "duplicate")
        known.importance = max(known.importance, importance)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), text=texts)
    def update(self, data: st.DataObject, text: str) -> None:
        space, name = data.draw(st.sampled_from(self._live()))
        content = f"{text} item{next(self.numbers)}"
        self.memory.update(name, content, namespace=space)
        self.known[space, name].content = content

    @precondition(lambda self: self._live())
    @rule(data=st.data(), text=texts)
    def supersede(self, data: st.DataObject, text: str) -> None:
        space, name = data.draw(st.sampled_from(self._live()))
        number = next(self.numbers)
        content, at, old = f"{text} item{number}", float(BEGIN + number), self.known[space, name]
        made = self.memory.supersede(
            name, content, new_id=f"m{number}", namespace=space, created_at=at
        )
        assert made.id == f"m{number}"
        old.reason, old.successor = "superseded", made.id
        self.known[space, made.id] = Known(content, space, old.importance, at)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), hard=st.booleans(), wrong=st.booleans())
    def forget(self, data: st.DataObject, hard: bool, wrong: bool) -> None:
        space, name = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[space, name]
        if wrong:  # another namespace has no such memory
            other = SPACES[(SPACES.index(space) + 1) % 3]
            if (other, name) not in self.known:
                assert not self.memory.forget(name, hard, namespace=other)
            return
        done = self.memory.forget(name, hard, namespace=space)
        assert done == (hard or not known.reason)
        if hard:
            del self.known[space, name]
            for each in self.known.values():  # no hole in a history
                if each.namespace == space and each.successor == name:
                    each.successor = known.successor
        elif not known.reason:
            known.reason = "forgotten"

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        space, name = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[space, name]
        assert self.memory.restore(name, namespace=space) == bool(known.reason)
        if known.reason:
            known.reason, known.successor = "", None

    @rule(how=st.sampled_from(("reopen", "optimise", "vacuum", "mend", "copy")))
    def upkeep(self, how: str) -> None:
        """Nothing of it shows."""
        match how:
            case "reopen":
                self.memory.close()
                self.open()
            case "mend":
                self.memory.engine.doctor(mend=True)
            case "copy":
                file = Path(self.place.name) / "export.jsonl"
                assert self.memory.export_json(file) == len(self.known)
                done = self.memory.import_json(file)
                assert done["unchanged"] == len(self.known)
            case _:
                getattr(self.memory, how)()

    # ------------------------------------------------------------------ reading

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "memory"):
            return
        exported = self.memory.export_json(embeddings=False)
        assert isinstance(exported, dict)
        assert {(e["namespace"], e["id"]) for e in exported["memories"]} == self.known.keys()
        for (space, name), known in self.known.items():
            got = self.memory.get(name, namespace=space)
            assert got is not None
            assert (got.content, got.importance) == (known.content, known.importance)
            assert got.namespace == space
            assert (got["reason"] or "") == known.reason
        assert self.memory.stats()["memories"] == len(self._live())

    @rule(word=words, space=spaces)
    def search(self, word: str, space: str) -> None:
        right = {n for _, n in self._live(space) if word in self.known[space, n].content.split()}
        found = self.memory.fts_search(word, 100, namespace=space)
        assert {each.id for each in found} == right
        recalled = self.memory.recall(word, k=100, namespace=space, floor=0.0)
        assert {n for _, n in self._live(space)} >= {each.id for each in recalled} >= right
        for each in (*found, *recalled):
            assert each.content == self.known[space, each.id].content

    @rule(space=spaces, word=words)
    def search_vectors(self, space: str, word: str) -> None:
        embedder = HashingEmbedder(dim=32)
        query = embedder.embed_query(word)
        live = self._live(space)
        scores = {
            key[1]: float(embedder.embed_query(self.known[key].content) @ query) for key in live
        }
        found = self.memory.vector_search(query, 100, namespace=space)
        assert {each.id for each in found} == scores.keys()
        for each in found:
            assert abs(each.score - scores[each.id]) < 1e-3

    @rule(space=spaces)
    def latest(self, space: str) -> None:
        newest = sorted(self._live(space), key=lambda key: -self.known[key].created_at)
        assert [each.id for each in self.memory.latest(100, namespace=space)] == [
            name for _, name in newest
        ]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def history(self, data: st.DataObject) -> None:
        space, name = data.draw(st.sampled_from(sorted(self.known)))
        chain, waiting = [name], [name]
        while waiting:
            last = waiting.pop(0)
            earlier = sorted(
                n for (s, n), each in self.known.items() if s == space and each.successor == last
            )
            chain += earlier
            waiting += earlier
        found = self.memory.history(name, namespace=space)
        assert sorted(each.id for each in found) == sorted(chain)
        assert found[0].id == name


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
