"""Caches of searches, and their keys: no stale answer, no leak from one scope into another.

parameters = search_parameters(query, generation=…, …)   everything that decides the answer
keys = search_keys(canonical_query(text), parameters)    the exact key and its group
cache.get(keys.exact)                                    the very same search
cache.nearest(keys.group, query.text, vector)            one that means the same
cache.put(keys.exact, keys.group, query.text, vector, result)
"""

from clew.cache.guard import interchangeable
from clew.cache.keys import (
    SearchKeys,
    canonical_query,
    fingerprint,
    group_key,
    search_key,
    search_keys,
    search_parameters,
)
from clew.cache.searches import FILE_NAME, SearchCache

__all__ = [
    "FILE_NAME",
    "SearchCache",
    "SearchKeys",
    "canonical_query",
    "fingerprint",
    "group_key",
    "interchangeable",
    "search_key",
    "search_keys",
    "search_parameters",
]
