"""Bytes that a subtask reads while the barriers of a checkpoint come in."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from tests.slot.held import Held
from tests.worlds.subtask import PERIODIC, Recorder, World, barrier, rows
from tidegate.api.operator import Operator, Output
from tidegate.model.elements import ArrowBatch, Barrier, Batch, CheckpointOptions
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import CheckpointingMode

if TYPE_CHECKING:
    from tidegate.storage.places import Place

ROW_BYTES = 10
MEASURED_NOTHING = cast("Place", SimpleNamespace(bytes_written=0, checksums={}))


class Silent(Operator):
    """Takes what comes."""

    def process(self, batch: Batch, port: int, out: Output) -> None:
        pass


def came_over_links(world: World) -> None:
    """Each channel has had rows of ten bytes."""
    for channel in world.inputs:
        channel.rows_came, channel.bytes_came = 100, 100 * ROW_BYTES


def processed(world: World) -> list[int]:
    return [figures.processed_bytes for figures in world.figures()]


@pytest.mark.feature("F121")
def test_what_is_read_between_the_first_barrier_and_the_last_counts() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    came_over_links(world)
    world.put(1, rows(1, 2)).run()
    world.put(0, barrier(7), rows(8, 9)).run()
    world.put(1, rows(3, 4, 5)).run()
    world.put(1, barrier(7), rows(6)).run()
    assert processed(world) == [3 * ROW_BYTES]
    world.put(0, barrier(8)).run()
    world.put(1, rows(7), barrier(8)).run()
    assert processed(world) == [3 * ROW_BYTES, ROW_BYTES]


def test_rows_that_came_from_within_the_slot_count_as_much_as_others_of_their_edge() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    world.inputs[0].rows_came, world.inputs[0].bytes_came = 4, 60
    world.put(0, barrier(7)).put(1, rows(1, 2), barrier(7)).run()
    assert processed(world) == [30]


def test_rows_of_an_edge_that_was_never_encoded_count_nothing() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    world.put(0, barrier(7)).put(1, rows(1, 2), barrier(7)).run()
    assert processed(world) == [0]


def test_arrow_batches_count_with_their_memory() -> None:
    world = World(Silent(), inputs=2).start()
    batch = ArrowBatch(pa.record_batch({"v": pa.array(range(100), pa.int64())}))
    world.put(0, barrier(7)).put(1, batch, barrier(7)).run()
    assert processed(world) == [800]


def test_with_one_channel_nothing_is_read_meanwhile() -> None:
    world = World(Recorder("a", [])).start()
    came_over_links(world)
    world.put(0, rows(1), barrier(7), rows(2), barrier(8)).run()
    assert processed(world) == [0, 0]


def test_of_overlapping_checkpoints_each_counts_from_its_own_first_barrier() -> None:
    checkpoints = replace(PERIODIC.checkpoints, mode=CheckpointingMode.AT_LEAST_ONCE)
    settings = replace(PERIODIC, checkpoints=checkpoints)
    world = World(Recorder("a", []), inputs=2, settings=settings).start()
    came_over_links(world)
    world.put(0, barrier(7), rows(1), barrier(8), rows(2)).run()
    world.put(1, rows(3), barrier(7), rows(4), barrier(8)).run()
    assert processed(world) == [3 * ROW_BYTES, 3 * ROW_BYTES]


def test_what_an_unaligned_checkpoint_reads_until_its_last_barrier_counts() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    came_over_links(world)
    world.put(0, world.barrier(7), rows(1, 2)).run()
    assert world.checkpoints_cut == [7] and processed(world) == [0]
    world.put(1, rows(3)).run()
    world.put(1, world.barrier(7), rows(4)).run()
    assert processed(world)[0] == 3 * ROW_BYTES


def test_what_was_given_up_is_forgotten() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    came_over_links(world)
    world.put(0, barrier(7)).put(1, rows(1)).run()
    world.subtask.abort(CheckpointId(7), None)
    assert world.subtask._checkpointing._processed._begun == {}
    world.put(0, barrier(8)).put(1, rows(2), barrier(7), barrier(8)).run()
    assert processed(world) == [ROW_BYTES]


def times(world: World) -> list[tuple[int, int]]:
    """Of each snapshot: how long it aligned, and how old its first barrier was when it came."""
    figures = [snapshot.figures(0.0, MEASURED_NOTHING) for snapshot in world.snapshots]
    return [(each.alignment_ms, each.start_delay_ms) for each in figures]


def test_a_snapshot_tells_how_late_its_first_barrier_came_and_how_long_it_aligned() -> None:
    world = World(Recorder("a", []), inputs=2).start()
    sent = Barrier(CheckpointId(7), world.clock.wall_ms(), CheckpointOptions())
    world.pass_time(40)
    world.put(0, sent).run()
    world.pass_time(25)
    world.put(1, sent).run()
    assert times(world) == [(25, 40)]


def test_an_unaligned_snapshot_tells_when_its_last_barrier_came() -> None:
    world = Held(Recorder("a", []), inputs=2).start()
    sent = world.barrier(7)
    world.pass_time(40)
    world.put(0, sent).run()
    assert times(world) == [(0, 40)]
    world.pass_time(25)
    world.put(1, sent).run()
    assert times(world) == [(25, 40)]
