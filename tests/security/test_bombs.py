"""Small files and short patterns that would take minutes, all memory or the interpreter itself."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.engine import Engine
from clew.filter import Filter, on_path
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
