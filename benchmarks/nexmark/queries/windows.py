"""Queries over windows of event time, sessions and the clock."""

from pyflink.common import Time, Types
from pyflink.datastream import DataStream
from pyflink.datastream.functions import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

from benchmarks.nexmark.queries.shared import (
    BID,
    LONG,
    PERSON,
    SHORT_BID,
    TEXT,
    Settings,
    bids_of,
    longs,
    short_bid,
    timed,
)


def q5(events: DataStream, settings: Settings) -> DataStream:
    """(auction, bids) of the auctions with the most bids in each sliding window; all of them."""
    size_s, slide_s = settings.window_s, settings.window_s // 5
    bids = bids_of(events).map(lambda event: (event[3][0], event[3][5]), output_type=longs(2))
    counts = (
        timed(bids, 1)
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .window(SlidingEventTimeWindows.of(Time.seconds(size_s), Time.seconds(slide_s)))
        .aggregate(Counts(), WithKeyAndEnd(), accumulator_type=Types.LONG(), output_type=longs(3))
    )
    return most_of_windows(counts, slide_s)


def most_of_windows(counts: DataStream, slide_s: int) -> DataStream:
    """(auction, count) of the greatest counts of each window; counts: (end, auction, count)."""
    return (
        counts.key_by(lambda row: row[0], key_type=Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(slide_s)))
        .process(Greatest(), output_type=longs(2))
    )


class Counts(AggregateFunction):
    """The number of records."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKeyAndEnd(ProcessWindowFunction):
    """(end of the window, key, count)."""

    def process(self, key, context, elements):
        for count in elements:
            yield context.window().end, key, count


class Greatest(ProcessWindowFunction):
    """(auction, count) of all with the greatest count."""

    def process(self, key, context, elements):
        rows = list(elements)
        most = max(row[2] for row in rows)
        for row in rows:
            if row[2] == most:
                yield row[1], row[2]


def q7(events: DataStream, settings: Settings) -> DataStream:
    """The bids of the highest price in each window."""
    window = TumblingEventTimeWindows.of(Time.seconds(settings.window_s))
    bids = bids_of(events).map(
        lambda event: (event[3][0], event[3][1], event[3][2], event[3][5], event[3][6]),
        output_type=SHORT_BID,
    )
    return (
        timed(bids, 3)
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .window(window)
        .aggregate(
            Highest(), Each(), accumulator_type=Types.LIST(short_bid()), output_type=SHORT_BID
        )
        .window_all(window)
        .process(HighestOfAll(), output_type=SHORT_BID)
    )


class Highest(AggregateFunction):
    """The bids of the highest price."""

    def create_accumulator(self) -> list:
        return []

    def add(self, value, accumulator: list) -> list:
        if not accumulator or value[2] > accumulator[0][2]:
            return [value]
        if value[2] == accumulator[0][2]:
            return [*accumulator, value]
        return accumulator

    def get_result(self, accumulator: list) -> list:
        return accumulator

    def merge(self, acc_a: list, acc_b: list) -> list:
        return highest([*acc_a, *acc_b])


def highest(bids: list) -> list:
    most = max((bid[2] for bid in bids), default=0)
    return [bid for bid in bids if bid[2] == most]


class Each(ProcessWindowFunction):
    """The results of a window one by one."""

    def process(self, key, context, elements):
        for bids in elements:
            yield from map(tuple, bids)


class HighestOfAll(ProcessAllWindowFunction):
    """The bids of the highest price."""

    def process(self, context, elements):
        yield from map(tuple, highest(list(elements)))


def q8(events: DataStream, settings: Settings) -> DataStream:
    """(person, name, start of the window) of who came and sold within a window."""
    moves = events.filter(lambda event: event[0] != BID).map(
        move, output_type=Types.TUPLE([LONG, TEXT, LONG])
    )
    return (
        timed(moves, 2)
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(settings.window_s)))
        .aggregate(
            CameAndSold(),
            NewSeller(),
            accumulator_type=Types.TUPLE([Types.STRING(), Types.BOOLEAN()]),
            output_type=Types.TUPLE([LONG, TEXT, LONG]),
        )
    )


def move(event) -> tuple[int, str, int]:
    """(person, name, or nothing of one who sells, time)."""
    if event[0] == PERSON:
        return event[1][0], event[1][1], event[1][6]
    return event[2][7], "", event[2][5]


class CameAndSold(AggregateFunction):
    """(name of one who came, true for one who sold)."""

    def create_accumulator(self) -> tuple[str, bool]:
        return "", False

    def add(self, value, accumulator: tuple[str, bool]) -> tuple[str, bool]:
        return (value[1], accumulator[1]) if value[1] else (accumulator[0], True)

    def get_result(self, accumulator: tuple[str, bool]) -> tuple[str, bool]:
        return accumulator

    def merge(self, acc_a: tuple[str, bool], acc_b: tuple[str, bool]) -> tuple[str, bool]:
        return acc_a[0] or acc_b[0], acc_a[1] or acc_b[1]


class NewSeller(ProcessWindowFunction):
    """One row where both hold."""

    def process(self, key, context, elements):
        for name, sold in elements:
            if name and sold:
                yield key, name, context.window().start


def q11(events: DataStream, settings: Settings) -> DataStream:
    """(bidder, bids, start, end) of each session of a bidder."""
    bids = bids_of(events).map(lambda event: (event[3][1], event[3][5]), output_type=longs(2))
    return (
        timed(bids, 1)
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .window(EventTimeSessionWindows.with_gap(Time.seconds(settings.window_s)))
        .aggregate(Counts(), WithWindow(), accumulator_type=Types.LONG(), output_type=longs(4))
    )


class WithWindow(ProcessWindowFunction):
    """(key, count, start, end)."""

    def process(self, key, context, elements):
        window = context.window()
        for count in elements:
            yield key, count, window.start, window.end


def q12(events: DataStream, settings: Settings) -> DataStream:
    """(bidder, bids, start, end) of each window of processing time."""
    bidders = bids_of(events).map(lambda event: event[3][1], output_type=Types.LONG())
    return counted_by_the_clock(bidders, settings)


def counted_by_the_clock(bidders: DataStream, settings: Settings) -> DataStream:
    return (
        bidders.key_by(lambda bidder: bidder, key_type=Types.LONG())
        .window(TumblingProcessingTimeWindows.of(Time.seconds(settings.window_s)))
        .aggregate(Counts(), WithWindow(), accumulator_type=Types.LONG(), output_type=longs(4))
    )
