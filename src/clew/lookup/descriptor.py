"""A method that works on an instance and on the class, which has one instance for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["hybridmethod"]

P = ParamSpec("P")
R = TypeVar("R")
SHARED = "shared"
"""The class method that gives the instance, where a class says for itself which one it is."""

_instances: WeakKeyDictionary[type, Any] = WeakKeyDictionary()
_lock = threading.RLock()


class hybridmethod(Generic[P, R]):  # noqa: N801 - used like `classmethod`
    """`Class.method()` is `Class.shared().method()`; a class without `shared` gets one instance,
    made by calling it without arguments.

    The function takes the instance first, on both paths. A stub that is wrapped in this can take
    the method's place on the class or on one instance (also on the shared one, and then the class
    uses it too).
    """

    def __init__(self, function: Callable[Concatenate[Any, P], R]):
        self._function = function
        self._name = getattr(function, "__name__", "")
        update_wrapper(self, function)  # type: ignore[arg-type]

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[P, R]:
        target = _shared(owner) if instance is None and owner is not None else instance
        own = vars(target).get(self._named(type(target)))
        if own is None:
            return MethodType(self._function, target)
        if isinstance(own, hybridmethod):
            return MethodType(own._function, target)
        found: Callable[P, R] = own
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        """Put something in its place on this instance."""
        vars(instance)[self._named(type(instance))] = value

    def __delete__(self, instance: Any) -> None:
        try:
            del vars(instance)[self._named(type(instance))]
        except KeyError:
            raise AttributeError(self._named(type(instance))) from None

    def _named(self, owner: type) -> str:
        """What the class calls it: a stub that was put there later has another name of its own."""
        for each in owner.__mro__:
            for name, value in vars(each).items():
                if value is self:
                    return name
        return self._name


def _shared(owner: type) -> Any:
    give = getattr(owner, SHARED, None)
    if give is not None:
        return give()
    with _lock:
        if owner not in _instances:
            _instances[owner] = owner()
        return _instances[owner]
