from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.errors import InputError
from clew.ingest.chunk import chunk
from clew.ingest.readers import read
from clew.types import Chunk, Document

KINDS = ["markdown", "text", "rst", "html", "document", "code", "table"]
SUFFIXES = [".md", ".txt", ".rst", ".html", ".py", ".yaml", ".js", ".csv", ".jsonl"]

# Text with structure in it: pure noise has no headings, fences or rows.
_PIECES = st.sampled_from(
    [
        *("\n", "\n\n", "\r\n", " ", "\t", "    ", "\f", "\x1c", "\u2028", "\u3000", "\ufeff"),
        *(
            "# A\n",
            "## B\n",
            "### C\n",
            "Head\n====\n",
            "Head\n----\n",
            "```\n",
            "- item\n",
            "> q\n",
        ),
        *("| a | b |\n|---|---|\n", "---\n", "[[link]]", "`code`", "*", "def f():\n", "class A:\n"),
        *("    def g(self):\n", "@wrap\n", "# note\n", "}\n", "a,b\n", '"x', "<p>", "<h1>t</h1>"),
        *(
            "word",
            "sentence one. ",
            "東京タワー。",
            "e\u0301",
            "👨‍👩‍👧",
            "😀",
            "नमस्ते",
            "Ωμέγα",
            "x" * 40,
        ),
    ]
)
TEXTS = st.one_of(st.text(max_size=300), st.lists(_PIECES, max_size=60).map("".join))
SIZES = st.sampled_from([1, 2, 7, 40, 200, 1500])


def check(document: Document, size: int) -> tuple[Chunk, ...]:
    """What every cut must hold to."""
    text = document.text
    chunks = chunk(document, size=size)
    covered = [i for c in chunks for i in range(c.start, c.end) if not text[i].isspace()]
    assert covered == [i for i in range(document.body, len(text)) if not text[i].isspace()]
    assert all(a.end <= b.start for a, b in pairwise(chunks))
    for c in chunks:
        assert 0 < c.end - c.start <= size
        assert text[c.start : c.end].strip()
        numbers = document.line_numbers or range(1, text.count("\n") + 2)
        first = text.count("\n", 0, c.start)
        assert c.lines == (numbers[first], numbers[first + text[c.start : c.end].count("\n")])
    return chunks


@settings(deadline=None, max_examples=300)
@given(text=TEXTS, kind=st.sampled_from(KINDS), size=SIZES, body=st.integers(0, 20))
@example(text="日本語の文章です。\n\n次の段落。" * 20, kind="markdown", size=40, body=0)
@example(text="a😀é\r\nb\r\n\r\nc" * 30, kind="text", size=7, body=3)
@example(text=" \x1c x \x1f", kind="markdown", size=2, body=0)
def test_every_word_is_in_one_chunk(text: str, kind: str, size: int, body: int) -> None:
    check(Document(text, kind, body=min(body, len(text))), size)


@settings(deadline=None, max_examples=300)
@given(text=TEXTS, suffix=st.sampled_from(SUFFIXES), size=SIZES)
def test_every_word_of_a_file_is_in_one_chunk(text: str, suffix: str, size: int) -> None:
    document = read(text.replace("\0", "").encode("utf-8", "replace"), f"a{suffix}")
    chunks = check(document, size)
    if document.kind == "markdown":
        for c in chunks:
            for at, level, _ in document.headings:
                if level <= 2 and c.start < at < c.end:
                    assert len(document.text[c.start : at].strip()) < size / 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", " \n\t\n ", "\x1c\u3000\n"])
def test_a_document_without_words_has_no_chunks(kind: str, text: str) -> None:
    assert chunk(Document(text, kind)) == ()
    assert chunk(Document("head" + text, kind, body=4)) == ()


def test_a_size_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        chunk(Document("words", "text"), size=0)


# ---------------------------------------------------------------- Markdown


def markdown(text: str, size: int = 1500) -> tuple[Document, list[str], tuple[Chunk, ...]]:
    document = read(text.encode(), "note.md")
    chunks = check(document, size)
    return document, [document.text[c.start : c.end] for c in chunks], chunks


def test_sections_are_kept_apart_and_small_ones_together() -> None:
    long, short = "Some words here. " * 8, "Few words."
    text = f"# One\n\n{long}\n\n## Two\n\n{short}\n\n## Three\n\n{short}\n\n## Four\n\n{long}\n"
    _, texts, chunks = markdown(text, size=400)
    assert [t.split("\n")[0] for t in texts] == ["# One", "## Two"]
    assert "## Three" in texts[1] and "## Four" in texts[1]
    assert [c.lines for c in chunks] == [(1, 3), (5, 15)]


def test_a_large_section_is_cut_between_paragraphs() -> None:
    paragraphs = [f"Paragraph {i} " + "has some words in it. " * 5 for i in range(12)]
    _, texts, _ = markdown("# Title\n\n" + "\n\n".join(paragraphs), size=400)
    assert len(texts) > 3
    assert all(t.startswith(("# Title", "Paragraph")) for t in texts)


def test_the_trail_holds_the_headings_in_force() -> None:
    words = "Words and more words. " * 12
    text = (
        f"# Guide\n\n{words}\n\n## Setup\n\n{words}\n\n### Linux\n\n{words}\n\n{words}\n\n"
        f"## Use\n\n{words}\n"
    )
    _, texts, chunks = markdown(text, size=300)
    trails = {t.split("\n")[0]: c.heading for t, c in zip(texts, chunks, strict=True)}
    assert trails["# Guide"] == ""  # it is the title
    assert trails["## Setup"] == "Setup"
    assert trails["### Linux"] == "Setup › Linux"
    assert trails["## Use"] == "Use"
    continued = [c.heading for t, c in zip(texts, chunks, strict=True) if t.startswith("Words")]
    assert continued == ["Setup › Linux"]


def test_a_first_heading_that_is_not_the_title_stays_in_the_trail() -> None:
    _, _, chunks = markdown("---\ntitle: Other\n---\n# Guide\n\nWords.\n")
    assert [(c.heading, c.lines) for c in chunks] == [("Guide", (4, 6))]


def test_front_matter_is_not_in_a_chunk_and_lines_count_from_the_file() -> None:
    _, texts, chunks = markdown("---\ntags: [a]\n---\n\nFirst.\n\nSecond.\n")
    assert texts == ["First.\n\nSecond."]
    assert chunks[0].lines == (5, 7)


def test_indentation_of_a_first_line_is_kept() -> None:
    _, texts, _ = markdown("\n\n    code = 1\n    more = 2\n")
    assert texts == ["    code = 1\n    more = 2"]


# ---------------------------------------------------------------- code and tables


def code(text: str, path: str, size: int) -> dict[str, Chunk]:
    document = read(text.encode(), path)
    return {document.text[c.start : c.end]: c for c in check(document, size)}


def function(name: str, lines: int, indent: str = "") -> str:
    body = "".join(f"{indent}    value_{i} = compute({i})\n" for i in range(lines))
    return f"{indent}def {name}(self):\n{body}"


def test_a_function_stays_whole_where_it_fits() -> None:
    functions = [function(f"f{i}", 5) for i in range(8)]
    chunks = code("import os\n\n" + "\n\n".join(functions), "a.py", 400)
    assert len(chunks) > 2
    for f in functions:
        assert sum(f.strip() in text for text in chunks) == 1


def test_a_large_class_is_cut_between_methods_and_names_itself() -> None:
    methods = [
        f"    # what m{i} is for\n    @cached\n" + function(f"m{i}", 6, "    ") for i in range(5)
    ]
    chunks = code("class Parser:\n\n" + "\n\n".join(methods) + "\n\nx = 1\n", "a.py", 260)
    for method in methods:
        assert sum(method.rstrip() in text for text in chunks) == 1
    trails = [c.heading for c in chunks.values()]
    assert trails == ["class Parser", *(f"class Parser › def m{i}" for i in range(1, 5))]


def test_code_after_a_definition_is_not_of_it() -> None:
    text = function("f", 6) + "\n\n" + "\n".join(f"call_number_{i}()" for i in range(12)) + "\n"
    chunks = code(text, "a.py", 200)
    trails = {t.split("(")[0]: c.heading for t, c in chunks.items()}
    assert trails["def f"] == "def f"
    assert trails["call_number_0"] == ""


def test_an_oversized_function_is_cut_at_lines() -> None:
    chunks = code(function("f", 60), "a.py", 300)
    assert len(chunks) > 4
    assert all(line.endswith((")", ":")) for text in chunks for line in text.split("\n"))
    assert {c.heading for c in chunks.values()} == {"def f"}


def test_keys_of_a_section_carry_its_name() -> None:
    text = "[tool.one]\n" + "".join(f"key_{i} = {i}\n" for i in range(30))
    assert {c.heading for c in code(text, "a.toml", 120).values()} == {"tool.one"}


@pytest.mark.parametrize("unit", ["page", "slide"])
def test_a_passage_is_on_one_page(unit: str) -> None:
    text = "\n".join(f"words of page {page}" for page in (1, 1, 2, 3, 3))
    document = Document(text, "document", line_numbers=(1, 1, 2, 3, 3), unit=unit)
    assert [c.lines for c in check(document, 1500)] == [(1, 1), (2, 2), (3, 3)]
    assert len(chunk(Document(text, "document", line_numbers=(1, 1, 2, 3, 3)), size=1500)) == 1


def test_lines_of_extracted_text_are_those_of_the_source() -> None:
    chunks = chunk(Document("one\ntwo\n\nthree", "document", line_numbers=(1, 1, 1, 7)), size=8)
    assert [c.lines for c in chunks] == [(1, 1), (7, 7)]


# ---------------------------------------------------------------- size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("seven words are on this one line ; " * 143_000, id="5 MB in one line"),
        pytest.param("x" * 1_000_000, id="1 MB without a space"),
        pytest.param("日本語の文章" * 60_000, id="1 MB of Japanese"),
        pytest.param("\n" * 500_000, id="nothing but line ends"),
        pytest.param("# note\n" * 100_000 + "def f():\n    pass\n", id="a long run of comments"),
    ],
)
@pytest.mark.timeout(60)
def test_huge_inputs_do_not_hang(kind: str, text: str) -> None:
    chunks = chunk(Document(text, kind, headings=((len(text) - 5, 1, "f"),)))
    words = "".join("".join(text[c.start : c.end].split()) for c in chunks)
    assert words == "".join(text.split())


def test_a_long_text_has_no_stumps_where_it_was_fed_in_parts() -> None:
    text = "A sentence of some words stands here. " * 4000
    sizes = [c.end - c.start for c in chunk(Document(text, "text"), size=1000)]
    assert min(sizes[:-1]) > 800
