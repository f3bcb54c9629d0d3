"""Metrics of a subtask and of each operator of its chain."""

from tests.worlds.clock import StepClock
from tests.worlds.subtask import Recorder, World, rows
from tidegate.api.operator import Output, Steps
from tidegate.model.elements import MAX_WATERMARK_MS, Batch, Watermark
from tidegate.model.metrics import Metered, MetricValue


class Halving(Recorder):
    """Takes some time for a batch; passes on the first half, and the rest to a side."""

    clock: StepClock
    takes_ms = 1_000

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.clock.now_ms += self.takes_ms
        half = len(batch) // 2
        out.emit(batch.piece(0, half))
        out.emit_side("rest", batch.piece(half, len(batch)))
        return None


def told(world: World, number: int | None = None) -> dict[str, MetricValue]:
    """Metrics of an operator, or of the subtask, by name."""
    operator = None if number is None else world.operator_ids[number]
    read = world.subtask.metrics.read()
    return {key.name: value for key, value in read.items() if key.operator == operator}


def test_each_operator_of_a_chain_tells_its_rows_its_time_and_its_event_time() -> None:
    first, second = Halving("first", []), Halving("second", [])
    world = World(first, second).pieces_of(100).start()
    first.clock = second.clock = world.clock
    second.takes_ms = 500
    assert "currentInputWatermark" not in told(world, 0)
    world.put(0, rows(1, 2, 3, 4), Watermark(900)).run()
    world.clock.now_ms += 500
    head, tail, task = told(world, 0), told(world, 1), told(world)
    assert (head["numRecordsIn"], head["numRecordsOut"]) == (4, 4)
    assert (tail["numRecordsIn"], tail["numRecordsOut"]) == (2, 2)
    assert (task["numRecordsIn"], task["numRecordsOut"], task["numBatchesIn"]) == (4, 1, 1)
    assert (task["numBytesOut"], task["numBytesOutPerSecond"]) == (10, Metered(10, 5.0))
    assert head["numRecordsInPerSecond"] == Metered(4, 2.0)
    assert (head["busyTimeMsPerSecond"], tail["busyTimeMsPerSecond"]) == (500, 250)
    assert (task["busyTimeMsPerSecond"], task["idleTimeMsPerSecond"]) == (750, 250)
    assert (task["accumulateBusyTimeMs"], task["accumulateIdleTimeMs"]) == (1_500, 500)
    for metrics in (head, tail):
        assert metrics["currentInputWatermark"] == metrics["currentOutputWatermark"] == 900
        assert metrics["watermarkLag"] == world.clock.wall_ms() - 900
    assert task["currentInputWatermark"] == 900


class LookedAt(Recorder):
    """Is in one call for five seconds, near the end of which somebody looks."""

    world: World
    seen: dict[str, MetricValue]

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.world.clock.now_ms += 5_000
        self.seen = told(self.world)
        return None


def test_a_task_is_busy_while_it_is_in_a_long_call() -> None:
    operator = LookedAt("service", [])
    operator.world = world = World(operator).start()
    world.put(0, rows(1)).run()
    assert operator.seen["busyTimeMsPerSecond"] == 1_000
    assert operator.seen["accumulateBusyTimeMs"] == 5_000
    world.clock.now_ms += 5_000
    after = told(world)
    assert (after["accumulateBusyTimeMs"], after["accumulateIdleTimeMs"]) == (5_000, 5_000)


def test_event_time_at_its_end_lags_behind_nothing() -> None:
    world = World(Recorder("first", [])).start()
    world.put(0, Watermark(900)).run()
    assert "watermarkLag" in told(world, 0)
    world.put(0, Watermark(MAX_WATERMARK_MS)).run()
    assert "watermarkLag" not in told(world, 0)


def test_time_held_up_by_a_reader_is_not_idle() -> None:
    world = World(Recorder("first", [])).start()
    told(world)
    world.subtask.outputs.room.begin_wait()
    world.clock.now_ms += 5_000
    task = told(world)
    assert (task["backPressuredTimeMsPerSecond"], task["idleTimeMsPerSecond"]) == (1_000, 0)
