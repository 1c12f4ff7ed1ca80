"""What is indexed and embedded of a chunk: its words under the title and headings they stand in;
and what a path says of a file: the words of its name, and the folders it lies in as tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from clew.text import analyser

T = TypeVar("T")

HEADINGS = " › "
"""Between the headings of a trail."""

MOST_ALIASES = 300
"""What other names may add to a title, in characters."""


def aliases(metadata: Mapping[str, Any]) -> list[str]:
    """The other names that a record has, as Obsidian writes them; not addresses, as in Hugo."""
    found: list[str] = []
    for given in (metadata.get("aliases"), metadata.get("alias")):
        names = (given,) if isinstance(given, str) else given if isinstance(given, list) else ()
        found += [name.strip() for name in names if isinstance(name, str)]
    return [n for n in found if n and not n.startswith("/") and not n.endswith(("/", ".html"))]


def titles(title: str, metadata: Mapping[str, Any]) -> str:
    """A record's title and its other names: it is found by each of them."""
    if "aliases" not in metadata and "alias" not in metadata:
        return title
    others = ", ".join(dict.fromkeys(aliases(metadata)))[:MOST_ALIASES]
    return ", ".join(filter(None, (title, others)))


def passage(title: str, heading: str, text: str) -> str:
    """A chunk with its context, as keyword index and embedder see it."""
    return "\n".join(filter(None, (title, heading, text)))


def digest(passage: str) -> bytes:
    """Names a text: equal digests are never embedded twice."""
    from hashlib import blake2b  # brings OpenSSL, which no search needs

    return blake2b(passage.encode(), digest_size=16).digest()


def estimate_tokens(text: str) -> int:
    """About what any model's tokeniser makes of it, on the high side: four letters of the Latin
    script are a token, and so is each character of most others."""
    plain = sum(character < "\u0250" for character in text)
    return -(-plain // 4) + len(text) - plain


def fit(items: Iterable[T], tokens: int, cost: Callable[[T], int]) -> Iterator[T]:
    """Those that fit into so many tokens, whole: half a text can say the opposite. Where one does
    not, the next is tried."""
    for item in items:
        if (taken := cost(item)) <= tokens:
            tokens -= taken
            yield item


TAG_WORDS = 4
"""Words of a query that may make up one tag together."""


def labels(path: str) -> Iterator[tuple[str, str]]:
    """("name", token) for each token of the file's name, ("folder", tag) for each folder."""
    place = PurePosixPath(path)
    for token in dict.fromkeys(analyser.tokens(place.name.removesuffix(place.suffix))):
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
    for count in range(1, TAG_WORDS + 1):
        for i in range(len(words) - count + 1):
            for joint in ("-", "_", " ", "/", "") if count > 1 else ("",):
                forms.setdefault(joint.join(words[i : i + count]), count)
    return forms
