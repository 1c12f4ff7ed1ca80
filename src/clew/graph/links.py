"""Which record a link means: a path from where it stands, a file's name, a title."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import PurePosixPath

from clew.graph.names import key

__all__ = ["Targets"]


class Targets:
    """Every record under the names that a link may use."""

    def __init__(self, records: Iterable[tuple[str, str, str | None]]):
        """(id, title, path) of each; those at equal paths of two folders are told apart by id."""
        self._paths: dict[str, list[int]] = {}
        self._names: dict[str, list[int]] = {}
        self._ids: list[str] = []
        for number, (name, title, path) in enumerate(records):
            self._ids.append(name)
            for place in {_bare(path or name), _bare(name)}:
                self._paths.setdefault(place, []).append(number)
            stem = PurePosixPath(path or name).stem
            for said in {key(stem), key(title)} - {""}:
                self._names.setdefault(said, []).append(number)

    def find(self, target: str, *, source: int, path: str | None) -> int | None:
        """The number of the record, or None; `source` and `path` are of the record it is in."""
        target = target.strip()
        if not target:
            return None
        here = posixpath.dirname(path or "")
        rooted = target.startswith("/")
        places = [target.lstrip("/")] if rooted else [posixpath.join(here, target), target]
        for place in places:
            bare = _bare(posixpath.normpath(place))
            if (found := self._one(self._paths.get(bare), source)) is not None:
                return found
        if "/" in target.strip("/"):
            return None  # a path that leads nowhere is not a name
        stem = PurePosixPath(target).stem if PurePosixPath(target).suffix else target
        return self._one(self._names.get(key(stem)), source)

    def _one(self, numbers: list[int] | None, source: int) -> int | None:
        """The only one, or the only one of the source's own folder."""
        if not numbers:
            return None
        if len(numbers) == 1:
            return numbers[0]
        root = self._ids[source].partition(":")[0]
        near = [n for n in numbers if self._ids[n].partition(":")[0] == root]
        return near[0] if len(near) == 1 else None


_PAGES = frozenset({".md", ".markdown", ".mdx", ".rst", ".html", ".htm", ".txt"})


def _bare(path: str) -> str:
    """Without the suffix that links to pages often leave out, and without index files."""
    place = path.rpartition(":")[2].strip("/").casefold()
    suffix = PurePosixPath(place).suffix
    if suffix in _PAGES:
        place = place.removesuffix(suffix)
    for index in ("/_index", "/index"):
        place = place.removesuffix(index)
    return place
