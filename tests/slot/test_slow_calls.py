"""Functions that take long: what comes between two of their calls."""

from collections.abc import Iterator

import pytest

from tests.worlds.subtask import Recorder, ScriptedSource, World, barrier, rows
from tidegate.api.operator import Operator, Output, Polled, SourceOperator, Steps
from tidegate.errors import UserCodeFailed
from tidegate.model.control import ExecutionState
from tidegate.model.elements import Batch, RowBatch, Watermark
from tidegate.model.settings import JobSettings, SlotSettings
from tidegate.operators.emit import Draws, emit_rows, in_pieces, then_fail

CALL_MS = 50
LARGE = JobSettings(slot=SlotSettings(rows=1_000))


class Slow(Recorder):
    """Takes its time for each row."""

    def __init__(self, name: str, log: list[str], call_ms: int = CALL_MS) -> None:
        super().__init__(name, log)
        self.call_ms = call_ms

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.world.clock.now_ms += self.call_ms * len(batch)
        return super().process(batch, port, out)

    world: World


class Numbers(Recorder, SourceOperator):
    """Emits as many numbers as it may at each poll, up to an end."""

    def __init__(self, name: str, log: list[str], end: int, rows_full: int = 1_000) -> None:
        super().__init__(name, log)
        self.next, self.end, self.rows_full = 0, end, rows_full

    def poll(self, out: Output) -> Polled:
        if self.next == self.end:
            return Polled.END
        stop = min(self.end, self.next + min(self.rows_full, out.rows_max))
        self.log.append(f"{self.name}: {stop - self.next} rows")
        out.emit(RowBatch(list(range(self.next, stop))))
        self.next = stop
        return Polled.MORE


def world_of(*operators: Operator, inputs: int = 1, settings: JobSettings = LARGE) -> World:
    world = World(*operators, inputs=inputs, settings=settings)
    for operator in operators:
        operator.world = world  # type: ignore[attr-defined]
    return world


def turns(world: World, count: int) -> None:
    for _ in range(count):
        assert world.subtask.runnable
        world.turn()


def test_a_source_gives_a_slow_chain_one_row_a_turn() -> None:
    log: list[str] = []
    world = world_of(Numbers("source", log, 5), Slow("map", log), inputs=0).start()
    assert [line for line in log if line.startswith("source: ") and "rows" in line] == [
        "source: 1 rows"
    ] * 5
    assert world.sent[0][:5] == [rows(number) for number in range(5)], "each leaves behind its call"


def test_rows_of_calls_that_are_not_long_are_gathered_and_none_leave_early_where_told() -> None:
    for call_ms, timeout_ms in ((1, 100), (CALL_MS, -1)):
        settings = JobSettings(slot=SlotSettings(rows=1_000, buffer_timeout_ms=timeout_ms))
        world = world_of(
            Numbers("source", [], 5), Slow("map", [], call_ms), inputs=0, settings=settings
        )
        world.start()
        assert world.sent[0][0] == rows(0, 1, 2, 3, 4)


def test_a_source_gives_a_cheap_chain_full_batches_soon() -> None:
    log: list[str] = []
    world_of(Numbers("source", log, 3_000), Recorder("map", []), inputs=0).start()
    sizes = [int(line.split()[1]) for line in log if line.endswith("rows")]
    assert sizes == [1, 8, 64, 512, 1_000, 1_000, 415]


def test_a_barrier_comes_between_two_calls_of_a_function_chained_to_its_source() -> None:
    log: list[str] = []
    world = world_of(Numbers("source", log, 100), Slow("map", log), inputs=0)
    world.subtask.start()
    turns(world, 2)
    world.subtask.trigger(barrier(1))
    log.clear()
    turns(world, 2)
    assert log[-2:] == ["source: 1 rows", "map: rows [2]"]
    assert world.checkpoints_cut == [1]


def test_two_slow_functions_in_one_chain_have_a_turn_each() -> None:
    log: list[str] = []
    one, two = Slow("one", log), Slow("two", log)
    world = world_of(Numbers("source", [], 100), one, two, inputs=0)
    world.subtask.start()
    turns(world, 4)
    assert log == ["one: rows [0]", "two: rows [0]", "one: rows [1]", "two: rows [1]"]
    turns(world, 1)
    world.subtask.trigger(barrier(1))
    log.clear()
    turns(world, 3)
    assert log[0] == "two: rows [2]", "a row's way to its end comes before the barrier"
    assert (
        world.checkpoints_cut == [1] and "one: rows [3]" not in log[: log.index("one: snapshot 1")]
    )


def test_what_one_row_becomes_is_worked_off_call_by_call() -> None:
    class Tenfold(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            assert isinstance(batch, RowBatch)
            out.emit(RowBatch([value for value in batch.values for _ in range(10)]))
            return None

    log: list[str] = []
    world = world_of(Tenfold("flat_map", []), Slow("map", log))
    world.start().put(0, rows(7))
    turns(world, 1)
    for done in range(1, 11):
        assert log == ["map: rows [7]"] * done
        if done < 10:
            turns(world, 1)


def test_a_watermark_behind_a_slow_call_waits_for_the_next_turn_and_keeps_its_place() -> None:
    class Stamping(Slow):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            super().process(batch, port, out)
            out.emit_watermark(Watermark(7))
            return None

    log: list[str] = []
    world = world_of(Stamping("map", []), Slow("next", log))
    world.start().put(0, rows(1))
    turns(world, 1)
    assert log == []
    world.run()
    assert log == ["next: rows [1]", "next: time 7"]


def test_rows_that_become_slow_are_worked_on_one_by_one() -> None:
    log: list[str] = []
    slow = Slow("map", log, call_ms=0)
    world = world_of(slow).start()
    world.put(0, rows(*range(100))).run()
    slow.call_ms = CALL_MS
    world.put(0, rows(*range(700))).run()
    log.clear()
    world.put(0, rows(1, 2, 3)).run()
    assert log == ["map: rows [1]", "map: rows [2]", "map: rows [3]"]
    slow.call_ms = 0
    world.put(0, rows(*range(8))).run()
    log.clear()
    world.put(0, rows(1, 2, 3)).run()
    assert log == ["map: rows [1, 2, 3]"]


@pytest.mark.parametrize("result_ms", [CALL_MS, 0])
def test_between_two_results_of_an_endless_generator_the_slot_gets_its_turn(result_ms: int) -> None:
    class Endless(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            draws = Draws(1_000, world.clock.monotonic_ms)
            return emit_rows(self.results(), draws, out)

        def results(self) -> Iterator[object]:
            while True:
                world.clock.now_ms += result_ms
                if not result_ms:
                    passing.append(0)
                    world.clock.now_ms += len(passing) % 100 == 0
                yield len(passing)

    passing: list[int] = []
    world = world_of(Endless("flat_map", []))
    world.start().put(0, rows(1))
    for _ in range(10):
        began_ms, results = world.clock.now_ms, world.subtask.figures.rows_out
        turns(world, 1)
        assert world.subtask.figures.rows_out > results, "a turn gets somewhere"
        assert world.clock.now_ms - began_ms <= max(CALL_MS, 2 * 5)
    world.subtask.outputs.flush()
    assert world.sent[0], "what there is leaves"


def test_the_time_that_a_source_itself_takes_does_not_make_its_batches_small() -> None:
    class SlowToRead(Numbers):
        def poll(self, out: Output) -> Polled:
            self.world.clock.now_ms += CALL_MS
            return super().poll(out)

        world: World

    log: list[str] = []
    world_of(SlowToRead("source", log, 3_000), Recorder("map", []), inputs=0).start()
    assert "source: 1000 rows" in log


def test_a_slow_chain_still_ends() -> None:
    log: list[str] = []
    source = ScriptedSource("source", [], ["a", "b"])
    world = world_of(source, Slow("one", []), Slow("two", log), inputs=0).start()
    assert [line for line in log if "rows" in line] == ["two: rows ['a']", "two: rows ['b']"]
    assert log[-1] == "two: finish"
    assert not world.subtask.runnable


def test_rows_ahead_of_one_that_fails_leave_a_chain_whose_next_function_is_slow() -> None:
    class Third(Recorder):
        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            out.emit(rows(1, 2))
            return then_fail(UserCodeFailed("the third row is wrong"))

    world = world_of(Third("map", []), Slow("next", [])).start()
    world.put(0, rows(1))
    with pytest.raises(UserCodeFailed) as failed:
        world.run()
    world.subtask.end(ExecutionState.FAILED, failed.value)
    assert world.sent[0] == [rows(1), rows(2)]


def test_a_barrier_comes_between_two_calls_for_what_timers_make() -> None:
    class Timers(Recorder):
        """At a watermark fires what is due, as timers and windows do."""

        def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
            self.due = list(range(100))
            draws = Draws(1, world.clock.monotonic_ms)

            def fired() -> Iterator[object]:
                end_ms = world.clock.now_ms + 5
                while self.due and world.clock.now_ms < end_ms:
                    yield self.due.pop(0)

            return in_pieces(lambda: emit_rows(fired(), draws, out), lambda: bool(self.due))

    log: list[str] = []
    timers = Timers("timers", [])
    world = world_of(timers, Slow("map", log)).start()
    world.put(0, Watermark(7), barrier(1))
    turns(world, 10)
    assert world.checkpoints_cut == [1]
    calls = [line for line in log[: log.index("map: snapshot 1")] if "rows" in line]
    assert len(calls) <= 2
    assert len(timers.due) > 90
