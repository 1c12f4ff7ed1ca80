"""`clew exocortex` as people and programs run it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "clew", "exocortex"]
DUMP = (
    b"<feed>\n<doc><title>Wikipedia: Keel</title><url>https://w.example/Keel</url>"
    b"<abstract>A keel is part of a hull.</abstract></doc>\n"
    b"<doc><title>Wikipedia: Bilge</title><url/><abstract/></doc>\n</feed>\n"
)


def clew(
    *arguments: str | Path, cwd: Path, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, input=given, capture_output=True, timeout=120
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a store, and a dump in it."""
    made = subprocess.run([sys.executable, "-m", "clew", "init", "."], cwd=tmp_path, timeout=120)
    assert made.returncode == 0
    (tmp_path / "dump.xml.gz").write_bytes(gzip.compress(DUMP))
    return tmp_path


def test_a_build_goes_into_the_store_s_folder_and_says_what_it_did(home: Path) -> None:
    (home / "below").mkdir()
    done = clew("build", "../dump.xml.gz", cwd=home / "below")
    said = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "1 article in" in said and "1 skipped; the first:" in said
    assert "../dump.xml.gz:3: no abstract" in said
    assert (home / ".clew" / "exocortex.db").exists()
    shown = clew("status", cwd=home).stdout.decode()
    assert "1 article in" in shown and "from dump.xml.gz, built 20" in shown


def test_json_is_for_programs(home: Path) -> None:
    out = home / "wiki.db"
    report = json.loads(clew("build", "dump.xml.gz", "--out", out, "--json", cwd=home).stdout)
    assert report["articles"] == 1 and report["skipped"] == 1 and report["file"] == str(out)
    facts = json.loads(clew("status", out, "--json", cwd=home).stdout)
    assert facts["articles"] == 1 and facts["bytes"] == report["bytes"]


def test_a_dump_can_be_piped_and_the_store_be_named(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = clew("build", "-", "--store", home, "--json", cwd=elsewhere, given=DUMP)
    assert json.loads(done.stdout)["articles"] == 1
    assert (home / ".clew" / "exocortex.db").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("build", "nowhere.xml"), "nowhere.xml"),
        (("build", "broken.xml"), "broken.xml:1"),
        (("build", "broken.gz"), "fetch it again"),
        (("build", "dump.xml.gz", "--out", "clew.toml"), "not overwritten"),
        (("build", "dump.xml.gz", "--out", "no/such/x.db"), "no folder"),
        (("build", "dump.xml.gz", "--store", "no-such"), "no-such"),
        (("status",), "clew exocortex build"),
        (("status", "clew.toml"), "was not made by"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    home: Path, arguments: tuple[str, ...], says: str
) -> None:
    (home / "broken.xml").write_bytes(b"<feed><doc></feed>")
    (home / "broken.gz").write_bytes(gzip.compress(DUMP)[:-30])
    done = clew(*arguments, cwd=home)
    error = done.stderr.decode()
    assert done.returncode == 1
    assert says in error and "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    assert [file.name for file in home.glob("**/exocortex.db*")] == []


def test_without_a_store_a_file_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_bytes(DUMP)
    refused = clew("build", "dump.xml", cwd=tmp_path)
    assert refused.returncode == 1 and b"clew index" in refused.stderr
    assert clew("build", "dump.xml", "--out", "wiki.db", cwd=tmp_path).returncode == 0


def search(cwd: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "clew", "search", "--json", *words],
        cwd=cwd,
        env={**os.environ, "CLEW_MODEL": "none"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_search_finds_articles_and_rows_once_clew_toml_names_them(home: Path) -> None:
    with closing(sqlite3.connect(home / "log.db")) as db:
        db.execute("CREATE TABLE log (day TEXT, entry TEXT)")
        db.execute("INSERT INTO log VALUES ('2026-03-14', 'Scraped the keel.')")
        db.commit()
    (home / "clew.toml").write_text(
        '[sources.exocortex]\n[sources.logbook]\nkind = "sqlite"\nfile = "log.db"\n'
        'table = "log"\ntext = "entry"\nid = "day"\ncollection = "logbook"\n',
        "utf-8",
    )
    without = search(home, "keel")
    assert [hit["id"] for hit in without["results"]] == ["logbook:2026-03-14"]
    assert any("clew exocortex build" in problem for problem in without["degraded"])
    assert clew("build", "dump.xml.gz", cwd=home).returncode == 0
    hits = {hit["id"]: hit for hit in search(home, "keel")["results"]}
    assert set(hits) == {"logbook:2026-03-14", "exocortex:Keel"}
    assert hits["exocortex:Keel"]["metadata"]["path"] == "https://w.example/Keel"
    shown = subprocess.run(
        [sys.executable, "-m", "clew", "search", "keel"], cwd=home, capture_output=True, timeout=120
    )
    assert b"https://w.example/Keel\n" in shown.stdout


def test_ctrl_c_leaves_the_old_file_and_nothing_else(home: Path) -> None:
    assert clew("build", "dump.xml.gz", cwd=home).returncode == 0
    before = (home / ".clew" / "exocortex.db").read_bytes()
    process = subprocess.Popen(
        [*COMMAND, "build", "-"],
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever runs the tests in the background has it ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    process.stdin.write(DUMP[:-10])
    process.stdin.flush()
    part = home / ".clew"
    while not list(part.glob("exocortex.db.*.part")):  # it has begun, and waits for more
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode().strip().startswith("clew: stopped") and b"Traceback" not in said
    assert (home / ".clew" / "exocortex.db").read_bytes() == before
    assert list(part.glob("exocortex.db.*")) == []
