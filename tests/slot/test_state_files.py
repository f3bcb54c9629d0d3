"""State that is kept in files, in a real slot: named again, given up, damaged, kept beside."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from tests.slot.cluster import JOB, SETTINGS, Cluster, run
from tests.slot.operators import NOTHING, ONE_BY_ONE, Stateful, pair
from tests.state.files_world import fill
from tests.worlds.storage import SlowStorage
from tests.worlds.subtask import ScriptedSource
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointComplete,
    CheckpointDeclined,
    ExecutionState,
    Release,
)
from tidegate.model.elements import CheckpointOptions
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import StateFileSettings
from tidegate.state.backend import OperatorBackend
from tidegate.state.disk.files import IncrementalFiles
from tidegate.storage.memory import MemoryWriter

if TYPE_CHECKING:
    from pathlib import Path

    from flinkformat.snapshots import SubtaskState
    from tidegate.model.ids import ExecutionId
    from tidegate.state.pending import PendingSnapshot
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place

BACKEND_ID = "0" * 8 + "-0000-0000-0000-" + "0" * 12

CHECKPOINT = CheckpointOptions()


class InFiles(OperatorBackend):
    """Keyed state that is a folder of files, which grows by one with each snapshot."""

    folder: Path

    def __init__(self, scope: StateScope, *keyed: Any) -> None:
        super().__init__(scope, *keyed)
        self._uploads = IncrementalFiles(BACKEND_ID, scope.key_groups, threads=2)
        self._files: dict[str, bytes] = {}
        self._name = scope.name

    def snapshot(  # type: ignore[override]
        self, checkpoint: CheckpointId, options: CheckpointOptions = CHECKPOINT
    ) -> Uploading:
        made = len(self._files) + 1
        self._files[f"_{made}"] = f"{self._name}, file {made}".encode()
        folder = fill(self.folder / f"{self._name}-{checkpoint}", **self._files, CURRENT=b"1")
        return Uploading(super().snapshot(checkpoint, options), self._uploads, folder, checkpoint)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._uploads.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._uploads.named.on_aborted(checkpoint)


class Uploading:
    """A snapshot of that: the folder beside what is in memory."""

    def __init__(
        self,
        memory: PendingSnapshot,
        uploads: IncrementalFiles,
        folder: Path,
        checkpoint: CheckpointId,
    ) -> None:
        self._memory = memory
        self._uploads = uploads
        self._folder = folder
        self._checkpoint = checkpoint
        self.waiting = 0
        self.encode = memory.encode
        self.write = memory.write
        self.acknowledged = memory.acknowledged
        self.cancel = memory.cancel

    def upload(self, place: Place) -> SubtaskState:
        keyed = self._uploads.upload(
            self._folder, self._checkpoint, place, shared=True, meta=b"meta"
        )
        return replace(self._memory.upload(place), managed_keyed=keyed)


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(InFiles, "folder", tmp_path, raising=False)
    monkeypatch.setattr("tidegate.slot.job.OperatorBackend", InFiles)


def named_again(acknowledged: CheckpointAcknowledged) -> dict[str, bool]:
    """The shared files of a subtask's share, and whether they are only named."""
    [state] = (acknowledged.state or {}).values()
    keyed = state.managed_keyed
    assert isinstance(keyed, IncrementalRemoteKeyedStateHandle)
    for file in keyed.shared_state:
        assert isinstance(file.handle, PlaceholderStreamStateHandle | FileStateHandle)
    return {
        file.local_path: isinstance(file.handle, PlaceholderStreamStateHandle)
        for file in keyed.shared_state
    }


@pytest.mark.usefixtures("in_files")
def test_a_subtask_names_again_what_a_completed_checkpoint_has_uploaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])

        async def taken(checkpoint: int) -> dict[str, bool]:
            cluster.trigger(slot, source, checkpoint)
            return named_again(await cluster.acknowledged(sink, checkpoint))

        assert await taken(1) == {"000001.sst": False}
        cluster.tell(slot, CheckpointComplete(sink, CheckpointId(1)))
        assert await taken(2) == {"000001.sst": True, "000002.sst": False}
        cluster.tell(slot, CheckpointAborted(sink, CheckpointId(2)))
        assert await taken(3) == {"000001.sst": True, "000002.sst": False, "000003.sst": False}
        # The word that the third is complete was lost; the next abort makes up for it.
        cluster.tell(slot, CheckpointAborted(sink, CheckpointId(4), CheckpointId(3)))
        assert list((await taken(5)).values()) == [True, True, True, False]

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


@pytest.mark.usefixtures("in_files")
def test_what_was_uploaded_twice_is_named_again_once_the_later_checkpoint_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])

        async def taken(checkpoint: int) -> dict[str, bool]:
            cluster.trigger(slot, source, checkpoint)
            return named_again(await cluster.acknowledged(sink, checkpoint))

        assert await taken(1) == {"000001.sst": False}
        assert await taken(2) == {"000001.sst": False, "000002.sst": False}
        cluster.tell(slot, CheckpointComplete(sink, CheckpointId(1)))
        cluster.tell(slot, CheckpointAborted(sink, CheckpointId(2)))
        assert await taken(3) == {"000001.sst": True, "000002.sst": False, "000003.sst": False}

    run(lambda: Cluster(ONE_BY_ONE, pair([])), work, monkeypatch)


@pytest.mark.usefixtures("in_files")
def test_an_upload_under_way_ends_with_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    written: list[bytes] = []
    monkeypatch.setattr(MemoryWriter, "write", lambda _, data: written.append(data))

    def hold() -> None:
        begun.set()
        assert go_on.wait(10)

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 1)
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
        for execution in (source, sink):
            cluster.tell(slot, CheckpointAborted(execution, CheckpointId(1)))
        await cluster.settle()
        go_on.set()
        await cluster.pool_is_idle()
        await cluster.nothing_is_beside(slot)
        assert cluster.files.files == {} and written == []
        assert cluster.of(CheckpointAcknowledged) == [] and cluster.of(CheckpointDeclined) == []

    run(
        lambda: Cluster(ONE_BY_ONE, pair([]), wrap=lambda s: SlowStorage(s, hold), threads=True),
        work,
        monkeypatch,
    )


def restoring() -> Cluster:
    operators = {
        "source": [ScriptedSource("source", [], list(NOTHING))],
        "sink": [Stateful("sink", [])],
    }
    return Cluster(ONE_BY_ONE, operators)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda data: data[:-1] + b"?", "is not as it was written"),
        (lambda data: data + b"?", "and 121 were written"),
        (None, "is missing"),
    ],
)
def test_a_damaged_file_of_state_fails_the_restore_with_all_names(
    monkeypatch: pytest.MonkeyPatch, harm: Any, says: str
) -> None:
    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        source, sink = await cluster.deploy([slot])
        cluster.trigger(slot, source, 7)
        acknowledged = await cluster.acknowledged(sink, 7)
        [(operator, state)] = (acknowledged.state or {}).items()
        assert state.managed_operator is not None
        handle = state.managed_operator.delegate
        assert isinstance(handle, RelativeFileStateHandle)
        place = handle.physical_id
        if harm is None:
            del cluster.files.files[place]
        else:
            cluster.files.files[place] = harm(cluster.files.files[place])
        again = cluster.deployments([slot])[1][1]
        restored = RestoredOperatorState(managed_operator=(state.managed_operator,))
        cluster.tell(
            slot,
            replace(
                again,
                state={operator: restored},
                restored=CheckpointId(7),
                checksums=acknowledged.figures.checksums,
            ),
        )
        failed = await cluster.changed_to(again.execution, ExecutionState.FAILED)
        told = str(failed.error)
        assert place in told and "operator 'sink0', checkpoint 7" in told
        assert says.replace("121", str(handle.state_size)) in told

    run(restoring, work, monkeypatch)


@pytest.mark.feature("F113")
def test_local_copies_follow_the_checkpoints_and_go_with_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = StateFileSettings(folders=(str(tmp_path),), keeps_copies=True, takes_copies=True)
    settings = replace(SETTINGS, slot=replace(SETTINGS.slot, state_files=files))

    def copies() -> set[str]:
        return {path.parent.parent.name for path in tmp_path.glob(f"{JOB}/copies/*/*/CURRENT")}

    async def work(cluster: Cluster) -> None:
        (slot,) = await cluster.start("a")
        _, sink = await cluster.deploy([slot])
        job = cluster.slots[slot]._job
        assert job is not None
        folders = job.local.folders
        keep_copies(cluster, sink, folders, 1, 2, 3)
        cluster.tell(slot, CheckpointAborted(sink, CheckpointId(3)))
        await cluster.eventually(lambda: copies() == {"chk-1", "chk-2"})
        cluster.tell(slot, CheckpointComplete(sink, CheckpointId(2)))
        await cluster.eventually(lambda: copies() == {"chk-2"})
        cluster.tell(slot, Release())
        await cluster.running[slot]

    run(lambda: Cluster(ONE_BY_ONE, pair([]), settings=settings), work, monkeypatch)
    assert list(tmp_path.rglob("*")) == []


def keep_copies(cluster: Cluster, sink: ExecutionId, folders: Any, *checkpoints: int) -> None:
    for checkpoint in checkpoints:
        handle = IncrementalRemoteKeyedStateHandle(
            checkpoint,
            BACKEND_ID,
            KeyGroupRange(0, 7),
            0,
            ByteStreamStateHandle("meta", b""),
            (),
            (),
            f"{sink.epoch}-{checkpoint}",
        )
        folders.keep(handle, fill(folders.new_folder(), CURRENT=b"1"))
