"""Small files and short patterns that would take minutes, all memory or the interpreter itself."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.engine import Engine
from clew.filter import Filter, on_path
from clew.ingest import readers
from clew.ingest.walk import DiskFile, walk

from hashing import HashingEmbedder

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def merges(levels: int = 9) -> str:
    """Each line is worth nine of the line above."""
    lines = [f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, levels)]
    return "\n".join(["---", "a0: &a0 {k: v}", *lines, "---", "The anchor hangs in the shed.", ""])


def docx(body: str) -> bytes:
    library = pytest.importorskip("docx")
    plain, made = io.BytesIO(), io.BytesIO()
    library.Document().save(plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as to:
        for name in source.namelist():
            whole = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
            to.writestr(name, whole if name == "word/document.xml" else source.read(name))
    return made.getvalue()


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


@pytest.fixture
def engine(tmp_path: Path):
    with clew.open(tmp_path, embedder=HashingEmbedder()) as opened:
        yield opened


BOMBS = {
    "brackets.md": "---\na: " + "[" * 30_000 + "\n---\nThe anchor hangs in the shed.\n",
    "braces.md": "---\na: " + "{a: " * 30_000 + "\n---\nThe anchor hangs in the shed.\n",
    "dashes.md": "---\n" + "- " * 30_000 + "a\n---\nThe anchor hangs in the shed.\n",
    "steps.md": "---\n" + "".join(f"{' ' * i}a:\n" for i in range(600)) + "---\nAn anchor.\n",
    "merge.md": merges(),
    "digits.csv": "1" * 32_000 + "x,anchor\n1,2\n",
    "deep.jsonl": '{"anchor":' * 100_000 + "1" + "}" * 100_000 + "\n",
    "names.jsonl": '{"'
    + "anchor " * 20_000
    + '": {'
    + ", ".join(f'"{i}": {{"a": 1}}' for i in range(5_000))
    + "}}\n",
    "header.csv": "anchor " * 20_000 + ",b\n" + "1,2\n" * 5_000,
    "keys.csv": ",".join(f"{'_' * i}id" for i in range(1, 600)) + "\n" + "anchor\n" * 3_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_no_time_and_its_words_are_found(
    engine: Engine, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(BOMBS[name], "utf-8")
    (tmp_path / "good.txt").write_text("A spare anchor.\n", "utf-8")
    report = engine.index()
    assert sorted(report.added) == sorted([name, "good.txt"])
    for path in (name, "good.txt"):
        assert engine.search(f"anchor path:{path}", mode="keyword").hits


def test_what_front_matter_says_plainly_is_kept_beside_a_bomb(
    engine: Engine, tmp_path: Path
) -> None:
    text = merges().replace("---\n", "---\ntitle: Anchors\ndomain: personal\n", 1)
    (tmp_path / "a.md").write_text(text, "utf-8")
    report = engine.index()
    assert "too many values" in dict(report.warnings)["a.md"]
    [record] = engine.store.select(Filter(), limit=5)
    assert (record.title, record.domain) == ("Anchors", "personal")


def test_merge_keys_as_people_use_them_still_hold(engine: Engine, tmp_path: Path) -> None:
    text = "---\nbase: &b {a: 1, b: 2}\nown:\n  <<: *b\n  b: 3\n---\nwords\n"
    (tmp_path / "a.md").write_text(text, "utf-8")
    engine.index()
    [record] = engine.store.select(Filter(), limit=5)
    assert record.metadata["own"] == {"a": 1, "b": 3}


def test_a_cell_that_claims_to_be_a_billion_wide_is_one_cell(
    engine: Engine, tmp_path: Path
) -> None:
    wide = cell("anchor", '<w:gridSpan w:val="1000000000"/>')
    (tmp_path / "a.docx").write_bytes(docx(f"<w:tbl><w:tr>{wide}{cell('chain')}</w:tr></w:tbl>"))
    assert engine.index().added == ["a.docx"]
    [hit] = engine.search("anchor", mode="keyword")
    assert "anchor | chain" in (hit.snippet or "")


def test_cells_that_are_joined_say_the_same_in_every_row(engine: Engine, tmp_path: Path) -> None:
    rows = (
        cell("rope", '<w:vMerge w:val="restart"/>') + cell("anchor"),
        cell("", "<w:vMerge/>") + cell("chain"),
    )
    body = "".join(f"<w:tr>{row}</w:tr>" for row in rows)
    (tmp_path / "a.docx").write_bytes(docx(f"<w:tbl>{body}</w:tbl>"))
    engine.index()
    [record] = engine.store.select(Filter(), limit=5)
    assert record.content.split("\n")[:2] == ["rope | anchor", "rope | chain"]


def test_many_paragraphs_of_one_style_do_not_ask_for_it_again(
    engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "a.docx").write_bytes(docx("<w:p/>" * 50_000 + paragraph("anchor")))
    assert engine.index().added == ["a.docx"]
    assert [hit.path for hit in engine.search("anchor", mode="keyword")] == ["a.docx"]


# ---------------------------------------------------------------- what breaks the reader itself

EVIL = """
import os, signal, time
from pathlib import Path

def read(data, path):
    with Path(__file__).with_name("log").open("a") as log:
        log.write(f"{path} {os.getpid()}\\n")
    if b"crash" in data:
        os.kill(os.getpid(), signal.SIGSEGV)
    while b"turn" in data:
        pass
    if b"sleep" in data:
        time.sleep(1000)
    if b"eat" in data:
        return bytearray(2**34)
    from clew.ingest.readers.text import read_text
    return read_text(data, path)
"""


@pytest.fixture
def evil(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader of .txt files that does what they say. Its log has what was read where."""
    place = tmp_path_factory.mktemp("evil")
    (place / "evil").mkdir()
    (place / "evil" / "reader.py").write_text(EVIL, "utf-8")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(readers, "_READERS", {".txt": ("text", "evil.reader:read")})
    monkeypatch.setattr(readers, "SECONDS", 0.5)
    monkeypatch.setattr(readers, "PATIENCE", 4)
    monkeypatch.setattr(readers, "MEMORY", 2**30)
    monkeypatch.setattr(readers, "_idle", [])
    return place / "evil" / "log"


def reads(log: Path, path: str) -> int:
    return sum(line.startswith(f"{path} ") for line in log.read_text().splitlines())


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("crash", "its reader broke (signal 11)"),
        ("turn", "takes more than 0.5 s"),
        ("sleep", "takes more than 0.5 s"),
        ("eat", "MB of memory"),
    ],
)
def test_a_file_that_breaks_its_reader_is_skipped_until_it_changes(
    engine: Engine, tmp_path: Path, evil: Path, what: str, reason: str
) -> None:
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(f"Anchor {i}.\n", "utf-8")
    bad = tmp_path / "5bad.txt"
    bad.write_text(f"{what} it\n", "utf-8")
    first = engine.index()
    assert sorted(first.added) == [f"{i}.txt" for i in range(10)]
    assert reason in dict(first.skipped)["5bad.txt"]
    assert len(engine.search("anchor", mode="keyword", limit=20)) == 10
    tried = reads(evil, "5bad.txt")

    again = engine.index()  # in the same second: it is hashed, and known
    assert again.skipped == first.skipped and again.unchanged == 10
    os.utime(bad, (time.time() - 60, time.time() - 60))
    assert engine.index().skipped == engine.index().skipped == first.skipped
    assert reads(evil, "5bad.txt") == tried

    bad.write_text("Now an anchor.\n", "utf-8")
    assert engine.index().changed == ["5bad.txt"]
    assert len(engine.search("anchor", mode="keyword", limit=20)) == 11


def test_a_broken_file_that_goes_is_forgotten(engine: Engine, tmp_path: Path, evil: Path) -> None:
    bad = tmp_path / "a.txt"
    bad.write_text("anchor\n", "utf-8")
    engine.index()
    bad.write_text("crash\n", "utf-8")
    engine.index()
    assert not engine.search("anchor", mode="keyword").hits  # it does not say that any more
    bad.unlink()
    assert not engine.index().skipped
    [collection] = engine.store.files.roots()
    assert engine.store.files.states(collection) == {}


def test_whoever_ends_the_process_from_outside_breaks_no_file(
    engine: Engine, tmp_path: Path, evil: Path
) -> None:
    (tmp_path / "a.txt").write_text("anchor\n", "utf-8")
    engine.index()
    os.kill(int(evil.read_text().split()[-1]), 9)
    (tmp_path / "b.txt").write_text("anchor\n", "utf-8")
    assert engine.index().added == ["b.txt"]


def test_a_program_without_a_guard_indexes_once_and_leaves_no_process(
    tmp_path: Path, evil: Path
) -> None:
    (tmp_path / "a.txt").write_text("anchor\n", "utf-8")
    (tmp_path / "b.txt").write_text("crash\n", "utf-8")
    program = f"""
import sys; sys.path.insert(0, {str(evil.parent.parent)!r})
import clew
from clew.ingest import readers
readers._READERS = {{".txt": ("text", "evil.reader:read")}}
with clew.open({str(tmp_path)!r}) as engine:
    print(engine.index(embed=False).added)
"""
    script = evil.with_name("program.py")
    script.write_text(program, "utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("['a.txt']\n", "")
    for line in evil.read_text().splitlines():
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[-1]), 0)


def test_threads_index_at_the_same_time(tmp_path: Path, evil: Path) -> None:
    def index(number: int) -> list[str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        for i in range(40):
            (folder / f"{i}.txt").write_text("crash\n" if i == number else "anchor\n", "utf-8")
        with clew.open(folder, embedder=HashingEmbedder()) as engine:
            return [path for path, _ in engine.index().skipped]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(index, range(3))) == [["0.txt"], ["1.txt"], ["2.txt"]]


# ---------------------------------------------------------------- patterns

PIECES = st.sampled_from(["a", "b", "/", "*", "*", "**", "**/", "?", "[ab]", "[!a]"])


def backtracking(glob: str) -> re.Pattern[str]:
    """What a glob means, said the short way, which may take for ever."""
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    out, i = "", 0
    while i < len(glob):
        whole = i == 0 or glob[i - 1] == "/"
        sign = next(s for s in (*signs, "[", "") if glob.startswith(s, i) and (s != "**/" or whole))
        end = glob.find("]", i) + 1 if sign == "[" else i + max(len(sign), 1)
        inside = glob[i:end].replace("!", "^")
        out += signs.get(sign) or (f"(?!/){inside}" if sign == "[" else re.escape(glob[i]))
        i = end
    return re.compile(out, re.DOTALL)


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join), st.text("ab/", max_size=9))
def test_a_glob_means_what_it_meant(glob: str, path: str) -> None:
    if any(c in glob for c in "*?["):
        assert on_path(glob, path) == (backtracking(glob).fullmatch(path) is not None)


@pytest.mark.parametrize(
    "glob", ["*a" * 20 + "*b", "**a" * 20 + "b", "**/*a*a*a*a*b/**/x", "a**" * 20 + "c", "?*" * 40]
)
def test_stars_are_not_tried_against_each_other(glob: str) -> None:
    for path in ("a" * 4000, "a/" * 2000, "aaab/" * 800):
        assert not on_path(glob + "!", path)


def test_a_query_of_stars_is_answered(engine: Engine, tmp_path: Path) -> None:
    name = "a" * 200 + ".txt"
    (tmp_path / name).write_text("A spare anchor.\n", "utf-8")
    engine.index()
    assert not engine.search(f"anchor path:{'*a' * 20}*b", mode="keyword").hits
    found = engine.search(f"anchor path:{'*a' * 20}*", mode="keyword")
    assert [hit.path for hit in found] == [name]


def test_an_ignore_file_of_stars_is_obeyed(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*a" * 9 + "*b\n" + "*x" * 9 + "*\n", "utf-8")
    for name in ("a" * 200, "x" * 200):
        (tmp_path / name).write_text("words\n", "utf-8")
    found = [item.path for item in walk(tmp_path, max_bytes=1000) if isinstance(item, DiskFile)]
    assert found == ["a" * 200]
