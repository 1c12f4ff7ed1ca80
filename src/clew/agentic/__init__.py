"""Several searches for one query, put together again: see search.py."""
