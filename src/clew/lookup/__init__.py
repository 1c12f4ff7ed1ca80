"""Lookups: one question to several places, ranked together. Start reading at search.py."""

import sys
from types import ModuleType

from clew.lookup.answer import ExternalLookupResult
from clew.lookup.backend import BACKENDS, Backend, Found, Partial
from clew.lookup.search import Search, hybridmethod
from clew.lookup_settings import LookupSettings as Settings
from clew.sources import web

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

# clew.lookup.backends.web is the address under which docs/lookup.md has had these
backends = ModuleType(f"{__name__}.backends")
vars(backends)["web"] = web
sys.modules |= {backends.__name__: backends, f"{backends.__name__}.web": web}
