"""A subtask's states in one file: durable before the acknowledgement, and gone if there is none."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from flinkformat.handles import RelativeFileStateHandle, SegmentFileStateHandle
from flinkformat.state_streams import private_paths
from tests.slot.cluster import JOB, SETTINGS, Cluster, line, run, vertex
from tests.slot.operators import NOTHING, Stateful
from tests.worlds.storage import SlowStorage
from tests.worlds.subtask import ScriptedSource
from tidegate.api.operator import Operator
from tidegate.errors import StorageFailed
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    TriggerCheckpoint,
)
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import JobSettings

CHAIN = line(vertex("source"), vertex("sink", operators=3))
MERGING = replace(
    SETTINGS, checkpoints=replace(SETTINGS.checkpoints, merged_file_max_bytes=1 << 20)
)


def chain() -> dict[str, list[Operator]]:
    return {
        "source": [ScriptedSource("source", [], list(NOTHING))],
        "sink": [Stateful(name, []) for name in "abc"],
    }


def on_disk(folder: Path, *, largest: int = 1 << 20) -> JobSettings:
    """Merging into files that are there from their first byte on."""
    checkpoints = replace(MERGING.checkpoints, directory=str(folder), merged_file_max_bytes=largest)
    return replace(MERGING, checkpoints=checkpoints)


def files_below(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def delegates(acknowledged: CheckpointAcknowledged) -> list[object]:
    states = [state.managed_operator for state in (acknowledged.state or {}).values()]
    return [state.delegate for state in states if state is not None]


def test_the_states_of_a_chain_are_in_one_file_that_is_whole_when_they_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        acknowledged = await cluster.acknowledged(sink, 1)
        [(place, data)] = cluster.files.files.items()
        assert f"{JOB}/chk-1/" in place
        segments = delegates(acknowledged)
        assert len(segments) == 3
        end, parts = 0, dict[str, int]()
        for segment in segments:
            assert isinstance(segment, SegmentFileStateHandle)
            assert (segment.file_path, segment.start_position) == (place, end)
            parts[f"{place}@{end}"] = segment.state_size
            end += segment.state_size
        assert end == len(data) == acknowledged.figures.bytes_written
        assert {path: file.size for path, file in acknowledged.figures.checksums.items()} == {
            place: end,
            **parts,
        }
        named = [
            path for state in (acknowledged.state or {}).values() for path in private_paths(state)
        ]
        assert set(named) == {place}

    run(lambda: Cluster(CHAIN, chain(), settings=MERGING), work, monkeypatch)


def test_a_savepoint_has_a_file_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        options = CheckpointOptions(SnapshotKind.SAVEPOINT, target="memory:/mine/savepoint-1")
        at_ms = cluster.clock.wall_ms()
        cluster.tell(slot, TriggerCheckpoint(source, CheckpointId(1), at_ms, options))
        acknowledged = await cluster.acknowledged(sink, 1)
        assert len(cluster.files.files) == 3
        assert all(isinstance(one, RelativeFileStateHandle) for one in delegates(acknowledged))

    run(lambda: Cluster(CHAIN, chain(), settings=MERGING), work, monkeypatch)


def test_storage_that_fails_between_two_states_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[int] = []

    def third_fails() -> None:
        made.append(1)
        if len(made) == 3:
            raise StorageFailed("the disk is full")

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        declined = await cluster.first(CheckpointDeclined)
        assert declined.execution == sink and "the disk is full" in declined.message
        assert files_below(tmp_path) == []
        cluster.trigger(slot, source, 2)
        await cluster.acknowledged(sink, 2)
        assert len(files_below(tmp_path)) == 1

    run(
        lambda: Cluster(
            CHAIN, chain(), settings=on_disk(tmp_path), wrap=lambda s: SlowStorage(s, third_fails)
        ),
        work,
        monkeypatch,
    )


def test_a_checkpoint_that_is_given_up_between_two_states_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # One file is durable when the next one is begun.
    small = on_disk(tmp_path, largest=1)
    begun, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    def hold() -> None:
        made.append(1)
        if len(made) == 3:
            begun.set()
            assert go_on.wait(10)

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
        assert len(files_below(tmp_path)) == 2
        cluster.tell(slot, CheckpointAborted(sink, CheckpointId(1)))
        await cluster.settle()
        go_on.set()
        await cluster.nothing_is_beside(slot)
        assert files_below(tmp_path) == []
        assert [ack for ack in cluster.of(CheckpointAcknowledged) if ack.execution == sink] == []
        assert cluster.of(CheckpointDeclined) == []

    run(
        lambda: Cluster(
            CHAIN, chain(), settings=small, wrap=lambda s: SlowStorage(s, hold), threads=True
        ),
        work,
        monkeypatch,
    )
