"""The job of the demonstration: delays by airport and carrier, with the weather at departure.

Two streams are joined in event time: a flight waits for the weather of its hour. What comes of that
goes two ways, into the running statistics of each airport and carrier and into windows of a day.
It is written as any job is. The slots import this module by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

import pyarrow as pa

from examples.demo.flights import HOUR_MS, OUT_OF_ORDER_MS
from tidegate import (
    AggregateFunction,
    Duration,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink, FileSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate import DataStream, RuntimeContext, StreamExecutionEnvironment, TimeWindow

NAME: Final = "delays"

VISIBILITY_BAD: Final = 3.0
RAIN_BAD: Final = 0.02
WIND_BAD: Final = 25.0
"""Weather is bad below this visibility (miles), from this rain (inches an hour), or from this wind
(miles an hour)."""

WEATHER_KEPT_MS: Final = 60 * 24 * HOUR_MS
"""How long after its hour bad weather is remembered, for flights whose reports straggle."""

STATISTICS, DAYS, LATE = "statistics", "days", "late"
"""The folders of the three outputs."""

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

DAYS_SCHEMA: Final = pa.schema(
    [
        ("origin", pa.string()),
        ("day", pa.date32()),
        ("flights", pa.int64()),
        ("departed", pa.int64()),
        ("delay_total", pa.int64()),
        ("delay_mean", pa.float64()),
        ("bad_weather", pa.int64()),
    ]
)
"""One row an airport and day (in UTC), of the flights that did not come too late for it.

departed: of the flights, those that left; the delays are theirs, in minutes. bad_weather: flights
that were due in it.
"""

LATE_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        ("time", pa.int64()),
        ("dep_delay", pa.int64()),
        ("bad_weather", pa.bool_()),
    ]
)
"""One row a flight that came too late for its day."""

LATE_FLIGHTS: Final = OutputTag[Any]("late flights")

_NUMBERS: Final = Types.TUPLE([Types.LONG()] * 4)


class Flight(TypedDict):
    """A flight, with the fields of ``FLIGHTS_SCHEMA``."""

    id: int
    origin: str
    carrier: str
    time: int
    dep_delay: int | None


class Weather(TypedDict):
    """An hour of weather, with the fields of ``WEATHER_SCHEMA``."""

    origin: str
    time: int
    visib: float
    precip: float
    wind_speed: float | None


class JoinedFlight(Flight):
    """A flight, and whether it was due in bad weather; as in ``LATE_SCHEMA``."""

    bad_weather: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """Input and output of the job, with its amount and speed.

    rate: flights a second; the weather keeps pace. driver: number of its driver.
    """

    flights: str
    weather: str
    output: str
    rows: int
    weather_rows: int
    rate: float
    driver: int = 0

    @property
    def span_s(self) -> float:
        """Seconds that an undisturbed replay takes."""
        return self.rows / self.rate


def build(env: StreamExecutionEnvironment, replay: Replay) -> None:
    """The program: flights joined with the weather, their statistics, windows of a day, files."""
    flights = read(env, "flights", replay.flights, replay.rate)
    weather = read(env, "weather", replay.weather, replay.weather_rows / replay.span_s)
    by_hour = flights.connect(weather).key_by(
        hour_of, hour_of, key_type=Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    joined = by_hour.process(WeatherAtDeparture()).name("weather at departure").uid("join")

    by_route = joined.key_by(
        lambda flight: (flight["origin"], flight["carrier"]),
        key_type=Types.TUPLE([Types.STRING(), Types.STRING()]),
    )
    statistics = by_route.process(DelayStatistics(replay.driver)).name("delay statistics")
    write(statistics.uid("statistics"), replay, STATISTICS, STATISTICS_SCHEMA)

    by_airport = joined.key_by(lambda flight: flight["origin"], key_type=Types.STRING())
    days = (
        by_airport.window(TumblingEventTimeWindows.of(Time.days(1)))
        .side_output_late_data(LATE_FLIGHTS)
        .aggregate(DayTotals(), day_row, accumulator_type=_NUMBERS)
    )
    write(days.name("days").uid("days"), replay, DAYS, DAYS_SCHEMA)
    write(days.get_side_output(LATE_FLIGHTS), replay, LATE, LATE_SCHEMA)


def read(env: StreamExecutionEnvironment, name: str, path: str, rate: float) -> DataStream[Any]:
    """A stream of reports. One reader: the order of the reports is that of the file."""
    reports = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    source = FileSource.parquet(path).rate(rate)
    stream = env.from_source(source, reports.with_timestamp_assigner("time"), name)
    return stream.uid(name).set_parallelism(1)


def write(rows: DataStream[Any], replay: Replay, folder: str, schema: pa.Schema) -> None:
    """The rows as Parquet, exactly once."""
    sink = FileSink.parquet(f"{replay.output}/{folder}", schema)
    rows.sink_to(sink).name(f"{folder} files").uid(f"{folder} files")


def hour_of(report: Flight | Weather) -> tuple[str, int]:
    """The airport, and when the hour of the report began."""
    time = report["time"]
    return report["origin"], time - time % HOUR_MS


class WeatherAtDeparture(KeyedCoProcessFunction[Flight, Weather, JoinedFlight]):
    """Joins the flights of an airport and hour with its weather, once that must have come.

    That is when the watermark passes the beginning of the hour. A flight that comes after that
    finds the weather in state, where it is kept while its reports may straggle.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state of the current airport and hour."""
        self._waiting = runtime_context.get_list_state(ListStateDescriptor("waiting flights"))
        self._bad = runtime_context.get_state(ValueStateDescriptor("bad weather", Types.BOOLEAN()))

    def process_element1(
        self, value: Flight, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[JoinedFlight]:
        """Pass the flight on, or let it wait."""
        _, hour = hour_of(value)
        timers = ctx.timer_service()
        if hour <= timers.current_watermark():
            yield self._joined(value)
        else:
            self._waiting.add(value)
            timers.register_event_time_timer(hour)

    def process_element2(
        self, value: Weather, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[JoinedFlight]:
        if is_bad(value):
            self._bad.update(True)
            ctx.timer_service().register_event_time_timer(value["time"] + WEATHER_KEPT_MS)
        return ()

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[JoinedFlight]:
        """Pass on what has waited, or forget the weather."""
        for flight in self._waiting.get():
            yield self._joined(flight)
        self._waiting.clear()
        _, hour = cast("tuple[str, int]", ctx.get_current_key())
        if timestamp == hour + WEATHER_KEPT_MS:
            self._bad.clear()

    def _joined(self, flight: Flight) -> JoinedFlight:
        return {**flight, "bad_weather": self._bad.value() is not None}


class DelayStatistics(KeyedProcessFunction[JoinedFlight, dict[str, object]]):
    """Keeps the delays of one airport and carrier, and emits them with each flight."""

    def __init__(self, driver: int) -> None:
        self._driver = driver

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state of the current key."""
        self._attempt = runtime_context.get_attempt_number()
        numbers = Types.TUPLE([Types.LONG()] * 5)
        self._totals = runtime_context.get_state(ValueStateDescriptor("totals", numbers))

    def process_element(
        self, value: JoinedFlight, ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, object]]:
        """Count the flight, and emit the statistics so far."""
        count, departed, delay, delay_max, bad = self._totals.value() or (0, 0, 0, 0, 0)
        count += 1
        bad += value["bad_weather"]
        late = value["dep_delay"]
        if late is not None:
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


Totals = tuple[int, int, int, int]
"""Flights, those that left, their minutes of delay, flights due in bad weather."""


class DayTotals(AggregateFunction[JoinedFlight, Totals, Totals]):
    """Adds up the flights of an airport and day."""

    def create_accumulator(self) -> Totals:
        return 0, 0, 0, 0

    def add(self, value: JoinedFlight, accumulator: Totals) -> Totals:
        flights, departed, delay, bad = accumulator
        late = value["dep_delay"]
        if late is not None:
            departed += 1
            delay += late
        return flights + 1, departed, delay, bad + value["bad_weather"]

    def get_result(self, accumulator: Totals) -> Totals:
        """The totals themselves."""
        return accumulator

    def merge(self, acc_a: Totals, acc_b: Totals) -> Totals:
        flights, departed, delay, bad = map(sum, zip(acc_a, acc_b, strict=True))
        return flights, departed, delay, bad


def day_row(
    origin: str, window: TimeWindow, totals: Iterable[Totals]
) -> Iterator[dict[str, object]]:
    """The row of an airport and day."""
    for flights, departed, delay, bad in totals:
        yield {
            "origin": origin,
            "day": datetime.fromtimestamp(window.start / 1000, UTC).date(),
            "flights": flights,
            "departed": departed,
            "delay_total": delay,
            "delay_mean": delay / departed if departed else None,
            "bad_weather": bad,
        }


def is_bad(weather: Weather) -> bool:
    return (
        weather["visib"] < VISIBILITY_BAD
        or weather["precip"] >= RAIN_BAD
        or (weather["wind_speed"] or 0.0) >= WIND_BAD
    )
