"""Clew: hybrid search inside your Python process."""

__version__ = "0.1.0"
