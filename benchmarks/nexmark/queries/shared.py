"""Shared by the queries: what an event is, their settings, types and times."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from pyflink.common import Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream

PERSON, AUCTION, BID = 0, 1, 2
LATE_S = 4
RATE = Decimal("0.908")
CHEAP, DEAR = 10_000, 1_000_000
SIDE_ROWS = 10_000
RANKS, LAST_AUCTIONS = 10, 10
DAY_MS, MINUTE_MS = 86_400_000, 60_000

LONG, TEXT = Types.LONG(), Types.STRING()
BID_TUPLE = Types.TUPLE([LONG, LONG, LONG, TEXT, TEXT, LONG, TEXT])
AUCTION_TUPLE = Types.TUPLE([LONG, TEXT, TEXT, LONG, LONG, LONG, LONG, LONG, LONG, TEXT])


@dataclass(frozen=True)
class Settings:
    """side_input: file of q13's table. window_s: of q5, q7, q8, q11 and q12."""

    side_input: str = ""
    window_s: int = 10


def short_bid():
    """Auction, bidder, price, time, extra.

    PyFlink pickles an accumulator's type, and cannot once that has been an output's type.
    """
    return Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING()])


SHORT_BID = short_bid()
Query = Callable[[DataStream, Settings], DataStream]


def longs(count: int):
    return Types.TUPLE([LONG] * count)


class TimeAt(TimestampAssigner):
    """The event time stands in a field."""

    def __init__(self, field: int) -> None:
        self._field = field

    def extract_timestamp(self, value, record_timestamp: int) -> int:
        return value[self._field]


def timed(stream: DataStream, field: int) -> DataStream:
    """With event time from a field, and watermarks behind it."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(LATE_S))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeAt(field)))


def bids_of(events: DataStream) -> DataStream:
    return events.filter(lambda event: event[0] == BID)


@lru_cache(maxsize=1000)
def day_of(day: int) -> str:
    """yyyy-MM-dd of a number of days since 1970."""
    return datetime.fromtimestamp(day * DAY_MS // 1000, UTC).strftime("%Y-%m-%d")


@lru_cache(maxsize=10_000)
def minute_of(minute: int) -> str:
    """HH:mm of a number of minutes since 1970."""
    return f"{minute // 60 % 24:02}:{minute % 60:02}"
