"""The job of the demonstration: delays by airport and carrier, with the weather at departure.

It is written as any job is. The slots import this module by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import KeyedProcessFunction, Types, ValueStateDescriptor, WatermarkStrategy
from tidegate.connectors import FileSink, FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate import RuntimeContext, StreamExecutionEnvironment

NAME: Final = "delays"

VISIBILITY_BAD: Final = 3.0
RAIN_BAD: Final = 0.02
WIND_BAD: Final = 25.0
"""Weather is bad below this visibility (miles), from this rain (inches an hour), or from this wind
(miles an hour)."""

WEATHER: Final = ("origin", "time_hour", "visib", "precip", "wind_speed")
"""Columns of the weather that decide whether it is bad."""

STATISTICS_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("count", pa.int64()),
        ("departed", pa.int64()),
        ("delay_mean", pa.float64()),
        ("delay_max", pa.int64()),
        ("bad_weather_share", pa.float64()),
        ("driver", pa.int64()),
        ("attempt", pa.int64()),
        ("emitted_ms", pa.int64()),
    ]
)
"""One row a flight, with the statistics of its airport and carrier up to it.

count: flights so far, this one included. departed: of them, those that left; the delays are
theirs, in minutes, null before the first. bad_weather_share: of all. driver, attempt: which run
of the job made the row; emitted_ms: when, wall clock.
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """What the job reads and writes, how much and how fast. driver: number of its driver."""

    flights: str
    weather: str
    output: str
    rows: int
    rate: float
    driver: int = 0

    @property
    def span_s(self) -> float:
        """Seconds that an undisturbed replay takes."""
        return self.rows / self.rate


def build(env: StreamExecutionEnvironment, replay: Replay) -> None:
    """The program: flights, keyed by airport and carrier, their statistics, files."""
    flights = env.from_source(
        FileSource.parquet(replay.flights).rate(replay.rate),
        WatermarkStrategy.no_watermarks(),
        "flights",
    ).uid("flights")
    by_route = flights.key_by(
        lambda flight: (flight["origin"], flight["carrier"]),
        key_type=Types.TUPLE([Types.STRING(), Types.STRING()]),
    )
    statistics = by_route.process(DelayStatistics(replay.weather, replay.driver))
    statistics.name("delay statistics").uid("statistics").sink_to(
        FileSink.parquet(replay.output, STATISTICS_SCHEMA)
    ).name("files").uid("files")


class DelayStatistics(KeyedProcessFunction[dict[str, object], dict[str, object]]):
    """Keeps the delays of one airport and carrier, and emits them with each flight."""

    def __init__(self, weather: str, driver: int) -> None:
        self._weather = weather
        self._driver = driver

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read the weather, and ask for the state of the current key."""
        self._bad_hours = bad_hours(self._weather)
        self._attempt = runtime_context.get_attempt_number()
        numbers = Types.TUPLE([Types.LONG()] * 5)
        self._totals = runtime_context.get_state(ValueStateDescriptor("totals", numbers))

    def process_element(
        self, value: dict[str, object], ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, object]]:
        """Count the flight, and emit the statistics so far."""
        count, departed, delay, delay_max, bad = self._totals.value() or (0, 0, 0, 0, 0)
        count += 1
        bad += (value["origin"], value["time_hour"]) in self._bad_hours
        late = value["dep_delay"]
        if isinstance(late, int):
            delay_max = max(delay_max, late) if departed else late
            delay += late
            departed += 1
        self._totals.update((count, departed, delay, delay_max, bad))
        yield {
            "id": value["id"],
            "origin": value["origin"],
            "carrier": value["carrier"],
            "count": count,
            "departed": departed,
            "delay_mean": delay / departed if departed else None,
            "delay_max": delay_max if departed else None,
            "bad_weather_share": bad / count,
            "driver": self._driver,
            "attempt": self._attempt,
            "emitted_ms": ctx.timer_service().current_processing_time(),
        }


def bad_hours(weather: str) -> frozenset[tuple[str, str]]:
    """Airports and hours in which the weather was bad."""
    with pq.ParquetFile(weather) as file:
        table = file.read()
    # Lists, since PyArrow's own comparisons load pandas, which takes longer than all this.
    rows = zip(*(table[name].to_pylist() for name in WEATHER), strict=True)
    return frozenset(
        (origin, time_hour)
        for origin, time_hour, visibility, rain, wind in rows
        if visibility < VISIBILITY_BAD or rain >= RAIN_BAD or (wind or 0.0) >= WIND_BAD
    )
