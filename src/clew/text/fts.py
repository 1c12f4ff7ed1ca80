"""User text for SQLite's FTS5, in whose MATCH hardly a character stands for itself unquoted."""

from __future__ import annotations

from clew.errors import InputError
from clew.text import tokenise

__all__ = ["fts_escape", "pairs", "quoted"]

_FIRST_UNSPACED = "\u0e00"


def fts_escape(text: str, *, op: str = "AND") -> str:
    """Each word quoted, joined by `op`; empty where there is no word.

    >>> fts_escape("deploy production server")
    '"deploy" AND "production" AND "server"'
    """
    if op not in ("AND", "OR"):
        raise InputError(f"words are joined by AND or OR, not by {op!r}")
    words = [word for word in text.replace("\0", " ").split() if any(map(str.isalnum, word))]
    return f" {op} ".join(map(quoted, words))


def quoted(words: str) -> str:
    """As an FTS5 string: these words in a row, whatever characters they have."""
    return '"' + words.replace("\0", " ").replace('"', '""') + '"'


def pairs(text: str) -> str:
    """The overlapping pairs of characters of scripts written without spaces, which FTS5 takes for
    one long word. The last character of a run stands alone as well, so that every character
    begins some token."""
    if text.isascii() or max(text) < _FIRST_UNSPACED:
        return ""
    found: list[str] = []
    for run in tokenise.spelt(text):
        if tokenise.unspaced(run) and (tokens := tokenise.tokens(run)):
            found += tokens
            if len(tokens[-1]) > 1:
                found.append(tokens[-1][-1])
    return " ".join(found)
