"""The kinds of sources: each gives one ranked list. One file and one line here per kind.

A kind is a function that makes a source from the folder whose store it is and the options that
`[sources.NAME]` of the settings gives (see configure.py). An installed package adds kinds by the
entry point group `clew.sources`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from clew.protocols import Source

__all__ = ["KINDS", "PARTIAL", "QUICK", "kind"]

KINDS = {
    "all_words": "clew.sources.all_words",
    "canonical": "clew.sources.canonical",
    "exocortex": "clew.sources.exocortex",
    "filenames": "clew.sources.filenames",
    "framework_docs": "clew.sources.framework_docs",
    "graph": "clew.sources.graph",
    "keyword": "clew.sources.keyword",
    "sqlite": "clew.sources.sqlite_table",
    "tags": "clew.sources.tags",
    "tokens": "clew.sources.tokens",
    "tree": "clew.sources.tree",
    "vectors": "clew.sources.vectors",
}
"""Each with the module that has the function of its name, imported when settings name the kind."""


def kind(name: str) -> Callable[..., Source] | None:
    """The function that makes sources of this kind, if it is one of ours."""
    if name not in KINDS:
        return None
    made: Callable[..., Source] = getattr(import_module(KINDS[name]), name)
    return made


QUICK = frozenset(
    {
        *("all_words", "canonical", "filenames", "framework_docs", "keyword"),
        *("tags", "tokens", "vectors"),
    }
)
"""Kinds that answer from this store's own indexes, in less time than a thread takes to wake: see
query/collect.py."""
PARTIAL = frozenset({"framework_docs"})
"""Kinds that look at a part of the store; so does any that is told a `collection`."""
