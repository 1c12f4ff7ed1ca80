"""What callers give, made fit for every part behind it."""

from __future__ import annotations

import re

__all__ = ["encodable"]

_HALVES = re.compile("[\ud800-\udfff]")
"""What a shell makes of bytes that are no UTF-8: no model and no database takes them."""


def encodable(text: str) -> str:
    """The text with a mark in the place of each half character, so that it can be written."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)
