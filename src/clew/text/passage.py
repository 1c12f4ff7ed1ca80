"""What is indexed and embedded of a chunk: its words under the title and headings they stand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["HEADINGS", "aliases", "digest", "passage", "titles"]

HEADINGS = " › "
"""Between the headings of a trail."""


LONGEST = 300
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
    others = ", ".join(dict.fromkeys(aliases(metadata)))[:LONGEST]
    return ", ".join(filter(None, (title, others)))


def passage(title: str, heading: str, text: str) -> str:
    """A chunk with its context, as keyword index and embedder see it."""
    return "\n".join(part for part in (title, heading, text) if part)


def digest(passage: str) -> bytes:
    """Names a text: equal digests are never embedded twice."""
    from hashlib import blake2b  # brings OpenSSL, which no search needs

    return blake2b(passage.encode(), digest_size=16).digest()
