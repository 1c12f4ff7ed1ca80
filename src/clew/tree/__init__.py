"""A hierarchy over a store's records, and walks down it (CONTRACT, section E): see docs/tree.md."""

from __future__ import annotations

from clew.tree.walk import SCORERS, Walk

__all__ = ["SCORERS", "Walk"]
