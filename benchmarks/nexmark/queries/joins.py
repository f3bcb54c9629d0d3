"""Queries that join bids with auctions, and auctions with persons."""

from pyflink.common import Types
from pyflink.datastream import DataStream, RuntimeContext
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import (
    ListStateDescriptor,
    ValueStateDescriptor,
)

from benchmarks.nexmark.queries.shared import (
    AUCTION,
    AUCTION_TUPLE,
    BID,
    BID_TUPLE,
    LAST_AUCTIONS,
    LONG,
    PERSON,
    TEXT,
    Settings,
    longs,
    timed,
)


def q3(events: DataStream, settings: Settings) -> DataStream:
    """Who sells in category 10, of three states."""
    return (
        events.filter(sells_or_is_local)
        .key_by(
            lambda event: event[1][0] if event[0] == PERSON else event[2][7], key_type=Types.LONG()
        )
        .process(LocalSellers(), output_type=Types.TUPLE([TEXT, TEXT, TEXT, LONG]))
    )


def sells_or_is_local(event) -> bool:
    if event[0] == PERSON:
        return event[1][5] in ("OR", "ID", "CA")
    return event[0] == AUCTION and event[2][8] == 10


class LocalSellers(KeyedProcessFunction):
    """Joins persons with their auctions, whichever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.person = runtime_context.get_state(
            ValueStateDescriptor("person", Types.TUPLE([TEXT, TEXT, TEXT]))
        )
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", LONG))

    def process_element(self, value, ctx):
        if value[0] == AUCTION:
            person = self.person.value()
            if person is None:
                self.waiting.add(value[2][0])
            else:
                yield (*person, value[2][0])
            return
        person = (value[1][1], value[1][4], value[1][5])
        self.person.update(person)
        for auction in self.waiting.get() or ():
            yield (*person, auction)
        self.waiting.clear()


def q4(events: DataStream, settings: Settings) -> DataStream:
    """The average of the highest bids, by category."""
    return (
        events.filter(lambda event: event[0] != PERSON)
        .map(offer, output_type=longs(5))
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .process(HighestBids(), output_type=longs(3))
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .process(Averages(), output_type=longs(2))
    )


def offer(event) -> tuple[int, int, int, int, int]:
    """(auction, type, time, expires or price, category or 0)."""
    if event[0] == AUCTION:
        auction = event[2]
        return auction[0], AUCTION, auction[5], auction[6], auction[8]
    bid = event[3]
    return bid[0], BID, bid[5], bid[2], 0


class HighestBids(KeyedProcessFunction):
    """(category, growth of an auction's highest bid, 1 where it is its first one)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # Time, expires, category, highest bid so far or 0.
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(4)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", longs(2)))

    def process_element(self, value, ctx):
        auction = self.auction.value()
        if value[1] == BID:
            if auction is None:
                self.early.add((value[2], value[3]))
                return
            begin, expires, category, highest = auction
            if begin <= value[2] <= expires and value[3] > highest:
                self.auction.update((begin, expires, category, value[3]))
                yield category, value[3] - highest, 0 if highest else 1
            return
        begin, expires, category = value[2], value[3], value[4]
        highest = 0
        for time, price in self.early.get() or ():
            if begin <= time <= expires:
                highest = max(highest, price)
        self.early.clear()
        self.auction.update((begin, expires, category, highest))
        if highest:
            yield category, highest, 1


class Averages(KeyedProcessFunction):
    """(category, average so far)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", longs(2)))

    def process_element(self, value, ctx):
        total, count = self.total.value() or (0, 0)
        total, count = total + value[1], count + value[2]
        self.total.update((total, count))
        yield value[0], total // count


def q6(events: DataStream, settings: Settings) -> DataStream:
    """The average price of a seller's last ten auctions that were closed."""
    return (
        timed(
            events.filter(lambda event: event[0] != PERSON).map(sale, output_type=longs(5)),
            2,
        )
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .process(Closed(), output_type=longs(4))
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .process(LastAverages(), output_type=longs(2))
    )


def sale(event) -> tuple[int, int, int, int, int]:
    """(auction, type, time, expires or price, seller or 0)."""
    if event[0] == AUCTION:
        auction = event[2]
        return auction[0], AUCTION, auction[5], auction[6], auction[7]
    bid = event[3]
    return bid[0], BID, bid[5], bid[2], 0


class Closed(KeyedProcessFunction):
    """(seller, time of the winning bid, auction, price) once an auction has expired."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # Time, expires, seller.
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", longs(3)))
        # Price, time.
        self.best = runtime_context.get_state(ValueStateDescriptor("best", longs(2)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", longs(2)))

    def process_element(self, value, ctx):
        auction = self.auction.value()
        if value[1] == BID:
            if auction is None:
                self.early.add((value[3], value[2]))
            elif auction[0] <= value[2] <= auction[1]:
                best = self.best.value()
                if best is None or better(value[3], value[2], best):
                    self.best.update((value[3], value[2]))
            return
        self.auction.update((value[2], value[3], value[4]))
        best = None
        for price, time in self.early.get() or ():
            in_time = value[2] <= time <= value[3]
            if in_time and (best is None or better(price, time, best)):
                best = (price, time)
        self.early.clear()
        if best is not None:
            self.best.update(best)
        ctx.timer_service().register_event_time_timer(value[3])
        return
        yield

    def on_timer(self, timestamp: int, ctx):
        best = self.best.value()
        if best is not None:
            yield self.auction.value()[2], best[1], ctx.get_current_key(), best[0]
        self.auction.clear()
        self.best.clear()


def better(price: int, time: int, best: tuple[int, int]) -> bool:
    """True for a higher price, or an equal one that came earlier; best: (price, time)."""
    return price > best[0] or (price == best[0] and time < best[1])


class LastAverages(KeyedProcessFunction):
    """(seller, average of the last auctions in the order of their winning bids)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", longs(3)))

    def process_element(self, value, ctx):
        last = sorted([*map(tuple, self.last.get() or ()), (value[1], value[2], value[3])])
        last = last[-LAST_AUCTIONS:]
        self.last.update(last)
        yield value[0], sum(price for _, _, price in last) // len(last)


def q9(events: DataStream, settings: Settings) -> DataStream:
    """Each auction with its best bid so far."""
    return (
        events.filter(lambda event: event[0] != PERSON)
        .key_by(auction_of, key_type=Types.LONG())
        .process(
            BestBids(),
            output_type=Types.TUPLE(
                [*AUCTION_TUPLE.get_field_types(), *BID_TUPLE.get_field_types()]
            ),
        )
    )


def auction_of(event) -> int:
    return event[2][0] if event[0] == AUCTION else event[3][0]


class BestBids(KeyedProcessFunction):
    """The auction's fields, then those of the best bid, each time that there is a better one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", AUCTION_TUPLE))
        # Price, time.
        self.best = runtime_context.get_state(ValueStateDescriptor("best", longs(2)))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", BID_TUPLE))

    def process_element(self, value, ctx):
        if value[0] == BID:
            auction, bid = self.auction.value(), value[3]
            if auction is None:
                self.early.add(tuple(bid))
                return
            winner, best = bid, self.best.value()
            if not auction[5] <= bid[5] <= auction[6]:
                return
            if best is not None and not better(bid[2], bid[5], best):
                return
        else:
            auction, winner = tuple(value[2]), None
            self.auction.update(auction)
            for bid in self.early.get() or ():
                in_time = auction[5] <= bid[5] <= auction[6]
                if in_time and (winner is None or better(bid[2], bid[5], (winner[2], winner[5]))):
                    winner = bid
            self.early.clear()
            if winner is None:
                return
        self.best.update((winner[2], winner[5]))
        yield (*auction, *winner)


def q20(events: DataStream, settings: Settings) -> DataStream:
    """Bids on auctions of category 10, with their auctions."""
    return (
        events.filter(lambda event: event[0] != PERSON)
        .key_by(auction_of, key_type=Types.LONG())
        .process(
            BidsOfCategory(),
            output_type=Types.TUPLE(
                [*BID_TUPLE.get_field_types(), *AUCTION_TUPLE.get_field_types()[1:]]
            ),
        )
    )


class BidsOfCategory(KeyedProcessFunction):
    """Joins; what waits for its auction is dropped when that one has another category."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.wanted = runtime_context.get_state(ValueStateDescriptor("wanted", Types.BOOLEAN()))
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", AUCTION_TUPLE))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", BID_TUPLE))

    def process_element(self, value, ctx):
        if value[0] == BID:
            wanted = self.wanted.value()
            if wanted is None:
                self.early.add(tuple(value[3]))
            elif wanted:
                yield (*value[3], *self.auction.value()[1:])
            return
        auction = tuple(value[2])
        wanted = auction[8] == 10
        self.wanted.update(wanted)
        if wanted:
            self.auction.update(auction)
            for bid in self.early.get() or ():
                yield (*bid, *auction[1:])
        self.early.clear()
