"""Nexmark: its events are those of the rules, and every query gives what plain Python gives."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import tidegate.pyflink
from benchmarks.nexmark import BATCHED, NAMES, plain
from benchmarks.nexmark.comparison import beside, net_beside
from benchmarks.nexmark.generator import AUCTION, BID, PERSON, Generator
from benchmarks.nexmark.source import EventSource, EventSplit
from tidegate import DataStream, StreamExecutionEnvironment, WatermarkStrategy
from tidegate.testing import OperatorHarness

tidegate.pyflink.install()
from benchmarks.nexmark import batches  # noqa: E402
from benchmarks.nexmark.queries.catalogue import QUERIES  # noqa: E402
from benchmarks.nexmark.queries.shared import Settings  # noqa: E402
from benchmarks.nexmark.queries.stateless import files, write_side_input  # noqa: E402
from benchmarks.nexmark.queries.windows import counted_by_the_clock  # noqa: E402

tidegate.pyflink.uninstall()

GOLDEN = Path(__file__).parent / "nexmark-golden.json"
WINDOW_MS = 10_000
COUNT = 4_000
SLOW = Generator(rate=100, base_ms=1_436_918_380_000)
"""Its 40 s begin 20 s before midnight; each event has a time of its own."""


@pytest.fixture
def pyflink() -> Iterator[None]:
    """`import pyflink` gives Tidegate's names, in the slots too."""
    tidegate.pyflink.install()
    yield
    tidegate.pyflink.uninstall()


@pytest.fixture(scope="module")
def many() -> list[tuple]:
    return Generator().events(0, 200_000)


def test_each_fifty_events_are_a_person_three_auctions_and_46_bids(many: list[tuple]) -> None:
    kinds = [PERSON, *[AUCTION] * 3, *[BID] * 46]
    assert [event[0] for event in many] == kinds * (len(many) // 50)
    for kind in (PERSON, AUCTION, BID):
        records = [event[1 + kind] for event in many if event[0] == kind]
        assert None not in records
        assert len(records) == kinds.count(kind) * len(many) // 50
    assert [person[0] for person in plain.persons_of(many)] == list(range(1000, 5000))
    assert [auction[0] for auction in plain.auctions_of(many)] == list(range(1000, 13_000))


def test_shares_of_bids_are_those_that_follow_from_the_rules(many: list[tuple]) -> None:
    bids = plain.bids_of(many)
    prices = [bid[2] for bid in bids]
    assert 100 <= min(prices) <= max(prices) <= 10**8
    shares = {
        "cheap": sum(price < 10_000 for price in prices),
        "middle": sum(10_000 <= price < 1_000_000 for price in prices),
        "q14": len(list(plain.q14(many, 0))),
        "q21": len(list(plain.q21(many, 0))),
        "hot auction": sum(bid[0] % 100 == 0 for bid in bids),
        "hot bidder": sum(bid[1] % 100 == 1 for bid in bids),
        "hot channel": sum(not bid[3].startswith("channel") for bid in bids),
    }
    expected = {
        "cheap": 1 / 3,
        "middle": 1 / 3,
        "q14": 0.283,
        "q21": 0.95,
        "hot auction": 0.505,
        "hot bidder": 0.7525,
        "hot channel": 0.5,
    }
    assert {name: share / len(bids) for name, share in shares.items()} == pytest.approx(
        expected, abs=0.005
    )


def test_auctions_and_persons_are_chosen_as_the_rules_say(many: list[tuple]) -> None:
    auctions, persons = plain.auctions_of(many), plain.persons_of(many)
    categories = Counter(auction[8] for auction in auctions)
    assert sorted(categories) == [10, 11, 12, 13, 14]
    assert categories[10] / len(auctions) == pytest.approx(1 / 5, abs=0.02)
    local = sum(person[5] in {"OR", "ID", "CA"} for person in persons)
    assert local / len(persons) == pytest.approx(1 / 2, abs=0.03)
    # 1,666 events take 16.66 ms, and an auction lasts up to twice as long.
    lasting = [auction[6] - auction[5] for auction in auctions]
    assert min(lasting) == 1
    assert max(lasting) in {33, 34}


def test_bids_are_on_auctions_in_flight_or_about_to_come(many: list[tuple]) -> None:
    newest = {AUCTION: 999, PERSON: 999}
    for event in many:
        if event[0] != BID:
            newest[event[0]] = event[1 + event[0]][0]
            continue
        auction, bidder = event[3][:2]
        # The hot auction is the first of the newest batch of 100, and others among the last 100.
        assert newest[AUCTION] - 100 <= auction <= newest[AUCTION] + 10
        assert newest[PERSON] - 1000 <= bidder <= newest[PERSON] + 10


def test_records_have_their_sizes(many: list[tuple]) -> None:
    persons, auctions, bids = plain.persons_of(many), plain.auctions_of(many), plain.bids_of(many)
    uncounted = [(bid[:3] + bid[5:]) for bid in bids]  # its channel and URL
    for records, size in ((persons, 200), (auctions, 500), (uncounted, 100)):
        sizes = [
            sum(len(field) if isinstance(field, str) else 8 for field in record)
            for record in records
        ]
        assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.05)


def test_events_are_the_same_however_they_are_cut() -> None:
    whole = SLOW.events(0, 1_000)
    cuts = [0, 1, 2, 7, 49, 53, 500, 999, 1_000]
    assert [event for start, end in pairwise(cuts) for event in SLOW.events(start, end)] == whole


def test_batches_have_the_events_of_the_rows() -> None:
    rows: dict[int, list[tuple]] = defaultdict(list)
    for batch in SLOW.batches(7, 1_000):
        (kind,) = set(batch.column("event_type").to_pylist())
        records = batch.column(1 + kind)
        rows[kind] += [tuple(record.values()) for record in records.to_pylist()]
        assert all(batch.column(1 + other).null_count == len(batch) for other in {0, 1, 2} - {kind})
    events = SLOW.events(7, 1_000)
    for kind in (PERSON, AUCTION, BID):
        assert rows[kind] == [event[1 + kind] for event in events if event[0] == kind]


@pytest.mark.parametrize("arrow", [False, True], ids=["rows", "arrow"])
def test_readers_go_on_from_their_positions(arrow: bool) -> None:
    source = EventSource(SLOW, 1_230, arrow=arrow, block=100)
    seen: list[tuple] = []
    for subtask in range(3):
        splits: Sequence[EventSplit] = [EventSplit(subtask * 100, 3)]
        while splits:
            reader = source.reader(SimpleNamespace(subtask=subtask, rows=30))
            reader.add_splits(splits)
            batch = reader.poll()
            seen += rows_of_batch(batch.batch) if arrow else batch.values
            splits = reader.snapshot(1)
    assert Counter(seen) == Counter(SLOW.events(0, 1_230))


def rows_of_batch(batch: pa.RecordBatch) -> list[tuple]:
    return [
        (row["event_type"], *(row[name] and tuple(row[name].values()) for name in TYPE_NAMES))
        for row in batch.to_pylist()
    ]


TYPE_NAMES = ("person", "auction", "bid")


def test_the_events_are_those_of_the_generator_in_java() -> None:
    golden = json.loads(GOLDEN.read_text())
    for part in golden:
        generator = Generator(rate=part["rate"], base_ms=part["base_ms"])
        lines = [line_of(event) for event in generator.events(part["start"], part["end"])]
        assert lines[: len(part["first"])] == part["first"]
        text = "".join(f"{line}\n" for line in lines)
        assert hashlib.sha256(text.encode()).hexdigest() == part["sha256"]


def line_of(event: tuple) -> str:
    """As the generator in Java prints it."""
    return "|".join(map(str, (event[0], *event[1 + event[0]])))


@pytest.mark.usefixtures("pyflink")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_query_by_records_gives_what_plain_python_gives(
    parallelism: int, tmp_path: Path
) -> None:
    events = events_of(parallelism, arrow=False)
    settings = settings_in(tmp_path)
    QUERIES["q10"](events, settings).sink_to(files(str(tmp_path / "files")))
    found = found_by({name: query(events, settings) for name, query in QUERIES.items()})
    found["q10"] = [
        (line,)
        for path in (tmp_path / "files").rglob("part-*")
        for line in path.read_text().splitlines()
    ]
    assert not wrong_in(found)
    assert tuple(found) == NAMES
    assert all(rows for name, rows in found.items() if name != "q12")


@pytest.mark.usefixtures("pyflink")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_query_over_batches_gives_what_plain_python_gives(
    parallelism: int, tmp_path: Path
) -> None:
    events = events_of(parallelism, arrow=True)
    settings = settings_in(tmp_path)
    found = found_by({name: query(events, settings) for name, query in batches.QUERIES.items()})
    assert not wrong_in(found)
    assert tuple(found) == BATCHED
    assert all(found.values())


def events_of(parallelism: int, *, arrow: bool) -> DataStream:
    env = StreamExecutionEnvironment.local()
    env.set_parallelism(parallelism)
    source = EventSource(SLOW, COUNT, arrow=arrow, block=500)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "events")


def settings_in(folder: Path) -> Settings:
    write_side_input(folder / "side.csv")
    return Settings(str(folder / "side.csv"))


def found_by(streams: dict[str, DataStream]) -> dict[str, list[tuple]]:
    """What each query gives, all of them in one job."""
    named = [
        stream.map(lambda row, name=name: (name, plain.row_of(row)))
        for name, stream in streams.items()
    ]
    found: dict[str, list[tuple]] = {name: [] for name in streams}
    with named[0].union(*named[1:]).execute_and_collect() as collected:
        for name, row in collected:
            found[name].append(row)
    return found


def wrong_in(found: dict[str, list[tuple]]) -> dict[str, list[str]]:
    """What differs from plain Python, by query."""
    events = SLOW.events(0, COUNT)
    wrong = {name: plain.differences(name, rows, events, WINDOW_MS) for name, rows in found.items()}
    return {name: lines for name, lines in wrong.items() if lines}


@pytest.mark.usefixtures("pyflink")
def test_q12_counts_the_bids_of_each_ten_seconds_of_the_clock() -> None:
    settings = Settings()
    with OperatorHarness(lambda bidders: counted_by_the_clock(bidders, settings)) as job:
        job.process_all([7, 8, 7])
        job.advance_time(WINDOW_MS)
        job.process(7)
        job.advance_time(WINDOW_MS)
        rows = job.take()
    assert Counter((row[0], row[1]) for row in rows) == Counter({(7, 2): 1, (8, 1): 1, (7, 1): 1})
    assert all(row[2] % WINDOW_MS == 0 and row[3] - row[2] == WINDOW_MS for row in rows)
    assert len({row[2] for row in rows}) == 2


def test_the_time_of_q0_is_taken_off_before_queries_are_compared() -> None:
    seconds = {"q0": (1.0, 2.0), "q1": (1.05, 2.5), "q4": (5.0, 3.0), "q5": (2.0, 2.1)}
    rates = {
        f"{query} {name}": 1 / each
        for query, both in seconds.items()
        for name, each in zip(("records", "flink-sql"), both, strict=True)
    }
    # q1 takes by records, and q5 in SQL, too little beyond q0 to be told from it.
    assert net_beside(rates, "flink-sql") == {"q4": pytest.approx(1 / 4)}
    assert beside(rates, "flink-sql")["q4"] == pytest.approx(3 / 5)
    assert net_beside({"q4 records": 1.0}, "flink-sql") == {}
