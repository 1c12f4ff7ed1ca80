"""A file of memories, and all that is done to it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from items import ASKED, DIM, OWN, Changes, Operation, Plan, State, differences
from samples import word

import clew
from clew.protocols import Store

from hashing import HashingEmbedder

SPACES = ("default", "ana", "twins")


def memory_value(
    content: str,
    importance: float,
    namespace: str = "default",
    reason: str = "",
    successor: str = "",
) -> str:
    return json.dumps([content, importance, namespace, reason, successor])


class MemoryWorld:
    """A file of memories. An item is a memory: its text, importance, and how it ended."""

    OPERATIONS: ClassVar[dict[str, Operation]]

    def __init__(self, folder: Path, *, scheme: str = "embedded", prefix: str = "m"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.scheme, self.prefix = folder, scheme, prefix
        file = folder / "memory.db"
        self.memory = clew.Memory(
            f"duckdb:///{file}" if scheme == "duckdb" else file,
            embedder=HashingEmbedder(model=OWN, dim=DIM),
        )
        self.store: Store = self.memory.store

    def close(self) -> None:
        self.memory.close()

    def observe(self) -> State:
        exported = self.memory.export_json(embeddings=False)
        assert isinstance(exported, dict)
        seen = {}
        for each in exported["memories"]:
            life = each.get("lifecycle") or each
            seen[each["id"]] = memory_value(
                each["content"],
                each["importance"],
                each["namespace"],
                life.get("reason") or "",
                life.get("successor") or "",
            )
        return seen

    def answers(self, state: State, *, seed: int = 0) -> dict[str, Any]:
        rng = random.Random(seed)
        names = rng.sample(sorted(state), min(ASKED, len(state)))
        said: dict[str, Any] = {}
        most = len(state) + 10  # a crowd remembers more than ten thousand
        for space in SPACES:
            everything = self.memory.fts_search("zebra", most, namespace=space)
            said[f"everything {space}"] = sorted(each.id for each in everything)
            query = HashingEmbedder(dim=DIM).embed_query("zebra")
            rows = self.memory.vector_search(query, most, namespace=space)
            said[f"near {space}"] = sorted([e.id, round(e.score, 3)] for e in rows)
        for name in names:
            content, _, space, *_ = json.loads(state[name])
            words = content.split()[1]
            hits = self.memory.fts_search(words, 5, namespace=space)
            said[f"by word {name}"] = [[each.id, each.content] for each in hits]
            got = self.memory.get(name, namespace=space)
            said[f"get {name}"] = None if got is None else got.content
        return said

    def asides(self) -> dict[str, Any]:
        recalled = self.memory.recall("zebra kept", k=20, record_access=False)
        latest = self.memory.latest(20)
        return {
            "recall": sorted([each.id, each.content] for each in recalled),
            "latest": [[each.id, each.content] for each in latest],
            "degraded": [line for space in SPACES for line in self._left_out(space)],
        }

    def _left_out(self, space: str) -> Sequence[str]:
        recalled = self.memory.recall("zebra kept", k=20, namespace=space, record_access=False)
        return recalled.diagnostics["degraded"]

    def expected(self, state: State, *, seed: int = 0) -> dict[str, Any]:
        rng = random.Random(seed)
        names = rng.sample(sorted(state), min(ASKED, len(state)))
        values = {name: json.loads(value) for name, value in state.items()}
        said: dict[str, Any] = {}
        embedder = HashingEmbedder(dim=DIM)
        query = embedder.embed_query("zebra")
        for space in SPACES:
            live = [n for n, v in sorted(values.items()) if v[2] == space and not v[3]]
            said[f"everything {space}"] = live
            scores = [float(embedder.embed_query(values[n][0]) @ query) for n in live]
            said[f"near {space}"] = [[n, round(s, 3)] for n, s in zip(live, scores, strict=True)]
        for name in names:
            content, _, space, *_ = values[name]
            # Twins share their word: whichever is in use is found.
            same = [
                [n, v[0]]
                for n, v in values.items()
                if v[2] == space and not v[3] and v[0].split()[1] == content.split()[1]
            ]
            said[f"by word {name}"] = same
            said[f"get {name}"] = content
        return said

    def problems(self, state: State, *, seed: int = 0, rebuild: bool = False) -> list[str]:
        right, said = self.expected(state, seed=seed), self.answers(state, seed=seed)
        for each in (right, said):
            for hits in (value for key, value in each.items() if key.startswith("by word")):
                hits.sort()
        wrong = differences(right, said)
        wrong += [
            f"{what}: {advice}" for what, well, advice in self.store.upkeep.check() if not well
        ]
        for file in self.folder.glob("export*.jsonl"):
            lines = file.read_text("utf-8").splitlines()
            wrong += [f"half an export: {line}" for line in lines if not _is_json(line)]
        if rebuild:
            self.store.indexes.rebuild()
            again = self.answers(state, seed=seed)
            wrong += [f"rebuilt: {line}" for line in differences(again, said)]
        return wrong

    # ------------------------------------------------------------------ what is done

    def _new(self, rng: random.Random) -> tuple[str, str]:
        name = f"{self.prefix}{rng.randrange(10**9)}"
        return name, f"zebra {word(name)} is kept"

    def _live(self, state: State, *, space: str = "default") -> list[str]:
        values = ((name, json.loads(value)) for name, value in sorted(state.items()))
        return [n for n, v in values if v[2] == space and not v[3] and n.startswith(self.prefix)]

    def remember(self, rng: random.Random, state: State) -> Plan:
        name, content = self._new(rng)
        space = rng.choice(("default", "ana"))
        act = lambda: self.memory.remember(content, id=name, namespace=space)  # noqa: E731
        return {name: memory_value(content, 0.5, space)}, act

    def _several(self, rng: random.Random) -> tuple[list[dict[str, str]], State]:
        made = dict(self._new(rng) for _ in range(rng.randint(2, 30)))
        items = [{"id": name, "content": content} for name, content in made.items()]
        return items, {name: memory_value(content, 0.5) for name, content in made.items()}

    def remember_many(self, rng: random.Random, state: State) -> Plan:
        items, changes = self._several(rng)
        return dict(changes), lambda: self.memory.remember_many(items)

    def import_many(self, rng: random.Random, state: State) -> Plan:
        items, changes = self._several(rng)
        return dict(changes), lambda: self.memory.import_json(items)

    def update(self, rng: random.Random, state: State) -> Plan:
        if not (live := self._live(state)):
            return self.remember(rng, state)
        name, (_, content) = rng.choice(live), self._new(rng)
        importance = json.loads(state[name])[1]
        act = lambda: self.memory.update(name, content)  # noqa: E731
        return {name: memory_value(content, importance)}, act

    def supersede(self, rng: random.Random, state: State) -> Plan:
        if not (live := self._live(state)):
            return self.remember(rng, state)
        old, (new, content) = rng.choice(live), self._new(rng)
        was, importance, *_ = json.loads(state[old])
        changes = {
            old: memory_value(was, importance, "default", "superseded", new),
            new: memory_value(content, importance),
        }
        return dict(changes), lambda: self.memory.supersede(old, content, new_id=new)

    def forget(self, rng: random.Random, state: State) -> Plan:
        if not (live := self._live(state)):
            return self.remember(rng, state)
        name = rng.choice(live)
        was, importance, space, *_ = json.loads(state[name])
        act = lambda: self.memory.forget(name)  # noqa: E731
        return {name: memory_value(was, importance, space, "forgotten")}, act

    def forget_hard(self, rng: random.Random, state: State) -> Plan:
        """Of those that nothing was superseded by, so that no chain is mended beside it."""
        values = {name: json.loads(value) for name, value in state.items()}
        heirs = {value[4] for value in values.values()}
        alone = [n for n in self._live(state) if n not in heirs]
        if not alone:
            return self.remember(rng, state)
        gone = rng.choice(alone)
        return {gone: None}, lambda: self.memory.forget(gone, hard=True)

    def restore(self, rng: random.Random, state: State) -> Plan:
        values = {name: json.loads(value) for name, value in sorted(state.items())}
        ended = [
            n for n, v in values.items() if v[3] and v[2] == "default" and n.startswith(self.prefix)
        ]
        if not ended:
            return self.remember(rng, state)
        name = rng.choice(ended)
        was, importance, space, *_ = values[name]
        act = lambda: self.memory.restore(name)  # noqa: E731
        return {name: memory_value(was, importance, space)}, act

    def feedback(self, rng: random.Random, state: State) -> Plan:
        if not (live := self._live(state)):
            return self.remember(rng, state)
        name = rng.choice(live)
        was, importance, *_ = json.loads(state[name])
        moved = round(min(1.0, importance + 0.05), 6)
        return {name: memory_value(was, moved)}, lambda: self.memory.feedback(name)

    def remember_twins(self, rng: random.Random, state: State) -> Plan:
        name = f"{self.prefix}{rng.randrange(10**9)}"
        made = {
            f"{name}a": (f"zebra {word(name)} was here", 0.9),
            f"{name}b": (f"Zebra {word(name)} was here.", 0.5),
        }
        items = [
            {"id": each, "content": content, "importance": importance, "namespace": "twins"}
            for each, (content, importance) in made.items()
        ]
        changes = {each: memory_value(*value, "twins") for each, value in made.items()}
        return dict(changes), lambda: self.memory.remember_many(items)

    def consolidate(self, rng: random.Random, state: State) -> Plan:
        """Two that say the same become one: the more important."""
        changes: Changes = {}
        for name in self._live(state, space="twins"):
            if name.endswith("b"):
                was, importance, *_ = json.loads(state[name])
                ended = ("twins", "consolidated", f"{name[:-1]}a")
                changes[name] = memory_value(was, importance, *ended)
        return changes, lambda: self.memory.consolidate("twins")

    def export(self, rng: random.Random, state: State) -> Plan:
        file = self.folder / f"export{rng.randrange(3)}.jsonl"
        return {}, lambda: self.memory.export_json(file)

    def recall(self, rng: random.Random, state: State) -> Plan:
        """Accesses are written behind the caller's back."""

        def act() -> None:
            self.memory.recall("zebra", k=20)
            self.memory.stats()

        return {}, act

    def optimise(self, rng: random.Random, state: State) -> Plan:
        return {}, self.memory.optimise

    def vacuum(self, rng: random.Random, state: State) -> Plan:
        return {}, self.memory.vacuum

    def mend(self, rng: random.Random, state: State) -> Plan:
        return {}, lambda: self.memory.engine.doctor(mend=True)


MemoryWorld.OPERATIONS = {
    name: getattr(MemoryWorld, name)
    for name in (
        *("remember", "remember_many", "update", "supersede", "forget", "forget_hard", "restore"),
        *("feedback", "remember_twins", "consolidate", "export", "import_many", "recall"),
        *("optimise", "vacuum", "mend"),
    )
}


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
