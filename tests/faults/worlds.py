"""What is done to a store and to a memory, and what must be there afterwards.

A world is opened on a folder. Each of its `OPERATIONS` is planned before it runs: what every item
it touches will be, None where it goes. Whoever is stopped in the middle leaves each item as it was
or as it was planned, and nothing else.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "storage")]

import numpy as np  # noqa: E402
from samples import vector, word  # noqa: E402

import clew  # noqa: E402
from clew.filter import Filter  # noqa: E402
from clew.index import vectors  # noqa: E402
from clew.protocols import Store  # noqa: E402
from clew.storage import locate, migrate  # noqa: E402
from clew.store import open_store  # noqa: E402
from clew.types import Record  # noqa: E402
from entries import WORDS, found  # noqa: E402

from hashing import HashingEmbedder  # noqa: E402

State = dict[str, str]
"""What each item is, in a word that says all of it."""
Changes = dict[str, str | None]
Plan = tuple[Changes, Callable[[], object]]
Operation = Callable[[Any, random.Random, State], Plan]

OWN, OTHER = "own@1", "other@1"
DIM = 16
SEALED = 120
"""Vectors from which inverted lists are built; far fewer than in earnest."""
ASKED = 12
"""Items that are looked for one by one, of those there are."""
SIZE = 150
"""Records of a store, about: what is more is removed."""


def text(name: str, version: int) -> str:
    """A text of its own for every name and version."""
    rng = random.Random(f"{name} {version}")
    one, two = rng.sample(WORDS, 2)
    place = f"{one.title()} Harbour lies near {two.title()} Bay."
    return f"zebra {word(name, version)} quick brown. {place}\n\nversion {version}"


def tag(version: int) -> str:
    return "odd" if version % 2 else "even"


def name_of(id: str) -> str:
    return id.rsplit("/", 1)[-1].removesuffix(".md")


class StoreWorld:
    """An engine over records and files; every record says which version it is."""

    OPERATIONS: ClassVar[dict[str, Operation]]

    def __init__(self, folder: Path, *, scheme: str = "embedded", prefix: str = "r"):
        vectors.TAIL_ROWS = SEALED // 2
        migrate.BATCH = 40
        self.folder, self.scheme, self.prefix = folder, scheme, prefix
        self.root = folder / "root"
        self.notes = self.root / "notes"
        self.notes.mkdir(parents=True, exist_ok=True)
        self.engine = self.open(OWN)
        self.store: Store = self.engine.store

    def open(self, model: str) -> clew.Engine:
        url = f"duckdb:///{self.root}/.clew/clew.duckdb" if self.scheme == "duckdb" else ""
        return clew.open(
            self.root,
            embedder=HashingEmbedder(model=model, dim=DIM),
            ivf_threshold=SEALED,
            **({"store": url} if url else {}),
        )

    def close(self) -> None:
        self.engine.close()

    # ------------------------------------------------------------------ what is there

    def observe(self) -> State:
        """All that the tables have, read whole."""
        seen: State = {}
        for record in self.records():
            version = re.search(r"version (\d+)$", record.content)
            number = int(version[1]) if version else -1
            tags = (tag(number),) if ":" not in record.id else ()
            if (record.content, record.tags) == (text(name_of(record.id), number), tags):
                seen[record.id] = str(number)
            else:
                seen[record.id] = f"wrong: {record.tags} {record.content!r}"
        return seen

    def records(self) -> Iterator[Record]:
        after = ""
        while page := self.store.select(Filter(), limit=500, after=after):
            yield from page
            after = page[-1].id

    def answers(self, state: State, *, seed: int = 0) -> dict[str, Any]:
        """Questions with one right answer, asked of every index there is."""
        rng = random.Random(seed)
        names = rng.sample(sorted(state), min(ASKED, len(state)))
        said: dict[str, Any] = {
            "everything": sorted(found(self.store, "zebra", limit=100_000)),
            "odd": sorted(found(self.store, "zebra", limit=100_000, tags="odd")),
            "count": self.store.count(Filter()),
        }
        for name in names:
            words = word(name_of(name), int(state[name]))
            said[f"by word {name}"] = found(self.store, words)
            if self._has_file(name):
                hits = self.engine.search(f'"{words}"', limit=5, mode="keyword")
                said[f"hit {name}"] = [[hit.id, hit.content] for hit in hits]
                said[f"degraded {name}"] = list(hits.degraded)
            if state[name] != "0":
                old = word(name_of(name), int(state[name]) - 1)
                said[f"old word {name}"] = found(self.store, old)
        query = vector("query")
        for model in (OWN, OTHER):
            hits = self.store.nearest(query, Filter(), model=model, limit=100_000)
            said[f"near {model}"] = sorted([hit.id, round(hit.score, 4)] for hit in hits)
        return said

    def _has_file(self, name: str) -> bool:
        """A search leaves out what is gone since it was indexed, and says so."""
        return ":" not in name or (self.root / name.partition(":")[2]).exists()

    def asides(self) -> dict[str, Any]:
        """Answers of the graph, the tree and the cache: right is what they said before."""
        said: dict[str, Any] = {}
        for name in WORDS[:3]:
            for how in ({}, {"sources": ["graph"], "cache": False}, {"tree": True, "cache": False}):
                hits = self.engine.search(f"{name} harbour", limit=20, **how)  # type: ignore[arg-type]
                said[f"{name} {how}"] = sorted([hit.id, hit.content] for hit in hits)
                said[f"degraded {name} {how}"] = list(hits.degraded)
        themes = self.engine.graph.query("harbour", mode="global").themes
        said["themes"] = [[each["title"], sorted(each["records"])] for each in themes]
        return said

    def expected(self, state: State, *, seed: int = 0) -> dict[str, Any]:
        """The same, worked out from what must be there; rows of the vectors from the tables."""
        rng = random.Random(seed)
        names = rng.sample(sorted(state), min(ASKED, len(state)))
        odd = [n for n, version in state.items() if ":" not in n and int(version) % 2]
        said: dict[str, Any] = {
            "everything": sorted(state),
            "odd": sorted(odd),
            "count": len(state),
        }
        for name in names:
            said[f"by word {name}"] = [name]
            if self._has_file(name):
                said[f"hit {name}"] = [[name, text(name_of(name), int(state[name]))]]
                said[f"degraded {name}"] = []
            if state[name] != "0":
                said[f"old word {name}"] = []
        query = vector("query")
        rows = self.store.vectors.of(sorted(state))
        for model in (OWN, OTHER):
            scored = [
                [name, round(float((table @ query).max()), 4)]
                for name, (of, table) in rows.items()
                if of == model
            ]
            said[f"near {model}"] = sorted(scored)
        return said

    def problems(self, state: State, *, seed: int = 0, rebuild: bool = False) -> list[str]:
        """Where the indexes do not say what the tables say, or an examination finds fault."""
        right, said = self.expected(state, seed=seed), self.answers(state, seed=seed)
        wrong = differences(right, said)
        wrong += self._stale_vectors(state)
        wrong += [f"{f['check']}: {f['advice']}" for f in self.engine.doctor() if not f["ok"]]
        if (self.folder / "target").exists():
            wrong += self._finish_migration()
        if rebuild:
            self.engine.doctor(mend=True)
            again = self.answers(state, seed=seed)
            wrong += [f"rebuilt: {line}" for line in differences(again, said)]
        return wrong

    def _stale_vectors(self, state: State) -> list[str]:
        embed = HashingEmbedder(dim=DIM).embed_documents
        held = [h for some in self.store.vectors.chunks(sorted(state)).values() for h in some]
        texts = dict(self.store.vectors.texts([h.number for h in held]))
        rows = self.store.vectors.of(sorted(state))
        given = {n: vector(name_of(n), int(v)) for n, v in state.items()}
        wrong = []
        for name, (_, table) in rows.items():
            own = [texts[h.number] for h in self.store.vectors.chunks([name])[name]]
            made = embed(own)
            fits = len(made) == len(table) and np.allclose(made, table, atol=1e-3)
            if not fits and not np.allclose(table, given[name], atol=1e-3):
                wrong.append(f"the vector of {name} is not of its text")
        return wrong

    # ------------------------------------------------------------------ what is done

    def _versions(self, rng: random.Random, state: State) -> dict[str, int]:
        """Some new records, and some that are there, changed."""
        mine = sorted(n for n in state if n.startswith(self.prefix) and ":" not in n)
        old = rng.sample(mine, min(len(mine), rng.randint(0, 4)))
        fresh = [f"{self.prefix}{rng.randrange(10**9)}" for _ in range(rng.randint(1, 12))]
        return {n: int(state[n]) + 1 if n in state else 0 for n in (*old, *fresh)}

    def _records(self, versions: dict[str, int]) -> list[dict[str, Any]]:
        return [{"id": n, "content": text(n, v), "tags": [tag(v)]} for n, v in versions.items()]

    def add(self, rng: random.Random, state: State) -> Plan:
        made = self._versions(rng, state)
        return {n: str(v) for n, v in made.items()}, lambda: self.engine.add(self._records(made))

    def put(self, rng: random.Random, state: State) -> Plan:
        """With vectors of the caller's."""
        made = self._versions(rng, state)
        rows = [vector(n, v) for n, v in made.items()]
        act = lambda: self.engine.add(self._records(made), vectors=np.stack(rows))  # noqa: E731
        return {n: str(v) for n, v in made.items()}, act

    def remove(self, rng: random.Random, state: State) -> Plan:
        mine = sorted(n for n in state if n.startswith(self.prefix) and ":" not in n)
        count = rng.randint(1, 6) + max(0, len(mine) - SIZE)
        gone = rng.sample(mine, min(len(mine), count))
        return dict.fromkeys(gone), lambda: self.engine.remove(gone)

    def index(self, rng: random.Random, state: State) -> Plan:
        """Files written, changed and deleted, then read."""
        collection, changes, files = self.root.name, {}, {}
        for number in rng.sample(range(12), 4):
            path = f"notes/f{number}.md"
            name = f"{collection}:{path}"
            if name in state and rng.random() < 0.3:
                changes[name], files[path] = None, None
            else:
                version = int(state[name]) + 1 if name in state else 0
                changes[name], files[path] = str(version), text(name_of(path), version)

        # What earlier runs were stopped in the middle of is taken up by this one.
        for file in self.notes.glob("*.md"):
            if (path := f"notes/{file.name}") not in files:
                files[path] = text(file.stem, int(state.get(f"{collection}:{path}", 0)))
                changes[f"{collection}:{path}"] = state.get(f"{collection}:{path}", "0")
        for name in state:
            if ":" in name and (path := name.partition(":")[2]) not in files:
                files[path] = text(name_of(name), int(state[name]))
        for path, content in files.items():
            file = self.root / path
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_text(content, "utf-8")
        embed = rng.random() < 0.5
        return changes, lambda: self.engine.index(embed=embed)

    def embed(self, rng: random.Random, state: State) -> Plan:
        return {}, self.engine.embed

    def reembed(self, rng: random.Random, state: State) -> Plan:
        def act() -> None:
            if self.scheme == "duckdb":
                self.engine.close()
            other = self.open(OTHER)
            other.reembed()
            other.close()
            if self.scheme == "duckdb":
                self.engine = self.open(OWN)
                self.store = self.engine.store

        return {}, act

    def search(self, rng: random.Random, state: State) -> Plan:
        """What is asked is kept in the cache."""

        def act() -> None:
            for query in rng.sample(WORDS, 3):
                self.engine.search(f"{query} zebra", limit=20)

        return {}, act

    def optimise(self, rng: random.Random, state: State) -> Plan:
        return {}, self.engine.optimise

    def vacuum(self, rng: random.Random, state: State) -> Plan:
        return {}, self.engine.vacuum

    def mend(self, rng: random.Random, state: State) -> Plan:
        return {}, lambda: self.engine.doctor(mend=True)

    def graph(self, rng: random.Random, state: State) -> Plan:
        force = rng.random() < 0.3
        return {}, lambda: self.engine.graph.build(llm=False, force=force)

    def tree(self, rng: random.Random, state: State) -> Plan:
        def act() -> None:
            self.engine.embed()
            if self.store.count(Filter()):
                self.engine.tree.build(llm=False, branching=10)

        return {}, act

    # ------------------------------------------------------------------ a copy of the store

    def migrate(self, rng: random.Random, state: State) -> Plan:
        def act() -> None:
            shutil.rmtree(self.folder / "target", ignore_errors=True)
            self._migrate()

        return {}, act

    def _migrate(self) -> migrate.Migrated:
        place = self.folder / "target"
        place.mkdir(exist_ok=True)
        url = "" if self.scheme == "duckdb" else f"duckdb:///{place}/copy.duckdb"
        target = open_store(url, base=place, folder=place / ".clew")
        try:
            origin = locate(self.engine.config.store, self.root).url
            return migrate.migrate(self.store, target, origin=origin)
        finally:
            target.close()

    def _finish_migration(self) -> list[str]:
        """One that was stopped goes on, and ends with a copy that is like its source."""
        try:
            done = self._migrate()
        except clew.InputError:  # the source was written to since: then it says so
            return []
        finally:
            shutil.rmtree(self.folder / "target")
        return [] if done.well else [f"migrated: {done}"]


StoreWorld.OPERATIONS = {
    name: getattr(StoreWorld, name)
    for name in (
        *("add", "put", "remove", "index", "embed", "reembed", "search", "optimise", "vacuum"),
        *("mend", "graph", "tree", "migrate"),
    )
}


# ---------------------------------------------------------------- memories


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
        for space in SPACES:
            everything = self.memory.fts_search("zebra", 10_000, namespace=space)
            said[f"everything {space}"] = sorted(each.id for each in everything)
            query = HashingEmbedder(dim=DIM).embed_query("zebra")
            rows = self.memory.vector_search(query, 10_000, namespace=space)
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
            "degraded": list(recalled.diagnostics["degraded"]),
        }

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
        wrong += [f"{what}: {advice}" for what, well, advice in self.store.check() if not well]
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

    def remember_many(self, rng: random.Random, state: State) -> Plan:
        made = dict(self._new(rng) for _ in range(rng.randint(2, 30)))
        items = [{"id": name, "content": content} for name, content in made.items()]
        changes = {name: memory_value(content, 0.5) for name, content in made.items()}
        return dict(changes), lambda: self.memory.remember_many(items)

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
        *(
            "feedback",
            "remember_twins",
            "consolidate",
            "export",
            "recall",
            "optimise",
            "vacuum",
            "mend",
        ),
    )
}
SPACES = ("default", "ana", "twins")
World = StoreWorld | MemoryWorld
WORLDS: dict[str, Callable[..., World]] = {"store": StoreWorld, "memory": MemoryWorld}


def memory_value(
    content: str,
    importance: float,
    namespace: str = "default",
    reason: str = "",
    successor: str = "",
) -> str:
    return json.dumps([content, importance, namespace, reason, successor])


def differences(right: dict[str, Any], said: dict[str, Any]) -> list[str]:
    wrong = []
    for what in {**right, **said}:
        one, other = right.get(what), said.get(what)
        if isinstance(one, list) and isinstance(other, list) and len(one) + len(other) > 4:
            missing = [each for each in one if each not in other]
            one, other = missing, [each for each in other if each not in right[what]]
            if _same_scores(one, other):
                continue
            if not one and not other and len(right[what]) < len(said[what]):
                wrong.append(f"{what}: something is there twice")
        if one != other:
            wrong.append(f"{what}: {shorten(other)}, not {shorten(one)}")
    return wrong


def _same_scores(right: list[Any], said: list[Any]) -> bool:
    """Names with scores that differ by rounding alone."""
    try:
        pairs = list(zip(sorted(right), sorted(said), strict=True))
        return bool(pairs) and all(a[0] == b[0] and abs(a[1] - b[1]) < 2e-3 for a, b in pairs)
    except (TypeError, ValueError):
        return False


def shorten(value: object) -> str:
    written = repr(value)
    return written if len(written) < 400 else f"{written[:400]}…"


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
