"""Where a lookup looks. One file here and one line in `BACKENDS` per kind.

A backend is a function of (query, limit): its best hits, as `Hit`s, as mappings of their fields, or
as `Found`s. It may have the hooks of `Backend`; a function has those that are its attributes.

The function here that has a kind's name makes one from the settings; None: there is nothing for it
to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from clew.errors import ConfigError, nearest
from clew.filter import Filter
from clew.lookup.result import Found, Partial
from clew.lookup.settings import Settings
from clew.types import Hit

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["BACKENDS", "Backend", "FunctionBackend", "Listing", "Setup", "made"]

BACKENDS: Mapping[str, str] = {
    "storage_keyword": "clew.lookup.backends.storage",
    "storage_vector": "clew.lookup.backends.storage",
    "local_files": "clew.lookup.backends.local_files",
    "local_git": "clew.lookup.backends.local_git",
    "web": "clew.lookup.backends.web",
}
"""Each with its module, imported when it is used. In this order the same text found twice is told
to come from the first."""


Listed = Iterable[Found | Hit | Mapping[str, Any]] | Partial
Listing = Callable[[str, int], Listed]
"""A backend without its hooks."""


@runtime_checkable
class Backend(Protocol):
    """One ranked list, best first."""

    def __call__(self, query: str, limit: int, /) -> Listed: ...

    def freshness(self) -> str | None:
        """What changes with what it would find. None: it cannot tell, and its answers are kept for
        as long as the settings say."""
        return None

    def idle(self) -> str | None:
        """Why it need not be asked, unless it is asked for by name."""
        return None

    def now(self, files: Iterable[str], /) -> Mapping[str, str]:
        """What those of these files that it has read say by now; nothing, where they are gone."""
        return {}

    def close(self) -> None:
        """Let go of what it has opened."""
        return


class FunctionBackend(Backend):
    """A function as a backend, with the hooks that are its attributes."""

    def __init__(self, function: Listing):
        self._function = function
        for hook in ("freshness", "idle", "now", "close"):
            if callable(own := getattr(function, hook, None)):
                setattr(self, hook, own)

    def __call__(self, query: str, limit: int, /) -> Listed:
        return self._function(query, limit)

    @classmethod
    def of(cls, given: Backend | Listing) -> Backend:
        """What is a backend already, or a function made one."""
        return given if isinstance(given, Backend) else cls(given)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a backend is made from."""

    settings: Settings
    engine: Engine | None
    folder: Callable[[str], Path]
    """Gives a folder by this name for what the backend derives; it goes when the search does."""
    filter: Filter
    include_personal: bool = False


def made(name: str, setup: Setup) -> Backend | None:
    """The backend of this kind, or None where there is nothing for it to look at."""
    if name not in BACKENDS:
        raise ConfigError(f"no backend {name!r}: {nearest(name, BACKENDS)}")
    make: Callable[[Setup], Backend | None] = getattr(import_module(BACKENDS[name]), name)
    return make(setup)
