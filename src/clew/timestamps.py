"""Points in time, as callers may write them."""

from __future__ import annotations

import datetime as dt
import math

from clew.errors import InputError

UNDATED = -62_135_596_799.5
"""The time of what has a date that cannot be read, as stores keep one of every record: the first
second of the year 1. It is after nothing, and filters take care that it is before nothing."""

Moment = float | int | str | dt.date | dt.datetime


def timestamp(value: Moment, *, name: str = "time") -> float:
    """Seconds since the epoch from a number, an ISO date or a datetime (naive: local time)."""
    if isinstance(value, bool):
        raise InputError(f"{name} must be a date or a number of seconds, not {value!r}")
    given = value
    try:
        if isinstance(value, (int, float)):
            seconds = float(value)
            if not math.isfinite(seconds):
                raise ValueError
            return seconds
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value.strip())
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, dt.date):
            return dt.datetime(value.year, value.month, value.day).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"{name} {given!r} is not a date: write it as 2026-03-14 or 2026-03-14T09:30+00:00"
        ) from None
    raise InputError(f"{name} must be a date or a number of seconds, not {type(value).__name__}")
