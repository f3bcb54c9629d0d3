"""The check of the demonstration: what was committed, against what pandas says it has to be.

Nothing here goes through Tidegate: the expectation comes from the frames of the data package, and
the committed files are read with PyArrow. Each row is checked, not only the last of each route:
the rows of a route, in the order of their running count, must hold the running figures of exactly
their own flights.

Which flights come too late for their day hangs on how far the watermark had come, and that on the
moment. So it is not foretold, but three things are, whatever the moment:

- A flight is late or in its day, never both and never neither: the days are exactly the sums over
  the flights that are not late.
- A flight is late only if it *straggles*: if a flight before it in the stream was due so much
  later that, less the bound on disorder, its day was over.
- A day has one row. Watermarks begin anew after a restore, so that a straggler which is among the
  first to come may still count, and then its day fires again for it: a day has at most one row
  more for each of its stragglers that are not late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from examples.demo.flights import Dataset

ROUTE: Final = ["origin", "carrier"]
DAY: Final = ["origin", "day"]
TOTALS: Final = ["flights", "departed", "delay_total", "bad_weather"]
COMPARED: Final = {
    "count": 0.0,
    "departed": 0.0,
    "delay_max": 0.0,
    "delay_mean": 1e-9,
    "bad_weather_share": 1e-9,
}
"""Figures and the tolerance with which they have to agree."""

WORST_DAYS: Final = 5

BOUND_MS: Final = 3 * 3_600_000
DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Committed:
    """The rows of the three outputs."""

    statistics: pd.DataFrame
    days: pd.DataFrame
    late: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Verdict:
    """Fate of the flights.

    read: flights that the job was given. counted: the last running counts, summed over all
    routes. lost: flights without a committed row. doubled: committed rows beyond one a flight.
    windows: airports and days with a row. late: flights that came too late for theirs. wrong: rows
    of any output whose figures are not those of pandas, days that are missing, rows of no flight.
    """

    read: int
    counted: int
    lost: int
    doubled: int
    windows: int
    late: int
    wrong: int

    @property
    def matches(self) -> bool:
        return self.counted == self.read and not (self.lost or self.doubled or self.wrong)


def verify(dataset: Dataset, committed: Committed) -> Verdict:
    """Compares the committed rows with the data set that they were made from."""
    rows: Any = committed.statistics
    flights: Any = expected_flights(dataset)
    known = rows[rows["id"].isin(flights.index)]
    once = known.drop_duplicates("id")
    wrong = len(rows) - len(known) + _wrong(flights, once)
    on_time = flights[~flights.index.isin(committed.late["id"])]
    return Verdict(
        read=len(flights),
        counted=int(rows.groupby(ROUTE)["count"].max().sum()),
        lost=len(flights) - len(once),
        doubled=len(known) - len(once),
        windows=len(committed.days.drop_duplicates(DAY)),
        late=len(committed.late),
        wrong=wrong + _wrong_late(flights, committed.late) + _wrong_days(on_time, committed.days),
    )


def expected_flights(dataset: Dataset) -> pd.DataFrame:
    """Expected row of each flight, by id: its route, times and delay, and remarks.

    bad_weather: whether it left in such. straggles: whether it may be too late for its day.
    """
    weather: Any = dataset.weather
    flights: Any = dataset.flights
    bad = weather[
        (weather["visib"] < 3.0) | (weather["precip"] >= 0.02) | (weather["wind_speed"] >= 25.0)
    ]
    hours = bad[["origin", "time_hour"]].drop_duplicates().assign(bad_weather=True)
    joined = flights.merge(hours, how="left", on=["origin", "time_hour"])
    joined.index = flights.index
    joined["bad_weather"] = joined["bad_weather"].eq(True)
    joined["day"] = joined["time"] // DAY_MS
    joined["straggles"] = joined["time"].cummax() - BOUND_MS >= (joined["day"] + 1) * DAY_MS
    return joined[[*ROUTE, "time", "dep_delay", "day", "bad_weather", "straggles"]]


def ranking(statistics: pd.DataFrame, airlines: pd.DataFrame) -> Sequence[tuple[str, int, float]]:
    """Carriers by mean delay, the latest first: name, flights that left, minutes."""
    rows: Any = statistics.reset_index(drop=True)
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


def worst_days(days: pd.DataFrame) -> Sequence[tuple[str, str, int, int, float]]:
    """The days with the greatest mean delay: airport, day, flights, in bad weather, minutes."""
    sums: Any = days.groupby(DAY)[TOTALS].sum()
    sums = sums[sums["departed"] > 0]
    sums["mean"] = sums["delay_total"] / sums["departed"]
    worst = sums.sort_values("mean", ascending=False).head(WORST_DAYS).reset_index()
    return [
        (row["origin"], str(row["day"]), row["flights"], row["bad_weather"], row["mean"])
        for row in worst.to_dict("records")
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


def _wrong_late(flights: Any, late: Any) -> int:
    """Late rows of no flight, beyond one a flight, of flights on time, or with other figures."""
    once = late[late["id"].isin(flights.index)].drop_duplicates("id").set_index("id")
    own = flights.loc[once.index]
    columns = [*ROUTE, "time", "bad_weather"]
    wrong: np.ndarray = (once[columns].to_numpy() != own[columns].to_numpy()).any(axis=1)
    found, expected = _numbers(once["dep_delay"]), _numbers(own["dep_delay"])
    wrong |= ~np.isclose(found, expected, rtol=0, atol=0, equal_nan=True)
    wrong |= ~own["straggles"].to_numpy()
    return len(late) - len(once) + int(wrong.sum())


def _wrong_days(on_time: Any, rows: Any) -> int:
    """Days whose rows are not the sums over their flights, or are too many; wrong means."""
    import pandas as pd

    days = pd.to_datetime(rows["day"]).astype("datetime64[ms]").astype("int64") // DAY_MS
    found = rows.assign(day=days, rows=1).groupby(DAY)[[*TOTALS, "rows"]].sum()
    expected = on_time.assign(
        flights=1, departed=on_time["dep_delay"].notna(), delay_total=on_time["dep_delay"]
    )
    expected = expected.groupby(DAY)[[*TOTALS, "straggles"]].sum()
    found = found.rename(columns={total: f"{total}_found" for total in TOTALS})
    both = found.join(expected, how="outer").fillna(-1)
    wrong: np.ndarray = both["rows"].to_numpy() > 1 + both["straggles"].to_numpy()
    for total in TOTALS:
        wrong |= both[f"{total}_found"].to_numpy() != both[total].to_numpy()
    departed = _numbers(rows["departed"])
    mean = _numbers(rows["delay_total"]) / np.where(departed > 0, departed, np.nan)
    right = np.isclose(_numbers(rows["delay_mean"]), mean, rtol=1e-9, equal_nan=True)
    return int(wrong.sum()) + int((~right).sum())


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
        bad_weather_share=by_route(own["bad_weather"]).cumsum() / count,
    )


def _numbers(column: Any) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)
