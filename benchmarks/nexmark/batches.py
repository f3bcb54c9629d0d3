"""Nexmark's queries over Arrow batches, where that is natural today.

There is no join, no top-n and no session window of columns, which leaves out q3, q4, q6, q8, q9,
q11, q12, q19 and q20. Events come as batches of one type each, so bids need no filter. q5 and q7
leave in each batch only what can still win, by columns, and choose among these by records.
"""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.generator import BID, BID_TYPE
from benchmarks.nexmark.queries.shared import (
    CHEAP,
    DAY_MS,
    DEAR,
    LATE_S,
    MINUTE_MS,
    SHORT_BID,
    SIDE_ROWS,
    Settings,
    day_of,
    longs,
    minute_of,
)
from benchmarks.nexmark.queries.stateless import KNOWN_CHANNELS, time_of_day
from benchmarks.nexmark.queries.windows import HighestOfAll, most_of_windows
from tidegate import (
    ColumnStateDescriptor,
    Count,
    CountDistinct,
    DataStream,
    Duration,
    KeyedBatchFunction,
    Max,
    Min,
    SlidingEventTimeWindows,
    Sum,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)

BIDS = pa.schema(list(BID_TYPE))
RATE = pa.scalar(Decimal("0.908"))
HOUR_MS = 3_600_000
TIMES_OF_DAY = pa.array([time_of_day(hour * HOUR_MS) for hour in range(24)])
CHANNEL_NAMES, CHANNEL_IDS = pa.array(list(KNOWN_CHANNELS)), pa.array(list(KNOWN_CHANNELS.values()))
RANKS = ("1", "2", "3")
COUNTS = [
    "count",
    *(f"rank_{rank}_count" for rank in RANKS),
    "bidder_distinct",
    *(f"bidder_{rank}_distinct" for rank in RANKS),
    "auction_distinct",
    *(f"auction_{rank}_distinct" for rank in RANKS),
]
"""Columns of the twelve counts of q15 and q16."""
KEY_SHIFT = 1 << 32

Query = Callable[[DataStream, Settings], DataStream]


def numbers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).to_numpy()


def bids_of(events: DataStream) -> DataStream:
    return events.flat_map_batches(bids_of_batch, BIDS)


def bids_of_batch(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    if not len(batch) or batch.column("event_type")[0].as_py() != BID:
        return None
    return pa.RecordBatch.from_arrays(batch.column("bid").flatten(), schema=BIDS)


def timed(bids: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(LATE_S))
    return bids.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner("date_time"))


def q0(events: DataStream, settings: Settings) -> DataStream:
    """All bids, projected: what the events themselves cost."""
    return bids_of(events).map_batches(
        lambda batch: batch.select(["auction", "bidder", "price", "date_time", "extra"])
    )


def q1(events: DataStream, settings: Settings) -> DataStream:
    """Prices in another currency, as decimals."""
    return bids_of(events).map_batches(in_euros)


def in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    price = batch.column("price").cast(pa.decimal128(19, 0))
    picked = batch.select(["auction", "bidder", "price", "date_time", "extra"])
    return picked.set_column(2, "price", pc.multiply(price, RATE))


def q2(events: DataStream, settings: Settings) -> DataStream:
    """Bids on some auctions."""
    return (
        bids_of(events)
        .filter_batches(lambda batch: numbers(batch, "auction") % 123 == 0)
        .map_batches(lambda batch: batch.select(["auction", "price"]))
    )


def q5(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bids) of the auctions with the most bids in each sliding window; all of them."""
    size_s, slide_s = settings.window_s, settings.window_s // 5
    bids = bids_of(events).map_batches(lambda batch: batch.select(["auction", "date_time"]))
    counts = (
        timed(bids)
        .key_by("auction")
        .window(SlidingEventTimeWindows.of(Time.seconds(size_s), Time.seconds(slide_s)))
        .aggregate_batches(Count())
        .filter_batches(lambda batch: greatest(numbers(batch, "window_end"), batch["count"]))
        .map(lambda row: (row["window_end"], row["auction"], row["count"]), longs(3))
    )
    return most_of_windows(counts, slide_s)


def greatest(groups: np.ndarray, values: pa.Array) -> np.ndarray:
    """True for each row whose value is the greatest of its group in this batch."""
    which, places = np.unique(groups, return_inverse=True)
    found = values.to_numpy()
    most = np.full(len(which), np.iinfo(np.int64).min)
    np.maximum.at(most, places, found)
    return found == most[places]


def q7(events: DataStream, settings: Settings) -> DataStream:
    """The bids of the highest price in each window."""
    window_ms = settings.window_s * 1000
    bids = bids_of(events).map_batches(
        lambda batch: batch.select(["auction", "bidder", "price", "date_time", "extra"])
    )
    return (
        timed(bids)
        .filter_batches(
            lambda batch: greatest(numbers(batch, "date_time") // window_ms, batch["price"])
        )
        .map(lambda row: tuple(row.values()), SHORT_BID)
        .window_all(TumblingEventTimeWindows.of(Time.seconds(settings.window_s)))
        .process(HighestOfAll(), SHORT_BID)
    )


def q13(events: DataStream, settings: Settings) -> DataStream:
    """Bids with a value from a fixed table."""
    values = pa.array([str(key) for key in range(SIDE_ROWS)])

    def looked_up(batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = pa.array(numbers(batch, "auction") % SIDE_ROWS)
        picked = batch.select(["auction", "bidder", "price", "date_time"])
        return picked.append_column("value", values.take(keys))

    return bids_of(events).map_batches(looked_up)


def q14(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, time of the day, time, extra, count of c) of dear bids."""
    return bids_of(events).filter_batches(is_dear).map_batches(calculated)


def is_dear(batch: pa.RecordBatch) -> np.ndarray:
    """1,000,000 < 0.908 · price < 50,000,000, in whole numbers."""
    thousandths = numbers(batch, "price") * 908
    return (thousandths > 1_000_000_000) & (thousandths < 50_000_000_000)


def calculated(batch: pa.RecordBatch) -> pa.RecordBatch:
    hours = pa.array(numbers(batch, "date_time") // HOUR_MS % 24)
    columns = {
        "auction": batch["auction"],
        "bidder": batch["bidder"],
        "price": pc.multiply(batch["price"].cast(pa.decimal128(19, 0)), RATE),
        "time_of_day": TIMES_OF_DAY.take(hours),
        "date_time": batch["date_time"],
        "extra": batch["extra"],
        "c_count": pc.count_substring(batch["extra"], "c").cast(pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def texts_of(values: np.ndarray, text: Callable[[int], str]) -> pa.Array:
    """A text for each number; few of them are different."""
    which, places = np.unique(values, return_inverse=True)
    return pa.array([text(value) for value in which.tolist()], pa.string()).take(pa.array(places))


def days_of(batch: pa.RecordBatch) -> np.ndarray:
    return numbers(batch, "date_time") // DAY_MS


def ranks_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """A mask for each rank of prices."""
    price = numbers(batch, "price")
    masks = (price < CHEAP, (price >= CHEAP) & (price < DEAR), price >= DEAR)
    return {rank: pa.array(mask) for rank, mask in zip(RANKS, masks, strict=True)}


def masked(mask: pa.Array, column: pa.Array) -> pa.Array:
    """The column with nulls, which aggregates leave out, outside the mask."""
    return pc.if_else(mask, column, pa.scalar(None, column.type))


def ranked(batch: pa.RecordBatch, keys: dict[str, pa.Array]) -> pa.RecordBatch:
    """The columns that the twelve counts are taken of."""
    columns = keys | {"bidder": batch["bidder"], "auction": batch["auction"]}
    for rank, mask in ranks_of(batch).items():
        columns[f"rank_{rank}"] = masked(mask, mask)
        columns[f"bidder_{rank}"] = masked(mask, batch["bidder"])
        columns[f"auction_{rank}"] = masked(mask, batch["auction"])
    return pa.RecordBatch.from_pydict(columns)


def twelve_counts() -> list:
    return [
        Count(),
        *(Count(f"rank_{rank}") for rank in RANKS),
        CountDistinct("bidder"),
        *(CountDistinct(f"bidder_{rank}") for rank in RANKS),
        CountDistinct("auction"),
        *(CountDistinct(f"auction_{rank}") for rank in RANKS),
    ]


def q15(events: DataStream, settings: Settings) -> DataStream:
    """(day, bids, bidders, auctions), each in all and of three ranks of prices."""
    return (
        bids_of(events)
        .map_batches(lambda batch: ranked(batch, {"day": texts_of(days_of(batch), day_of)}))
        .key_by("day")
        .aggregate_batches(*twelve_counts())
        .map_batches(lambda batch: batch.select(["day", *COUNTS]))
    )


def q16(events: DataStream, settings: Settings) -> DataStream:
    """(channel, day, last minute, the counts of q15)."""
    return (
        bids_of(events)
        .map_batches(by_channel_and_day)
        .key_by("key")
        .aggregate_batches(Max("minute"), *twelve_counts())
        .map_batches(with_channel_and_day)
    )


def by_channel_and_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    day = texts_of(days_of(batch), day_of)
    minute = pa.array(numbers(batch, "date_time") // MINUTE_MS % (DAY_MS // MINUTE_MS))
    key = pc.binary_join_element_wise(batch["channel"], day, "|")
    keys = {"key": key, "channel": batch["channel"], "day": day, "minute": minute}
    return ranked(batch, keys)


def with_channel_and_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    minute = texts_of(numbers(batch, "minute_max"), minute_of)
    picked = batch.select(["channel", "day", *COUNTS])
    return picked.add_column(2, "minute", minute)


def q17(events: DataStream, settings: Settings) -> DataStream:
    """(auction, day, bids in all and of three ranks; least, greatest, mean and sum of prices)."""
    return (
        bids_of(events)
        .map_batches(by_auction_and_day)
        .key_by("key")
        .aggregate_batches(
            Count(),
            *(Count(f"rank_{rank}") for rank in RANKS),
            Min("price"),
            Max("price"),
            Sum("price"),
        )
        .map_batches(with_auction_and_day)
    )


def by_auction_and_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {
        "key": pa.array(numbers(batch, "auction") * KEY_SHIFT + days_of(batch)),
        "price": batch["price"],
    }
    for rank, mask in ranks_of(batch).items():
        columns[f"rank_{rank}"] = masked(mask, mask)
    return pa.RecordBatch.from_pydict(columns)


def with_auction_and_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    auction, day = np.divmod(numbers(batch, "key"), KEY_SHIFT)
    picked = batch.select([*COUNTS[:4], "price_min", "price_max"])
    columns = {"auction": pa.array(auction), "day": texts_of(day, day_of)}
    columns |= dict(zip(picked.schema.names, picked.columns, strict=True))
    columns["mean"] = pa.array(numbers(batch, "price_sum") // numbers(batch, "count"))
    columns["sum"] = batch["price_sum"]
    return pa.RecordBatch.from_pydict(columns)


def q18(events: DataStream, settings: Settings) -> DataStream:
    """The newest bid of each bidder on each auction, of those in a batch."""
    schema = pa.schema([("key", pa.int64()), *BIDS])
    return (
        bids_of(events)
        .map_batches(
            lambda batch: batch.add_column(
                0,
                "key",
                pa.array(numbers(batch, "bidder") * KEY_SHIFT + numbers(batch, "auction")),
            ),
            schema,
        )
        .key_by("key")
        .process_batches(Newest(), BIDS)
    )


class Newest(KeyedBatchFunction):
    """The newest bid of each key of the batch, unless an older batch has a newer one."""

    TIME = ColumnStateDescriptor("time", pa.int64())

    def process_batch(self, batch: pa.RecordBatch, ctx) -> pa.RecordBatch:
        times, newest = numbers(batch, "date_time"), ctx.column_state(self.TIME)
        order = np.lexsort((times, ctx.key_index))
        keys = ctx.key_index[order]
        lasts = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))
        keys, rows = keys[lasts], order[lasts]
        wins = times[rows] >= newest.get(keys)
        newest.put(keys[wins], times[rows[wins]])
        return batch.select(BIDS.names).take(pa.array(rows[wins]))


def q21(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, channel, channel id) of bids whose channel has an id."""
    return bids_of(events).flat_map_batches(with_channel_id)


def with_channel_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    known = pc.index_in(pc.utf8_lower(batch["channel"]), CHANNEL_NAMES)
    found = pc.extract_regex(batch["url"], r"(?:&|^)channel_id=(?P<id>[^&]*)").field("id")
    # A row that does not match is a null struct, whose field is not.
    named = pc.if_else(pc.match_substring(batch["url"], "channel_id="), found, None)
    channel_id = pc.coalesce(CHANNEL_IDS.take(known), named)
    picked = batch.select(["auction", "bidder", "price", "channel"])
    return picked.append_column("channel_id", channel_id).filter(pc.is_valid(channel_id))


def q22(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bidder, price, channel, three folders of the URL)."""
    return bids_of(events).map_batches(with_folders)


def with_folders(batch: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(batch["url"], "/")
    picked = batch.select(["auction", "bidder", "price", "channel"])
    for place in (3, 4, 5):
        picked = picked.append_column(f"dir{place - 2}", pc.list_element(parts, place))
    return picked


QUERIES: dict[str, Query] = {
    query.__name__: query
    for query in (q0, q1, q2, q5, q7, q13, q14, q15, q16, q17, q18, q21, q22)
}  # fmt: skip
