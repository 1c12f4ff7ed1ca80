"""A lookup with all that it gives back."""

from __future__ import annotations

from clew import ExternalLookupResult, Search


def look_up(search: Search, query: str, max_results: int = 5) -> ExternalLookupResult:
    found = search.external_lookup(query, max_results, return_handles=True)
    assert isinstance(found, ExternalLookupResult)
    return found
