"""HTML: its text, line by line, with the source line of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from clew.errors import InputError
from clew.ingest.readers.markdown import TAG_OPENS, find_tag, read_front_matter
from clew.ingest.readers.text import (
    Span,
    cut_spans,
    decode,
    fold_tags,
    line_starts,
    local_target,
    title_from,
    unique,
)
from clew.types import Document

MADE_BY_CLEW = '<meta name="generator" content="clew search"/>'
"""Stands in the pages that we write: they repeat what is in other files."""
_SILENT = frozenset({"head", "script", "style", "template"})
_IN_HEAD = frozenset({"base", "link", "meta", "noscript", "script", "style", "template", "title"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# A paragraph stands apart by a blank line, a row by a line of its own.
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "details", "dialog", "div", "dl"),
        *("fieldset", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre"),
        *("section", "table", "ul", *_HEADINGS),
    )
)
_ROWS = frozenset({"br", "dd", "dt", "figcaption", "li", "option", "summary", "tr"})
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})""", re.I)
_TAG_OR_CODE = re.compile(rf"<(pre|code|samp|kbd)\b|{TAG_OPENS}")
_LONGEST_HEADING = 500
_SPACE = re.compile(r"[ \t\f\v]+")


def read_html(data: bytes, path: str) -> Document:
    if MADE_BY_CLEW.encode() in data[:1000]:
        raise InputError("a page that Clew made of what is in other files")
    declared = _CHARSET.search(data[:4096])
    text, warnings = decode(data, declared=declared[1].decode("ascii") if declared else None)
    fields, body, _ = read_front_matter(text)  # of Jekyll and its kin
    page = _Page()
    text = "\n" * text.count("\n", 0, body) + text[body:]
    page.feed(_close(cut_spans(text, _find_tags(text))))
    page.close()
    extracted = "\n".join(line for line, _ in page.lines)
    starts = line_starts(extracted)
    first = next((words for _, level, words in page.headings if level == 1), "")
    title = str(fields.pop("title", "")) or " ".join("".join(page.title).split())
    return Document(
        text=extracted,
        kind="html",
        title=title or first or title_from(path),
        tags=unique((*fold_tags(fields.pop("tags", ())), *fold_tags(page.keywords))),
        links=unique(target for link in page.links if (target := local_target(link))),
        metadata=fields,
        headings=tuple((starts[i], level, words) for i, level, words in page.headings),
        line_numbers=tuple(number for _, number in page.lines),
        warnings=warnings,
    )


def _close(text: str) -> str:
    """The source without what is opened and never closed, line for line.

    For each of those html.parser looks through the rest of the file; a damaged file of some
    megabytes would keep it busy for days.
    """
    text = text.replace("<![CDATA[", "").replace("]]>", "").replace("<![", "<?")
    end = text.rfind("-->") + 1
    text = text[:end] + text[end:].replace("<!--", "&lt;!--")
    end = text.rfind(">") + 1
    return text[:end] + text[end:].replace("<", "&lt;")


def _find_tags(page: str) -> Iterator[Span]:
    """Comments and tags of site generators. In code they are shown to readers: there they are
    text."""
    at = 0
    unclosed: set[str] = set()
    while opened := _TAG_OR_CODE.search(page, at):
        at = opened.end()
        if (code := opened[1]) is not None:
            close = -1 if code in unclosed else page.find(f"</{code}", at)
            at = close if close >= 0 else at
            unclosed |= {code} if close < 0 else set()
        elif found := find_tag(page, opened, unclosed):
            at = found[1]
            yield found


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.keywords = ""
        self.links: list[str] = []
        self.lines: list[tuple[str, int]] = []
        self.headings: list[tuple[int, int, str]] = []  # (index into lines, level, words)
        self._silent: list[str] = []
        self._in_title = False
        self._pre = False
        self._parts: list[str] = []
        self._number = 1
        self._heading_at = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in _IN_HEAD and self._silent == ["head"]:
            self._silent.clear()  # </head> and <body> may be left out
        if tag == "title" and self._silent in ([], ["head"]):
            self._in_title = not self.title  # an <svg> may have one as well
        elif tag == "meta" and given.get("name", "").lower() == "keywords":
            self.keywords = given.get("content", "")
        elif tag in _SILENT:
            self._silent.append(tag)
        if self._silent:
            return
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self._break(tag)
        if tag in _HEADINGS:
            self._heading_at = len(self.lines)
        elif tag == "pre":
            self._pre = True

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `<script/>` and `<p/>` of XHTML: begun and ended.
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            while self._silent.pop() != tag:
                pass
        elif not self._silent:
            self._break(tag)
            if tag in _HEADINGS:
                lines = self.lines[self._heading_at :]
                words = " ".join(line for line, _ in lines)[:_LONGEST_HEADING].strip()
                if words:
                    self.headings.append((self._heading_at, _HEADINGS[tag], words))
                self._heading_at = len(self.lines)
            elif tag == "pre":
                self._pre = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._silent:
            number = self.getpos()[0]
            # A line of the source stays a line, so that its number can be told.
            for i, part in enumerate(data.split("\n")):
                if i:
                    self._end_line()
                    if self._pre and self.lines and self.lines[-1][1] < number + i - 1:
                        self.lines.append(("", number + i - 1))
                self._add(part, number + i)

    def _add(self, part: str, number: int) -> None:
        if not self._pre:
            part = _SPACE.sub(" ", part)
            if not self._parts or self._parts[-1].endswith(" "):
                part = part.lstrip()
        if part:
            self._number = self._number if self._parts else number
            self._parts.append(part)

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_line()
            if self.lines and self.lines[-1][0]:
                self.lines.append(("", self.lines[-1][1]))
        elif tag in _ROWS:
            self._end_line()
        elif tag in ("td", "th") and self._parts and self._parts[-1] != " | ":
            self._parts.append(" | ")

    def _end_line(self) -> None:
        line = "".join(self._parts).rstrip().removesuffix(" |")
        self._parts.clear()
        if line:
            self.lines.append((line, self._number))

    def close(self) -> None:
        super().close()
        self._end_line()
