"""Whether a text keeps a query's conditions: phrases it must have, and what it must not have."""

from __future__ import annotations

from collections.abc import Sequence

from clew.text.tokenise import tokens, unspaced
from clew.types import Terms

__all__ = ["fits"]


def fits(terms: Terms, text: str) -> bool:
    """For sources outside the store's indexes, which answer this themselves."""
    if not terms.phrases and not terms.excluded:
        return True
    found = tokens(text)
    return all(_has(found, phrase) for phrase in terms.phrases) and not any(
        _has(found, phrase) for phrase in terms.excluded
    )


def _has(found: Sequence[str], phrase: Sequence[str]) -> bool:
    run = list(phrase)
    if len(run) == 1 and len(run[0]) == 1 and unspaced(run[0]):
        return any(run[0] in pair for pair in found)  # a character is part of two pairs
    return any(found[i : i + len(run)] == run for i in range(len(found) - len(run) + 1))
