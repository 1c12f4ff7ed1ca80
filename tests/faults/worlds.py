"""What is done to a store and to a memory, and what must be there afterwards.

A world is opened on a folder. Each of its `OPERATIONS` is planned before it runs: what every item
it touches will be, None where it goes. Whoever is stopped in the middle leaves each item as it was
or as it was planned, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from items import SIZE, Changes, State, differences, shorten
from memory_world import MemoryWorld
from store_world import StoreWorld

__all__ = [
    "SIZE",
    "WORLDS",
    "Changes",
    "MemoryWorld",
    "State",
    "StoreWorld",
    "World",
    "differences",
    "shorten",
]

World = StoreWorld | MemoryWorld
WORLDS: dict[str, Callable[..., World]] = {"store": StoreWorld, "memory": MemoryWorld}
