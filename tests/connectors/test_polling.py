"""A source of one's own that is asked page by page."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.kills import check_under_kills
from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tests.properties import examples
from tidegate import JobFailed, StreamExecutionEnvironment, Types
from tidegate.connectors import Page, PollingSource
from tidegate.connectors.polling import PollingSplit
from tidegate.errors import TidegateError
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator

ONE_ROW = pa.record_batch({"n": [1]})
SMALL = SlotSettings(rows=3, arrow_rows=3)


class Pages(PollingSource[int]):
    """Numbers by the page; each split has its own hundred."""

    bounded = True

    def __init__(self, names: tuple[str, ...] = ("0",), total: int = 20, size: int = 7) -> None:
        self.names, self.total, self.size = names, total, size
        self.log: list[str] = []

    def splits(self) -> tuple[str, ...]:
        return self.names

    def start(self, split: str) -> int:
        return 0

    def open(self) -> None:
        self.log = []  # a copy's own
        self.connection = object()

    def poll(self, split: str, position: int) -> Page[int]:
        assert self.connection is not None, "open comes first"
        numbers = range(position, min(position + self.size, self.total))
        rows = [100 * int(split) + number for number in numbers]
        after = position + len(rows)
        return Page(rows, after, end=after >= self.total)


def operator(source: PollingSource[int]) -> SourceReaderOperator:
    return SourceReaderOperator(source, None, "pages")


def test_pages_of_one_split_come_in_order(world: World) -> None:
    job = SourceJob(world, lambda: operator(Pages()), 1, settings=SMALL)
    job.run_to_end()
    assert job.emitted == list(range(20))


def test_splits_are_read_by_several_readers(world: World) -> None:
    job = SourceJob(world, lambda: operator(Pages(("0", "1", "2"))), 2, settings=SMALL)
    job.run_to_end()
    assert sorted(job.emitted) == [100 * s + n for s in range(3) for n in range(20)]


class Changing(Pages):
    """Gives another page at each call, as a queue does."""

    calls = 0

    def poll(self, split: str, position: int) -> Page[int]:
        type(self).calls += 1
        return Page([self.calls * 10 + n for n in range(5)], position + 1, end=position == 1)


def test_a_page_that_was_cut_by_a_checkpoint_is_not_asked_for_again(world: World) -> None:
    Changing.calls = 0
    job = SourceJob(world, lambda: operator(Changing()), 1, settings=SMALL)
    while not job.emitted:
        job.step(0)
    assert job.emitted == [10, 11, 12]
    job.checkpoint(1)
    job.complete()
    restored = job.killed(1)
    restored.run_to_end()
    assert restored.emitted[:5] == [10, 11, 12, 13, 14]


@examples(50)
@given(data=st.data())
def test_no_row_is_lost_or_doubled_whatever_is_killed(data: st.DataObject) -> None:
    names = tuple(map(str, range(data.draw(st.integers(1, 3), "splits"))))
    total, size = data.draw(st.integers(0, 20), "total"), data.draw(st.integers(1, 9), "size")
    expected = [100 * int(name) + n for name in names for n in range(total)]
    with World() as world:
        source = Pages(names, total, size)
        check_under_kills(world, lambda: operator(source), data, expected)


class Columns(Pages):
    """Pages of Arrow columns, with event times."""

    def poll(self, split: str, position: int) -> Page[int]:
        page = super().poll(split, position)
        batch = pa.record_batch({"n": pa.array(list(page.rows), pa.int64())})
        return Page(batch, page.position, page.end, [1_000 * n for n in page.rows])


def test_pages_of_columns_come_as_arrow_batches(world: World) -> None:
    job = SourceJob(world, lambda: operator(Columns(total=8)), 1, settings=SMALL)
    job.run_to_end()
    assert [row["n"] for row in job.emitted] == list(range(8))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("abc", "splits returned 'abc', which is not a list of texts"),
        (None, "splits returned None, which is not a list of texts"),
        ((), r"splits returned \(\), which is not a list of texts"),
        ((1, 2), r"splits returned \(1, 2\), which is not a list of texts"),
        (("1", "2", "1"), "splits returned '1' more than once"),
    ],
)
def test_splits_that_cannot_be_are_told_with_the_name_of_the_source(
    world: World, names: Any, text: str
) -> None:
    job = SourceJob(world, lambda: operator(Pages(names)), 1, settings=SMALL)
    with pytest.raises(TidegateError, match=text) as caught:
        job.step(0)
    assert "source 'Pages'" in caught.value.where


class Rare(Pages):
    """Has something new at every second call."""

    asked = 0

    def poll(self, split: str, position: int) -> Page[int]:
        self.asked += 1
        return Page([], position) if self.asked % 2 else super().poll(split, position)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [9, 9.0, "9 s", timedelta(seconds=9)])
def test_a_pause_is_a_number_of_seconds_or_a_length_of_time(world: World, pause: Any) -> None:
    def rare() -> SourceReaderOperator:
        source = Rare(total=7)
        source.pause_s = pause
        return operator(source)

    job = SourceJob(world, rare, 1, settings=SMALL)
    began_ms = world.monotonic_ms()
    job.run_to_end()
    assert 9_000 <= world.monotonic_ms() - began_ms < 10_000


class Wrong(Pages):
    """Returns what is no page, or pages that do not fit together."""

    answer: object = None

    def poll(self, split: str, position: int) -> Page[int]:
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([1, 2], "poll returned a list, not a Page"),
        (None, "poll returned None, not a Page"),
        (Page("abc", 1), "the rows of a page are a str"),
        (Page([1, 2], 1, timestamps_ms=[5]), "2 rows and 1 timestamps"),
        (Page([1], 1, timestamps_ms=[1.5]), r"timestamps_ms of a page are \[1.5\], which are not"),
        (Page([1], 1, timestamps_ms=[None]), r"are \[None\], which are not"),
        (Page([1], 1, timestamps_ms=[1 << 63]), "which are not all whole numbers"),
        (Page(ONE_ROW, 1, timestamps_ms=np.array([1.5])), r"are \[1.5\], which are not"),
    ],
)
def test_what_is_no_page_is_told_with_the_name_of_the_source(
    world: World, answer: object, text: str
) -> None:
    source = Wrong()
    source.answer = answer
    job = SourceJob(world, lambda: operator(source), 1, settings=SMALL)
    with pytest.raises(TidegateError, match=text) as caught:
        job.run_to_end()
    assert "source 'Wrong'" in caught.value.where


@pytest.mark.parametrize("times", [(5, 6), [np.int64(5), 6], np.array([5, 6]), pa.array([5, 6])])
@pytest.mark.parametrize("rows", [[1, 2], pa.record_batch({"n": [1, 2]})])
def test_times_of_a_page_are_whole_numbers_of_any_sequence(rows: Any, times: Any) -> None:
    source = Wrong()
    source.answer = Page(rows, 1, end=True, timestamps_ms=times)
    at_once: Any = SimpleNamespace(
        rows=3,
        arrow_rows=3,
        monotonic_ms=lambda: 0,
        read_ahead=lambda call, then: then(call()),
    )
    reader = source.reader(at_once)
    reader.add_splits([PollingSplit("0", 0)])
    assert reader.poll() is None
    batch = reader.poll()
    assert batch is not None and batch.timestamps_ms is not None
    assert list(batch.timestamps_ms) == [5, 6]


class Typed(Pages):
    produced_type = Types.STRING()


def test_rows_are_brought_to_the_type_that_the_source_declares() -> None:
    env = StreamExecutionEnvironment.local()
    with pytest.raises(JobFailed, match="String") as caught:
        list(env.from_source(Typed(total=1), source_name="typed").execute_and_collect())
    assert "typed" in str(caught.value)
    numbers = env.from_source(Typed(total=1), type_info=Types.LONG())
    assert list(numbers.execute_and_collect()) == [0]


class Counted(Pages):
    """Knows on which threads it was asked for its splits and their first positions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.asked: list[str] = []

    def splits(self) -> tuple[str, ...]:
        self.asked.append(f"splits on {threading.current_thread().name}")
        return super().splits()

    def start(self, split: str) -> int:
        self.asked.append(f"start on {threading.current_thread().name}")
        return super().start(split)


class Away(Pages):
    """Its service is not there."""

    def splits(self) -> tuple[str, ...]:
        raise ConnectionRefusedError

    def start(self, split: str) -> int:
        raise ConnectionRefusedError(split)


class Driver:
    """An enumerator's driver, in which what blocks is done when the test says so."""

    def __init__(self, source: PollingSource[int], restored: bytes | None = None) -> None:
        self.parallelism = 2
        self.assigned: list[tuple[int, list[str]]] = []
        self.ended: list[int] = []
        self.blocking: list[tuple[Callable[[], object], Callable[[object], None]]] = []
        self.later: list[Callable[[], None]] = []
        context: Any = self
        self.enumerator = source.enumerator(context, restored)
        self.enumerator.start()

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        self.blocking.append((call, then))

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.later.append(call)

    def assign(self, subtask: int, splits: Sequence[PollingSplit]) -> None:
        if splits:
            self.assigned.append((subtask, [split.name for split in splits]))

    def no_more_splits(self, subtask: int) -> None:
        self.ended.append(subtask)

    def answer(self) -> None:
        """What blocks is done on a thread."""
        ((call, then),) = self.blocking
        with ThreadPoolExecutor(1, "aside") as pool:
            then(pool.submit(call).result())


def test_what_a_source_is_asked_for_at_the_start_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Counted(("0", "1", "2"))
    driver = Driver(source)
    driver.enumerator.reader_ready(0)
    assert source.asked == driver.assigned == driver.ended == []
    assert driver.enumerator.snapshot(CheckpointId(1)) == b""
    driver.later.pop()()
    assert "source 'Counted': splits() and start() have not returned for 30 s" in caplog.text
    driver.answer()
    assert source.asked == ["splits on aside_0", *["start on aside_0"] * 3]
    assert (driver.assigned, driver.ended) == ([(0, ["0", "2"])], [0])
    driver.enumerator.reader_ready(1)
    assert (driver.assigned[1:], driver.ended) == ([(1, ["1"])], [0, 1])


def test_a_restore_asks_for_no_splits_and_no_first_position() -> None:
    before = Driver(Pages(("0", "1")))
    before.answer()
    data = before.enumerator.snapshot(CheckpointId(1))
    restored = Driver(Away(("0", "1")), data)
    assert restored.blocking == []
    assert restored.enumerator.snapshot(CheckpointId(2)) == data
    for reader in (0, 1):
        restored.enumerator.reader_ready(reader)
    assert restored.assigned == [(0, ["0"]), (1, ["1"])]


def test_a_job_that_had_not_found_its_splits_asks_again() -> None:
    data = Driver(Pages(("0", "1"))).enumerator.snapshot(CheckpointId(1))
    restored = Driver(Pages(("0", "1")), data)
    restored.enumerator.reader_ready(1)
    restored.answer()
    assert restored.assigned == [(1, ["1"])]


def test_all_splits_are_read_whichever_readers_have_some_already() -> None:
    driver = Driver(Pages(("0", "1", "2", "3")))
    driver.answer()
    driver.enumerator.reader_ready(0)
    data = driver.enumerator.snapshot(CheckpointId(1))
    restored = Driver(Pages(("0", "1", "2", "3")), data)
    for reader in (0, 1):  # reader 0 goes on with what it has, and asks for nothing
        restored.enumerator.reader_ready(reader)
    assert restored.assigned == [(0, ["1"]), (1, ["3"])]


def test_splits_of_a_reader_that_begins_again_come_back_to_it() -> None:
    driver = Driver(Pages(("0", "1", "2")))
    driver.answer()
    driver.enumerator.reader_ready(0)
    driver.enumerator.add_back(0, [PollingSplit("0", 0), PollingSplit("2", 0)])
    driver.enumerator.reader_ready(0)
    assert driver.assigned == [(0, ["0", "2"]), (0, ["0", "2"])]
