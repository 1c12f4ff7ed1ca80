"""Write what this version of Clew keeps on disk to tests/upgrade/VERSION/, once per release:

    python tests/upgrade/make.py

All of it is made up. `test_upgrade.py` opens what every version has left here. A folder that is
there stays as it is: it is what users of that version have.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import clew  # noqa: E402
from clew.cache import LookupCache, build_cache_key  # noqa: E402

from hashing import HashingEmbedder  # noqa: E402

STORES = {"sqlite": "", "duckdb": "duckdb:///notes.duckdb"}
FILES = {
    "keel.md": "---\ntags: [boat, steel]\n---\n# Keel\n\nThe keel was painted red in March.\n",
    "sauna.md": "# Sauna\n\nThe heater trips the breaker: [[keel]].\n\n## Lesson\n\nHeat it.\n",
    "parts/bolts.csv": "part,price\nM12 bolt,3.5\nM16 bolt,4.25\n",
    "people/zoë.txt": "Zoë Marchetti repairs 帆船 on the island.\n",
}
QUERIES = {
    "painted red keel": "keel.md",
    "sauna heater": "sauna.md",
    "帆船": "people/zoë.txt",
    "tide table harbour": "tides",
    "tag:steel keel": "keel.md",
}
"""Each with the record that is meant, beyond doubt."""


def record_facts(engine: clew.Engine) -> dict[str, Any]:
    """All there is to know of the records, that must never change."""
    return {
        each.id: {
            "content": each.content,
            "title": each.title,
            "path": each.path,
            "collection": each.collection,
            "type": each.type,
            "tags": sorted(each.tags),
            "links": sorted(each.links),
            "metadata": dict(each.metadata),
            "importance": each.importance,
            "created_at": each.created_at,
        }
        for each in engine.store.select(clew.Filter(), limit=1_000)
    }


def best_hits(engine: clew.Engine) -> Iterator[tuple[str, str, str]]:
    for query in QUERIES:
        for mode in ("hybrid", "keyword"):
            yield query, mode, engine.search(query, limit=1, mode=mode)[0].id  # type: ignore[arg-type]


def memory_facts(memory: clew.Memory) -> dict[str, Any]:
    every = memory.engine.store.select(clew.Filter(), limit=1_000)
    lives = memory.engine.store.lifecycle.get([each.id for each in every])
    facts: dict[str, Any] = {}
    for each in every:
        life = lives[each.id]
        moments = [each.ended_at, each.valid_from, each.valid_to]
        fate = [life.reason, life.successor, life.useful]
        facts[each.id] = [each.content, each.collection, *moments, *fate]
    return facts


def lookup_key() -> Any:
    return build_cache_key(query="keel", backend="storage")


def make_folder(folder: Path, store: str) -> dict[str, Any]:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    (folder / "clew.toml").write_text(f'store = "{store}"\n' if store else "rrf_k = 60\n")
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        engine.add(
            [
                {"id": "tides", "content": "Tide table of the harbour", "metadata": {"year": 2031}},
                {"id": "gone", "content": "Taken out again", "tags": ["x"]},
            ]
        )
        engine.embed()
        engine.remove(["gone"])
        engine.store.indexes.refresh(optimise=True)
        hits = list(best_hits(engine))
        assert all(found.endswith(QUERIES[query]) for query, _, found in hits), hits
        return {"records": record_facts(engine), "hits": hits}


def make_memory(file: Path) -> dict[str, Any]:
    with clew.Memory(file, embedder=HashingEmbedder()) as memory:
        porto = memory.remember("Ana lives in Porto", tags=["home"], importance=0.8)
        lisbon = memory.supersede(porto.id, "Ana lives in Lisbon")
        nuts = memory.remember("Ana is allergic to walnuts", metadata={"said": "2031-05-02"})
        memory.feedback(nuts.id, True)
        memory.forget(memory.remember("Ana likes rain").id)
        memory.remember("The team meets on Mondays", "episodic", namespace="team")
        memory.recall("where does Ana live")
        return {"memories": memory_facts(memory), "newest": lisbon.id}


def pack(folder: Path, file: Path) -> None:
    with tarfile.open(file, "w:xz") as archive:
        for each in sorted(folder.rglob("*")):
            if each.is_file() and not each.name.endswith((".lock", "cache.db")):
                archive.add(each, each.relative_to(folder).as_posix())


def main() -> None:
    made = HERE / clew.__version__
    if made.exists():
        sys.exit(f"{made} is there already: it stays as that version has written it")
    with tempfile.TemporaryDirectory() as scratch:
        out, expected = Path(scratch, "out"), {}
        out.mkdir()
        for name, store in STORES.items():
            folder = Path(scratch, name)
            expected[name] = make_folder(folder, store)
            with clew.open(folder, embedder=HashingEmbedder()) as engine:
                engine.backup(out / f"{name}.clew")
                cache = LookupCache()
                cache.put(lookup_key(), engine.search("keel", limit=2))
                cache.save(out / "lookups.json")
            pack(folder, out / f"{name}.tar.xz")
        Path(scratch, "memory").mkdir()
        expected["memory"] = make_memory(Path(scratch, "memory", "memory.db"))
        pack(Path(scratch, "memory"), out / "memory.tar.xz")
        (out / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False))
        made.mkdir()
        for each in out.iterdir():
            (made / each.name).write_bytes(each.read_bytes())


if __name__ == "__main__":
    main()
