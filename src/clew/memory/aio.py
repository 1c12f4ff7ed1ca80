"""AsyncMemory: the same names, awaited. Each call runs in a thread, so the loop goes on.

asyncio is imported by then; importing it here would cost the command line 15 ms for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from clew.memory.memory import Memory

__all__ = ["AsyncMemory"]

T = TypeVar("T")


def _aside(method: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    @wraps(method)
    async def awaited(self: AsyncMemory, *args: Any, **options: Any) -> T:
        import asyncio

        call = getattr(self.memory, method.__name__)  # of a scoped one, its own
        return await asyncio.to_thread(call, *args, **options)

    return awaited


class AsyncMemory:
    """A `Memory` for asyncio: `await memory.recall(...)`, `async with AsyncMemory(...)`.

    Takes what `Memory` takes, and opens the file at once as that does: some milliseconds. `memory`
    is the synchronous one behind it.
    """

    def __init__(self, *args: Any, **options: Any):
        self.memory = Memory(*args, **options)

    def scoped(self, namespace: str) -> AsyncMemory:
        """The same bound to one namespace."""
        bound = object.__new__(AsyncMemory)
        bound.memory = self.memory.scoped(namespace)
        return bound

    async def open(self) -> AsyncMemory:
        await _aside(Memory.open)(self)
        return self

    async def __aenter__(self) -> AsyncMemory:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    close = _aside(Memory.close)
    remember = _aside(Memory.remember)
    remember_many = _aside(Memory.remember_many)
    update = _aside(Memory.update)
    supersede = _aside(Memory.supersede)
    history = _aside(Memory.history)
    recall = _aside(Memory.recall)
    working_memory = _aside(Memory.working_memory)
    fts_search = _aside(Memory.fts_search)
    vector_search = _aside(Memory.vector_search)
    hybrid_search = _aside(Memory.hybrid_search)
    latest = _aside(Memory.latest)
    alatest = latest
    get = _aside(Memory.get)
    context_pack = _aside(Memory.context_pack)
    forget = _aside(Memory.forget)
    restore = _aside(Memory.restore)
    feedback = _aside(Memory.feedback)
    evict = _aside(Memory.evict)
    consolidate = _aside(Memory.consolidate)
    stats = _aside(Memory.stats)
    export_json = _aside(Memory.export_json)
    import_json = _aside(Memory.import_json)
    reembed = _aside(Memory.reembed)
    optimise = _aside(Memory.optimise)
    vacuum = _aside(Memory.vacuum)
