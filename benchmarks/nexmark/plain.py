"""What each query must give, computed without streams from the same events."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from benchmarks.nexmark.generator import AUCTION, BID, PERSON

KEYS = {
    "q4": (0,),
    "q6": (0,),
    "q9": (0,),
    "q15": (0,),
    "q16": (0, 1),
    "q17": (0, 1),
    "q18": (0, 1),
    "q19": (0, 7),
}
"""Fields that are the key of queries whose results replace earlier ones."""

RATE = Decimal("0.908")
SLIDES = 5
Events = Sequence[tuple]
Rows = Iterable[tuple]


def row_of(result: object) -> tuple:
    """A query's result as a tuple: a tuple, a dict of a batch's row, or a text."""
    if isinstance(result, dict):
        return tuple(result.values())
    return result if isinstance(result, tuple) else (result,)


def final(query: str, rows: Rows) -> Counter[tuple]:
    """What stands at the end: all rows, or the last one of each key."""
    key = KEYS.get(query)
    if key is None:
        return Counter(rows)
    return Counter({tuple(row[field] for field in key): row for row in rows}.values())


def expected(query: str, events: Events, window_ms: int, *, sql: bool = False) -> Counter[tuple]:
    """The rows that stand at the end. sql: q7 as its SQL text has it."""
    if query == "q7" and sql:
        return Counter(q7_sql(events, window_ms))
    return Counter(PLAIN[query](events, window_ms))


def differences(
    query: str, rows: Rows, events: Events, window_ms: int, *, sql: bool = False
) -> list[str]:
    """Empty, or what a query gave too much and too little: the first few of both.

    q12 depends on the clock: each row is looked at, and no more bids than there are.
    """
    if query == "q12":
        return windows_of_the_clock(rows, events, window_ms)
    found, wanted = final(query, rows), expected(query, events, window_ms, sql=sql)
    surplus, missing = found - wanted, wanted - found
    return [f"too much: {row}" for row in list(surplus)[:3]] + [
        f"missing: {row}" for row in list(missing)[:3]
    ]


def windows_of_the_clock(rows: Rows, events: Events, window_ms: int) -> list[str]:
    wrong = []
    counted: Counter[int] = Counter()
    for row in rows:
        bidder, count, start, end = row
        counted[bidder] += count
        if start % window_ms or end - start != window_ms or count < 1:
            wrong.append(f"no window: {row}")
    bids = Counter(bid[1] for bid in bids_of(events))
    wrong += [f"too much: bidder {bidder}" for bidder in counted - bids]
    return wrong[:3]


def bids_of(events: Events) -> list[tuple]:
    return [event[3] for event in events if event[0] == BID]


def auctions_of(events: Events) -> list[tuple]:
    return [event[2] for event in events if event[0] == AUCTION]


def persons_of(events: Events) -> list[tuple]:
    return [event[1] for event in events if event[0] == PERSON]


def by_auction(events: Events) -> dict[int, list[tuple]]:
    found: dict[int, list[tuple]] = defaultdict(list)
    for bid in bids_of(events):
        found[bid[0]].append(bid)
    return found


def winners(events: Events) -> Iterator[tuple[tuple, tuple]]:
    """Auctions with their winning bids."""
    bids = by_auction(events)
    for auction in auctions_of(events):
        in_time = [bid for bid in bids[auction[0]] if auction[5] <= bid[5] <= auction[6]]
        if in_time:
            yield auction, min(in_time, key=lambda bid: (-bid[2], bid[5]))


def moment(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, UTC)


def day_of(time: int) -> str:
    return f"{moment(time):%Y-%m-%d}"


def q0(events: Events, window_ms: int) -> Rows:
    return [(b[0], b[1], b[2], b[5], b[6]) for b in bids_of(events)]


def q1(events: Events, window_ms: int) -> Rows:
    return [(b[0], b[1], b[2] * RATE, b[5], b[6]) for b in bids_of(events)]


def q2(events: Events, window_ms: int) -> Rows:
    return [(b[0], b[2]) for b in bids_of(events) if b[0] % 123 == 0]


def q3(events: Events, window_ms: int) -> Rows:
    persons = {p[0]: (p[1], p[4], p[5]) for p in persons_of(events) if p[5] in {"OR", "ID", "CA"}}
    return [
        (*persons[auction[7]], auction[0])
        for auction in auctions_of(events)
        if auction[8] == 10 and auction[7] in persons
    ]


def q4(events: Events, window_ms: int) -> Rows:
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, bid in winners(events):
        prices[auction[8]].append(bid[2])
    return [(category, sum(each) // len(each)) for category, each in prices.items()]


def q5(events: Events, window_ms: int) -> Rows:
    slide = window_ms // SLIDES
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in bids_of(events):
        last = bid[5] // slide * slide
        for start in range(last - window_ms + slide, last + 1, slide):
            windows[start][bid[0]] += 1
    for counts in windows.values():
        most = max(counts.values())
        yield from ((auction, count) for auction, count in counts.items() if count == most)


def q6(events: Events, window_ms: int) -> Rows:
    closed: dict[int, list[tuple]] = defaultdict(list)
    for auction, bid in winners(events):
        closed[auction[7]].append((bid[5], auction[0], bid[2]))
    for seller, sold in closed.items():
        last = [price for _, _, price in sorted(sold)[-10:]]
        yield seller, sum(last) // len(last)


def best_of_windows(events: Events, window_ms: int) -> dict[int, int]:
    """The highest price by the window's end."""
    best: dict[int, int] = defaultdict(int)
    for bid in bids_of(events):
        end = (bid[5] // window_ms + 1) * window_ms
        best[end] = max(best[end], bid[2])
    return best


def q7(events: Events, window_ms: int) -> Rows:
    best = best_of_windows(events, window_ms)
    for bid in bids_of(events):
        if bid[2] == best[(bid[5] // window_ms + 1) * window_ms]:
            yield bid[0], bid[1], bid[2], bid[5], bid[6]


def q7_sql(events: Events, window_ms: int) -> Rows:
    """With a bid at the very end of a window, and once for each window."""
    best = best_of_windows(events, window_ms)
    for bid in bids_of(events):
        ends = [(bid[5] // window_ms + 1) * window_ms]
        if bid[5] % window_ms == 0:
            ends.append(bid[5])
        for end in ends:
            if best.get(end) == bid[2]:
                yield bid[0], bid[1], bid[2], bid[5], bid[6]


def q8(events: Events, window_ms: int) -> Rows:
    sold = {(a[7], a[5] // window_ms) for a in auctions_of(events)}
    for person in persons_of(events):
        window = person[6] // window_ms
        if (person[0], window) in sold:
            yield person[0], person[1], window * window_ms


def q9(events: Events, window_ms: int) -> Rows:
    return [(*auction, *bid) for auction, bid in winners(events)]


def q10(events: Events, window_ms: int) -> Rows:
    return [
        (f"{b[0]},{b[1]},{b[2]},{b[5]},{b[6]},{moment(b[5]):%Y-%m-%d,%H:%M}",)
        for b in bids_of(events)
    ]


def q11(events: Events, window_ms: int) -> Rows:
    times: dict[int, list[int]] = defaultdict(list)
    for bid in bids_of(events):
        times[bid[1]].append(bid[5])
    for bidder, each in times.items():
        each.sort()
        start, last, count = each[0], each[0], 0
        for time in each:
            if time - last >= window_ms:
                yield bidder, count, start, last + window_ms
                start, count = time, 0
            last, count = time, count + 1
        yield bidder, count, start, last + window_ms


def q13(events: Events, window_ms: int) -> Rows:
    return [(b[0], b[1], b[2], b[5], str(b[0] % 10_000)) for b in bids_of(events)]


def q14(events: Events, window_ms: int) -> Rows:
    for bid in bids_of(events):
        price, hour = bid[2] * RATE, moment(bid[5]).hour
        if 1_000_000 < price < 50_000_000:
            light = "dayTime" if hour in range(8, 19) else "nightTime"
            name = "otherTime" if hour in {7, 19} else light
            yield bid[0], bid[1], price, name, bid[5], bid[6], bid[6].count("c")


def twelve(bids: list[tuple]) -> tuple[int, ...]:
    """Numbers of bids, bidders and auctions, in all and of three ranks."""
    ranks = [
        bids,
        [bid for bid in bids if bid[2] < 10_000],
        [bid for bid in bids if 10_000 <= bid[2] < 1_000_000],
        [bid for bid in bids if bid[2] >= 1_000_000],
    ]
    bidders = [len({bid[1] for bid in each}) for each in ranks]
    auctions = [len({bid[0] for bid in each}) for each in ranks]
    return (*map(len, ranks), *bidders, *auctions)


def grouped(events: Events, key: Callable[[tuple], tuple]) -> dict[tuple, list[tuple]]:
    groups: dict[tuple, list[tuple]] = defaultdict(list)
    for bid in bids_of(events):
        groups[key(bid)].append(bid)
    return groups


def q15(events: Events, window_ms: int) -> Rows:
    days = grouped(events, lambda bid: (day_of(bid[5]),))
    return [(*day, *twelve(bids)) for day, bids in days.items()]


def q16(events: Events, window_ms: int) -> Rows:
    channels = grouped(events, lambda bid: (bid[3], day_of(bid[5])))
    for key, bids in channels.items():
        yield (*key, max(f"{moment(bid[5]):%H:%M}" for bid in bids), *twelve(bids))


def q17(events: Events, window_ms: int) -> Rows:
    auctions = grouped(events, lambda bid: (bid[0], day_of(bid[5])))
    for key, bids in auctions.items():
        prices = [bid[2] for bid in bids]
        total = sum(prices)
        mean = total // len(prices)
        yield (*key, *twelve(bids)[:4], min(prices), max(prices), mean, total)


def q18(events: Events, window_ms: int) -> Rows:
    bids = sorted(bids_of(events), key=lambda bid: bid[5])
    return {(bid[1], bid[0]): bid for bid in bids}.values()


def q19(events: Events, window_ms: int) -> Rows:
    for bids in by_auction(events).values():
        for rank, bid in enumerate(sorted(bids, key=lambda bid: -bid[2])[:10], start=1):
            yield (*bid, rank)


def q20(events: Events, window_ms: int) -> Rows:
    auctions = {auction[0]: auction for auction in auctions_of(events) if auction[8] == 10}
    return [(*b, *auctions[b[0]][1:]) for b in bids_of(events) if b[0] in auctions]


def q21(events: Events, window_ms: int) -> Rows:
    known = {"Apple": "0", "Google": "1", "Facebook": "2", "Baidu": "3"}
    for bid in bids_of(events):
        channel_id = known.get(bid[3]) or dict(
            part.split("=") for part in bid[4].split("?")[1].split("&")
        ).get("channel_id")
        if channel_id is not None:
            yield bid[0], bid[1], bid[2], bid[3], channel_id


def q22(events: Events, window_ms: int) -> Rows:
    return [(*b[:4], *b[4].removeprefix("https://").split("/")[1:4]) for b in bids_of(events)]


PLAIN: dict[str, Callable[[Events, int], Rows]] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
        q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip
