from __future__ import annotations

import datetime as dt
import io
import json
import sys
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import InputError
from clew.ingest.readers import known_suffixes, read, reader_for
from clew.types import Document
from documents import pdf


def md(text: str, path: str = "notes/my-first_note.md") -> Document:
    return read(text.encode(), path)


def words_at(document: Document) -> list[tuple[int, str, str]]:
    """(level, heading, the line of text its offset points to)"""
    return [
        (level, words, document.text[at:].split("\n")[0]) for at, level, words in document.headings
    ]


def source_lines(document: Document, source: str) -> list[tuple[str, str]]:
    """Each line of extracted text, beside the line of the source that it is said to come from."""
    assert document.line_numbers is not None
    extracted, lines = document.text.split("\n"), source.split("\n")
    assert len(extracted) == len(document.line_numbers)
    pairs = zip(extracted, document.line_numbers, strict=True)
    return [(line, lines[number - 1]) for line, number in pairs if line]


# ---------------------------------------------------------------- which reader


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.md", "markdown"),
        ("a/B.MD", "markdown"),
        ("a.txt", "text"),
        ("LICENSE", "text"),
        ("docs/README", "text"),
        ("Makefile", "code"),
        ("x/Dockerfile", "code"),
        ("CMakeLists.txt", "code"),
        ("a.py", "code"),
        ("a.R", "code"),
        ("a.rst", "rst"),
        ("a.htm", "html"),
        ("a.csv", "table"),
        ("a.ndjson", "table"),
    ],
)
def test_a_name_decides_the_kind(path: str, kind: str) -> None:
    assert read(b"a,b\n1,2\n", path).kind == kind


@pytest.mark.parametrize("path", ["a.mp4", "a.unknown", ".env", "b/.env", "a.png"])
def test_what_has_no_reader(path: str) -> None:
    assert reader_for(path) is None
    with pytest.raises(InputError, match="no reader"):
        read(b"", path)


def test_known_suffixes_have_readers() -> None:
    assert {".md", ".txt", ".py", ".rs", ".csv", ".pdf", ".docx", ".html"} <= known_suffixes()
    assert all(callable(reader_for(f"a{suffix}")) for suffix in known_suffixes())


def test_importing_the_readers_imports_no_parser() -> None:
    import subprocess

    heavy = "yaml pypdf docx pptx openpyxl semantic_text_splitter"
    script = (
        "import sys, clew.ingest.readers, clew.ingest.chunk, clew.ingest.walk\n"
        f"print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


# ---------------------------------------------------------------- characters


@pytest.mark.parametrize(
    ("data", "text", "warning"),
    [
        ("naïve 日本".encode(), "naïve 日本", None),
        ("naïve".encode("utf-8-sig"), "naïve", None),
        (b"\xff\xfe" + "naïve 😀".encode("utf-16-le"), "naïve 😀", None),
        (b"\xfe\xff" + "naïve 😀".encode("utf-16-be"), "naïve 😀", None),
        (b"\xff\xfe\0\0" + "naïve".encode("utf-32-le"), "naïve", None),
        ("naïve café – ‘x’".encode("cp1252"), "naïve café – ‘x’", "Windows-1252"),
        (b"abc\xffdef\xfe", "abc\ufffddef\ufffd", "not valid UTF-8: 2 bytes replaced"),
        ("é".encode() + b" \xe9 \xf0\x9f", "é \ufffd \ufffd", "not valid UTF-8: 3 bytes"),
        (b"one\r\ntwo\rthree\n", "one\ntwo\nthree\n", None),
        (b"x" * 9000 + b"\0y", "x" * 9000 + "y", None),
        (b"", "", None),
    ],
)
def test_decoding(data: bytes, text: str, warning: str | None) -> None:
    document = read(data, "a.txt")
    assert document.text == text
    assert len(document.warnings) == (warning is not None)
    assert warning is None or warning in document.warnings[0]


@pytest.mark.parametrize("path", ["a.txt", "a.md", "a.py", "a.csv", "a.html", "LICENSE"])
def test_binary_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="looks binary"):
        read(b"\x7fELF\0\1\2", path)


def test_half_characters_never_come_out() -> None:
    document = read(rb'{"a": "x\ud800y", "b\udc00": "\u0000"}', "a.jsonl")
    (row,) = document.rows
    assert row.text.encode() == "a: x\ufffdy\nb\ufffd: \ufffd".encode()
    assert row.metadata == {"a": "x\ufffdy", "b\ufffd": "\ufffd"}


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=200), suffix=st.sampled_from(sorted(known_suffixes())))
def test_any_bytes_give_a_document_or_an_input_error(data: bytes, suffix: str) -> None:
    try:
        document = read(data, f"a{suffix}")
    except InputError:
        return
    assert "\r" not in document.text or document.kind == "document"
    document.text.encode()
    json.dumps(dict(document.metadata))
    assert all(0 <= at <= len(document.text) for at, _, _ in document.headings)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("a/q3-budget_review.txt", "Q3 budget review"),
        ("2026-03-14-low-tide.txt", "2026-03-14 low tide"),
        ("MeetingNotes.txt", "MeetingNotes"),
        ("README", "README"),
        ("旅行の計画.txt", "旅行の計画"),
        ("---.txt", "---.txt"),
    ],
)
def test_a_title_from_the_name(path: str, title: str) -> None:
    assert read(b"words", path).title == title


# ---------------------------------------------------------------- Markdown


def test_front_matter() -> None:
    document = md(
        "---\ntitle: A day out\ndate: 2026-03-14\nat: 2026-03-14T09:30:00\neffort: 3\n"
        "ratio: .inf\nnested: {when: 2026-01-01, list: [1, two]}\n---\n\n# Heading\n\nText.\n"
    )
    assert document.title == "A day out"
    assert document.text[document.body :] == "\n# Heading\n\nText.\n"
    assert document.metadata == {
        "date": "2026-03-14",
        "at": "2026-03-14T09:30:00",
        "effort": 3,
        "ratio": "inf",
        "nested": {"when": "2026-01-01", "list": [1, "two"]},
    }
    assert document.warnings == ()
    json.dumps(dict(document.metadata))


def test_front_matter_in_toml() -> None:
    document = md('+++\ntitle = "T"\ntags = ["a"]\ndate = 2026-03-14\n+++\nText')
    assert (document.title, document.tags, document.metadata) == (
        "T",
        ("a",),
        {"date": "2026-03-14"},
    )
    assert document.text[document.body :] == "Text"


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("title: [unclosed\nowner: Ana\n", {"owner": "Ana"}),
        ("a: b: c\n", {"a": "b: c"}),
        ("date: 2026-13-45\n", {"date": "2026-13-45"}),
        ("a: &a [*a]\n", {}),
        ("a: " + "[" * 5000 + "\n", {}),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{n}: &{n} [{','.join(f'*{m}' for _ in range(9))}]\n"
                for m, n in ["ab", "bc", "cd", "de", "ef"]
            ),
            {},
        ),
        ("a: !!python/object/apply:os.system [ls]\n", {}),
    ],
)
def test_broken_front_matter_is_a_warning_and_no_text(source: str, fields: dict[str, str]) -> None:
    document = md(f"---\n{source}---\n# Title\n\nText #tag\n")
    assert len(document.warnings) == 1 and "front matter" in document.warnings[0]
    assert document.text[document.body :] == "# Title\n\nText #tag\n"
    assert (document.title, document.tags, document.metadata) == ("Title", ("tag",), fields)


def test_a_title_with_a_colon_is_one_all_the_same() -> None:
    document = md("---\ntitle: Keel bolts: torque\ndomain: personal\n---\nText\n")
    assert (document.title, document.metadata) == ("Keel bolts: torque", {"domain": "personal"})


@pytest.mark.parametrize(
    "text", ["---\nwords\n---\nmore", "---\nkey: value\n", "----\na: 1\n----\n"]
)
def test_what_only_looks_like_front_matter(text: str) -> None:
    document = md(text)
    assert (document.body, document.metadata, document.warnings) == (0, {}, ())


def test_front_matter_that_has_no_key_counts_as_text() -> None:
    document = md("---\n\tkey: value\n---\nText")
    assert document.body == 0 and "counts as text" in document.warnings[0]


def test_an_empty_front_matter_is_one() -> None:
    document = md("---\n---\nText")
    assert document.text[document.body :] == "Text"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: ''\n---\n## Two\n\n# One *with* `code`\n", "One with code"),
        ("Title\n=====\n\ntext", "Title"),
        ("## Only two", "My first note"),
        ("```\n# Not one\n```\n", "My first note"),
        ("---\ntitle: 2026\n---\n", "2026"),
        ("---\ntitle: [a, b]\n---\n", "My first note"),
    ],
)
def test_the_title_of_a_note(text: str, title: str) -> None:
    assert md(text).title == title


def test_headings() -> None:
    text = (
        "# One #\n\n   ## Two {#id}\n\nThree\nlines\n---\n\n```\n# code\n```\n\n"
        "~~~~\n```\n## code\n~~~~\n"
        "#hash\n\n    # indented\n\n- item\n---\n\n> quote\n---\n\n####### seven\n\n#\n\n"
        "<!--\n# hidden\n-->\n\n###### [Six](a.md) and [[b|seven]]\n\nFour\n====\nend\n"
    )
    assert words_at(md(text)) == [
        (1, "One", "# One #"),
        (2, "Two", "## Two {#id}"),
        (2, "Three lines", "Three"),
        (6, "Six and seven", "###### [Six](a.md) and [[b|seven]]"),
        (1, "Four", "Four"),
    ]


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert md("# A\n\n```py\n# no\n#tag\n").headings == ((0, 1, "A"),)


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ("[Alpha, '#beta', 2026]", ("alpha", "beta", "2026")),
        ("alpha, Beta two, #gamma", ("alpha", "beta two", "gamma")),
        ("'#alpha beta'", ("alpha", "beta")),
        ("#alpha #beta", ("alpha", "beta")),
        ("[#alpha, beta] #no tag", ("alpha", "beta")),
        ("\n- #alpha\n- beta #no tag\n- '#gamma'", ("alpha", "beta", "gamma")),
        ("\n  - STRASSE\n  - straße\n  - null\n", ("strasse",)),
        ("", ()),
    ],
)
def test_tags_of_the_front_matter(given: str, tags: tuple[str, ...]) -> None:
    document = md(f"---\ntags: {given}\n---\n")
    assert (document.tags, document.warnings) == (tags, ())


def test_inline_tags() -> None:
    text = (
        "---\ntags: [first]\n---\n"
        "#Start and #project/sub-part_1, (#in-brackets) #日本語 #हिन्दी. #a,#b;#c\n"
        "#FIRST again #trailing- #with.dot\n"
    )
    assert md(text).tags == (
        *("first", "start", "project/sub-part_1", "in-brackets", "日本語", "हिन्दी", "a", "b", "c"),
        *("trailing", "with"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "`#code` and ``a ` #code``",
        "```\n#code\n```",
        "- item\n\n    ```sh\n    #code\n    ```",
        "https://example.org/#fragment and https://example.org/a,#b",
        "[text](#section) and [text](page.md#section)",
        "[id]: #section",
        "[[#section]] [[note#section]]",
        "## Heading #tag",
        "#1 #2nd issue#3 C# a#b ##x",
        '<a href="#top" style="color: #fff">',
        "<!-- #hidden -->",
        "&#x27;",
    ],
)
def test_what_is_no_tag(text: str) -> None:
    assert md(text).tags == ()


def test_links() -> None:
    text = (
        "[[Target Note]] [[folder/other#Section|alias]] ![[picture.png]] [[#here]] "
        "[[Target Note]]\n"
        "| [[in table\\|alias]] |\n"
        "[a](../b%20c.md#part) [d](<e f.md>) [g](h_(i).md 'title') [j](k.md?raw=1)\n"
        "[web](https://example.org) [mail](mailto:a@b.c) [top](#top) [x](//host/y)\n"
        "`[[code]]` [ref]\n\n```\n[[code]] [c](code.md)\n```\n\n[ref]: ref.md\n[^1]: note.md\n"
    )
    assert md(text).links == (
        *("Target Note", "folder/other", "picture.png", "in table", "../b c.md", "e f.md"),
        *("h_(i).md", "k.md", "ref.md"),
    )


def test_the_text_of_a_note_is_the_whole_file() -> None:
    text = "---\ntitle: T\n---\n\n# H\n"
    assert md(text).text == text


# ---------------------------------------------------------------- boilerplate

PAGE = """---
title: Pods
---
<!-- overview -->
<!--
## Hidden heading
The English original, with ``` in it.
-->
Ein {{< glossary_tooltip text="Pod" term_id="pod" >}} ist klein.<!-- no -->

{{< note >}}
Wrapped *text*.
{{< /note >}}
## {{% heading "whatsnext" %}}
{%- include note.html content="Mind the gap" %} ## {#anchor} {# not\nthis #}
{% comment %}
nor

this
{% endcomment %}{/* nor that */}
Use `<!--` and `-->`, `{{< code >}}` and {{< an unclosed one.

```md
<!-- shown --> {{< shown >}} {% shown %}
```
Last line.
"""


def test_comments_and_tags_of_site_generators_are_not_text() -> None:
    document = md(PAGE)
    assert " ".join(document.text[document.body :].split()) == (
        "Ein Pod ist klein. Wrapped *text*. ## whatsnext Mind the gap ## {#anchor} "
        "Use `<!--` and `-->`, `{{< code >}}` and {{< an unclosed one. "
        "```md <!-- shown --> {{< shown >}} {% shown %} ``` Last line."
    )
    assert words_at(document) == [(2, "whatsnext", "## whatsnext")]


@pytest.mark.parametrize("tag", ["{{% toc %}}", "{{< a >}} {{< b >}}", "<!-- no -->", "![[a.png]]"])
def test_a_heading_of_which_nothing_is_left_is_not_text(tag: str) -> None:
    document = md(f"One\n\n## {tag}\n\n##\n\nTwo\n")
    assert document.text == "One\n\n\n\n##\n\nTwo\n"


def test_what_is_left_stays_on_its_line() -> None:
    here, there = md(PAGE).text.split("\n"), PAGE.split("\n")
    assert len(here) == len(there)
    assert all(
        line in of
        for line, of in zip(here, there, strict=True)
        if not any(word in of for word in ("text=", "content=", "{{% heading"))
    )


@pytest.mark.parametrize(
    "opened",
    [
        "<!--",
        "{#  ",
        "{/*",
        "{{<",
        "{% x",
        "`",
        "``` `",
        "{{% comment %}}",
        "%%",
        "x %%",
        "![[",
        "^",
    ],
)
@pytest.mark.parametrize("path", ["a.md", "a.html"])
@pytest.mark.timeout(30)
def test_tags_that_are_never_closed_are_text_and_do_not_hang(opened: str, path: str) -> None:
    assert "words" in read(f"{opened} words\n\n".encode() * 20_000, path).text


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("Bake %% check this %% the bread.", "Bake  the bread."),
        ("One\n%%\nhidden\n\n# Hidden\n%%\nTwo", "One\n\n\n\n\n\nTwo"),
        ("One\n%% hidden\nstill %%\nTwo", "One\n\n\nTwo"),
        ("The oven is hot. ^oven-1\nNext", "The oven is hot. \nNext"),
        ("- item\n\n^37066d\n", "- item\n\n\n"),
        ("![[oven.png]]\n![[img/oven.JPG|300]] x", "\n x"),
        ("![[oven.png|The oven|300x200]]", "The oven"),
    ],
)
def test_what_obsidian_does_not_show_is_not_text(source: str, left: str) -> None:
    document = md(source)
    assert (document.text, document.headings) == (left, ())


@pytest.mark.parametrize(
    "text",
    [
        *("100%% and 50%% of it", "%%time\nx = 1\n%%time\ny = 2", "x %% y", "`%% code %%`"),
        *("y = x ^2", "a note[^one]", "see ^ there", "x^abc", "```\n![[a.png]] ^abc\n%% a %%\n```"),
        *("![[Bread#Recipe]]", "[[oven.png]]", "![[Bread]]"),
    ],
)
def test_what_only_looks_like_obsidian_is_text(text: str) -> None:
    assert md(text).text == text


APACHE = """Copyright 2014 The Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS."""
MIT = """(c) 2020 Ana. All rights reserved.

Permission is hereby granted, free of charge, to any person obtaining a copy.
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND."""


def commented(text: str, mark: str) -> str:
    return "\n".join(f"{mark} {line}".rstrip() for line in text.split("\n"))


@pytest.mark.parametrize("licence", [APACHE, MIT])
@pytest.mark.parametrize(
    ("path", "form", "left"),
    [
        ("a.go", "//go:build linux\n\n/*\n{}\n*/\n\n// Package bolts.\npackage bolts\n", None),
        ("a.c", "// SPDX-License-Identifier: MIT\n/*{}*/\n#include <licence.h>\n", None),
        ("a.py", "#!/usr/bin/env python\n{#}\n\n# Copies of the licence.\nimport bolts\n", None),
        ("a.sql", "{--}\nCREATE TABLE bolts (id);\n", None),
        ("a.xml", "<?xml version='1.0'?>\n<!--\n{}\n-->\n<bolts/>\n", None),
        ("a.html", "<!--\n{}\n-->\n<p>Bolts</p>\n", "Bolts"),
    ],
)
def test_a_licence_at_the_top_is_not_text(
    path: str, form: str, left: str | None, licence: str
) -> None:
    source, bare = form, form
    for mark in ("#", "--", ""):
        text = commented(licence, mark) if mark else licence
        source = source.replace(f"{{{mark}}}", text)
        bare = bare.replace(f"{{{mark}}}", "\n" * text.count("\n"))
    text = read(source.encode(), path).text
    assert not any(
        word in text.lower() for word in ("copyright", "permission", "warrant", "apache")
    )
    kept = [
        line for line in bare.split("\n") if any(c.isalnum() for c in line) and "SPDX" not in line
    ]
    assert left is not None or [text.split("\n").index(line) for line in kept] == [
        bare.split("\n").index(line) for line in kept
    ]
    assert left is None or text.strip() == left


@pytest.mark.parametrize(
    "comment",
    [
        "# Checks the licence of each module, and whether a copy of the text is there.",
        "# Warranty claims, as is usual, come by mail.",
        "# The bolts of 2014.",
    ],
)
def test_a_comment_about_licences_is_text(comment: str) -> None:
    assert read(f"{comment}\nimport bolts\n".encode(), "a.py").text.startswith(comment)


def test_what_a_licence_header_says_beside_it_is_text() -> None:
    source = "# bolts.py: torques\n# Copyright (c) 2020 Ana\n#\n# It is read by the winch.\nx = 1\n"
    assert read(source.encode(), "a.py").text == source.replace("# Copyright (c) 2020 Ana", "")


def test_comments_of_rst_are_not_text() -> None:
    text = (
        "..\n   Licensed to the Foundation\n   under the terms\n\nTitle\n=====\n\n"
        ".. note:: A note\n   goes on\n\n.. hidden\n   words\n\n   and more\n"
        ".. _target:\n.. |sub| replace:: x\n\n..\n\n   A quotation\n"
    )
    document = read(text.encode(), "a.rst")
    assert document.text.split("\n")[4:9] == [
        "Title",
        "=====",
        "",
        ".. note:: A note",
        "   goes on",
    ]
    assert not any(word in document.text for word in ("Foundation", "hidden", "words", "more"))
    assert ".. _target:" in document.text and "A quotation" in document.text
    assert document.text.count("\n") == text.count("\n")


def test_front_matter_and_tags_of_an_html_page_are_not_text() -> None:
    page = (
        "---\nlayout: default\ntitle: About us\ntags: [crew]\n---\n{% extends x %}\n<h1>Crew</h1>\n"
        "{{< figure src=x.png caption='At sea' >}}{# no #}\n<pre>{% shown %}</pre>\n"
    )
    document = read(page.encode(), "a.html")
    assert (document.title, document.tags, document.metadata) == (
        "About us",
        ("crew",),
        {"layout": "default"},
    )
    assert [line for line, _ in source_lines(document, page)] == ["Crew", "At sea", "{% shown %}"]
    assert all(line in of for line, of in source_lines(document, page))


# ---------------------------------------------------------------- reStructuredText and HTML


def test_rst() -> None:
    text = (
        "=====\nTitle\n=====\n\n:tags: One, two\n\nPart\n====\n\nText - dash\n\nSub\n---\n\n"
        "----\n\nPart two\n========\n\nSee :doc:`other <guide/intro>` and `web <https://a.b>`_ "
        "and `file <data.rst>`_.\n\n====  ====\na     b\n====  ====\n\nToo long a title\n---\n"
    )
    document = read(text.encode(), "a.rst")
    assert words_at(document) == [
        (1, "Title", "====="),
        (2, "Part", "Part"),
        (3, "Sub", "Sub"),
        (2, "Part two", "Part two"),
    ]
    assert (document.title, document.tags) == ("Title", ("one", "two"))
    assert document.links == ("guide/intro", "data.rst")
    assert read(b"no heading", "my-file.rst").title == "My file"


HTML = """<!doctype html>
<html><head><title>The
  page</title><meta name="keywords" content="One, two"><style>p { color: red }</style></head>
<body><script>var hidden = "<p>no</p>";</script>
<h1>Main <em>heading</em></h1>
<p>First   line &amp; more
second line</p><template>hidden</template>
<h2></h2>
<ul><li>item one</li><li>item <a href="b.html#x">two</a></li></ul>
<h3>Sub</h3><table><tr><th>a</th><th>b</th></tr>
<tr><td>1</td><td>2</td></tr></table>
<pre>def f():

    return 1</pre><a href="https://example.org">web</a> tail
</body></html>"""


def test_html() -> None:
    document = read(HTML.encode(), "a.html")
    assert (document.title, document.tags, document.links) == (
        "The page",
        ("one", "two"),
        ("b.html",),
    )
    assert words_at(document) == [(1, "Main heading", "Main heading"), (3, "Sub", "Sub")]
    assert [line for line in document.text.split("\n") if line] == [
        *("Main heading", "First line & more", "second line", "item one", "item two", "Sub"),
        *("a | b", "1 | 2", "def f():", "    return 1", "web tail"),
    ]
    for line, source in source_lines(document, HTML):
        assert line.split()[0].strip("|") in source


def test_html_without_its_wrapping() -> None:
    document = read(b"<head><title>T</title><p>body text<p>more", "a.html")
    assert (document.title, document.text.split("\n\n")) == ("T", ["body text", "more"])
    assert read(b"<h1>One</h1>text", "a.html").title == "One"
    assert read(b"<p>text", "some-page.html").title == "Some page"


def test_html_that_names_its_encoding() -> None:
    page = '<meta charset="shift_jis"><p>日本語の文章'
    assert "日本語の文章" in read(page.encode("shift_jis"), "a.html").text
    assert read(b'<meta charset="no-such"><p>\xff', "a.html").warnings


@pytest.mark.parametrize(
    "opened", ["<!--", "<![", "<![CDATA[", "<a href='", "<a ", "</", "<!", "<?"]
)
@pytest.mark.parametrize("end", ["", ">"])
@pytest.mark.timeout(30)
def test_html_that_is_never_closed_does_not_hang(opened: str, end: str) -> None:
    assert "words" in read(f"<p>words</p>{opened * 50_000}{end}".encode(), "a.html").text


# ---------------------------------------------------------------- code


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        (
            "a.py",
            '"""A\nclass of things\n"""\nclass Parser(Base):\n    async def parse(self):\n'
            "        def inner(): ...\n\ndef main() -> None:\n    class_ = 1\n",
            [(1, "class Parser"), (2, "def parse"), (3, "def inner"), (1, "def main")],
        ),
        (
            "a.ts",
            "export default class App extends Base {\n"
            "  private async load(id: string): Promise<X> {\n"
            "    if (x) {\n    for (const a of b) {\n  }\n}\nexport const run = async (a) => {\n"
            "interface Shape {}\nfunction* gen() {}\n",
            [
                (1, "class App"),
                (2, "load()"),
                (1, "run()"),
                (1, "interface Shape"),
                (1, "function gen"),
            ],
        ),
        (
            "a.java",
            "public final class Foo implements Bar {\n    public Foo(int x) {\n"
            "        return call(x);\n"
            "        else if (x) {\n    }\n    @Override public List<String> names(\n"
            "        int a) {\n",
            [(1, "class Foo"), (2, "Foo()"), (2, "names()")],
        ),
        (
            "a.cpp",
            "#include <x>\nstatic int add(int a, int b) {\n  foo(a);\n}\nvoid Foo::bar() const {\n"
            "int proto(int);\nnamespace x {\nstruct Point {\n",
            [(1, "add()"), (1, "Foo::bar()"), (1, "namespace x"), (1, "struct Point")],
        ),
        (
            "a.go",
            "func (s *Server) Start(ctx context.Context) error {\n"
            "type Config struct {\nfunc main() {\n",
            [(1, "func Start"), (1, "type Config"), (1, "func main")],
        ),
        (
            "a.rs",
            "pub struct P<T> {\nimpl<T: Copy> Display for P<T> {\n"
            "    pub(crate) fn new() -> Self {\n"
            "pub enum E {\nmod tests {\n",
            [
                (1, "struct P"),
                (1, "impl Display for P<T>"),
                (2, "fn new"),
                (1, "enum E"),
                (1, "mod tests"),
            ],
        ),
        (
            "a.rb",
            "module A::B\n  class C < D\n    def self.call!(x)\n",
            [(1, "module A::B"), (2, "class C"), (3, "def self.call!")],
        ),
        (
            "a.sh",
            "function build {\ndeploy() {\n  echo x\n}\n",
            [(1, "function build"), (1, "deploy()")],
        ),
        (
            "a.sql",
            "CREATE OR REPLACE VIEW sales AS\ncreate table if not exists t (\n",
            [(1, "VIEW sales"), (1, "table t")],
        ),
        (
            "a.tf",
            'resource "aws_s3_bucket" "logs" {\n  acl = 1\n',
            [(1, "resource aws_s3_bucket logs")],
        ),
        ("a.clj", "(defn greet [x]\n", [(1, "defn greet")]),
        ("a.ex", "defmodule A.B do\n  defp run(x) do\n", [(1, "defmodule A.B"), (2, "defp run")]),
        ("a.erl", "loop(0) -> ok;\nloop(N) -> loop(N - 1).\n", [(1, "loop()")]),
        ("a.r", "fit <- function(x) {\n", [(1, "fit()")]),
        (
            "a.kt",
            "suspend fun <T> List<T>.second(): T\ndata class P(val x: Int)\n",
            [(1, "fun second"), (1, "class P")],
        ),
        (
            "a.proto",
            "message User {\n  string name = 1;\nservice Users {\n  rpc Get(A) returns (B);\n",
            [(1, "message User"), (1, "service Users"), (2, "rpc Get")],
        ),
        ("a.toml", "[tool.ruff]\nline = 1\n[[items]]\n", [(1, "tool.ruff"), (1, "items")]),
        ("a.yaml", "services:\n  web:\n    image: x\nother: 1\n", [(1, "services"), (2, "web")]),
        ("a.json", '{\n  "scripts": {\n    "a": 1\n', [(1, "scripts")]),
        ("Makefile", "CC := gcc\nbuild: a.o\n\tcc a.o\n", [(1, "build")]),
        ("Dockerfile", "FROM python:3.11 AS base\nRUN x\n", [(1, "FROM python:3.11 AS base")]),
        ("a.css", "@media print {\n  .note > p {\n", [(1, "@media print"), (2, ".note > p")]),
        ("a.lua", "local function f(x)\nM.g = function(y)\n", [(1, "function f"), (1, "M.g()")]),
        ("a.hs", "data Tree a = Leaf\nsize :: Tree a -> Int\n", [(1, "data Tree a"), (1, "size")]),
    ],
)
def test_definitions(path: str, source: str, expected: list[tuple[int, str]]) -> None:
    document = read(source.encode(), path)
    assert [(level, words) for _, level, words in document.headings] == expected
    assert (document.text, document.title, document.kind) == (source, path, "code")
    for _, words, line in words_at(document):
        name = words.removesuffix("()").split()[-1].split(".")[-1]
        assert name in line and not line[0].isspace()


def test_code_names_its_language() -> None:
    for path, language in {"a.py": "python", "x/Dockerfile": "dockerfile", "a.hpp": "c++"}.items():
        assert read(b"", path).metadata == {"language": language}


# ---------------------------------------------------------------- tables


def rows_of(source: str, path: str) -> list[str]:
    return [row.text for row in read(source.encode(), path).rows]


def test_each_row_of_a_csv_is_a_record_with_its_lines() -> None:
    source = 'name,city,note\nAda,London,"first\nsecond, third"\n\nBob,,x\nCid,Rome,y,extra\n'
    document = read(source.encode(), "some-people.csv")
    assert [row.text for row in document.rows] == [
        "name: Ada\ncity: London\nnote: first\nsecond, third",
        "name: Bob\nnote: x",
        "name: Cid\ncity: Rome\nnote: y\nextra",
    ]
    assert [row.lines for row in document.rows] == [(2, 3), (5, 5), (6, 6)]
    assert [row.key for row in document.rows] == ["1", "2", "3"]
    assert [row.title for row in document.rows] == ["Ada", "Bob", "Cid"]
    assert document.rows[1].metadata == {"name": "Bob", "note": "x"}
    # the file itself is found by its columns
    assert (document.title, document.kind) == ("Some people", "table")
    assert document.text == "name; city; note"
    assert document.metadata == {"columns": ["name", "city", "note"], "rows": 3}


def test_a_row_is_named_by_its_key_column() -> None:
    def keys(source: str) -> list[str]:
        return [row.key for row in read(source.encode(), "a.csv").rows]

    assert keys("name,Message-ID\nx,<a@b>\ny,<c@d>\n") == ["<a@b>", "<c@d>"]
    assert keys("id,name\n7,x\n7,y\n") == ["1", "2"]  # no two rows may agree in it
    assert keys("id,name\n7,x\n,y\n") == ["1", "2"]  # and each must have one
    assert keys("name,city\nx,y\n") == ["1"]


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("2026-03-14", "2026-03-14"),
        ("2026-03-14 09:30:00", "2026-03-14"),
        ("2026-03-14T12:00:00+00:00", "2026-03-14"),
        ("Sat, 14 Mar 2026 09:30:00 +0000", "2026-03-14"),
        ("14.3.2026", "2026-03-14"),
        ("2026/03/14", "2026-03-14"),
        ("14/03/2026", "2026-03-14"),
        ("3/14/2026", "2026-03-14"),
        ("3/3/2026", "2026-03-03"),
        ("14 Mar 2026", "2026-03-14"),
        ("14 March 2026 09:30", "2026-03-14"),
        ("Mar 14, 2026", "2026-03-14"),
        ("Saturday, March 14th, 2026", "2026-03-14"),
        ("14-Mar-2026", "2026-03-14"),
        ("3/4/2026", None),
        ("14 Foo 2026", None),
        ("1773480600", "2026-03-14"),
        ("1773480600000", "2026-03-14"),
        ("last Tuesday", None),
        ("", None),
        ("99.99.2026", None),
    ],
)
def test_a_row_has_its_own_date(value: str, day: str | None) -> None:
    (row,) = read(f"Subject,Date\nhello,{value!r}\n".replace("'", '"').encode(), "a.csv").rows
    assert row.title == "hello"
    stamp = row.updated_at
    assert row.created_at == stamp
    assert (stamp and dt.datetime.fromtimestamp(stamp).date().isoformat()) == day


def test_a_column_tells_whether_its_days_come_first() -> None:
    def days(*values: str) -> list[str | None]:
        rows = read(
            "\n".join(("date,n", *(f"{value},x" for value in values))).encode(), "a.csv"
        ).rows
        stamps = [row.updated_at for row in rows]
        return [s and dt.datetime.fromtimestamp(s).date().isoformat() for s in stamps]

    assert days("31/12/2019", "02/03/2019") == ["2019-12-31", "2019-03-02"]
    assert days("12/31/2019", "02/03/2019") == ["2019-12-31", "2019-02-03"]
    assert days("01/02/2019", "02/03/2019") == [None, None]
    assert days("31/12/2019", "12/31/2019", "02/03/2019") == ["2019-12-31", "2019-12-31", None]


def test_columns_are_metadata_with_numbers_as_such() -> None:
    source = 'name,tags,price,code,note\nx,"Red, big",1.50,007,' + "long " * 100 + "\n"
    (row,) = read(source.encode(), "a.csv").rows
    assert row.metadata == {"name": "x", "tags": "Red, big", "price": 1.5, "code": "007"}
    assert row.tags == ("red", "big")
    assert "price: 1.50\ncode: 007" in row.text  # as it is written


def test_tags_of_a_row_stand_between_any_of_the_usual_signs() -> None:
    (row,) = read(b"name,tags\nx,#Foo; bar baz|Qux\n", "a.csv").rows
    assert row.tags == ("foo", "bar baz", "qux")


@pytest.mark.parametrize(
    ("path", "source", "rows"),
    [
        ("a.csv", "a;b\n1,5;2\n", ["a: 1,5\nb: 2"]),
        ("a.csv", "a|b\n1|2\n", ["a: 1\nb: 2"]),
        ("a.csv", "a\tb\n1\t2\n", ["a: 1\nb: 2"]),
        ("a.tsv", "a\tb\n1,5\t2\n", ["a: 1,5\nb: 2"]),
        ("a.csv", "1,2\n3,4\n", ["1\n2", "3\n4"]),
        ("a.csv", "2026-01-01,x\n2026-01-02,y\n", ["2026-01-01\nx", "2026-01-02\ny"]),
        ("a.csv", "id,note,note,date\n1,x,y,z\n", ["id: 1\nnote: x\nnote_2: y\ndate: z"]),
        ("a.csv", "note,note,note_2\nx,y,z\n", ["note: x\nnote_3: y\nnote_2: z"]),
        ("a.csv", "yes,no,yes\nno,no,yes\n", ["yes\nno\nyes", "no\nno\nyes"]),
        ("a.csv", "sep=;\na;b\n1,5;2,5\n", ["a: 1,5\nb: 2,5"]),
        ("a.csv", "# made, by hand\n#\n\na,b\n1,2\n", ["a: 1\nb: 2"]),
        ("a.csv", "# made by hand\n#id,b\n1,2\n", ["#id: 1\nb: 2"]),
        ("a.csv", "#one\n#two\n", ["#one: #two"]),
        ("a.csv", ",a,b\n,1,2\n", ["a: 1\nb: 2"]),
        ("a.csv", "words\nmore words, with a comma\n", ["words: more words\nwith a comma"]),
        ("a.csv", "name,city\n", []),
        ("a.csv", "", []),
        ("a.csv", "\n\n", []),
    ],
)
def test_delimiters_and_headers(path: str, source: str, rows: list[str]) -> None:
    assert rows_of(source, path) == rows


def test_a_table_of_nothing_but_its_header_is_found_by_its_columns() -> None:
    assert read(b"name,city\n", "a.csv").text == "name; city"


def test_csv_with_a_quote_that_is_never_closed() -> None:
    rows = [f"row {i},x" for i in range(300)]
    document = read("\n".join(["name,note", '"row,x', *rows]).encode(), "a.csv")
    assert "never closed" in document.warnings[0] and "line 2" in document.warnings[0]
    assert document.rows[-1].text == "name: row 299\nnote: x"
    assert document.rows[-1].lines == (302, 302)


def test_a_cell_of_many_lines_is_one() -> None:
    mail = "\n".join(f"line {i}" for i in range(400))
    document = read(f'from,body\nada,"{mail}"\nbob,"hi\nthere"\n'.encode(), "mails.csv")
    assert [row.lines for row in document.rows] == [(2, 401), (402, 403)]
    assert document.warnings == () and document.rows[0].text.endswith("line 399")


@pytest.mark.timeout(30)
def test_csv_with_a_huge_field_and_one_that_baffles_the_sniffer() -> None:
    assert len(read(b"a,b\n1," + b"x" * 500_000 + b"\n", "a.csv").rows[0].text) > 500_000
    read(b'",' * 100_000, "a.csv")


def test_jsonl() -> None:
    source = (
        '{"_id": 1, "user": {"name": "Ada\\nL", "tags": ["x", "y"]}, "ok": true, "none": null}\n'
        '\nnot json {\n[1, {"a": 2}]\n' + "[" * 100_000 + '\n"just words"\n'
    )
    document = read(source.encode(), "a.jsonl")
    texts = [row.text for row in document.rows]
    assert texts[:3] == [
        "_id: 1\nuser.name: Ada\nL\nuser.tags: x, y\nok: true",
        "not json {",
        "1\n2.a: 2",
    ]
    assert texts[-1] == "just words"
    assert [row.lines[0] for row in document.rows] == [1, 3, 4, 5, 6]
    assert [warning.split(" is")[0] for warning in document.warnings] == ["line 3", "line 5"]
    assert document.rows[0].metadata["user.tags"] == "x, y"
    assert [row.key for row in read(b'{"_id": "a"}\n{"_id": 7}\n', "b.jsonl").rows] == ["a", "7"]
    huge = read(b'{"a": 1' + b"0" * 400 + b', "b": 1e999}\n', "c.jsonl").rows[0]
    assert huge.metadata["b"] == "inf" and "a" not in huge.metadata


def test_many_bad_lines_make_few_warnings() -> None:
    document = read(b"no\n" * 500, "a.jsonl")
    assert len(document.warnings) < 10 and "495 more" in document.warnings[-1]


# ---------------------------------------------------------------- documents


def test_pdf() -> None:
    document = read(pdf("First page\nsecond line", "", "Third page", title="The report"), "a.pdf")
    assert document.text.split("\n") == ["First page", "second line", "Third page"]
    assert document.line_numbers == (1, 1, 3)
    assert document.unit == "page" and document.headings == ()
    assert (document.title, document.kind, document.warnings) == ("The report", "document", ())
    assert read(pdf("x"), "my-scan.pdf").title == "My scan"


def test_pdf_without_text_says_so() -> None:
    assert "pictures" in read(pdf("", ""), "a.pdf").warnings[0]


def test_pdf_page_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf = pytest.importorskip("pypdf")
    extract = pypdf.PageObject.extract_text

    def fails_on_second(page: Any, *args: Any, **options: Any) -> str:
        if page.page_number == 1:
            raise KeyError("/Contents")
        return str(extract(page, *args, **options))

    monkeypatch.setattr(pypdf.PageObject, "extract_text", fails_on_second)
    document = read(pdf("one", "two", "three"), "a.pdf")
    assert document.text == "one\nthree" and document.line_numbers == (1, 3)
    assert "page 2" in document.warnings[0]


def test_encrypted_pdf() -> None:
    pypdf = pytest.importorskip("pypdf")

    def locked(password: str) -> bytes:
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret words")))
        writer.encrypt(password, "owner", algorithm="RC4-128")
        writer.write(buffer := io.BytesIO())
        return buffer.getvalue()

    assert read(locked(""), "a.pdf").text == "secret words"  # locked against change only
    with pytest.raises(InputError, match="encrypted"):
        read(locked("user"), "a.pdf")


def test_docx() -> None:
    docx = pytest.importorskip("docx")
    source = docx.Document()
    source.core_properties.keywords = "One, two"
    source.add_paragraph("The plan", style="Title")
    source.add_heading("Part one", level=1)
    source.add_paragraph("Some text.")
    source.add_heading("Detail", level=2)
    table = source.add_table(rows=2, cols=2)
    for cell, words in zip(table._cells, ["a", "b", "1", "2"], strict=True):
        cell.text = words
    source.save(buffer := io.BytesIO())
    document = read(buffer.getvalue(), "a.docx")
    assert (document.title, document.tags, document.kind) == (
        "The plan",
        ("one", "two"),
        "document",
    )
    assert words_at(document) == [
        (1, "The plan", "The plan"),
        (1, "Part one", "Part one"),
        (2, "Detail", "Detail"),
    ]
    assert [line for line in document.text.split("\n") if line][-3:] == ["Detail", "a | b", "1 | 2"]
    assert document.unit == "paragraph" and document.line_numbers is not None
    assert document.line_numbers[-1] == 5  # a table counts as one


def test_pptx() -> None:
    pptx = pytest.importorskip("pptx")
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Opening"
    slide.placeholders[1].text = "A point"
    slide.notes_slide.notes_text_frame.text = "Say hello"
    box = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(0, 0, 9, 9)
    box.text_frame.text = "No title here"
    deck.save(buffer := io.BytesIO())
    document = read(buffer.getvalue(), "a.pptx")
    assert words_at(document) == [(1, "Opening", "Opening")] and document.unit == "slide"
    assert [line for line in document.text.split("\n") if line] == [
        *("Opening", "A point", "Say hello", "No title here")
    ]
    assert document.line_numbers is not None and set(document.line_numbers) == {1, 2}


def test_xlsx() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Costs"
    for row in (["item", "price", "on"], ["paint", 12.0, dt.date(2026, 3, 14)], [], ["rope", 3.5]):
        sheet.append(row)
    book.create_sheet("Plain").append([1, 2])
    book.save(buffer := io.BytesIO())
    document = read(buffer.getvalue(), "a.xlsx")
    assert [row.text for row in document.rows] == [
        "item: paint\nprice: 12\non: 2026-03-14",
        "item: rope\nprice: 3.5",
        "1\n2",
    ]
    assert [row.lines for row in document.rows] == [(2, 2), (4, 4), (1, 1)]
    assert [row.key for row in document.rows] == ["Costs!2", "Costs!4", "Plain!1"]
    assert document.rows[0].metadata == {
        "sheet": "Costs",
        "item": "paint",
        "price": 12,
        "on": "2026-03-14",
    }
    assert document.text == "Costs; item; price; on; Plain" and document.unit == "row"


@pytest.mark.parametrize("path", ["a.pdf", "a.docx", "a.pptx", "a.xlsx"])
@pytest.mark.parametrize("data", [b"", b"not one", b"%PDF-1.4\n%%EOF", b"PK\x03\x04 damaged"])
def test_damaged_documents_are_input_errors(path: str, data: bytes) -> None:
    with pytest.raises(InputError, match="cannot read a"):
        read(data, path)


def test_an_archive_of_something_else_is_an_input_error() -> None:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("hello.txt", "hello")
    for suffix in (".docx", ".pptx", ".xlsx"):
        with pytest.raises(InputError):
            read(buffer.getvalue(), f"a{suffix}")


def test_an_archive_that_would_fill_the_memory_is_refused() -> None:
    with (
        zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("big.xml", "w", force_zip64=True) as member,
    ):
        for _ in range(520):
            member.write(b"\0" * 1024 * 1024)
    with pytest.raises(InputError, match="520 MB"):
        read(buffer.getvalue(), "a.docx")


def test_an_old_or_locked_office_file_says_what_to_do() -> None:
    with pytest.raises(InputError, match="save a copy"):
        read(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "a.docx")


@pytest.mark.parametrize(
    ("path", "library"),
    [("a.pdf", "pypdf"), ("a.docx", "docx"), ("a.pptx", "pptx"), ("a.xlsx", "openpyxl")],
)
def test_a_missing_library_names_the_install(
    path: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=r"pip install 'clew-search\[documents\]'"):
        read(b"PK", path)


def test_running_out_of_memory_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(json, "loads", full)
    with pytest.raises(MemoryError):
        read(b"{}", "a.jsonl")
