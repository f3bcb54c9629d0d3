"""Keys that are more than a plain value, or less, by their own class."""

from __future__ import annotations

import datetime
from datetime import UTC
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tidegate.errors import UnsupportedKey
from tidegate.typeinfo.plain_keys import plain_key


class Degrees(float):
    """A float with a name."""


class Digest(bytes):
    """Bytes with a name."""


class Day(datetime.date):
    """A date with a name."""


class Moment(datetime.datetime):
    """A time with a name."""


class Span(datetime.timedelta):
    """A duration with a name."""


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (Degrees(1.5), 1.5),
        (Digest(b"a\0"), b"a\0"),
        (Day(2026, 2, 3), datetime.date(2026, 2, 3)),
        (Moment(2026, 2, 3, tzinfo=UTC), datetime.datetime(2026, 2, 3, tzinfo=UTC)),
        (Span(days=1, microseconds=3), datetime.timedelta(days=1, microseconds=3)),
        (np.longdouble(0.5), 0.5),
        (np.float32(0.25), 0.25),
        ([1, "a"], (1, "a")),
    ],
)
def test_a_key_of_a_class_of_its_own_is_the_plain_value_that_it_equals(
    key: Any, plain: object
) -> None:
    made = plain_key(key, "key_by")
    assert made == plain and type(made) is type(plain)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (pd.Timestamp("2026-01-01T00:00:00.000000001"), "it does not equal"),
        (np.longdouble(1) / np.longdouble(3), "no number that is equal"),
        (np.datetime64("2026-01-01T00:00:00.000000001", "ns"), "whole microseconds"),
        (np.datetime64("NaT", "us"), "whole microseconds"),
        (
            datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=1))),
            "UTC",
        ),
    ],
)
def test_a_key_that_no_plain_value_equals_is_refused(key: Any, why: str) -> None:
    with pytest.raises(UnsupportedKey, match=why) as refused:
        plain_key(key, "key_by")
    assert "key_by" in str(refused.value)
