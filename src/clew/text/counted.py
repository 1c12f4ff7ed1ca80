"""Numbers of things in sentences."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 record`, `0 records`, `2,000 records`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
