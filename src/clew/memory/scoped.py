"""A memory bound to one namespace: the same methods, and nothing of any other comes in or out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Self, TypeVar

from clew.errors import InputError
from clew.memory import given
from clew.memory.memory import Memory
from clew.memory.results import Remembered
from clew.protocols import Progress

__all__ = ["ScopedMemory"]

T = TypeVar("T")


class ScopedMemory(Memory):
    """What `Memory.scoped` gives. The file is its owner's: to close this one closes nothing."""

    def __init__(self, owner: Memory, namespace: str):
        self._owner, self.namespace = owner, given.check_namespace(namespace)

    def __getattr__(self, name: str) -> Any:
        """What a memory has beside its methods is the owner's."""
        if name == "_owner":  # not set yet: copied, or unpickled
            raise AttributeError(name)
        return getattr(self._owner, name)

    def open(self) -> Self:
        self._owner.open()
        return self

    def close(self) -> None:
        pass

    def scoped(self, namespace: str) -> ScopedMemory:
        self._check(namespace)
        return self

    def _check(self, namespace: Any) -> str:
        """Its own, which may be named or not."""
        if namespace is not None and {*given.check_namespaces(namespace)} != {self.namespace}:
            raise InputError(f"this memory is bound to the namespace {self.namespace!r}")
        return self.namespace

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        bound = (
            {**item, "namespace": self._check(item.get("namespace"))}
            if isinstance(item, Mapping)
            else item
            for item in items
        )
        return super().remember_many(bound, progress=progress)


def _bound(method: Callable[..., T]) -> Callable[..., T]:
    """The method with the namespace of the handle, whether that is an option of its own or one of
    those that it passes on."""
    shape = signature(method)
    others = next((p.name for p in shape.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    @wraps(method)
    def call(self: ScopedMemory, *args: Any, **options: Any) -> T:
        told = shape.bind(self, *args, **options)
        values = told.arguments
        if "namespace" not in shape.parameters:
            values = values.setdefault(others, {})
        values["namespace"] = self._check(values.get("namespace"))
        return method(*told.args, **told.kwargs)

    return call


for _name in (
    *("remember", "update", "supersede", "forget", "restore", "feedback"),
    *("recall", "working_memory", "fts_search", "vector_search", "hybrid_search"),
    *("latest", "get", "history", "evict", "consolidate"),
    *("stats", "export_json", "import_json", "reembed"),
):
    setattr(ScopedMemory, _name, _bound(getattr(Memory, _name)))
