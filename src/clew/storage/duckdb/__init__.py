"""The tables of a store in one DuckDB file."""
