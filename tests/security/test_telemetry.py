"""No telemetry: what Clew does by itself never opens a connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from clew.trust import cache_folder

CODE = """
import sys

tried = []

def listen(event, given):
    if event.startswith(("socket.", "urllib.", "http.")) and event != "socket.__new__":
        tried.append(event)
        raise OSError(f"no network: {event} {given}")

sys.addaudithook(listen)  # every socket of Python's goes by here, whoever opens it

import clew
from clew.cli import run
from hashing import HashingEmbedder

folder = sys.argv[1]
with clew.open(folder, embedder=HashingEmbedder()) as engine:
    assert engine.index().added == ["boat.md"]
    assert engine.search("keel", explain=True)[0].title == "Boat"
    engine.add([clew.Record(id="a", content="a mast")])
    engine.embed()
    engine.doctor(mend=True), engine.status(), engine.vacuum()
    engine.backup(f"{folder}/b.clew")
    clew.verify_backup(f"{folder}/b.clew")
    clew.agentic_search("keel and mast", engine=engine)
with clew.Memory(f"{folder}/memory.db", embedder=HashingEmbedder()) as memory:
    memory.remember("Ana lives in Porto")
    assert memory.recall("where does Ana live")
    memory.consolidate()
for words in (["search", "keel", "-C", folder], ["status", "-C", folder], ["doctor", "-C", folder]):
    assert run(words) == 0, words
with clew.Search(folder) as search:
    search.external_lookup("keel")
print("tried", tried)
"""


def test_nothing_is_sent_anywhere(tmp_path: Path) -> None:
    (tmp_path / "boat.md").write_text("# Boat\n\nThe keel was painted.\n")
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([*sys.path, tests])
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        env={**os.environ, "CLEW_MODEL": "none", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("tried []\n")


def test_onnxruntime_keeps_and_sends_nothing_either(tmp_path: Path) -> None:
    """Its wheels make a device's id and a queue of events in the user's home, once a model runs."""
    code = "from clew.models import load_embedder; load_embedder('bge-small').embed_query('keel')"
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "CLEW_MODELS": str(cache_folder("models", "CLEW_MODELS")),
    }
    env = {name: value for name, value in env.items() if not name.startswith("ORT_")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert [str(path) for path in tmp_path.rglob("*") if "clew" not in path.parts] == []
