"""Ten million keys on disk: what checkpoints, restores and rescales of them cost.

One operator in one subtask, without a job around it, with 512 MiB for RocksDB. Guards: a checkpoint
after 1 % of the keys were rewritten uploads at most 5 % of the state and takes at most 2 s, with a
quick part of at most 50 ms; a restore at the same parallelism takes at most 10 s, one from 2 to 3
subtasks 30 s.

Sketch: an entry is 12 bytes of key and 90 of value, about a gigabyte in all; 1 % of ten million are
100,000 entries: 50 ms to encode, 100 ms to write, 200 ms to flush.
"""

import gc
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import keep, whole
from flinkformat.handles import (
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
    StreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SharingFilesStrategy
from tidegate.api.state import ValueStateDescriptor
from tidegate.checkpoint.restore.redistribution import redistribute_keyed
from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId, JobId, OperatorId, SlotId
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import RocksDBSettings, StateFileSettings
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.disk.files import LocalPlace
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.state.disk.store import RocksDBMemory
from tidegate.state.scope import StateScope
from tidegate.storage.places import CheckpointScope
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

KEYS, GROUPS, BATCH, CHECKPOINTS = 10_000_000, 128, 4096, 50
ENTRY = Types.TUPLE([Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
NOISE = np.random.default_rng(1).bytes(1 << 16)
"""Bytes that no compression makes smaller; an entry holds 80 of them."""
FLOORS = {
    "uploaded share": 0.05,
    "checkpoint s": 2.0,
    "quick part ms": 50.0,
    "restore s": 10.0,
    "rescale 2 to 3 s": 30.0,
}


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run once, print the table, keep the result; whether the floors hold."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-rocksdb-"))
    gc.disable()  # as a slot has it while records run
    try:
        figures = measured(Files(folder), int(KEYS * scale), console)
    finally:
        gc.enable()
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("", "measured", "at most", title=f"{int(KEYS * scale):,} keys in RocksDB")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3f}", f"{FLOORS[name]:g}" if name in FLOORS else "")
    console.print(table)
    held = all(figures[name] <= floor for name, floor in FLOORS.items())
    if whole(only, scale):
        keep("rocksdb-state.jsonl", {"held": held, "figures": figures})
    return held


class Files:
    """Where checkpoints go, and the local disk."""

    sharing = SharingFilesStrategy.FORWARD_BACKWARD
    where = "a benchmark"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.folder.mkdir()
        self._local = LocalFolders(JobId("0" * 32), SlotId("slot"), [folder / "local"])
        self._memory = RocksDBMemory(RocksDBSettings(memory_bytes=512 << 20))
        self._made = 0

    def local(self) -> LocalPlace:
        """Where one operator's key space may be."""
        self._made += 1
        name = f"00000000-0000-0000-0000-{self._made:012d}"
        return LocalPlace(self._local, name, self._memory, StateFileSettings(incremental=True))

    def new_name(self) -> str:
        """A name that nothing else has."""
        self._made += 1
        return f"file-{self._made}"

    def write(
        self,
        parts: Iterable[bytes],
        scope: CheckpointScope = CheckpointScope.EXCLUSIVE,
        *,
        merged: bool = True,
    ) -> StreamStateHandle:
        path = self.folder / self.new_name()
        with path.open("wb") as file:
            for part in parts:
                file.write(part)
        return FileStateHandle(str(path), path.stat().st_size)

    def read(self, handle: StreamStateHandle) -> bytes:
        """All bytes of a handle."""
        return Path(handle.physical_id).read_bytes()

    def copy(self, handle: StreamStateHandle, target: Path) -> None:
        shutil.copyfile(handle.physical_id, target)


class Subtask:
    """One of so many subtasks with the state of its key groups."""

    def __init__(self, files: Files, index: int = 0, parallelism: int = 1) -> None:
        self.files = files
        self.cell = KeyCell()
        self.groups = KeyGroupRange.of(index, parallelism, GROUPS)
        scope = StateScope(
            OperatorId(bytes(16)),
            self.groups,
            GROUPS,
            SystemClock(),
            self.cell,
            key_type=Types.LONG(),
            name="pairs",
        )
        self.backend = OperatorBackend(scope, keyed_backend(scope, local=files.local()))

    def write(self, keys: np.ndarray) -> None:
        """Rewrite the entries of these keys, batch by batch, reading each before."""
        hasher, cell = KeyHasher(Types.LONG(), GROUPS), self.cell
        state = self.backend.keyed_state(ValueStateDescriptor("entry", ENTRY))
        prepare, mine = self.backend.before_batch, set(self.groups)
        assert prepare is not None
        for start in range(0, len(keys), BATCH):
            part = keys[start : start + BATCH].tolist()
            groups = hasher.key_groups(part).tolist()
            own = [(k, g) for k, g in zip(part, groups, strict=True) if g in mine]
            prepare(RowBatch(part, None, [k for k, _ in own], [g for _, g in own]))
            for cell.key, cell.group in own:
                old, place = (
                    state.value() or (0, b""),
                    (cell.key * 7919 + start) % (len(NOISE) - 80),
                )
                state.update((old[0] + 1, NOISE[place : place + 80]))

    def checkpoint(self, number: int) -> tuple[IncrementalRemoteKeyedStateHandle, float, float]:
        """A completed checkpoint; seconds of its quick part and of all of it."""
        began = time.monotonic()
        pending = self.backend.snapshot(CheckpointId(number))
        quick = time.monotonic() - began
        pending.finish()
        handle = pending.upload(self.files).managed_keyed
        took = time.monotonic() - began
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
        self.backend.on_complete(CheckpointId(number))
        return (
            replace(handle, shared_state=tuple(map(self._real, handle.shared_state))),
            quick,
            took,
        )

    @staticmethod
    def _real(file: HandleAndLocalPath) -> HandleAndLocalPath:
        if not isinstance(file.handle, PlaceholderStreamStateHandle):
            return file
        path = file.handle.physical_id
        return HandleAndLocalPath(file.local_path, FileStateHandle(path, Path(path).stat().st_size))

    def restore(self, handles: tuple[IncrementalRemoteKeyedStateHandle, ...]) -> float:
        """Begin with what checkpoints hold; seconds until the state can be used."""
        began = time.monotonic()
        self.backend.restore(RestoredOperatorState(managed_keyed=handles), self.files)
        self.backend.keyed_state(ValueStateDescriptor("entry", ENTRY))
        return time.monotonic() - began


def measured(files: Files, keys: int, console: Console) -> dict[str, float]:
    subtask, chance = Subtask(files), np.random.default_rng(7)
    with console.status("filling"):
        began = time.monotonic()
        subtask.write(chance.permutation(keys))
        filled = time.monotonic() - began
        _, _, first_s = subtask.checkpoint(1)
    uploaded, quick, took = [], [], []
    for number in range(2, CHECKPOINTS + 2):
        with console.status(f"checkpoint {number} of {CHECKPOINTS + 1}"):
            subtask.write(chance.integers(0, keys, keys // 100))
            last, quick_s, all_s = subtask.checkpoint(number)
        uploaded.append(last.checkpointed_size / last.state_size)
        quick.append(quick_s * 1000)
        took.append(all_s)
    subtask.backend.close()
    again = Subtask(files)
    restore_s = again.restore((last,))
    again.backend.close()
    return {
        "state MB": last.state_size / 1e6,
        "filled, k keys/s": keys / filled / 1000,
        "first checkpoint s": first_s,
        "uploaded share": uploaded[0],
        "uploaded share, mean": statistics.mean(uploaded),
        "checkpoint s": took[0],
        "checkpoint s, mean": statistics.mean(took),
        "quick part ms": max(quick),
        "restore s": restore_s,
        "rescale 2 to 3 s": rescaled(files, keys),
        "resident MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def rescaled(files: Files, keys: int) -> float:
    """Seconds for the slowest of three subtasks to begin with the state of two."""
    before = [Subtask(files, index, 2) for index in range(2)]
    for subtask in before:
        subtask.write(np.arange(keys))
    handles = [subtask.checkpoint(1)[0] for subtask in before]
    for subtask in before:
        subtask.backend.close()
    slowest = 0.0
    for index, parts in enumerate(redistribute_keyed(handles, 3, GROUPS)):
        after = Subtask(files, index, 3)
        own = tuple(each for each in parts if isinstance(each, IncrementalRemoteKeyedStateHandle))
        slowest = max(slowest, after.restore(own))
        after.backend.close()
    return slowest
