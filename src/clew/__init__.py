"""Clew: hybrid search inside your Python process.

>>> import clew
>>> with clew.open("notes") as engine:
...     engine.index()
...     for hit in engine.search("electric fuse keeps blowing"):
...         print(hit.path, hit.snippet)
"""

from typing import TYPE_CHECKING, Any

from clew.engine import Engine, agentic_search
from clew.engine import open_engine as open  # noqa: A004 - the name users know
from clew.errors import ClewError, ConfigError, InputError, ModelError, SourceError, StoreError
from clew.filter import Filter
from clew.types import Hit, Record, SearchResult

if TYPE_CHECKING:
    from clew.cli.search import run_search
    from clew.lookup import ExternalLookupResult, Search, hybridmethod
    from clew.memory import AsyncMemory, Memory
    from clew.models import NullEmbeddingProvider
    from clew.ranking.fusion import rrf, weighted_rrf
    from clew.storage.backup import restore_backup, verify_backup
    from clew.text.analyser import fts_escape

__version__ = "0.1.0"

__all__ = [
    "AsyncMemory",
    "ClewError",
    "ConfigError",
    "Engine",
    "ExternalLookupResult",
    "Filter",
    "Hit",
    "InputError",
    "Memory",
    "ModelError",
    "NullEmbeddingProvider",
    "Record",
    "Search",
    "SearchResult",
    "SourceError",
    "StoreError",
    "agentic_search",
    "fts_escape",
    "hybridmethod",
    "open",
    "restore_backup",
    "rrf",
    "run_search",
    "verify_backup",
    "weighted_rrf",
]

_LATER = {
    "AsyncMemory": "clew.memory",
    "ExternalLookupResult": "clew.lookup",
    "Memory": "clew.memory",
    "NullEmbeddingProvider": "clew.models",
    "Search": "clew.lookup",
    "fts_escape": "clew.text.analyser",
    "hybridmethod": "clew.lookup",
    "restore_backup": "clew.storage.backup",
    "rrf": "clew.ranking.fusion",
    "run_search": "clew.cli.search",
    "verify_backup": "clew.storage.backup",
    "weighted_rrf": "clew.ranking.fusion",
}
"""Names whose modules take a while to import: fetched when first used."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
