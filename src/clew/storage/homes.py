"""Indexed folders that move with a store: each is written so that it is still where its files are.

A store has them relative to its own folder (its home) or absolute. Copied as it is, "." would be
another folder, and the next run of indexing would find none of the files there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clew.errors import InputError

__all__ = ["Homes"]


class Homes:
    """The folders of two stores; None: not known, or none that it stays in."""

    def __init__(self, source: Path | None = None, target: Path | None = None):
        self._source, self._target = source, target

    def written(self, folder: str) -> str:
        """An indexed folder of the source, as the target has to say it."""
        place = _placed(folder, self._source)
        if not place.is_absolute():
            return folder
        own = self._target is not None and place == self._target.resolve()
        return "." if own else str(place)

    def check(self, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        """An InputError where both have a folder of one name, and not the same one: their files
        would be taken for each other's."""
        for name in sorted(ours.keys() & theirs.keys()):
            here, there = _placed(ours[name], self._source), _placed(theirs[name], self._target)
            if here != there:
                raise InputError(
                    f"both stores have indexed a folder as {name!r}, {here} in the source and "
                    f"{there} in the target, and their files would be taken for each other's: give "
                    f"an empty target, or index it there instead (`clew index {here}`), which "
                    "gives it another name"
                )


def _placed(folder: str, home: Path | None) -> Path:
    return Path(folder) if home is None else (home / folder).resolve()
