"""The check of the demonstration: what was committed, against what pandas says it has to be.

Nothing here goes through Tidegate: the expectation comes from the frames of the data package, and
the committed files are read with PyArrow. Each row is checked, not only the last of each route:
the rows of a route, in the order of their running count, must hold the running figures of exactly
their own flights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tidegate.cli.demo.flights import Dataset

ROUTE: Final = ["origin", "carrier"]
COMPARED: Final = {
    "count": 0.0,
    "departed": 0.0,
    "delay_max": 0.0,
    "delay_mean": 1e-9,
    "bad_weather_share": 1e-9,
}
"""Figures and the tolerance with which they have to agree."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the flights.

    read: flights that the job was given. counted: the last running counts, summed over all
    routes. lost: flights without a committed row. doubled: committed rows beyond one a flight.
    wrong: rows whose route or figures are not those of pandas, and rows of no flight.
    """

    read: int
    counted: int
    lost: int
    doubled: int
    wrong: int

    @property
    def matches(self) -> bool:
        """Whether every flight was counted exactly once, with the right numbers."""
        return self.counted == self.read and not (self.lost or self.doubled or self.wrong)


def verify(dataset: Dataset, committed: pd.DataFrame) -> Verdict:
    """Compares the committed rows with the data set that they were made from."""
    rows: Any = committed
    flights: Any = expected_flights(dataset)
    known = rows[rows["id"].isin(flights.index)]
    once = known.drop_duplicates("id")
    return Verdict(
        read=len(flights),
        counted=int(rows.groupby(ROUTE)["count"].max().sum()),
        lost=len(flights) - len(once),
        doubled=len(known) - len(once),
        wrong=len(rows) - len(known) + _wrong(flights, once),
    )


def expected_flights(dataset: Dataset) -> pd.DataFrame:
    """Of each flight, by id: its route, its delay, and whether it left in bad weather."""
    weather: Any = dataset.weather
    flights: Any = dataset.flights
    bad = weather[
        (weather["visib"] < 3.0) | (weather["precip"] >= 0.02) | (weather["wind_speed"] >= 25.0)
    ]
    hours = bad[["origin", "time_hour"]].drop_duplicates().assign(bad=True)
    joined = flights.merge(hours, how="left", on=["origin", "time_hour"])
    joined.index = flights.index
    joined["bad"] = joined["bad"].eq(True)
    return joined[[*ROUTE, "dep_delay", "bad"]]


def ranking(committed: pd.DataFrame, airlines: pd.DataFrame) -> Sequence[tuple[str, int, float]]:
    """Carriers by mean delay, the latest first: name, flights that left, minutes."""
    rows: Any = committed.reset_index(drop=True)
    last = rows.loc[rows.groupby(ROUTE)["count"].idxmax()]
    last = last.assign(minutes=last["delay_mean"].fillna(0.0) * last["departed"])
    carriers = last.groupby("carrier")[["departed", "minutes"]].sum()
    carriers = carriers[carriers["departed"] > 0]
    carriers["mean"] = carriers["minutes"] / carriers["departed"]
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    return [
        (names.get(code, code), int(row["departed"]), float(row["mean"]))
        for code, row in carriers.sort_values("mean", ascending=False).iterrows()
    ]


def _wrong(flights: Any, committed: Any) -> int:
    """Rows that differ from the running figures of their route."""
    ordered = committed.sort_values([*ROUTE, "count"]).set_index("id")
    own = flights.loc[ordered.index]
    wrong: np.ndarray = (ordered[ROUTE].to_numpy() != own[ROUTE].to_numpy()).any(axis=1)
    running = _running(own)
    for column, tolerance in COMPARED.items():
        found, expected = _numbers(ordered[column]), _numbers(running[column])
        wrong |= ~np.isclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return int(wrong.sum())


def _running(own: Any) -> Any:
    """Running figures of each route over its flights, in the order of the rows."""

    def by_route(column: Any) -> Any:
        return column.groupby([own["origin"], own["carrier"]])

    delay = own["dep_delay"]
    count = by_route(delay).cumcount() + 1
    departed = by_route(delay.notna()).cumsum()
    return own.assign(
        count=count,
        departed=departed,
        delay_mean=by_route(delay.fillna(0.0)).cumsum() / departed.where(departed > 0),
        delay_max=by_route(by_route(delay).cummax()).ffill(),
        bad_weather_share=by_route(own["bad"]).cumsum() / count,
    )


def _numbers(column: Any) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)
