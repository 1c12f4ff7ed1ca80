"""Which collection and which domain a file belongs to, by the folder it lies in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clew.filter import domain_of

__all__ = ["Groups"]


@dataclass(frozen=True, slots=True)
class Groups:
    """What the settings `[collections]` and `[domains]` say. The innermost folder decides, but what
    lies in a personal one is personal."""

    collections: Mapping[str, tuple[str, ...]]
    domains: Mapping[str, tuple[str, ...]]

    def collection(self, path: str) -> str | None:
        return next(iter(_around(path, self.collections)), None)

    def domain(self, path: str) -> str | None:
        return domain_of(_around(path, self.domains)) or None

    @property
    def fingerprint(self) -> str:
        """Another one: files that have not changed belong elsewhere now. It names the rule as well:
        files that were read under another one are read again."""
        known = sorted(self.collections.items()), sorted(self.domains.items())
        return repr((*known, "the most private domain"))


def _around(path: str, groups: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The groups that have a folder around this file, the innermost first."""
    around = [
        (len(folder), name)
        for name, folders in groups.items()
        for folder in folders
        if path.startswith(folder)
    ]
    return [name for _, name in sorted(around, reverse=True)]
