"""The events of Nexmark: persons, auctions and bids of an online auction, by their number.

An event is a function of its number, the seed and the rate alone, so that every reader, parallelism
and restore sees the same ones. `NexmarkGenerator.java` among the peers makes them bit for bit.
Draws come from a counter-based generator: SplitMix64's mix of (seed, number, draw). Prices need
powers of ten, whose last bit differs between math libraries; products of square roots do not.

Rules: numbers and ids from 0, bidder and seller by the event's number, no disorder.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PERSONS, AUCTIONS, PERIOD = 1, 3, 50
"""Of each 50 consecutive events the first is a person, the next three are auctions."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
LEAD, ACTIVE_PEOPLE, IN_FLIGHT_AUCTIONS, HOT_BATCH = 10, 1000, 100, 100
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
UNTIL_MORE_AUCTIONS = 100 * PERIOD // AUCTIONS
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
)  # fmt: skip
LAST_NAMES = (
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
)  # fmt: skip
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
    "Kent", "Cheyenne",
)  # fmt: skip
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
TEXT_BYTES, LONGEST = 1 << 20, 1024
"""Texts are slices of a fixed text, which begin so far before its end at least."""

PERSON, AUCTION, BID = 0, 1, 2
"""Values of an event's first field."""
PERSON_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email_address", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date_time", pa.int64()),
        ("extra", pa.string()),
    ]
)
AUCTION_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("item_name", pa.string()),
        ("description", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("date_time", pa.int64()),
        ("expires", pa.int64()),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID_TYPE = pa.struct(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("date_time", pa.int64()),
        ("extra", pa.string()),
    ]
)
TYPES = (PERSON_TYPE, AUCTION_TYPE, BID_TYPE)
EVENT = pa.schema(
    [
        ("event_type", pa.int32()),
        ("person", PERSON_TYPE),
        ("auction", AUCTION_TYPE),
        ("bid", BID_TYPE),
    ]
)

Columns = list[pa.Array]
"""Columns of a type's records, in the order of its fields."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SEEDS = {"events": 0x6E65786D61726B, "letters": 0x6C657474657273, "words": 0x776F726473}
LOW = np.uint64(0xFFFFFFFF)
HIGH_BITS = np.uint64(32)


def mixed(seed: int, counters: np.ndarray) -> np.ndarray:
    """A draw of 64 bits for each counter, shape (rows,), uint64."""
    z = (counters.astype(np.uint64) + np.uint64(1)) * GOLDEN
    z += np.uint64(seed)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def below(draws: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """Numbers in [0, bound) from draws of 32 bits, int64."""
    return ((draws * np.asarray(bound, dtype=np.uint64)) >> HIGH_BITS).astype(np.int64)


def pair(numbers: np.ndarray, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Two draws of 32 bits for each event; draw: from 0 to 15."""
    z = mixed(SEEDS["events"], numbers * 16 + draw)
    return z >> HIGH_BITS, z & LOW


@cache
def letters() -> pa.Buffer:
    """The text that `extra` is cut from: a to z."""
    z = mixed(SEEDS["letters"], np.arange(TEXT_BYTES))
    return pa.py_buffer((below(z >> HIGH_BITS, 26) + ord("a")).astype(np.uint8))


@cache
def words() -> pa.Buffer:
    """The text that names and descriptions are cut from: one of 13 is a blank."""
    z = mixed(SEEDS["words"], np.arange(TEXT_BYTES))
    signs = np.where(below(z & LOW, 13) == 0, ord(" "), below(z >> HIGH_BITS, 26) + ord("a"))
    return pa.py_buffer(signs.astype(np.uint8))


@cache
def powers() -> tuple[np.ndarray, np.ndarray]:
    """100 · 10^(6·i/2^16), and 10^(6·i/2^32), for i from 0 to 2^16 - 1."""
    places = np.arange(1 << 16)
    tables = []
    root = np.float64(1000.0)
    for _ in range(2):
        table = np.ones(1 << 16)
        for bit in range(15, -1, -1):
            table[(places >> bit) & 1 == 1] *= root
            root = np.sqrt(root)
        tables.append(table)
    return tables[0] * 100.0, tables[1]


def prices(draws: np.ndarray) -> np.ndarray:
    """Cents, uniform in their logarithm from 100 to 10^8."""
    coarse, fine = powers()
    product = coarse[(draws >> np.uint64(16)).astype(np.int64)]
    product *= fine[(draws & np.uint64(0xFFFF)).astype(np.int64)]
    product += 0.5
    return product.astype(np.int64)


@cache
def channels() -> tuple[pa.Array, pa.Array]:
    """Names and URLs: the hot channels, then the 10,000 others."""
    numbers = np.arange(CHANNELS + len(HOT_CHANNELS))
    text = words().to_pybytes().decode().replace(" ", "_")
    folders: list[list[str]] = []
    for draw in range(3):
        z = mixed(SEEDS["words"], numbers * 16 + draw + TEXT_BYTES)
        starts = below(z >> HIGH_BITS, TEXT_BYTES - LONGEST).tolist()
        ends = below(z & LOW, 2).tolist()
        folders.append([text[a : a + 3 + more] for a, more in zip(starts, ends, strict=True)])
    z = mixed(SEEDS["words"], numbers * 16 + 3 + TEXT_BYTES)
    with_id = below(z >> HIGH_BITS, 10) > 0
    names, urls = [], []
    for number in numbers.tolist():
        url = (
            f"https://www.nexmark.com/{'/'.join(each[number] for each in folders)}/item.htm?query=1"
        )
        other = number - len(HOT_CHANNELS)
        if other >= 0 and with_id[number]:
            url += f"&channel_id={reversed_bits(other)}"
        names.append(HOT_CHANNELS[number] if other < 0 else f"channel-{other}")
        urls.append(url)
    return pa.array(names), pa.array(urls)


@cache
def channel_texts() -> tuple[np.ndarray, np.ndarray]:
    """The same as arrays of Python's texts."""
    names, urls = (np.array(each.to_pylist(), dtype=object) for each in channels())
    return names, urls


def reversed_bits(number: int) -> int:
    """The absolute value of a 32-bit integer with its bits in the other order."""
    value = int(f"{number:032b}"[::-1], 2)
    return value if value < 1 << 31 else (1 << 32) - value


def slices(text: pa.Buffer, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Pieces of a text as an Arrow array of strings."""
    heads = np.ndarray((TEXT_BYTES - 3,), dtype=np.int32, buffer=text, strides=(1,))
    views = np.empty((len(starts), 4), dtype=np.int32)
    views[:, 0], views[:, 1], views[:, 2], views[:, 3] = lengths, heads[starts], 0, starts
    buffers = [None, pa.py_buffer(views), text]
    if (lengths <= 12).any():
        # A view of up to 12 bytes holds them itself.
        table = np.frombuffer(text, np.uint8)
        bytes_of = views.view(np.uint8).reshape(len(starts), 16)
        short = np.flatnonzero(lengths <= 12)
        places = np.arange(12)
        inside = table[starts[short, None] + places]
        inside[places >= lengths[short, None]] = 0
        bytes_of[short, 4:] = inside
    return pa.Array.from_buffers(pa.string_view(), len(starts), buffers).cast(pa.string())


def texts(numbers: np.ndarray, draw: int, longest: int) -> pa.Array:
    """Words of 3 to longest - 1 signs, without blanks at their ends."""
    high, low = pair(numbers, draw)
    starts = below(high, TEXT_BYTES - LONGEST)
    return pc.utf8_trim(slices(words(), starts, 3 + below(low, longest - 3)), " ")


def extras(numbers: np.ndarray, draw: int, sizes: np.ndarray | int, target: int) -> pa.Array:
    """Letters that fill a record of so many bytes up to about its target."""
    high, low = pair(numbers, draw)
    room = target - np.asarray(sizes)
    spread = (2 * room + 5) // 10
    lengths = room - spread + below(low, 2 * spread)
    return slices(letters(), below(high, TEXT_BYTES - LONGEST), lengths)


@dataclass(frozen=True)
class Generator:
    """The events with event times from ``base_ms`` on, ``rate`` of them a second."""

    rate: int = 100_000
    base_ms: int = 1_436_918_400_000

    def date_times(self, numbers: np.ndarray) -> np.ndarray:
        """Milliseconds since 1970."""
        return self.base_ms + numbers * 1_000_000 // self.rate // 1000

    def columns(self, start: int, end: int) -> tuple[Columns, Columns, Columns]:
        """Persons, auctions and bids among the events of these numbers, end exclusive.

        Channels and URLs of bids are dictionaries.
        """
        numbers = np.arange(start, end)
        within = numbers % PERIOD
        return (
            self._persons(numbers[within < PERSONS]),
            self._auctions(numbers[(within >= PERSONS) & (within < PERSONS + AUCTIONS)]),
            self._bids(numbers[within >= PERSONS + AUCTIONS]),
        )

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The same events as batches of one type each."""
        for event_type, columns in enumerate(self.columns(start, end)):
            count = len(columns[0])
            kinds = pa.array(np.full(count, event_type, dtype=np.int32))
            records = pa.StructArray.from_arrays(
                [plain(each) for each in columns], fields=list(TYPES[event_type])
            )
            values = [
                records if each == event_type else pa.nulls(count, kind)
                for each, kind in enumerate(TYPES)
            ]
            yield pa.RecordBatch.from_arrays([kinds, *values], schema=EVENT)

    def events(self, start: int, end: int) -> list[tuple]:
        """(event type, person, auction, bid), of which one is there and the others are None."""
        persons, auctions, bids = map(rows_of, self.columns(start, end))
        events: list = [None] * (end - start)
        kinds = (
            (range(PERSONS), list(zip(repeat(PERSON), persons, repeat(None), repeat(None)))),
            (
                range(PERSONS, PERSONS + AUCTIONS),
                list(zip(repeat(AUCTION), repeat(None), auctions, repeat(None))),
            ),
            (
                range(PERSONS + AUCTIONS, PERIOD),
                list(zip(repeat(BID), repeat(None), repeat(None), bids)),
            ),
        )
        for places, made in kinds:
            at = 0
            for first, last in stretches(start, end, places):
                events[first - start : last - start] = made[at : at + last - first]
                at += last - first
        return events

    def _persons(self, numbers: np.ndarray) -> Columns:
        high, low = pair(numbers, 0)
        names = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
        whole = below(high, len(FIRST_NAMES)) * len(LAST_NAMES) + below(low, len(LAST_NAMES))
        name = names.take(pa.array(whole))
        host = pc.binary_join_element_wise(texts(numbers, 2, 5), "com", ".")
        email = pc.binary_join_element_wise(texts(numbers, 1, 7), host, "@")
        card = cards(*pair(numbers, 3))
        high, low = pair(numbers, 4)
        city = pa.array(CITIES).take(pa.array(below(high, len(CITIES))))
        state = pa.array(STATES).take(pa.array(below(low, len(STATES))))
        size = 8 + sum(lengths_of(each) for each in (name, email, card, city, state))
        extra = extras(numbers, 5, size, PERSON_BYTES)
        ids = pa.array(FIRST_ID + last_person(numbers))
        times = pa.array(self.date_times(numbers))
        return [ids, name, email, card, city, state, times, extra]

    def _auctions(self, numbers: np.ndarray) -> Columns:
        high, low = pair(numbers, 0)
        newest = last_person(numbers)
        seller = np.where(
            below(high, 4) > 0, newest // HOT_BATCH * HOT_BATCH, any_person(newest, low)
        )
        high, low = pair(numbers, 1)
        category, initial = FIRST_CATEGORY + below(high, CATEGORIES), prices(low)
        high, low = pair(numbers, 2)
        times = self.date_times(numbers)
        horizon = self.date_times(numbers + UNTIL_MORE_AUCTIONS) - times
        expires = times + 1 + below(high, np.maximum(2 * horizon, 1))
        item, description = texts(numbers, 3, 20), texts(numbers, 4, 100)
        size = 8 + lengths_of(item) + lengths_of(description) + 40
        return [
            pa.array(FIRST_ID + last_auction(numbers)),
            item,
            description,
            pa.array(initial),
            pa.array(initial + prices(low)),
            pa.array(times),
            pa.array(expires),
            pa.array(FIRST_ID + seller),
            pa.array(category),
            extras(numbers, 5, size, AUCTION_BYTES),
        ]

    def _bids(self, numbers: np.ndarray) -> Columns:
        high, low = pair(numbers, 0)
        newest = last_auction(numbers)
        hot = newest // HOT_BATCH * HOT_BATCH
        auction = np.where(below(high, 2) > 0, hot, any_auction(newest, low))
        high, low = pair(numbers, 1)
        newest = last_person(numbers)
        hot = newest // HOT_BATCH * HOT_BATCH + 1
        bidder = np.where(below(high, 4) > 0, hot, any_person(newest, low))
        high, low = pair(numbers, 2)
        price = prices(high)
        others = len(HOT_CHANNELS) + below(pair(numbers, 3)[0], CHANNELS)
        hot = below(pair(numbers, 3)[1], len(HOT_CHANNELS))
        channel = pa.array(np.where(below(low, 2) > 0, hot, others))
        names, urls = channels()
        return [
            pa.array(FIRST_ID + auction),
            pa.array(FIRST_ID + bidder),
            pa.array(price),
            pa.DictionaryArray.from_arrays(channel, names),
            pa.DictionaryArray.from_arrays(channel, urls),
            pa.array(self.date_times(numbers)),
            extras(numbers, 4, 32, BID_BYTES),
        ]


def last_person(numbers: np.ndarray) -> np.ndarray:
    """Zero-based number of the newest person at an event."""
    return numbers // PERIOD


def last_auction(numbers: np.ndarray) -> np.ndarray:
    """Zero-based number of the newest auction at an auction or a bid."""
    within = np.minimum(numbers % PERIOD - PERSONS, AUCTIONS - 1)
    return numbers // PERIOD * AUCTIONS + within


def any_person(newest: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """One of the active people, or one who will come soon."""
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    return newest + 1 - active + below(draws, active + LEAD)


def any_auction(newest: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """One of the auctions in flight, or one that will come soon."""
    oldest = np.maximum(newest - IN_FLIGHT_AUCTIONS, 0)
    return oldest + below(draws, newest - oldest + 1 + LEAD)


def cards(high: np.ndarray, low: np.ndarray) -> pa.Array:
    """Four groups of four digits from two draws of 32 bits."""
    signs = np.full((len(high), 19), ord(" "), dtype=np.uint8)
    for draws, places in (
        (high, (0, 1, 2, 3, 5, 6, 7, 8)),
        (low, (10, 11, 12, 13, 15, 16, 17, 18)),
    ):
        rest = below(draws, 10**8)
        for place in reversed(places):
            signs[:, place] = ord("0") + rest % 10
            rest //= 10
    offsets = np.arange(len(high) + 1, dtype=np.int32) * 19
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(signs)]
    return pa.Array.from_buffers(pa.string(), len(high), buffers)


def lengths_of(strings: pa.Array) -> np.ndarray:
    return pc.binary_length(strings).to_numpy(zero_copy_only=False)


def plain(column: pa.Array) -> pa.Array:
    """A column without its dictionary."""
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary.take(column.indices)
    return column


def rows_of(columns: Columns) -> list[tuple]:
    """A tuple for each record."""
    dictionaries = iter(channel_texts())
    values = [
        next(dictionaries)[column.indices.to_numpy()].tolist()
        if isinstance(column, pa.DictionaryArray)
        else values_of(column)
        for column in columns
    ]
    return list(zip(*values, strict=True))


def values_of(column: pa.Array) -> list:
    # NumPy makes Python's integers several times faster than Arrow does.
    if pa.types.is_string(column.type):
        return column.to_pylist()
    return column.to_numpy().tolist()


def stretches(start: int, end: int, places: range) -> Iterator[tuple[int, int]]:
    """Where numbers in [start, end) stand at these places of their period, as half-open ranges."""
    for period in range(start // PERIOD * PERIOD, end, PERIOD):
        first, last = max(period + places.start, start), min(period + places.stop, end)
        if first < last:
            yield first, last
