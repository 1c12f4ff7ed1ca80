"""What files hold beside their text: comments, tags of site generators, licence headers.

It is taken out where a file is read, so that none of it is indexed, embedded or shown. Line breaks
stay, and with them the number of every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["OPENS", "tag_at", "tags_in_html", "without", "without_licence"]

Span = tuple[int, int, str]
"""Where it stands, and the words of it that are text."""

_CLOSES = {"<!--": "-->", "{{<": ">}}", "{{%": "%}}", "{%": "%}", "{#": "#}", "{/*": "*/}"}
OPENS = r"<!--|\{\{[<%]|\{%(?=[-+\s]|\w)|\{#(?=[-\s])|\{/\*"
"""How comments (HTML, Jinja, MDX) and tags (Hugo, Jinja, Liquid) begin; `{#id}` is an anchor."""
_COMMENTS = ("<!--", "{#", "{/*")
_LONGEST_TAG = 2_000
_LONGEST_MARGIN = 20
_TAG_OR_CODE = re.compile(rf"<(pre|code|samp|kbd)\b|{OPENS}")
_NAME = re.compile(r"[-+\s]*([\w./-]*)")
# Parameters that are words to be read; the others are for machines.
_WORDS = re.compile(
    r"\b(?:title|text|name|caption|alt|label|description|summary|content)\s*=\s*"
    r"""(?:"([^"]*)"|'([^']*)')"""
)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\Z", re.MULTILINE)
_ARGUMENT = re.compile(r"""(?<![=\w])(?:"([^"]*)"|'([^']*)')""")
_END_COMMENT = re.compile(r"\{(?:\{[<%]|%)[-+\s]*(?:/\s*|end)comment[^}]*\}\}?")


def without(text: str, spans: Iterable[Span]) -> str:
    """The text less these spans (in order, and apart from each other), on the same lines."""
    parts: list[str] = []
    at = 0
    for start, end, words in spans:
        parts += (text[at:start], words, "\n" * text.count("\n", start, end))
        at = end
    return "".join((*parts, text[at:])) if at else text


def tag_at(text: str, opened: re.Match[str], unclosed: set[str]) -> Span | None:
    """The comment or the tag that begins here; None: it is not closed, so it is text. `unclosed`
    are those of which no end is left: nothing is looked for in vain again and again."""
    opening, start = opened[0], opened.start()
    comment = opening in _COMMENTS
    limit = len(text) if comment else start + _LONGEST_TAG
    close = -1 if opening in unclosed else text.find(_CLOSES[opening], opened.end(), limit)
    if close < 0:
        unclosed |= {opening} if comment else set()
        return None
    end = close + len(_CLOSES[opening])
    if comment:
        return start, end, ""
    inside = text[opened.end() : close]
    if re.search(r"\n[ \t]*\n", inside):
        return None
    named = _NAME.match(inside)
    if named and named[1] == "comment" and "comment" not in unclosed:
        if ends := _END_COMMENT.search(text, end):
            return start, ends.end(), ""
        unclosed.add("comment")
    said = _WORDS.findall(inside)
    if not said and _HEADING.search(text[max(0, start - _LONGEST_MARGIN) : start]):
        said = _ARGUMENT.findall(inside)  # it is all that the heading has
    return start, end, " ".join(double or single for double, single in said)


def tags_in_html(page: str) -> Iterator[Span]:
    """Those of a page's source. In code they are shown to its readers, so there they are text."""
    at = 0
    unclosed: set[str] = set()
    while opened := _TAG_OR_CODE.search(page, at):
        at = opened.end()
        if (code := opened[1]) is not None:
            close = -1 if code in unclosed else page.find(f"</{code}", at)
            at = close if close >= 0 else at
            unclosed |= {code} if close < 0 else set()
        elif found := tag_at(page, opened, unclosed):
            at = found[1]
            yield found


# ---------------------------------------------------------------- licence headers

_BLOCKS = re.compile(
    r"""/\*.*?\*/ | <!--.*?--> | \(\*.*?\*\) | \{-.*?-\} | --\[\[.*?\]\]
    | (?P<mark>//+|\#+(?!!)|--+|;+|%+|!+|::|[Rr][Ee][Mm]\b)[^\n]*
      (?:\n[ \t]*(?P=mark)[^\n]*)*""",
    re.DOTALL | re.VERBOSE,
)
_PREAMBLE = re.compile(r"(?:\s+|#!.*|<\?.*|<!DOCTYPE.*)*", re.IGNORECASE)
_FIRST_BLOCKS = 4
"""Comments at the top that are looked at: marks for tools may come before the licence."""
_IS_LICENCE = re.compile(
    r"""copyright[\s:]*(?:\(?c\)|©|\d{4}|.{0,60}?\b(?:19|20)\d\d) | spdx-license-identifier
    | licen[cs]ed\s(?:under|to)\b | all\srights\sreserved | permission\sis\shereby\sgranted
    | is\sfree\ssoftware | redistribution\sand\suse\sin\ssource | subject\sto\sthe\sterms\sof
    | governed\sby\san?\s[^.]{0,30}licen[cs]e""",
    re.IGNORECASE | re.VERBOSE,
)
_OF_LICENCE = re.compile(
    r"""copyright | \(c\) | © | licen[cs]e | spdx | all\srights\sreserved | permission\sis
    | as\sis\b | redistribut | warrant | free\ssoftware | applicable\slaw | no\sevent
    | software\sfoundation | source\scode\sform | copy\sof\sthe
    | in\sthe\shope\sthat | provided\sby""",
    re.IGNORECASE | re.VERBOSE,
)
_PARAGRAPH = re.compile(r"(?:^.*\w.*(?:\n|\Z))+", re.MULTILINE)


def without_licence(code: str) -> str:
    """A source file without the licence in the comments at its top. What else they say stays."""
    spans: list[Span] = []
    at = 0
    for _ in range(_FIRST_BLOCKS):
        at = preamble.end() if (preamble := _PREAMBLE.match(code, at)) else at
        block = _BLOCKS.match(code, at)
        if block is None:
            break
        if _IS_LICENCE.search(re.sub(r"\s+[^\w\s]*\s*", " ", block[0])):
            found = list(_licence_in(block[0]))
            if not re.search(r"\w", without(block[0], found)):
                found = [(0, len(block[0]), "")]
            spans += ((at + start, at + end, words) for start, end, words in found)
        at = block.end()
    return without(code, spans)


def _licence_in(comment: str) -> Iterator[Span]:
    """From the first line of a paragraph that speaks of it to the end of that paragraph."""
    for paragraph in _PARAGRAPH.finditer(comment):
        at = paragraph.start()
        for line in paragraph[0].split("\n"):
            if _OF_LICENCE.search(line):
                yield at, paragraph.end(), ""
                break
            at += len(line) + 1
