"""A subtask that measures itself, and what it tells its senders."""

import pyarrow as pa
import pytest

from tests.worlds.subtask import Recorder, World, rows
from tidegate.api.operator import Operator, Output, Steps
from tidegate.model.elements import ArrowBatch, Batch, RowBatch, Watermark
from tidegate.model.settings import DebloatSettings, JobSettings, SlotSettings

DEBLOAT = DebloatSettings(target_ms=100, period_ms=100, samples=1, threshold_percent=25)
SETTINGS = JobSettings(slot=SlotSettings(rows=1_000, debloat=DEBLOAT))


class Slow(Recorder):
    """Each row takes its time on the clock."""

    def __init__(self, row_ms: int) -> None:
        super().__init__("slow", [])
        self.row_ms = row_ms

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        assert isinstance(batch, RowBatch)
        self.world.clock.now_ms += self.row_ms * len(batch)
        out.emit(batch)
        return None

    world: World


class Debloated(World):
    """A subtask of two channels that debloats them."""

    def __init__(self, row_ms: int, *, credit: int = 1_000) -> None:
        self.slow = Slow(row_ms)
        super().__init__(self.slow, inputs=2, settings=SETTINGS, credit=credit)
        self.slow.world = self

    def turns(self, count: int) -> None:
        """So many turns, each followed by what is due."""
        for _ in range(count):
            assert self.subtask.runnable
            self.turn()
            self.call_due()


@pytest.mark.feature("F246")
def test_a_slow_subtask_asks_all_its_senders_for_smaller_batches() -> None:
    world = Debloated(row_ms=1)
    world.subtask.start()
    for channel in (0, 1):
        world.put(channel, *[RowBatch(list(range(100))) for _ in range(4)])
    while world.clock.now_ms < 1_099:
        world.turns(1)
    assert 10 <= world.announced[-1] <= 20, "rows for 20 ms of work"
    world.turns(5)
    size = world.announced[-1]
    # 1,000 rows a second; seven batches wait, and one more at each of two senders.
    assert size == 11
    figures = world.subtask.figures
    assert figures.buffer_rows == size
    assert figures.in_flight_ms is not None and figures.in_flight_ms > 500


def test_a_subtask_with_nothing_to_do_tells_nothing_and_has_nothing_in_flight() -> None:
    world = Debloated(row_ms=10)
    world.subtask.start()
    world.put(0, rows(*range(60))).run()
    world.call_due()
    asked = list(world.announced)
    for _ in range(20):
        world.pass_time(100)
        world.put(0, Watermark(world.clock.now_ms)).run()
    assert world.announced == asked
    assert world.subtask.figures.in_flight_ms == 0


def test_time_in_which_there_is_nothing_to_do_does_not_count() -> None:
    world = Debloated(row_ms=1)
    world.subtask.start()
    for pause_ms in [90] * 20 + [5_000] * 20:
        world.put(0, rows(*range(10))).run()
        world.pass_time(pause_ms)
    assert world.announced[-1] >= 10, "as many as a burst has, once they are measured"


def test_time_in_which_a_subtask_waits_for_credit_counts() -> None:
    world = Debloated(row_ms=0, credit=1)
    world.subtask.start()
    for _ in range(10):
        world.put(0, RowBatch(list(range(500))))
    world.run()
    assert world.gate.readable and not world.subtask.runnable
    world.pass_time(20_000)
    assert world.announced and world.announced[-1] < 100


def test_arrow_batches_are_not_debloated() -> None:
    class Taking(Operator):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            world.clock.now_ms += 500
            return None

    world = World(Taking(), settings=SETTINGS)
    world.subtask.start()
    batch = ArrowBatch(pa.record_batch({"v": [1]}))
    for _ in range(10):
        world.put(0, *[batch] * 5)
        world.turn()
        world.pass_time(0)
    assert world.subtask.figures.buffer_rows == 1_000


def test_without_debloating_nothing_is_measured() -> None:
    world = World(Slow(0), settings=JobSettings(slot=SlotSettings(rows=1_000)))
    world.subtask.start()
    assert world.timers == []
    figures = world.subtask.figures
    assert figures.buffer_rows is None and figures.in_flight_ms is None


def test_a_subtask_in_front_of_a_slow_one_works_in_small_pieces() -> None:
    world = World(Recorder("a", []), settings=JobSettings(slot=SlotSettings(rows=1_000)), credit=2)
    world.pieces_of(8).start()
    world.outputs[0].resize(1)
    world.put(0, rows(*range(12))).run()
    log = world.subtask.chain.head.operator.log
    assert log == ["a: rows [0, 1, 2, 3, 4, 5, 6, 7]"] and not world.subtask.runnable
    for _ in range(7):
        world.grant()
        world.run()
    assert log[1:] == ["a: rows [8]", "a: rows [9]"], "six of eight had to wait before"
