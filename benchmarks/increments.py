"""State in memory of which a hundredth changes between checkpoints: whole, as increments, as a log.

One operator in one subtask, without a job around it; the same writes for each. What decides whether
increments of state in memory and the changelog are both needed: bytes of a checkpoint, time of its
quick part, processor time of a checkpoint and of a record. The figures stand in
docs/design/changelog.md.
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

from benchmarks.changelog import EXECUTION, GROUPS, Subtask
from benchmarks.rocksdb_state import NOISE
from tidegate.api.state import ValueStateDescriptor
from tidegate.model.elements import Barrier, CheckpointOptions, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

KEYS = (100_000, 1_000_000)
CHECKPOINTS, CHANGED, WRITES, BATCH, ENTRY_BYTES = 30, 100, 10, 1_024, 90
"""One key in a hundred is written, ten times, between two checkpoints."""

ENTRY = ValueStateDescriptor(
    "entry", Types.TUPLE([Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
)
WAYS = ("whole", "increments", "changelog")


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run each way at each size, and print the table; it guards no floor."""
    del rounds
    columns = (
        "KB",
        "most",
        "quick ms",
        "most",
        "loop ms",
        "CPU ms",
        "most",
        "ns/record",
        "base ms",
    )
    table = Table("keys", "way", *columns)
    for keys in KEYS:
        for way in (each for each in WAYS if only in each):
            with console.status(f"{way}, {keys:,} keys"):
                found = measured(way, int(keys * scale))
            table.add_row(f"{keys:,}", way, *(f"{each:,.1f}" for each in found))
    console.print(table)
    return True


def measured(way: str, keys: int) -> list[float]:
    """The figures of one way."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-increments-"))
    gc.disable()  # as a slot has it while records run
    try:
        return figures_of(folder, way, keys)
    finally:
        gc.enable()
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(folder: Path, way: str, keys: int) -> list[float]:
    chance, counts = np.random.default_rng(7), np.zeros(keys, np.int64)
    subtask = Subtask(
        folder, None, "hashmap", logged=way == "changelog", shared=way == "increments"
    )
    write(subtask, chance.permutation(keys), counts, lambda: None)
    checkpoint(subtask, 1)
    base, base_s = None, 0.0

    def go_on() -> None:
        nonlocal base, base_s
        if base is not None:
            began = time.process_time()
            done = base.encode(50.0)
            base.write()
            if done:
                base.take()
                base = None
            base_s += time.process_time() - began

    taken, records = [], []
    for number in range(2, CHECKPOINTS + 2):
        if number == CHECKPOINTS // 2:
            base = subtask.backend.materialize()
        few = np.unique(chance.integers(0, keys, keys // CHANGED))
        order = np.concatenate([chance.permutation(few) for _ in range(WRITES)])
        records.append(write(subtask, order, counts, go_on) / len(order) * 1e9)
        while base is not None and number > CHECKPOINTS // 2 + 2:
            go_on()
        taken.append(checkpoint(subtask, number))
    subtask.backend.close()
    written, quick, loop, spent = (np.array(each) for each in zip(*taken, strict=True))
    return [
        written.mean() / 1e3,
        written.max() / 1e3,
        float(np.median(quick)) * 1e3,
        quick.max() * 1e3,
        float(np.median(loop)) * 1e3,
        float(np.median(spent)) * 1e3,
        spent.max() * 1e3,
        float(np.median(records)),
        base_s * 1e3,
    ]


def write(
    subtask: Subtask, keys: np.ndarray, counts: np.ndarray, after: Callable[[], None]
) -> float:
    """Rewrite the entries of these keys; seconds of the processor in the calls of state alone."""
    hasher, cell = KeyHasher(Types.LONG(), GROUPS), subtask.cell
    update, spent = subtask.backend.keyed_state(ENTRY).update, 0.0
    prepare = subtask.backend.before_batch
    for start in range(0, len(keys), BATCH):
        part = keys[start : start + BATCH].tolist()
        groups, values = hasher.key_groups(part).tolist(), []
        for key in part:
            counts[key] += 1
            values.append(entry(key, int(counts[key])))
        began = time.thread_time()
        if prepare is not None:
            prepare(RowBatch(part, None, part, groups))
        for cell.key, cell.group, value in zip(part, groups, values, strict=True):
            update(value)
        spent += time.thread_time() - began
        while subtask.waiting:  # on the slot's pool, in a job
            subtask.waiting.pop(0)()
        after()
    return spent


def checkpoint(subtask: Subtask, number: int) -> tuple[int, float, float, float]:
    """A completed checkpoint: its bytes; seconds of the processor in its quick part, in both parts
    that are on the loop, and in all of it.
    """
    barrier = Barrier(CheckpointId(number), 0, CheckpointOptions())
    place = subtask.storage.place(barrier, EXECUTION, lambda: next(subtask.names))
    began = time.process_time()
    pending = subtask.backend.snapshot(barrier.checkpoint, barrier.options)
    quick = time.process_time() - began
    pending.finish()
    loop = time.process_time() - began
    state = pending.upload(place)
    pending.acknowledged()
    spent = time.process_time() - began
    subtask.registry.register_state(state, barrier.checkpoint)
    subtask.backend.on_complete(barrier.checkpoint)
    return place.bytes_written, quick, loop, spent


def entry(key: int, count: int) -> tuple[int, bytes]:
    place = (key * 7919 + count * 31) % (len(NOISE) - ENTRY_BYTES)
    return count, NOISE[place : place + ENTRY_BYTES]
