"""What a memory answers: values that also read like mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from clew.memory.identity import public_id
from clew.types import Life, Record

__all__ = ["Recalled", "Recollection", "Remembered"]


class _Fields(Mapping[str, Any]):
    """A dataclass as a mapping of its fields."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return any(f.name == key for f in fields(self))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Remembered(_Fields):
    """What became of one memory that was given."""

    id: str
    status: str
    """created; duplicate: it was known, word for word; updated: known, and something was added."""
    embedded: bool = False
    """Whether it can be found by meaning already."""


@dataclass(frozen=True, slots=True)
class Recalled(_Fields):
    """One memory."""

    id: str
    content: str
    score: float = 0.0
    search_type: str = ""
    """hybrid, fts or vector."""
    type: str = "semantic"
    importance: float = 0.5
    created_at: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    namespace: str = "default"
    updated_at: float = 0.0
    valid_from: float = 0.0
    """Since when what it says is true, whenever it was written."""
    valid_to: float | None = None
    """Till when; None: no end is known."""
    ended_at: float | None = None
    """When it was forgotten, superseded, evicted or consolidated."""
    accesses: int = 0
    reason: str = ""
    """Why it ended."""
    successor: str | None = None
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each list contributed to the score."""

    @classmethod
    def of(cls, record: Record, life: Life | None = None, **more: Any) -> Recalled:
        life, space = life or Life(), record.collection
        return cls(
            id=public_id(record.id, space),
            content=record.content,
            type=record.type,
            importance=record.importance,
            created_at=record.created_at or 0.0,
            metadata=record.metadata,
            tags=record.tags,
            namespace=space,
            updated_at=record.updated_at or 0.0,
            valid_from=(record.created_at or 0.0)
            if record.valid_from is None
            else record.valid_from,
            valid_to=record.valid_to,
            ended_at=record.ended_at,
            accesses=life.accesses,
            reason=life.reason,
            successor=None if life.successor is None else public_id(life.successor, space),
            **more,
        )


class Recollection(list[Recalled]):
    """Memories, best first. `diagnostics` says how they were found and what could not take part."""

    def __init__(self, found: Iterable[Recalled] = (), **diagnostics: Any) -> None:
        super().__init__(found)
        self.diagnostics: dict[str, Any] = diagnostics
