"""Queries that keep aggregates, the newest and the greatest of each key."""

from bisect import bisect_right

from pyflink.common import Types
from pyflink.datastream import DataStream, RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)

from benchmarks.nexmark.queries.shared import (
    BID_TUPLE,
    CHEAP,
    DAY_MS,
    DEAR,
    LONG,
    MINUTE_MS,
    RANKS,
    TEXT,
    Settings,
    bids_of,
    day_of,
    longs,
    minute_of,
)


def q15(events: DataStream, settings: Settings) -> DataStream:
    """(day, bids, bidders, auctions), each in all and of three ranks of prices."""
    return (
        bids_of(events)
        .map(
            lambda event: (day_of(event[3][5] // DAY_MS), event[3][1], event[3][0], event[3][2]),
            output_type=Types.TUPLE([TEXT, LONG, LONG, LONG]),
        )
        .key_by(lambda row: row[0], key_type=Types.STRING())
        .process(Distinct(), output_type=Types.TUPLE([TEXT, *[LONG] * 12]))
    )


def rank_of(price: int) -> int:
    """1, 2 or 3."""
    if price < CHEAP:
        return 1
    return 2 if price < DEAR else 3


class DistinctCounts(KeyedProcessFunction):
    """Twelve counts of a key: bids, bidders and auctions, in all and by rank of the price."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", longs(12)))
        # For each bidder and auction, a bit for each rank that was seen.
        self.bidders = runtime_context.get_map_state(MapStateDescriptor("bidders", LONG, LONG))
        self.auctions = runtime_context.get_map_state(MapStateDescriptor("auctions", LONG, LONG))

    def counted(self, bidder: int, auction: int, price: int) -> tuple[int, ...]:
        """The counts with one more bid."""
        counts = list(self.counts.value() or (0,) * 12)
        rank = rank_of(price)
        counts[0] += 1
        counts[rank] += 1
        for seen, key, first in ((self.bidders, bidder, 4), (self.auctions, auction, 8)):
            ranks = seen.get(key) or 0
            if not ranks:
                counts[first] += 1
            if not ranks & 1 << rank:
                counts[first + rank] += 1
                seen.put(key, ranks | 1 << rank)
        result = tuple(counts)
        self.counts.update(result)
        return result


class Distinct(DistinctCounts):
    """(key, counts so far) of (key, bidder, auction, price)."""

    def process_element(self, value, ctx):
        yield (value[0], *self.counted(value[1], value[2], value[3]))


def q16(events: DataStream, settings: Settings) -> DataStream:
    """(channel, day, last minute, the counts of q15)."""
    return (
        bids_of(events)
        .map(
            channel_bid,
            output_type=Types.TUPLE([TEXT, TEXT, TEXT, LONG, LONG, LONG]),
        )
        .key_by(lambda row: (row[0], row[1]), key_type=Types.TUPLE([TEXT, TEXT]))
        .process(DistinctOfChannel(), output_type=Types.TUPLE([TEXT] * 3 + [LONG] * 12))
    )


def channel_bid(event) -> tuple:
    """(channel, day, minute, bidder, auction, price)."""
    bid = event[3]
    time = bid[5]
    day, minute = day_of(time // DAY_MS), minute_of(time // MINUTE_MS)
    return bid[3], day, minute, bid[1], bid[0], bid[2]


class DistinctOfChannel(DistinctCounts):
    """(channel, day, last minute, counts so far)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.minute = runtime_context.get_state(ValueStateDescriptor("minute", TEXT))

    def process_element(self, value, ctx):
        minute = max(self.minute.value() or "", value[2])
        self.minute.update(minute)
        yield (value[0], value[1], minute, *self.counted(value[3], value[4], value[5]))


def q17(events: DataStream, settings: Settings) -> DataStream:
    """(auction, day, bids in all and of three ranks; least, greatest, mean and sum of prices)."""
    return (
        bids_of(events)
        .map(
            lambda event: (event[3][0], day_of(event[3][5] // DAY_MS), event[3][2]),
            output_type=Types.TUPLE([LONG, TEXT, LONG]),
        )
        .key_by(lambda row: (row[0], row[1]), key_type=Types.TUPLE([LONG, TEXT]))
        .process(PricesOfDay(), output_type=Types.TUPLE([LONG, TEXT, *[LONG] * 8]))
    )


class PricesOfDay(KeyedProcessFunction):
    """What is known of an auction's prices so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # Bids, those of three ranks, least, greatest, sum.
        self.prices = runtime_context.get_state(ValueStateDescriptor("prices", longs(7)))

    def process_element(self, value, ctx):
        auction, day, price = value
        bids, *ranks, least, most, total = self.prices.value() or (0, 0, 0, 0, price, price, 0)
        bids, total = bids + 1, total + price
        ranks[rank_of(price) - 1] += 1
        least, most = min(least, price), max(most, price)
        self.prices.update((bids, *ranks, least, most, total))
        yield (auction, day, bids, *ranks, least, most, total // bids, total)


def q18(events: DataStream, settings: Settings) -> DataStream:
    """The newest bid of each bidder on each auction."""
    return (
        bids_of(events)
        .map(lambda event: tuple(event[3]), output_type=BID_TUPLE)
        .key_by(lambda bid: (bid[1], bid[0]), key_type=longs(2))
        .process(Newest(), output_type=BID_TUPLE)
    )


class Newest(KeyedProcessFunction):
    """Each bid that is not older than the one before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.newest = runtime_context.get_state(ValueStateDescriptor("newest", BID_TUPLE))

    def process_element(self, value, ctx):
        newest = self.newest.value()
        if newest is None or value[5] >= newest[5]:
            self.newest.update(value)
            yield value


def q19(events: DataStream, settings: Settings) -> DataStream:
    """The ten highest bids of each auction with their ranks: each that has come to a new rank."""
    return (
        bids_of(events)
        .map(lambda event: tuple(event[3]), output_type=BID_TUPLE)
        .key_by(lambda bid: bid[0], key_type=Types.LONG())
        .process(TopBids(), output_type=Types.TUPLE([*BID_TUPLE.get_field_types(), LONG]))
    )


class TopBids(KeyedProcessFunction):
    """(bid, rank); equal prices are ranked in the order in which they came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.top = runtime_context.get_list_state(ListStateDescriptor("top", BID_TUPLE))

    def process_element(self, value, ctx):
        top = list(self.top.get() or ())
        place = bisect_right(top, -value[2], key=lambda bid: -bid[2])
        if place == RANKS:
            return
        top.insert(place, value)
        del top[RANKS:]
        self.top.update(top)
        for rank in range(place, len(top)):
            yield (*top[rank], rank + 1)
