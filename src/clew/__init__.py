"""Clew: hybrid search inside your Python process.

>>> import clew
>>> with clew.open("notes") as engine:
...     engine.index()
...     for hit in engine.search("electric fuse keeps blowing"):
...         print(hit.path, hit.snippet)
"""

TYPE_CHECKING = False  # as in typing, which takes longer to import than all that is done here
if TYPE_CHECKING:
    from typing import Any

    from clew.cli.search import run_search
    from clew.client import connect
    from clew.engine import Engine, agentic_search
    from clew.engine import open_engine as open  # noqa: A004 - the name users know
    from clew.errors import ClewError, ConfigError, InputError, ModelError, SourceError, StoreError
    from clew.filter import Filter
    from clew.lookup import ExternalLookupResult, Search, hybridmethod
    from clew.memory import AsyncMemory, Memory
    from clew.models import NullEmbeddingProvider
    from clew.ranking.fusion import rrf, weighted_rrf
    from clew.storage.backup import restore_backup, verify_backup
    from clew.text.analyser import fts_escape
    from clew.types import Hit, Record, SearchResult

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
    "connect",
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
    "clew.cli.search": "run_search",
    "clew.client": "connect",
    "clew.engine": "Engine agentic_search open_engine",
    "clew.errors": "ClewError ConfigError InputError ModelError SourceError StoreError",
    "clew.filter": "Filter",
    "clew.lookup": "ExternalLookupResult Search hybridmethod",
    "clew.memory": "AsyncMemory Memory",
    "clew.models": "NullEmbeddingProvider",
    "clew.ranking.fusion": "rrf weighted_rrf",
    "clew.storage.backup": "restore_backup verify_backup",
    "clew.text.analyser": "fts_escape",
    "clew.types": "Hit Record SearchResult",
}
"""Modules and the names that are fetched from them when first used: a command that a resident
process answers needs none."""
_MODULES = "adapters ask cache config engine errors filter lookup memory models sources types"


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    own = "open_engine" if name == "open" else name
    for module, names in _LATER.items():
        if own in names.split():
            return globals().setdefault(name, getattr(import_module(module), own))
    if name in _MODULES.split():
        return import_module(f"clew.{name}")
    raise AttributeError(f"module 'clew' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
