"""When a subtask hears of checkpoints: before its next row, in order, and once more when lost."""

from dataclasses import replace

import pytest

from tests.checkpoint import world as coordinating
from tests.slot.cluster import SETTINGS, Cluster, run
from tests.slot.operators import NOTHING, ONE_BY_ONE
from tests.worlds.subtask import Recorder, ScriptedSource, World, barrier, rows
from tidegate.api.operator import Output, Steps
from tidegate.model.control import CheckpointAborted, CheckpointComplete, Start
from tidegate.model.elements import Batch
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, SlotId
from tidegate.model.settings import CheckpointSettings, SlotSettings

ROWS = 100


@pytest.mark.feature("F235")
def test_a_notification_is_heard_before_the_next_row_however_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    sent: list[CheckpointComplete] = []

    class Interrupted(Recorder):
        """While it is at its tenth row the driver's message comes."""

        def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
            if len(log) == 9:
                cluster.tell(slot, sent[0])
            return super().process(batch, port, out)

    source = ScriptedSource("source", [], [*range(ROWS), *NOTHING])
    operators = {"source": [source], "sink": [Interrupted("sink", log)]}
    # Every turn is followed by a look at the network; by default those of a millisecond are.
    slot_settings = SlotSettings(rows=1, yield_ms=0)

    async def work(made: Cluster) -> None:
        nonlocal cluster, slot
        cluster = made
        (slot,) = await cluster.start("a")
        source_id, sink_id = await cluster.deploy([slot], start=False)
        sent.append(CheckpointComplete(sink_id, CheckpointId(1)))
        cluster.tell(slot, Start(source_id))
        await cluster.eventually(lambda: len(source.script) <= len(NOTHING) + ROWS - 3)
        assert not log, "two rows wait for the sink, and one for credit"
        cluster.tell(slot, Start(sink_id))
        await cluster.eventually(lambda: len(log) == ROWS + 1)

    cluster: Cluster
    slot: SlotId
    settings = replace(SETTINGS, slot=slot_settings)
    run(lambda: Cluster(ONE_BY_ONE, operators, settings=settings), work, monkeypatch)
    assert log.index("sink: complete 1") == 10
    assert [line for line in log if "rows" in line] == [f"sink: rows [{n}]" for n in range(ROWS)]


def told(world: coordinating.World, checkpoint: int) -> list[object]:
    """What the coordinator tells the sink, once everybody has acknowledged."""
    given = world.acknowledge(checkpoint)
    return [m for m in given if getattr(m, "execution", None) == sink_of(world)]


def sink_of(world: coordinating.World) -> object:
    return world.execution(world.subtask("sink"))


def hear(world: World, *messages: object) -> None:
    """What a slot does with the driver's messages for a subtask."""
    for message in messages:
        match message:
            case CheckpointComplete(_, checkpoint, subsumed):
                world.subtask.complete(checkpoint, subsumed)
            case CheckpointAborted(_, checkpoint, latest):
                world.subtask.abort(checkpoint, latest)
            case _:
                raise AssertionError(message)


@pytest.mark.feature("F225")
def test_a_lost_completion_is_made_up_for_by_the_next_abort() -> None:
    log: list[str] = []
    subtask = World(Recorder("sink", log)).start()
    world = coordinating.started(coordinating.TOLERANT)
    world.advance(0)
    (lost,) = told(world, 1)
    assert isinstance(lost, CheckpointComplete)
    subtask.put(0, barrier(1), rows(1), barrier(2)).run()
    log.clear()
    world.advance(1_000)
    given = world.decline(2, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    aborted = [
        m for m in coordinating.only(given, CheckpointAborted) if m.execution == sink_of(world)
    ]
    assert [message.latest_completed for message in aborted] == [1]
    hear(subtask, *aborted)
    assert log == ["sink: complete 1", "sink: aborted 2"]
    hear(subtask, lost)
    assert log == ["sink: complete 1", "sink: aborted 2"], "it comes late, and is known"


@pytest.mark.feature("F226")
def test_subsumed_is_told_after_complete() -> None:
    log: list[str] = []
    subtask = World(Recorder("sink", log)).start()
    world = coordinating.started(CheckpointSettings(interval_ms=1_000, retained_max=1))
    world.advance(0)
    hear(subtask, *told(world, 1))
    world.advance(1_000)
    hear(subtask, *told(world, 2))
    assert log == ["sink: complete 1", "sink: complete 2", "sink: subsumed 1"]
