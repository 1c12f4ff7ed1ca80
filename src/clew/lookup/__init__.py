"""Lookups: one question to several places, ranked together. Start reading at search.py."""

from clew.lookup.backends import BACKENDS, Backend
from clew.lookup.descriptor import hybridmethod
from clew.lookup.result import ExternalLookupResult, Found, Partial
from clew.lookup.search import Search
from clew.lookup.settings import Settings

__all__ = [
    "BACKENDS",
    "Backend",
    "ExternalLookupResult",
    "Found",
    "Partial",
    "Search",
    "Settings",
    "hybridmethod",
]
