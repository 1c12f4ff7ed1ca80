"""The part of a passage that shows why it was found: a few lines, as a person would read them.

Lines of a paragraph are joined, rows of a table and lines of code stay lines, and marks of Markdown
are left out. So a snippet is not a piece of the passage, but each of its lines is one of the
passage's, and it is known which the first is.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from clew.text import analyser
from clew.types import Terms

ELLIPSIS = "…"
WIDTH = 240
LINES = 5
WRAPPED = 50
"""A line of prose at least this wide goes on in the next one."""


class Snippet(NamedTuple):
    text: str
    highlights: tuple[tuple[int, int], ...]
    """Character ranges of `text` that match."""
    line: int
    """How many lines below the start of the passage it begins."""


NO_SNIPPET = Snippet("", (), 0)


def matcher(terms: Terms) -> analyser.Matcher:
    """Finds every word that counts as a match of the query."""
    groups = (*terms.words, *terms.phrases)
    return analyser.Matcher(frozenset(token for group in groups for token in group))


def snippet(
    text: str,
    find: analyser.Matcher,
    *,
    kind: str = "text",
    known: Collection[str] = (),
    width: int = WIDTH,
) -> Snippet:
    """About `width` columns around the densest spot of matches, cut between lines where that can
    be, else between words. `kind` is the record's type; headings that are `known` are left out."""
    if not analyser.is_western(text) and re.search(_WIDE, text):
        width = max(1, width * len(text) // cells(text))
    first, last = _densest(find(text), width)
    # What is further away cannot be in it.
    begin = text.rfind("\n", 0, max(0, first - width // 2)) + 1
    end = text.find("\n", last + width)
    above, near = text.count("\n", 0, begin), text[begin : end if end >= 0 else len(text)]
    parts = list(_parts(near, above, kind, known, _fenced(text, begin, kind)))
    if not parts and not (parts := list(_parts(text, 0, kind, (), False))):
        return NO_SNIPPET
    if begin and parts[0][1:] == (above, "prose") and not _ITEM.match(near.lstrip()):
        before = text[text.rfind("\n", 0, begin - 1) + 1 : begin - 1]
        if cells(before) >= WRAPPED:  # the paragraph begins further up
            parts[0] = parts[0]._replace(text=ELLIPSIS + parts[0].text)
    if end >= 0 and parts[-1].kind == "prose" and text[end + 1 : end + 2].strip():
        parts[-1] = parts[-1]._replace(text=parts[-1].text + ELLIPSIS)
    line = above + text.count("\n", begin, first)
    shown, line = _chosen(parts, line, line + text.count("\n", first, last), find, width)
    words = "\n".join(_aligned(shown))
    return Snippet(words, tuple(_merged(find(words))), line)


def _densest(matches: Sequence[tuple[int, int, str]], width: int) -> tuple[int, int]:
    """Where the most distinct matches lie closest together; the beginning when there are none."""
    best, first, end = (0, 0), 0, 0
    last = 0
    inside: dict[str, int] = {}
    for i, (start, stop, token) in enumerate(matches):
        inside[token] = inside.get(token, 0) + 1
        while start - matches[last][0] > width * 3 // 4:
            gone = matches[last][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            last += 1
        worth = (len(inside), i - last + 1)
        if worth > best:
            best, first, end = worth, matches[last][0], stop
    return first, end


def _merged(matches: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Pairs of an unspaced script overlap; to a reader they are one mark."""
    marks: list[tuple[int, int]] = []
    for start, end, _ in matches:
        if marks and start <= marks[-1][1]:
            marks[-1] = marks[-1][0], end
        else:
            marks.append((start, end))
    return marks


# ---------------------------------------------------------------- what a line says


class _Part(NamedTuple):
    """What is shown as one line. A line break in it is where a paragraph was wrapped."""

    text: str
    line: int
    kind: str
    """prose, heading, row (of a table) or code."""


_HASHES = re.compile(r"^#+[ \t]+|[ \t]+#+$|[ \t]+$")
_RULE = re.compile(r"(?:[|:\- ]*-[|:\- +]*|=+|[*_~^\"'+ ]{3,})$")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])[ \t]")
_QUOTE = re.compile(r"(?:>[ \t]?)+(?:\[!\w+\][+-]?[ \t]*)?")
_GAP = re.compile(r"\S(?: {3,}|\t+)\S")
_MAY_HAVE_MARKS = re.compile(r"[`\[<*_~=\\{]")


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(  # takes a while: only where there is Markdown
        r"""(?=[`!\[<*_~=\\\ {])(?:
        (?P<ticks>`+)(?P<code>.{1,300}?)(?P=ticks)
        | !?\[\[(?:[^\[\]|]*\|)?(?P<wiki>[^\[\]|]*)\]\]
        | !?\[(?P<link>[^\[\]]*)\](?:\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s[^()]*)?\)|\[[^\[\]]*\])
        | </?[A-Za-z][^<>]*>
        | (?<![\w\\])(?P<strong>\*{1,3}|_{1,3}|~~|==)(?=\S)
          (?P<words>.{1,300}?)(?<=\S)(?P=strong)(?!\w)
        | \\(?P<escaped>[\\`*_{}\[\]()\#+.!|<>~-])
        | [ ]*\{\#[^{}]*\})""",
        re.VERBOSE | re.DOTALL,
    )


_FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\n.*?^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)


def strip_front_matter(content: str) -> str:
    """A text without its front matter, whose keys are the same in every file."""
    front = _FRONT_MATTER.match(content)
    return content if front is None else content[front.end() :] or content


def strip_markup(text: str) -> str:
    """Take out the marks of Markdown; the lines stay as many."""
    return _marks().sub(_said, text) if _MAY_HAVE_MARKS.search(text) else text


def _said(mark: re.Match[str]) -> str:
    words = mark["code"] or mark["wiki"] or mark["escaped"] or " " * mark[0].startswith("<br")
    if inner := mark["link"] or mark["words"]:
        words = strip_markup(inner)
    return words + "\n" * (mark[0].count("\n") - words.count("\n"))


def _fenced(text: str, at: int, kind: str) -> bool:
    """Whether a block of code is open there."""
    if kind != "markdown" or ("```" not in text and "~~~" not in text):
        return False
    lines = text[:at].split("\n")
    return sum(line.lstrip(" \t>")[:3] in ("```", "~~~") for line in lines) % 2 == 1


def _parts(
    text: str, number: int, kind: str, known: Collection[str], fenced: bool
) -> Iterator[_Part]:
    """The lines as they are shown, those of a paragraph as one."""
    markdown, verbatim = kind == "markdown", kind in ("code", "table")
    plain = strip_markup if markdown else str
    held: list[str] = []  # lines of a paragraph

    def joined(end: int) -> Iterator[_Part]:
        words = plain("\n".join(held)).rstrip()
        if words.strip() not in known:
            yield _Part(words, end - len(held), "prose")
        held.clear()

    at = number
    for at, line in enumerate(text.split("\n"), number):
        bare = line.strip()
        what = "code" if bare and (fenced or verbatim) else _kind(line, bare, markdown, bool(held))
        if markdown and bare.lstrip("> \t")[:3] in ("```", "~~~"):
            fenced, what = not fenced, ""
        if held and (what != "prose" or cells(held[-1]) < WRAPPED or _ITEM.match(bare)):
            yield from joined(at)
        if what == "prose":
            if markdown and bare[0] == ">":
                line = bare = _QUOTE.sub("", bare)
            held.append(bare if held else line.rstrip())
        elif what == "code":
            yield _Part(line.expandtabs(4).rstrip(), at, what)
        elif what and (words := _HASHES.sub("", plain(bare))) not in known:
            yield _Part(words, at, what)
    if held:
        yield from joined(at + 1)


def _kind(line: str, bare: str, markdown: bool, inside: bool) -> str:
    """What this line is, inside a paragraph or not; empty: nothing to be shown."""
    if not bare:
        return ""
    if not bare[0].isalpha():
        if _RULE.match(bare):
            return ""
        if markdown and bare[0] == "#" and bare.lstrip("#")[:1] == " ":
            return "heading"
    if bare[0] == "|" or " | " in bare:
        return "row"
    indented = not inside and line[:4].isspace() and not _ITEM.match(bare)
    gaps = ("   " in bare or "\t" in bare) and _GAP.search(bare)
    return "code" if indented or gaps else "prose"


# ---------------------------------------------------------------- which lines


def _chosen(
    parts: Sequence[_Part], first: int, last: int, find: analyser.Matcher, width: int
) -> tuple[list[_Part], int]:
    """The parts with the lines from `first` to `last`, and what fits around them; with the line
    that the first of them begins on."""
    lines = [part.line for part in parts]
    low, high = (max(0, bisect_right(lines, line) - 1) for line in (first, last))
    if low + 1 < len(parts) and lines[low] + parts[low].text.count("\n") < first:
        low += 1  # that line is not shown
    line, text = lines[low], parts[low].text
    skip = 0
    if len(text) > width and (matches := find(text)):
        start, end = _densest(matches, width)
        if end > width:  # too far into a long line: begin a little before the match
            skip = _word_after(text, max(0, start - width // 4), start)
            line += text.count("\n", 0, skip)
            text = ELLIPSIS + text[skip:]
    shown, left = [parts[low]._replace(text=text)], width - len(text)
    for i, part in enumerate(parts[low + 1 :], low + 1):
        fits = len(part.text) < left or i <= high or (part.kind == "prose" and left > width // 4)
        if len(shown) == LINES or left <= 0 or not fits:
            break
        shown.append(part)
        left -= len(part.text) + 1
    while len(shown) > 1 and low + len(shown) > high + 1:
        kind = shown[-1].kind
        if kind != "heading" and (kind != "row" or shown[-2].kind == "row"):
            break
        left += len(shown.pop().text) + 1  # the head of what is not shown
    if left < 0:
        text = shown[-1].text
        shown[-1] = shown[-1]._replace(text=_cut(text, len(text) + left))
    while not skip and low and len(shown) < LINES and len(parts[low - 1].text) < left:
        low -= 1
        line = lines[low]
        shown.insert(0, parts[low])
        left -= len(parts[low].text) + 1
    return shown, line


def _word_after(text: str, at: int, most: int) -> int:
    """Where the next word begins."""
    return next((i + 1 for i in range(at, most) if text[i].isspace()), at) if at else 0


def _cut(text: str, at: int) -> str:
    end = next((i for i in range(at, at // 2, -1) if text[i].isspace()), at)
    return text[:end].rstrip() + ELLIPSIS


def _aligned(parts: Sequence[_Part]) -> Iterator[str]:
    """Rows that follow each other with their cells one below the other; other lines without the
    indentation that all have."""
    i = 0
    while i < len(parts):
        end = i + 1
        while end < len(parts) and (parts[end].kind == "row") == (parts[i].kind == "row"):
            end += 1
        lines = [part.text.replace("\n", " ") for part in parts[i:end]]
        if parts[i].kind == "row":
            yield from _columns(lines)
        else:
            indent = min(len(line) - len(line.lstrip(" ")) for line in lines)
            yield from (line[indent:] for line in lines)
        i = end


def _columns(rows: Sequence[str]) -> Iterator[str]:
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    wide: dict[int, int] = {}
    for row in table:
        for n, cell in enumerate(row):
            wide[n] = max(wide.get(n, 0), cells(cell))
    for row in table:
        padded = (cell + " " * (wide[n] - cells(cell)) for n, cell in enumerate(row))
        yield " | ".join(padded).rstrip()


_WIDE = "[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"


class _Cells(dict[str, int]):
    """Character → columns."""

    def __missing__(self, character: str) -> int:
        wide = unicodedata.east_asian_width(character) in "WF"
        none = unicodedata.category(character) in ("Mn", "Me", "Cf")
        self[character] = columns = 2 if wide else 0 if none else 1
        return columns


_cells = _Cells()


def cells(text: str) -> int:
    """Columns that a terminal takes for it."""
    return len(text) if text.isascii() else sum(map(_cells.__getitem__, text))
