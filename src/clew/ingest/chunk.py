"""Documents are cut into passages along their own structure: sections, pages, definitions.

Every character that is not white space comes into exactly one passage, in order. A passage is at
most `size` characters long; only what is larger than that is cut where it would better not be.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from clew.errors import InputError
from clew.text.passage import HEADINGS
from clew.types import Chunk, Document

if TYPE_CHECKING:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

Bounds = tuple[int, int]

# A section is not joined to the next one once it holds this share of a passage.
_ENOUGH = 4
# The splitter's time grows with the square of its input: it is given no more than this at a time.
_MOST_AT_ONCE = 20_000


def chunk(document: Document, *, size: int = 1500) -> tuple[Chunk, ...]:
    """The passages of a document, in order; none when it has no words."""
    if size < 1:
        raise InputError(f"a chunk of {size} characters holds nothing: give a size of at least 1")
    cut = _cut_code if document.kind == "code" else _cut_prose
    spans = (_trim(document.text, start, end) for start, end in cut(document, size))
    return tuple(_place(document, [span for span in spans if span]))


def _trim(text: str, start: int, end: int) -> Bounds | None:
    """The bounds less white space; the indentation of a first whole line stays."""
    piece = text[start:end]
    words = piece.lstrip()
    if not words:
        return None
    first = end - len(words)
    line = text.rfind("\n", start, first) + 1 or start
    begins_line = line == 0 or text[line - 1] == "\n"
    return (line if begins_line else first), start + len(piece.rstrip())


# ---------------------------------------------------------------- prose


def _cut_prose(document: Document, size: int) -> Iterator[Bounds]:
    """Sections, small ones together; what is too large is left to the splitter."""
    text = document.text
    splitter = _splitter(document.kind == "markdown", size)
    for start, end in _sections(document, size):
        if end - start <= size:
            yield start, end
            continue
        at = start
        while at < end:
            part = text[at : min(end, at + max(_MOST_AT_ONCE, 8 * size))]
            pieces = [at + offset for offset, _ in splitter.chunk_indices(part)]
            stop = at + len(part)
            if stop < end:
                # The last passage may have been cut short by the end of the part.
                stop = pieces.pop()
            yield from pairwise([at, *pieces[1:], stop])
            at = stop


def _sections(document: Document, size: int) -> Iterator[Bounds]:
    text, start = document.text, document.body
    cuts = [(at, False) for at, level, _ in document.headings if level <= 2]
    for at, always in sorted([*cuts, *((at, True) for at in _pages(document))]):
        if at > start and (always or len(text[start:at].strip()) * _ENOUGH >= size):
            yield start, at
            start = at
    yield start, len(text)


def _pages(document: Document) -> Iterator[int]:
    """Where a page or a slide begins: a passage is on one, so that it can be cited."""
    if document.unit in ("page", "slide") and document.line_numbers:
        pages = zip([0, *_line_cuts(document.text)], document.line_numbers, strict=False)
        yield from (at for (_, a), (at, b) in pairwise(pages) if a != b)


@lru_cache(maxsize=8)
def _splitter(markdown: bool, size: int) -> MarkdownSplitter | TextSplitter:
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    # Untrimmed pieces lie end to end: nothing can be lost between them.
    return MarkdownSplitter(size, trim=False) if markdown else TextSplitter(size, trim=False)


# ---------------------------------------------------------------- definitions


def _cut_code(document: Document, size: int) -> Iterator[Bounds]:
    """Definitions that stand next to each other, as many as fit; a large one is opened up."""
    text = document.text
    levels = [level for _, level, _ in document.headings]
    begins = list(zip(_begins(document), levels, strict=True))
    cuts = [
        [at for at, level in begins if level <= depth] for depth in (1, 2, max(levels, default=2))
    ]
    blanks = [found.end() for found in re.finditer(r"\n(?:[ \t]*\n)+", text)]
    return _pack(text, document.body, len(text), [*cuts, blanks, _line_cuts(text)], size)


def _pack(
    text: str, start: int, end: int, cuts: Sequence[Sequence[int]], size: int
) -> Iterator[Bounds]:
    """Cut at the first kind of places; what is still too large, at the next kind."""
    if end - start <= size:
        yield start, end
        return
    if not cuts:
        yield from _cut_line(text, start, end, size)
        return
    inner = cuts[0][bisect_right(cuts[0], start) : bisect_left(cuts[0], end)]
    held = start
    for begin, stop in pairwise([start, *inner, end]):
        if stop - held <= size:
            continue
        if begin > held:
            yield held, begin
            held = begin
        if stop - begin > size:
            yield from _pack(text, begin, stop, cuts[1:], size)
            held = stop
    if end > held:
        yield held, end


def _cut_line(text: str, start: int, end: int, size: int) -> Iterator[Bounds]:
    while end - start > size:
        # After a space if there is one near the end; a minified file has none.
        stop = text.rfind(" ", start + size - size // _ENOUGH, start + size) + 1 or start + size
        yield start, stop
        start = stop
    yield start, end


def _line_cuts(text: str) -> list[int]:
    return [found.end() for found in re.finditer("\n", text)]


_LEADS_IN = ("@", "#", "//", "/*", "*", "--", ";", "%", "[", "template")
_MOST_LEADING = 60


def _begins(document: Document) -> list[int]:
    """Where each definition begins, the comments and decorators right above it included."""
    text, begins, before = document.text, [], 0
    for at, _, _ in document.headings:
        begin = text.rfind("\n", 0, at) + 1
        for _ in range(_MOST_LEADING):
            above = text.rfind("\n", 0, begin - 1) + 1 if begin else 0
            if above < before or not text[above:begin].lstrip().startswith(_LEADS_IN):
                break
            begin = above
        begins.append(begin)
        before = at + 1
    return begins


# ---------------------------------------------------------------- places


def _place(document: Document, spans: list[Bounds]) -> Iterator[Chunk]:
    """Each span with its lines and its trail of headings."""
    text, numbers = document.text, document.line_numbers
    counted, line = 0, 0
    for (start, end), trail in zip(spans, _trails(document, spans), strict=True):
        first = line + text.count("\n", counted, start)
        line = first + text.count("\n", start, end)
        counted = end
        lines = (first + 1, line + 1)
        if numbers:
            lines = (numbers[min(first, len(numbers) - 1)], numbers[min(line, len(numbers) - 1)])
        yield Chunk(start, end, lines, HEADINGS.join(trail))


# In these a section's lines are not indented below its head.
_FLAT = frozenset({"dockerfile", "ini", "patch", "toml"})
# How far back a line's beginning is looked for: a line may be the whole file.
_LONGEST_LOOK = 1000


def _trails(document: Document, spans: list[Bounds]) -> Iterator[list[str]]:
    """The headings above each span. A definition in code ends where a line is indented no deeper
    than it."""
    text, code = document.text, document.kind == "code"
    flat = not code or document.metadata.get("language") in _FLAT
    begins = _begins(document) if code else [at for at, _, _ in document.headings]
    waiting = list(zip(begins, document.headings, strict=True))[::-1]
    held: list[tuple[int, int, str]] = []
    for start, end in spans:
        first = end - len(text[start:end].lstrip())
        while waiting and waiting[-1][0] <= first:
            heading = waiting.pop()[1]
            held = [*(above for above in held if above[1] < heading[1]), heading]
        depth = 0 if flat else _indent(text, first)
        yield [
            words
            for at, level, words in held
            if (flat or at >= first or _indent(text, at) < depth)
            # The title is shown with every passage: a first heading that repeats it says nothing.
            and (code or level > 1 or words != document.title)
        ]


def _indent(text: str, at: int) -> int:
    near = max(0, at - _LONGEST_LOOK)
    begin = text.rfind("\n", near, at) + 1
    if near and not begin:
        return _LONGEST_LOOK  # far into a long line: whatever was open above it still is
    line = text[begin : at + 1]
    return len(line[: len(line) - len(line.lstrip())].expandtabs(4))
