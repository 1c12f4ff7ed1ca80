"""Lookups: one question to several places, ranked together. Start reading at search.py."""

from clew.lookup.backend import BACKENDS, Backend, Found, Partial
from clew.lookup.result import ExternalLookupResult
from clew.lookup.search import Search, hybridmethod
from clew.lookup_settings import LookupSettings as Settings

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
