"""Caches of searches, and their keys: no stale answer, no leak from one scope into another.

keys = search_keys(canonical_query(text), search_parameters(query, generation=…, …))
cache.get(keys.exact)                        the very same search
cache.borrow((keys.group, source, terms))    a source's list, for a search much like it

Whether a kept answer may still be shown is asked in three places: its key has the generation of the
store and what each source says of its freshness (search/cache_step.py); it must not be too old, nor
of another generation than the newest seen (search_cache.py); and the files of its hits must be as
they were (`IndexedFiles.as_shown` in search/context.py).
"""

from clew.cache.answers import LookupCache
from clew.cache.keys import (
    CacheKey,
    SearchKeys,
    build_cache_key,
    canonical_query,
    canonicalize_query_text,
    fingerprint,
    group_key,
    hash_cache_dimensions,
    search_keys,
    search_parameters,
)
from clew.cache.search_cache import FILE_NAME, SearchCache

__all__ = [
    "FILE_NAME",
    "CacheKey",
    "LookupCache",
    "SearchCache",
    "SearchKeys",
    "build_cache_key",
    "canonical_query",
    "canonicalize_query_text",
    "fingerprint",
    "group_key",
    "hash_cache_dimensions",
    "search_keys",
    "search_parameters",
]
