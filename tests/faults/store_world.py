"""A store of records and files, and all that is done to it."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from items import ASKED, DIM, OTHER, OWN, SEALED, SIZE, Operation, Plan, State, differences
from samples import vector, word

import clew
from clew.filter import Filter
from clew.index import token_codes, vectors
from clew.protocols import Store
from clew.search import token_match
from clew.storage import locate, log, migrate
from clew.store import open_store
from clew.text import analyser
from clew.types import Record
from entries import WORDS, found

from hashing import HashingEmbedder, Words

ALIKE = 0.6
"""Of a row and its code, the less the more words there are; rows of different words have 0.4."""


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
        token_codes.OUTGROWN = 1
        token_match.load_late_interaction = lambda *_, **__: Words()
        migrate.BATCH = 40
        log.KEEP = analyser.MOST_WORDS = 5_000  # full in minutes, so that a long run shows it
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
            late_interaction="on",
            late_seconds=60,
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
        wrong += self._stale_vectors(state) + self._stale_codes()
        wrong += [f"{f['check']}: {f['advice']}" for f in self.engine.doctor() if not f["ok"]]
        if (self.folder / "target").exists():
            wrong += self._finish_migration()
        for file in self.folder.glob("*.clew"):
            clew.verify_backup(file)
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

    def _stale_codes(self) -> list[str]:
        codes, words = self.engine.load_token_reader().codes, Words()
        digests = self.store.vectors.digests()
        texts = dict(self.store.vectors.texts(list(digests)))
        wrong = []
        for number in [n for n, digest in digests.items() if codes.find([digest])]:
            rows, (right,) = codes.rows(digests[number]), words.encode_passages([texts[number]])
            if rows is None or len(rows) != len(right) or (rows * right).sum(axis=1).min() < ALIKE:
                wrong.append(f"the codes of {texts[number]!r} are not of it")
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

        def act() -> None:
            if skipped := self.engine.index(embed=embed).skipped:
                raise clew.StoreError(f"skipped: {skipped}")  # it is said, so nothing is promised

        return changes, act

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

    def backup(self, rng: random.Random, state: State) -> Plan:
        """In the place of the last one, which is there until this one is whole."""
        return {}, lambda: self.engine.backup(self.folder / "backup.clew", force=True)

    def restore(self, rng: random.Random, state: State) -> Plan:
        """As it is: before, during and after, nothing else may be seen."""
        file = self.folder / "restored.clew"
        self.engine.backup(file, force=True)

        def act() -> None:
            if self.scheme == "duckdb":
                self.engine.close()
            clew.restore_backup(file, self.root, force=True)
            if self.scheme == "duckdb":
                self.engine = self.open(OWN)
                self.store = self.engine.store

        return {}, act

    def migrate(self, rng: random.Random, state: State) -> Plan:
        shutil.rmtree(self.folder / "target", ignore_errors=True)
        (self.folder / "target").mkdir()
        return {}, self._migrate

    def _migrate(self) -> migrate.Migrated:
        place = self.folder / "target"
        if not place.exists():
            place.mkdir()
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
        *("mend", "graph", "tree", "migrate", "backup", "restore"),
    )
}
