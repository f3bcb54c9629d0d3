"""A gigabyte of keyed state with a changelog, in memory and on disk: what a checkpoint costs.

One operator in one subtask, without a job around it, and the same without a changelog beside it.
Between two checkpoints a part of the keys is rewritten; what gathers is logged on the way, as in a
job. A base is made in the background half-way, a piece after each batch. At the end the state is
restored and each entry compared. Guards: no checkpoint takes a second, and the restore is exact.
"""

import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import keep, whole
from benchmarks.rocksdb_state import NOISE, Files
from flinkformat.key_groups import KeyGroupRange
from tidegate.api.state import ValueStateDescriptor
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.model.elements import Barrier, CheckpointOptions, RowBatch
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import ChangelogSettings, CheckpointSettings
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.log.changelog import ChangeLog
from tidegate.state.scope import StateScope
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.reading import StateReader
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

FEATURES = {"F255": "changelog.jsonl"}
KEYS, ENTRY_BYTES, GROUPS, BATCH = 200_000, 5_000, 128, 1_024
CHECKPOINTS, FEW = 20, 3
"""With a changelog; and without one, where each may write a gigabyte."""

SHARE = 25
"""One key in this many is rewritten between two checkpoints."""

FLOOR_S = 1.0
ENTRY = Types.TUPLE([Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
EXECUTION = ExecutionId(SubtaskId(VertexId("0" * 32), 0), Epoch(1), Attempt(0))
JOB = JobId("0" * 32)


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run once for each, print the table, keep the result; whether the floors hold."""
    table = Table("", "state MB", "checkpoint s: median", "longest", "written MB", "restore s")
    held, figures = True, {}
    for backend in ("hashmap", "rocksdb"):
        for logged in (False, True):
            name = f"{backend} with a changelog" if logged else backend
            with console.status(name):
                found = figures[name] = measured(backend, int(KEYS * scale), logged=logged)
            table.add_row(name, *(f"{found[key]:,.3f}" for key in list(found)[:5]))
            held &= bool(found["exact"]) and (not logged or found["longest s"] < FLOOR_S)
    console.print(table)
    if whole(only, scale):
        keep(FEATURES["F255"], {"features": {"F255": held}, "figures": figures})
    return held


class Subtask:
    """An operator's state, its files in a folder. files: where rows on disk are."""

    def __init__(
        self,
        folder: Path,
        files: Files | None,
        backend: str,
        *,
        logged: bool,
        shared: bool = False,
    ) -> None:
        settings = CheckpointSettings(storage="filesystem", directory=str(folder / "checkpoints"))
        self.storage = CheckpointStorage(JOB, settings)
        self.storage.initialize_base_locations()
        self.names = iter(range(int(time.time()) * 1_000_000, 1 << 62))
        self.registry = SharedStateRegistry()
        self.waiting: list[Callable[[], None]] = []
        self.cell = KeyCell()
        groups = KeyGroupRange.of(0, 1, GROUPS)
        scope = StateScope(
            OperatorId(bytes(16)),
            groups,
            GROUPS,
            SystemClock(),
            self.cell,
            key_type=Types.LONG(),
            name="entries",
        )
        keyed = keyed_backend(
            scope,
            local=files.local() if files is not None and backend == "rocksdb" else None,
            shared_as="increments" if shared else None,
            log=self._log(scope) if logged else None,
        )
        self.backend = OperatorBackend(scope, keyed)

    def _log(self, scope: StateScope) -> ChangeLog:
        return ChangeLog(
            scope,
            ChangelogSettings(),
            lambda sharing: self.storage.shared_place(EXECUTION, lambda: next(self.names), sharing),
            self.waiting.append,
        )

    def write(self, keys: np.ndarray, counts: np.ndarray, after: Callable[[], None]) -> None:
        """Rewrite the entries of these keys, batch by batch."""
        hasher, cell, prepare = KeyHasher(Types.LONG(), GROUPS), self.cell, None
        state = self.backend.keyed_state(ValueStateDescriptor("entry", ENTRY))
        prepare = self.backend.before_batch
        for start in range(0, len(keys), BATCH):
            part = keys[start : start + BATCH].tolist()
            groups = hasher.key_groups(part).tolist()
            if prepare is not None:
                prepare(RowBatch(part, None, part, groups))
            for cell.key, cell.group in zip(part, groups, strict=True):
                counts[cell.key] += 1
                state.update(entry(cell.key, int(counts[cell.key])))
            while self.waiting:  # on the slot's pool, in a job
                self.waiting.pop(0)()
            after()

    def checkpoint(self, number: int) -> tuple[object, float, float]:
        """A completed checkpoint: its handle, seconds, megabytes written for it."""
        began = time.monotonic()
        barrier = Barrier(CheckpointId(number), 0, CheckpointOptions())
        place = self.storage.place(barrier, EXECUTION, lambda: next(self.names))
        pending = self.backend.snapshot(barrier.checkpoint, barrier.options)
        pending.finish()
        state = pending.upload(place)
        pending.acknowledged()
        took = time.monotonic() - began
        handle = self.registry.register_state(state, barrier.checkpoint).managed_keyed
        self.backend.on_complete(barrier.checkpoint)
        return handle, took, place.bytes_written / 1e6

    def restore(self, handle: object) -> float:
        """Begin with a checkpoint; seconds until the state can be used."""
        began = time.monotonic()
        reader = StateReader(self.storage.files, {})
        self.backend.restore(RestoredOperatorState(managed_keyed=(handle,)), reader)
        self.backend.keyed_state(ValueStateDescriptor("entry", ENTRY))
        return time.monotonic() - began


def entry(key: int, count: int) -> tuple[int, bytes]:
    place = (key * 7919 + count * 31) % (len(NOISE) - ENTRY_BYTES)
    return count, NOISE[place : place + ENTRY_BYTES]


def measured(backend: str, keys: int, *, logged: bool) -> dict[str, float]:
    """All figures of one backend."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-changelog-"))
    gc.disable()  # as a slot has it while records run
    try:
        return figures_of(folder, backend, keys, logged=logged)
    finally:
        gc.enable()
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(folder: Path, backend: str, keys: int, *, logged: bool) -> dict[str, float]:
    """Fill, checkpoint over and over, restore, compare."""
    (folder / "files").mkdir()
    files, counts = Files(folder / "files"), np.zeros(keys, np.int64)
    subtask, chance = Subtask(folder, files, backend, logged=logged), np.random.default_rng(7)
    subtask.write(chance.permutation(keys), counts, lambda: None)
    handle, _, _ = subtask.checkpoint(1)
    took, written, base = [], [], None
    for number in range(2, (CHECKPOINTS if logged else FEW) + 2):
        if logged and number == CHECKPOINTS // 2:
            base = subtask.backend.materialize()

        def go_on() -> None:
            nonlocal base
            if base is None:
                return
            done = base.encode(200.0)
            base.write()
            if done:
                base.take()
                base = None

        subtask.write(chance.integers(0, keys, keys // SHARE), counts, go_on)
        handle, seconds, megabytes = subtask.checkpoint(number)
        took.append(seconds)
        written.append(megabytes)
    assert base is None, "the base was not finished in time"
    subtask.backend.close()
    again = Subtask(folder, files, backend, logged=logged)
    restore_s = again.restore(handle)
    found = {key: value for _, key, value in again.backend.scan("entry")}
    exact = found == {key: entry(key, int(counts[key])) for key in range(keys)}
    again.backend.close()
    return {
        "state MB": keys * ENTRY_BYTES / 1e6,
        "median s": sorted(took)[len(took) // 2],
        "longest s": max(took),
        "written MB": sum(written) / len(written),
        "restore s": restore_s,
        "exact": float(exact),
    }
