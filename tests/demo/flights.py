"""A small data set in the shape of nycflights13, and rows as the job commits them."""

import datetime as dt

import pandas as pd

from examples.demo.flights import HOUR_MS, Dataset
from examples.demo.verify import Committed

HOUR = "2013-01-01T10:00:00Z"
STORMY = "2013-01-01T11:00:00Z"
NEXT_DAY = "2013-01-02T10:00:00Z"
HOUR_AT_MS = {HOUR: 1_357_034_400_000, STORMY: 1_357_038_000_000, NEXT_DAY: 1_357_120_800_000}


def package_flights() -> pd.DataFrame:
    """Three carriers at one airport; the second hour is stormy, and one flight never left."""
    return pd.DataFrame(
        [
            ("EWR", "UA", HOUR, 2.0, 15),
            ("EWR", "AA", HOUR, None, 20),
            ("EWR", "UA", STORMY, 30.0, 5),
            ("EWR", "AA", STORMY, -4.0, 10),
            ("EWR", "UA", STORMY, 10.0, 40),
            ("EWR", "B6", NEXT_DAY, 8.0, 0),
            ("EWR", "B6", STORMY, 20.0, 50),
        ],
        columns=["origin", "carrier", "time_hour", "dep_delay", "minute"],
        index=[0, 1, 2, 3, 4, 5, 6],
    )


def package_weather() -> pd.DataFrame:
    """Two hours, the second one stormy."""
    return pd.DataFrame(
        [("EWR", HOUR, 10.0, 0.0, 5.0), ("EWR", STORMY, 0.5, 0.3, None)],
        columns=["origin", "time_hour", "visib", "precip", "wind_speed"],
    )


def airlines() -> pd.DataFrame:
    """The names of the carriers, and of one more."""
    return pd.DataFrame(
        [("UA", "United"), ("AA", "American"), ("B6", "JetBlue"), ("HA", "Hawaiian")],
        columns=["carrier", "name"],
    )


def small_dataset() -> Dataset:
    """The flights in the order of their ids; the last one straggles."""
    flights, weather = package_flights(), package_weather()
    hours = flights["time_hour"].map(HOUR_AT_MS)
    return Dataset(
        flights.assign(time=hours + flights["minute"] * 60_000),
        weather.assign(time=weather["time_hour"].map(HOUR_AT_MS)),
        airlines(),
    )


def committed_rows() -> pd.DataFrame:
    """The statistics that the job commits for that data set, worked out by hand."""
    return pd.DataFrame(
        [
            (0, "EWR", "UA", 1, 1, 2.0, 2.0, 0.0, 0, 0, 1_000),
            (1, "EWR", "AA", 1, 0, None, None, 0.0, 0, 0, 1_001),
            (2, "EWR", "UA", 2, 2, 16.0, 30.0, 0.5, 0, 0, 1_002),
            (3, "EWR", "AA", 2, 1, -4.0, -4.0, 0.5, 0, 1, 2_500),
            (4, "EWR", "UA", 3, 3, 14.0, 30.0, 2 / 3, 0, 1, 2_600),
            (5, "EWR", "B6", 1, 1, 8.0, 8.0, 0.0, 0, 1, 2_601),
            (6, "EWR", "B6", 2, 2, 14.0, 20.0, 0.5, 0, 1, 2_602),
        ],
        columns=[
            "id",
            "origin",
            "carrier",
            "count",
            "departed",
            "delay_mean",
            "delay_max",
            "bad_weather_share",
            "driver",
            "attempt",
            "emitted_ms",
        ],
    )


def day_rows(*rows: tuple[int, int, int, int, float | None, int]) -> pd.DataFrame:
    """Days of Newark: day of January, then the figures."""
    columns = ["day", "flights", "departed", "delay_total", "delay_mean", "bad_weather"]
    frame = pd.DataFrame(list(rows), columns=columns)
    frame.insert(0, "origin", "EWR")
    return frame.assign(day=[dt.date(2013, 1, row[0]) for row in rows])


def late_rows() -> pd.DataFrame:
    """The flight that straggles."""
    time = HOUR_AT_MS[STORMY] + 50 * HOUR_MS // 60
    return pd.DataFrame(
        [(6, "EWR", "B6", time, 20.0, True)],
        columns=["id", "origin", "carrier", "time", "dep_delay", "bad_weather"],
    )


FIRST_DAY = (1, 5, 4, 38, 9.5, 3)
SECOND_DAY = (2, 1, 1, 8, 8.0, 0)


def committed(
    statistics: pd.DataFrame | None = None,
    days: pd.DataFrame | None = None,
    late: pd.DataFrame | None = None,
) -> Committed:
    """What the job commits, where nothing else is said: the flight that straggles is late."""
    return Committed(
        statistics=committed_rows() if statistics is None else statistics,
        days=day_rows(FIRST_DAY, SECOND_DAY) if days is None else days,
        late=late_rows() if late is None else late,
    )
