"""Episodes and their dates: which are young enough to be found by what they say."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import suppress

from clew.errors import InputError
from clew.filter import Filter
from clew.memory.results import Recalled
from clew.protocols import Store
from clew.timestamps import timestamp
from clew.types import Record

__all__ = ["DATE", "day_of", "window"]

DAY, MINUTE = 86_400.0, 60.0
DATE = "date"
"""The metadata key of an episode's own date, where that is not the day it was remembered."""


def window(
    store: Store, scope: Filter, days: float | None, *, now: float
) -> tuple[Filter | None, dict[str, int]]:
    """The episodes that are young enough, None where there are none; how many are not, and of how
    many the date cannot be read. The date is the episode's own, else when it was remembered."""
    every = store.count(scope)
    if days is None or days == math.inf:
        return scope if every else None, {"excluded_by_date": 0, "unreadable_dates": 0}
    # To the minute, so that the turns of a minute ask the same, and what is known of it helps.
    since = (now - days * DAY) // MINUTE * MINUTE
    undated = scope & Filter(metadata={DATE: None})
    dated = every - store.count(undated)
    if not dated:
        young = scope & Filter(created_after=since)
        count = store.count(young)
        said = {"excluded_by_date": every - count, "unreadable_dates": 0}
        return young if count else None, said
    # A filter cannot say "its own date, or else": so those within are named.
    own = {
        record.id: until
        for some in ({"gte": ""}, {"gte": -1e300})
        for record in store.select(scope & Filter(metadata={DATE: some}), limit=dated)
        if (until := _own_date(record)) is not None
    }
    names = [name for name, until in own.items() if until >= since]
    names += [name for name, *_ in store.ledger(undated & Filter(created_after=since))]
    unreadable = dated - len(own)
    said = {
        "excluded_by_date": every - unreadable - len(names),
        "unreadable_dates": unreadable,
    }
    return scope & Filter(ids=sorted(names)) if names else None, said


def _own_date(record: Record | Recalled) -> float | None:
    """The end of the moment its metadata names (a day lasts till midnight), if it can be read."""
    given = record.metadata.get(DATE)
    if given is None:
        return None
    try:
        moment = timestamp(given, name=DATE)
    except InputError:
        return None
    return moment + DAY if isinstance(given, str) and ":" not in given else moment


def day_of(memory: Recalled) -> str:
    """The day an entry is of, for a reader."""
    own = _own_date(memory)
    if own is not None and isinstance(given := memory.metadata[DATE], str):
        return dt.datetime.fromisoformat(given.strip()).date().isoformat()
    moment = memory.created_at if own is None else own
    with suppress(OverflowError, OSError, ValueError):  # a number may be any year
        return dt.datetime.fromtimestamp(moment, dt.UTC).date().isoformat()
    return ""
