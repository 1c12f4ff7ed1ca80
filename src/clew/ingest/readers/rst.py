"""reStructuredText: headings by their adornment, tags from a field list, links to documents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clew.ingest.boilerplate import without
from clew.ingest.readers.text import (
    decode,
    folded_tags,
    line_starts,
    local_target,
    title_from,
    unique,
)
from clew.types import Document

__all__ = ["read"]

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_TAGS = re.compile(r"^:(?:tags|keywords):[ \t]*(.+)$|^\.\. tags::[ \t]*(.+)$", re.MULTILINE | re.I)
# `.. ` and neither a directive nor a target, with all that is indented below it.
_COMMENT = re.compile(
    r"^\.\.(?:[ \t]+(?![_|\[]|[\w.:+-]+::).*|(?=\n[ \t]+\S))(?:\n(?:[ \t]+.*)?)*", re.MULTILINE
)
_LINKS = re.compile(
    r":doc:`(?:[^`<>\n]*<([^`<>\n]+)>|([^`<>\n]+))`"
    r"|`[^`<>\n]*<([^`<>\n]+)>`__?"
    r"|^\.\. (?:include|literalinclude)::[ \t]*(\S+)",
    re.MULTILINE,
)


def read(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    text = without(text, ((*found.span(), "") for found in _COMMENT.finditer(text)))
    headings = tuple(_headings(text))
    tags = (found[1] or found[2] for found in _TAGS.finditer(text))
    targets = (local_target(next(filter(None, found.groups()))) for found in _LINKS.finditer(text))
    return Document(
        text=text,
        kind="rst",
        title=headings[0][2] if headings else title_from(path),
        tags=unique(tag for given in tags for tag in folded_tags(given)),
        links=unique(target for target in targets if target),
        headings=headings,
        warnings=warnings,
    )


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """A style of adornment is of the level at which it first appears."""
    lines, starts = text.split("\n"), line_starts(text)
    styles: list[tuple[str, bool]] = []
    for i in range(len(lines) - 1):
        words, under = lines[i].strip(), _ADORNMENT.match(lines[i + 1])
        if not under or not words or _ADORNMENT.match(lines[i]):
            continue
        over = _ADORNMENT.match(lines[i - 1]) if i else None
        overlined = over is not None and over[1] == under[1]
        alone = (i == 0 or not lines[i - 1].strip()) and not lines[i][0].isspace()
        # An underline shorter than its title is a dash in prose, or a mistake.
        if (overlined or alone) and len(lines[i + 1].rstrip()) >= len(words):
            style = (under[1], overlined)
            if style not in styles:
                styles.append(style)
            yield starts[i - 1 if overlined else i], styles.index(style) + 1, words
