"""What the user typed into a Query.

    "exact phrase"   must occur             -word  -"a phrase"    must not occur
    tag:risk         has this tag           -tag:risk             does not have it
    path:projects/   prefix, or glob with * ? [
    type:markdown    of this type           collection:notes      in this collection
    after:2026-01-01 before:2026-07-01      last changed in this time

A value with spaces is quoted: tag:"case study". Anything else, also `http://…` or `foo:bar`, is
just words. No character is special beyond that: there is no such thing as a query that cannot be
parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from clew.errors import InputError
from clew.filter import Filter
from clew.text import analyser
from clew.types import Mode, Query, Terms
from clew.validate import check_whole, encodable

LONGEST_QUERY = 4_096
"""Characters of a query that are looked at; a longer one is a pasted document, whose beginning
says what it is about. The trace says so."""
MOST_WORDS = 64
"""Distinct words that take part in keyword ranking: the first ones."""

PIECE = re.compile(
    r"""(?P<minus>(?<!\S)-(?=[\w"]))?
        (?:(?P<field>tag|path|type|collection|after|before):)?
        (?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+))""",
    re.VERBOSE | re.IGNORECASE,
)
_FIELDS = {"tag": "tags_all", "path": "path", "type": "type", "collection": "collection"}


def parse(
    text: str,
    *,
    filter: Filter | None = None,
    mode: Mode = "hybrid",
    limit: int = 10,
    depth: int = 50,
    passages: int = 1,
    now: float = 0.0,
    syntax: bool = True,
    is_type: Callable[[str], bool] = lambda name: True,
) -> Query:
    """Take the syntax out of `text`; what is left are the words to look for.

    Without `syntax` all of it is words: for text that nobody typed as a query, such as a question
    from a conversation, where a quotation is not a condition. What `is_type` says is none is words
    as well: `type:LoadBalancer` is a line of somebody's YAML.
    """
    if not isinstance(text, str):
        raise InputError(f"a query is text, not {type(text).__name__}")
    limit, depth = check_whole("limit", limit), check_whole("depth", depth)
    text = encodable(text)
    given = text.replace("\0", " ")[:LONGEST_QUERY]
    plain: list[str] = []
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    asked: dict[str, Any] = {}
    as_words: list[tuple[str, str]] = []
    if not syntax:
        plain.append(given)
    for piece in PIECE.finditer(given) if syntax else ():
        value = piece["quoted"] if piece["quoted"] is not None else piece["bare"]
        field = (piece["field"] or "").lower()
        if field == "type" and not piece["minus"] and value and not is_type(value):
            as_words.append((field, value))
            field = ""
        if field == "tag" and piece["minus"] and value:
            asked.setdefault("not_tags", []).append(value)
        elif field and not piece["minus"] and value:
            if field in _FIELDS:
                asked.setdefault(_FIELDS[field], []).append(value)
            else:
                asked[field] = value
        elif piece["minus"]:
            if field and value:
                as_words.append((f"-{field}", value))
            if tokens := tuple(analyser.tokens(value)):
                excluded.append(tokens)
        elif piece["quoted"] is not None:
            plain.append(value)
            if tokens := tuple(analyser.tokens(value)):
                phrases.append(tokens)
        else:
            plain.append(piece[0])
    words = " ".join(plain).strip()
    groups = list(dict.fromkeys(analyser.words(words)))[:MOST_WORDS]
    wanted = Filter(**asked) if asked else Filter.of(None)
    return Query(
        text=words,
        raw=text,
        terms=Terms(tuple(groups), tuple(phrases), tuple(excluded)),
        filter=Filter.of(filter) & wanted,
        mode=mode,
        limit=limit,
        depth=max(depth, limit),
        passages=passages,
        now=now,
        named=wanted,
        as_words=tuple(as_words),
    )
