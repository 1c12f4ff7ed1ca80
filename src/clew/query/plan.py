"""Which sources a query asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clew.errors import InputError, nearest
from clew.protocols import Source
from clew.types import Mode

__all__ = ["plan"]

_MODES: dict[str, tuple[str, ...] | None] = {
    "hybrid": None,  # all of them
    "keyword": ("keyword",),
    "vector": ("vectors",),
}


def plan(
    registered: Mapping[str, Source], *, mode: Mode, sources: Iterable[str] | None
) -> dict[str, Source]:
    """The sources of the mode, narrowed to those the caller names."""
    if mode not in _MODES:
        raise InputError(f"unknown mode {mode!r}: {nearest(str(mode), _MODES)}")
    names = _MODES[mode] or tuple(registered)
    if sources is None:
        return {name: registered[name] for name in names}
    wanted = (sources,) if isinstance(sources, str) else tuple(sources)
    for name in wanted:
        if name not in registered:
            raise InputError(f"unknown source {name!r}: {nearest(name, registered)}")
    return {name: registered[name] for name in wanted}
