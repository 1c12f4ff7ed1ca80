from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from clew.errors import InputError
from clew.timestamps import timestamp


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (-7, -7.0),
        ("2026-03-14T00:00+00:00", 1773446400.0),
        ("2026-03-14T00:00Z", 1773446400.0),
        ("  2026-03-14T01:00+01:00\n", 1773446400.0),
        (dt.datetime(2026, 3, 14, tzinfo=dt.UTC), 1773446400.0),
        ("2026-03-14", dt.datetime(2026, 3, 14).timestamp()),
        ("2026-03-14T09:30", dt.datetime(2026, 3, 14, 9, 30).timestamp()),
        (dt.date(2026, 3, 14), dt.datetime(2026, 3, 14).timestamp()),
        (dt.datetime(2026, 3, 14, 9, 30), dt.datetime(2026, 3, 14, 9, 30).timestamp()),
    ],
)
def test_a_moment_becomes_seconds(moment: Any, seconds: float) -> None:
    assert timestamp(moment) == seconds
    assert type(timestamp(moment)) is float


@pytest.mark.parametrize(
    "moment",
    [
        True,
        float("nan"),
        float("inf"),
        pytest.param(10**400, id="huge"),
        "soon",
        "",
        "2026-02-30",
        None,
        [1],
        b"2026-01-01",
    ],
)
def test_what_is_no_moment_is_an_input_error_that_names_the_field(moment: Any) -> None:
    with pytest.raises(InputError, match="now"):
        timestamp(moment, name="now")


@pytest.mark.parametrize(
    "moment", [dt.date(1, 1, 1), dt.datetime(1, 1, 1), "0001-01-01", dt.date(9999, 12, 31)]
)
def test_the_edges_of_the_calendar_are_a_moment_or_an_input_error(moment: Any) -> None:
    try:
        assert isinstance(timestamp(moment, name="after"), float)
    except InputError as error:
        assert "after" in str(error)


def test_a_bad_date_says_how_to_write_one() -> None:
    with pytest.raises(InputError, match="2026-03-14"):
        timestamp("14.3.2026")
