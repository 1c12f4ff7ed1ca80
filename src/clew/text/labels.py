"""What a path says of a file: the words of its name, and the folders it lies in as tags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from clew.text import tokenise

__all__ = ["labels", "lineage", "tag_forms"]

LONGEST = 4
"""Words of a query that may make up one tag together."""


def labels(path: str) -> Iterator[tuple[str, str]]:
    """("name", token) for each token of the file's name, ("folder", tag) for each folder."""
    place = PurePosixPath(path)
    for token in dict.fromkeys(tokenise.tokens(place.name.removesuffix(place.suffix))):
        yield "name", token
    for folder in dict.fromkeys(place.parts[:-1]):
        if tag := folder.strip(". ").casefold():
            yield "folder", tag


def lineage(tag: str) -> Iterator[str]:
    """The tag and those it lies below: `project/bike` is also a `project`."""
    while tag:
        yield tag
        tag = tag.rpartition("/")[0]


def tag_forms(text: str) -> dict[str, int]:
    """The tags that a query may name, and how many of its words each takes up: `risk`,
    `risk-management`, `risk_management`, `riskmanagement`."""
    words = [word.strip(".,;:!?()[]{}\"'`").lstrip("#") for word in text.casefold().split()]
    words = [word for word in words if word]
    forms: dict[str, int] = {}
    for count in range(1, LONGEST + 1):
        for i in range(len(words) - count + 1):
            for joint in ("-", "_", " ", "/", "") if count > 1 else ("",):
                forms.setdefault(joint.join(words[i : i + count]), count)
    return forms
