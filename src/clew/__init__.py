"""Clew: hybrid search inside your Python process.

>>> import clew
>>> with clew.open("notes") as engine:
...     engine.index()
...     for hit in engine.search("electric fuse keeps blowing"):
...         print(hit.path, hit.snippet)
"""

from clew.engine import Engine
from clew.engine import open_engine as open  # noqa: A004 - the name users know
from clew.errors import ClewError, ConfigError, InputError, ModelError, SourceError, StoreError
from clew.filter import Filter
from clew.ranking.fuse import rrf, weighted_rrf
from clew.types import Hit, Record, SearchResult

__version__ = "0.1.0"

__all__ = [
    "ClewError",
    "ConfigError",
    "Engine",
    "Filter",
    "Hit",
    "InputError",
    "ModelError",
    "Record",
    "SearchResult",
    "SourceError",
    "StoreError",
    "open",
    "rrf",
    "weighted_rrf",
]
