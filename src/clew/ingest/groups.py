"""Which collection and which domain a file belongs to, by the folder it lies in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Groups"]


@dataclass(frozen=True, slots=True)
class Groups:
    """What the settings `[collections]` and `[domains]` say. The innermost folder decides."""

    collections: Mapping[str, tuple[str, ...]]
    domains: Mapping[str, tuple[str, ...]]

    def collection(self, path: str) -> str | None:
        return _group(path, self.collections)

    def domain(self, path: str) -> str | None:
        return _group(path, self.domains)

    @property
    def fingerprint(self) -> str:
        """Another one: files that have not changed belong elsewhere now."""
        return repr((sorted(self.collections.items()), sorted(self.domains.items())))


def _group(path: str, groups: Mapping[str, tuple[str, ...]]) -> str | None:
    around = [
        (len(folder), name)
        for name, folders in groups.items()
        for folder in folders
        if path.startswith(folder)
    ]
    return max(around)[1] if around else None
