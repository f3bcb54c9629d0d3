"""Queries without state: projections, filters, a table, files."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from pyflink.common import Encoder, Types
from pyflink.datastream import DataStream, RuntimeContext
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink
from pyflink.datastream.functions import MapFunction

from benchmarks.nexmark.queries.shared import (
    DAY_MS,
    LONG,
    MINUTE_MS,
    RATE,
    SHORT_BID,
    SIDE_ROWS,
    TEXT,
    Settings,
    bids_of,
    day_of,
    longs,
    minute_of,
)


def q0(events: DataStream, settings: Settings) -> DataStream:
    """All bids, projected: what the events themselves cost."""
    return bids_of(events).map(
        lambda event: (event[3][0], event[3][1], event[3][2], event[3][5], event[3][6]),
        output_type=SHORT_BID,
    )


def q1(events: DataStream, settings: Settings) -> DataStream:
    """Prices in another currency, as decimals."""
    return bids_of(events).map(
        lambda event: (event[3][0], event[3][1], event[3][2] * RATE, event[3][5], event[3][6]),
        output_type=Types.TUPLE([LONG, LONG, Types.BIG_DEC(), LONG, TEXT]),
    )


def q2(events: DataStream, settings: Settings) -> DataStream:
    """Bids on some auctions."""
    return (
        bids_of(events)
        .filter(lambda event: event[3][0] % 123 == 0)
        .map(lambda event: (event[3][0], event[3][2]), output_type=longs(2))
    )


def q10(events: DataStream, settings: Settings) -> DataStream:
    """All bids as lines of CSV, with their day and minute."""
    return bids_of(events).map(csv_line, output_type=Types.STRING())


def csv_line(event) -> str:
    """auction,bidder,price,time,extra,day,minute."""
    bid = event[3]
    time = bid[5]
    day, minute = day_of(time // DAY_MS), minute_of(time // MINUTE_MS)
    return f"{bid[0]},{bid[1]},{bid[2]},{time},{bid[6]},{day},{minute}"


def files(folder: str) -> FileSink:
    """Where q10's lines go: a folder for each minute of the clock.

    PyFlink has no folders by a record's own time.
    """
    return (
        FileSink.for_row_format(folder, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd/HH:mm", "UTC"))
        .build()
    )


def q13(events: DataStream, settings: Settings) -> DataStream:
    """Bids with a value from a fixed table."""
    return bids_of(events).map(
        LookedUp(settings.side_input),
        output_type=Types.TUPLE([LONG, LONG, LONG, LONG, TEXT]),
    )


def write_side_input(path: Path) -> None:
    """The table of q13: lines i,i."""
    path.write_text("".join(f"{i},{i}\n" for i in range(SIDE_ROWS)))


class LookedUp(MapFunction):
    """(auction, bidder, price, time, value)."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        with Path(self._path).open(newline="") as lines:
            self._table = {int(key): value for key, value in csv.reader(lines)}

    def map(self, value):
        bid = value[3]
        return bid[0], bid[1], bid[2], bid[5], self._table[bid[0] % SIDE_ROWS]


def q14(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, time of the day, time, extra, count of c) of dear bids."""
    return bids_of(events).flat_map(
        dear_bids,
        output_type=Types.TUPLE([LONG, LONG, Types.BIG_DEC(), TEXT, LONG, TEXT, LONG]),
    )


def dear_bids(event) -> Iterable[tuple]:
    """One result, or none."""
    bid = event[3]
    price = bid[2] * RATE
    if 1_000_000 < price < 50_000_000:
        extra = bid[6]
        yield bid[0], bid[1], price, time_of_day(bid[5]), bid[5], extra, extra.count("c")


def time_of_day(time: int) -> str:
    hour = time // 3_600_000 % 24
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


KNOWN_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL_ID = re.compile(r"(?:&|^)channel_id=([^&]*)")


def q21(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, channel, channel id) of bids whose channel has an id."""
    return bids_of(events).flat_map(
        with_channel_id, output_type=Types.TUPLE([LONG, LONG, LONG, TEXT, TEXT])
    )


def with_channel_id(event) -> Iterable[tuple]:
    """One result, or none."""
    bid = event[3]
    channel_id = KNOWN_CHANNELS.get(bid[3].lower())
    if channel_id is None:
        found = CHANNEL_ID.search(bid[4])
        if found is None:
            return
        channel_id = found.group(1)
    yield bid[0], bid[1], bid[2], bid[3], channel_id


def q22(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, channel, three folders of the URL)."""
    return bids_of(events).map(
        with_folders, output_type=Types.TUPLE([LONG, LONG, LONG, TEXT, TEXT, TEXT, TEXT])
    )


def with_folders(event) -> tuple:
    bid = event[3]
    parts = bid[4].split("/")
    return bid[0], bid[1], bid[2], bid[3], parts[3], parts[4], parts[5]
