from __future__ import annotations

import pytest

from tidegate import Instant


@pytest.mark.parametrize("millis", [0, 1, 1_500, -1, -1_500, 1_709_208_000_123])
def test_an_instant_keeps_milliseconds(millis: int) -> None:
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 1_000_000_000


def test_instants_are_in_the_order_of_time() -> None:
    assert sorted(map(Instant.of_epoch_milli, [5, -1_500, 3])) == [
        Instant(-2, 500_000_000), Instant(0, 3_000_000), Instant(0, 5_000_000),
    ]  # fmt: skip
