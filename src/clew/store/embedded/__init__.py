"""The store on one machine. Start reading at store.py."""

from clew.store.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore"]
