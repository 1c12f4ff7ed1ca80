"""The store in one DuckDB file. Start reading at store.py."""

from clew.storage.duckdb.store import DuckStore

__all__ = ["DuckStore"]
