"""What a subtask asks its senders for, before it knows what rows cost and after."""

from tests.worlds.subtask import Recorder, World, rows
from tidegate.api.operator import Operator, Output, Steps
from tidegate.model.elements import Batch, RowBatch
from tidegate.model.settings import JobSettings, SlotSettings

SETTINGS = JobSettings(slot=SlotSettings(rows=1_000, arrow_rows=2_000))


class Costly(Recorder):
    """Each row takes its time on the clock."""

    def __init__(self, row_ms: float) -> None:
        super().__init__("costly", [])
        self.row_ms = row_ms

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        self.world.clock.now_ms += self.row_ms * len(batch)
        return super().process(batch, port, out)

    world: World


class WholeBatches(Recorder):
    """Its function takes whole batches."""

    piece_s = 0.1


def world_of(
    operator: Operator, *, inputs: int = 1, outputs: int = 1, credit: int = 1_000
) -> World:
    world = World(operator, inputs=inputs, outputs=outputs, credit=credit, settings=SETTINGS)
    if isinstance(operator, Costly):
        operator.world = world
    return world.start()


def fed(world: World, batches: int) -> World:
    """Read batches as long as the senders are asked for."""
    for _ in range(batches):
        rows_now = world.announced[-1] if world.announced else 1
        world.put(0, RowBatch(list(range(rows_now)))).run()
    return world


def test_a_reader_of_cheap_rows_asks_for_full_batches_after_a_few() -> None:
    world = fed(world_of(Costly(0.001)), 20)
    assert world.announced == sorted(world.announced) and world.announced[-1] == 2_000
    assert len(world.announced) < 15


def test_a_reader_of_slow_rows_asks_for_one_at_a_time() -> None:
    world = fed(world_of(Costly(50)), 20)
    assert world.announced == []


def test_a_batch_has_rows_for_some_milliseconds() -> None:
    world = fed(world_of(Costly(1)), 50)
    assert 10 <= world.announced[-1] <= 20


def test_rows_that_become_slow_are_asked_for_one_by_one() -> None:
    costly = Costly(0.001)
    world = fed(world_of(costly), 20)
    costly.row_ms = 50
    fed(world, 2)
    assert world.announced[-1] == 1


def test_the_reader_that_calls_a_function_with_batches_asks_for_some_rows_at_once() -> None:
    assert world_of(WholeBatches("batches", [])).announced == [16]


def test_credit_grows_with_the_size_and_is_kept_back_when_rows_become_slow() -> None:
    costly = Costly(0.001)
    world = world_of(costly)
    batches = 12
    fed(world, batches)
    assert len(world.granted) == batches + 2, "from two batches on their way to four"
    costly.row_ms = 50
    world.granted.clear()
    world.put(0, *[rows(1)] * 6).run()
    assert len(world.granted) == 4, "two of six batches give no credit back"


def test_a_reader_that_waits_for_a_slow_one_asks_for_few_rows() -> None:
    world = world_of(Costly(0.001), credit=2)
    world.outputs[0].resize(1)
    for _ in range(100):
        world.put(0, rows(*range(world.announced[-1] if world.announced else 1))).run()
        world.grant()
    assert world.announced[-1] <= 4


def test_a_channel_that_nothing_comes_through_keeps_no_reader_from_full_batches() -> None:
    world = fed(world_of(Costly(0.001), inputs=2, outputs=2), 20)
    assert world.announced[-1] == 2_000
