"""What is indexed and embedded of a chunk: its words under the title and headings they stand in."""

from __future__ import annotations

__all__ = ["HEADINGS", "digest", "passage"]

HEADINGS = " › "
"""Between the headings of a trail."""


def passage(title: str, heading: str, text: str) -> str:
    """A chunk with its context, as keyword index and embedder see it."""
    return "\n".join(part for part in (title, heading, text) if part)


def digest(passage: str) -> bytes:
    """Names a text: equal digests are never embedded twice."""
    from hashlib import blake2b  # brings OpenSSL, which no search needs

    return blake2b(passage.encode(), digest_size=16).digest()
