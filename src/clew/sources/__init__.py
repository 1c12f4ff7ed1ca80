"""The kinds of sources: each gives one ranked list. One file and one line here per kind.

A kind is a function that makes a source from the folder whose store it is and the options that
`[sources.NAME]` of the settings gives (see configure.py). An installed package adds kinds by the
entry point group `clew.sources`.
"""

from __future__ import annotations

from collections.abc import Callable

from clew.protocols import Source
from clew.sources.canonical import canonical
from clew.sources.exocortex import exocortex
from clew.sources.filenames import filenames
from clew.sources.framework_docs import framework_docs
from clew.sources.graph import graph
from clew.sources.keyword import keyword
from clew.sources.sqlite_table import sqlite
from clew.sources.tags import tags
from clew.sources.vectors import vectors

__all__ = ["KINDS", "QUICK"]

KINDS: dict[str, Callable[..., Source]] = {
    "canonical": canonical,
    "exocortex": exocortex,
    "filenames": filenames,
    "framework_docs": framework_docs,
    "graph": graph,
    "keyword": keyword,
    "sqlite": sqlite,
    "tags": tags,
    "vectors": vectors,
}

QUICK = frozenset({"canonical", "filenames", "framework_docs", "keyword", "tags", "vectors"})
"""Kinds that answer from this store's own indexes, in less time than a thread takes to wake: see
query/collect.py."""
