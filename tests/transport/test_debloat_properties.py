"""The size of debloated batches, against readers of any speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.settings import DebloatSettings
from tidegate.transport.debloat import Backlog, DebloatedSize

CREDIT = 4
PERIOD_MS = 200.0

settings_of = st.builds(
    DebloatSettings,
    target_ms=st.integers(1, 10_000),
    samples=st.integers(1, 50),
    threshold_percent=st.integers(0, 100),
)


def full(size: DebloatedSize, channels: int) -> Backlog:
    """All credit is in use, in batches of the size that was asked for."""
    batches = channels * CREDIT
    return Backlog(batches * size.rows, batches, channels)


@given(
    settings=settings_of,
    rows_max=st.integers(1, 65_536),
    samples=st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.floats(0.001, 10_000),
            st.builds(Backlog, st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 20)),
        ),
        max_size=50,
    ),
)
def test_the_size_keeps_its_bounds_and_a_change_is_always_told(
    settings: DebloatSettings, rows_max: int, samples: list[tuple[int, float, Backlog]]
) -> None:
    size = DebloatedSize(settings, rows_max)
    told = rows_max
    for rows, active_ms, backlog in samples:
        changed = size.measured(rows, active_ms, backlog)
        assert changed == (size.rows != told)
        told = size.rows
        assert 1 <= size.rows <= rows_max
        assert size.in_flight_ms >= 0


@pytest.mark.feature("F246")
@given(
    rows_a_s=st.integers(500, 20_000),
    channels=st.integers(1, 8),
    target_ms=st.integers(200, 5_000),
    threshold=st.integers(0, 25),
)
def test_in_front_of_a_slow_reader_the_time_in_flight_comes_near_its_target(
    rows_a_s: int, channels: int, target_ms: int, threshold: int
) -> None:
    size = DebloatedSize(
        DebloatSettings(target_ms=target_ms, threshold_percent=threshold), rows_max=2_048
    )
    rows = rows_a_s * int(PERIOD_MS) // 1_000
    for _ in range(200):
        size.measured(rows, PERIOD_MS, full(size, channels))
    if size.rows == 1:
        assert size.in_flight_ms >= target_ms * 0.7, "it can be no smaller"
    elif size.rows == 2_048:
        assert size.in_flight_ms <= target_ms * 1.3, "it is no greater than without debloating"
    else:
        # The threshold, and what a size of a few rows loses to rounding.
        near = threshold / 100 + 1 / size.rows + 0.02
        assert size.in_flight_ms == pytest.approx(target_ms, rel=near / (1 - near))


def test_a_reader_that_becomes_fast_gets_full_batches_again() -> None:
    size = DebloatedSize(DebloatSettings(), rows_max=2_048)
    while size.rows > 1:
        size.measured(1, PERIOD_MS, full(size, 2))
    sizes = []
    while size.rows < 2_048:
        size.measured(100_000, PERIOD_MS, Backlog())
        sizes.append(size.rows)
    assert sizes == sorted(sizes) and len(sizes) < 200


def test_only_a_change_that_matters_is_told() -> None:
    size = DebloatedSize(DebloatSettings(samples=1, threshold_percent=25), rows_max=1_000)
    assert size.measured(100, 1_000, Backlog(0, 0, 1))  # a batch in flight: 100 rows take 1 s
    assert size.rows == 100
    assert not size.measured(124, 1_000, Backlog(0, 0, 1)) and size.rows == 100
    assert not size.measured(76, 1_000, Backlog(0, 0, 1)) and size.rows == 100
    assert size.measured(70, 1_000, Backlog(0, 0, 1)) and size.rows == 70


def test_the_limits_are_reached_however_near_the_size_is() -> None:
    size = DebloatedSize(DebloatSettings(samples=1, threshold_percent=90), rows_max=10)
    assert size.measured(1, 1_000, Backlog(0, 0, 1)) and size.rows == 1
    for rows in (2, 4, 8, 10):
        assert size.measured(90, 1_000, Backlog(0, 0, 1)) and size.rows == rows


def test_a_reader_that_stands_still_gets_less_and_less_and_is_known_to_take_longer() -> None:
    size = DebloatedSize(DebloatSettings(), rows_max=1_000)
    size.measured(100, PERIOD_MS, Backlog(1_000, 1, 0))
    assert size.in_flight_ms == 2_000
    size.measured(0, PERIOD_MS, Backlog(1_000, 1, 0))
    assert size.in_flight_ms == 2_200
    for _ in range(100):
        size.measured(0, PERIOD_MS, Backlog(1_000, 1, 0))
    assert size.rows == 1


def test_a_reader_that_had_nothing_to_read_is_not_taken_for_a_slow_one() -> None:
    size = DebloatedSize(DebloatSettings(samples=1), rows_max=1_000)
    assert not size.measured(0, PERIOD_MS, Backlog()) and size.rows == 1_000


def test_an_empty_channel_takes_no_time() -> None:
    size = DebloatedSize(DebloatSettings(), rows_max=1_000)
    size.measured(10, PERIOD_MS, Backlog(10, 1, 1))
    assert size.in_flight_ms > 0
    size.emptied()
    assert size.in_flight_ms == 0
