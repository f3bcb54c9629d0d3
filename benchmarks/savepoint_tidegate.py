"""One savepoint written and restored, beside what disk and serializer do by themselves.

python -m benchmarks.savepoint_tidegate hashmap|rocksdb canonical|native ENTRIES · the last line is
the result, rates in MB/s.
"""

import argparse
import asyncio
import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SubtaskState
from tidegate.api.state import ValueStateDescriptor
from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.model.chance import SeededChance
from tidegate.model.elements import Barrier, CheckpointOptions, SnapshotKind
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SlotId,
    SubtaskId,
    VertexId,
)
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import (
    CheckpointSettings,
    RocksDBSettings,
    SlotSettings,
    StateFileSettings,
)
from tidegate.slot.channel_state import ChannelStateResult
from tidegate.slot.subtask.snapshot import SnapshotTimes, SubtaskSnapshot
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.disk.files import LocalPlace
from tidegate.state.disk.local_folders import LocalFolders
from tidegate.state.disk.store import RocksDBMemory, RocksDBStore
from tidegate.state.scope import StateScope
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.places import Place
from tidegate.storage.reading import StateReader
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import Types

GROUPS, BATCH, SLICE_MS = 128, 4096, 10.0
ENTRY = Types.TUPLE([Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
NOISE = np.random.default_rng(1).bytes(1 << 16)
"""Bytes that no compression makes smaller; an entry holds 80 of them."""
JOB = JobId("0" * 32)
OPERATOR = OperatorId(bytes(16))
EXECUTION = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
ROCKSDB_BYTES = 256 << 20
TIMEOUT_S = 60.0
SAMPLE = 1_000_000
TIMES = 3
MB = 1e6


class World:
    """A folder for savepoints, and the local disk. on_disk: whether keyed state is there."""

    def __init__(self, folder: Path, *, on_disk: bool) -> None:
        settings = CheckpointSettings(storage="filesystem", directory=str(folder / "checkpoints"))
        self.folder = folder
        self.storage = CheckpointStorage(JOB, settings)
        self.memory = RocksDBMemory(RocksDBSettings(memory_bytes=ROCKSDB_BYTES))
        self._local = LocalFolders(JOB, SlotId("slot"), [folder / "local"])
        self._on_disk = on_disk
        self._made = 0
        self._draw = SeededChance(7).bits64

    def backend(self) -> OperatorBackend:
        """State of one operator, empty."""
        self._made += 1
        local = LocalPlace(
            self._local,
            f"00000000-0000-0000-0000-{self._made:012d}",
            self.memory,
            StateFileSettings(incremental=True),
        )
        scope = StateScope(
            OPERATOR,
            KeyGroupRange(0, GROUPS - 1),
            GROUPS,
            SystemClock(),
            KeyCell(),
            key_type=Types.LONG(),
            name="entries",
        )
        keyed = keyed_backend(scope, local=local if self._on_disk else None)
        return OperatorBackend(scope, keyed)

    def snapshot(
        self, backend: OperatorBackend, number: int, options: CheckpointOptions
    ) -> tuple[SubtaskState, Place]:
        """A snapshot as a slot takes it, but that nothing goes on beside it."""
        barrier = Barrier(CheckpointId(number), 0, options)
        place = self.storage.place(barrier, EXECUTION, self._draw)
        in_flight = ChannelStateResult(barrier)
        in_flight.complete((), (), {})
        snapshot = SubtaskSnapshot(
            barrier,
            [(OPERATOR, backend.snapshot(barrier.checkpoint, options))],
            (),
            in_flight,
            (OPERATOR, OPERATOR),
            SnapshotTimes(0.0, 0.0, 0, 0, 0),
            part_bytes=SlotSettings().part_bytes,
            after_finish=False,
        )
        states = asyncio.run(self._taken(snapshot, place))
        backend.on_complete(barrier.checkpoint)
        return states[OPERATOR], place

    async def _taken(
        self, snapshot: SubtaskSnapshot, place: Place
    ) -> Mapping[OperatorId, SubtaskState]:
        def run_blocking(call: Callable[[], object]) -> asyncio.Future[object]:
            return asyncio.get_running_loop().run_in_executor(None, call)

        wake = asyncio.Event()
        ready = asyncio.create_task(snapshot.ready(place, run_blocking, wake.set))
        while snapshot.is_held_up or not snapshot.encode(SLICE_MS):
            if snapshot.is_held_up:
                wake.clear()
                await asyncio.wait_for(wake.wait(), TIMEOUT_S)
            await asyncio.sleep(0)
        await ready
        states = await snapshot.write(place, run_blocking)
        assert states is not None, "nobody has given it up"
        return states


def value_of(key: int) -> tuple[int, bytes]:
    place = key * 7919 % (len(NOISE) - 80)
    return key % 97, NOISE[place : place + 80]


def fill(backend: OperatorBackend, entries: int) -> None:
    hasher, cell = KeyHasher(Types.LONG(), GROUPS), backend.cell
    update = backend.keyed_state(ValueStateDescriptor("entry", ENTRY)).update
    for start in range(0, entries, BATCH):
        keys = range(start, min(start + BATCH, entries))
        groups = hasher.key_groups(list(keys)).tolist()
        for cell.key, cell.group in zip(keys, groups, strict=True):
            update(value_of(cell.key))


def written(world: World, entries: int, *, canonical: bool, on_disk: bool) -> dict[str, object]:
    """A savepoint, three times; the first one stays for who restores it."""
    backend = world.backend()
    fill(backend, entries)
    if on_disk:  # so that most of the state is where it is most of the time
        world.snapshot(backend, 1, CheckpointOptions())
    took: list[Measured] = []
    for number in range(2, 2 + TIMES):
        target = world.folder / f"savepoint-{number}"
        options = CheckpointOptions(SnapshotKind.SAVEPOINT, target=str(target), canonical=canonical)
        with measuring() as writing:
            state, place = world.snapshot(backend, number, options)
        took.append(writing)
        if number == 2:
            (world.folder / "written").write_bytes(pickle.dumps((state, place.checksums)))
            size = sum(file.size for file in place.checksums.values())
        else:
            shutil.rmtree(target)
    backend.close()
    return {
        "bytes": size,
        "seconds": median(each.seconds for each in took),
        "more MB": max(each.peak_mb for each in took),
    }


def restored(world: World, entries: int, *, canonical: bool, on_disk: bool) -> dict[str, object]:
    """The savepoint in a process that has nothing else, as after a restart."""
    state, checksums = pickle.loads((world.folder / "written").read_bytes())
    backend, reader = world.backend(), StateReader(world.storage.files, checksums)
    with measuring() as restoring:
        backend.restore(RestoredOperatorState(managed_keyed=(state.managed_keyed,)), reader)
        entry = backend.keyed_state(ValueStateDescriptor("entry", ENTRY))
    check(backend, entry.value, entries)
    backend.close()
    return {
        "seconds": restoring.seconds,
        "more MB": restoring.peak_mb - restoring.left_mb,
    }


def bounds(world: World, entries: int, *, canonical: bool, on_disk: bool) -> dict[str, object]:
    """MB/s of the disk and of what makes the bytes."""
    sample = min(entries, SAMPLE)
    wrote = read = float("inf")
    if canonical:
        wrote, read = rocksdb_bounds(world, sample) if on_disk else messagepack_bounds(sample)
    _, checksums = pickle.loads((world.folder / "written").read_bytes())
    size = sum(file.size for file in checksums.values())
    disk_write, disk_read, disk_copy = disk_bounds(world.folder, size)
    return {
        "written": {"codec": wrote, "disk": disk_write},
        "restored": {"codec": read, "disk": disk_read if canonical else disk_copy},
    }


def measured(folder: Path, backend: str, form: str, entries: int) -> dict[str, object]:
    """All figures, each act in a process of its own."""

    def act(name: str) -> dict[str, Any]:
        program = [sys.executable, "-m", "benchmarks.savepoint_tidegate", backend, form]
        done = subprocess.run(
            [*program, str(entries), name, str(folder)], stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    wrote = act("written")
    read = [act("restored") for _ in range(TIMES)]
    limits = act("bounds")
    megabytes = wrote["bytes"] / MB
    allowed = ROCKSDB_BYTES / MB + 200 if backend == "rocksdb" else 200
    return {
        "system": f"tidegate, {backend}",
        "megabytes": megabytes,
        "written": megabytes / wrote["seconds"],
        "written bound": min(limits["written"].values()),
        "restored": megabytes / median(each["seconds"] for each in read),
        "restored bound": min(limits["restored"].values()),
        "bounds": limits,
        "writing MB": wrote["more MB"],
        "restoring MB": max(each["more MB"] for each in read),
        "allowed MB": allowed,
    }


def check(backend: OperatorBackend, value: Callable[[], object], entries: int) -> None:
    """Some entries are there, and none behind the last."""
    keys = np.random.default_rng(3).integers(0, entries, 1_000).tolist()
    groups = KeyHasher(Types.LONG(), GROUPS).key_groups([*keys, entries]).tolist()
    expected = [*map(value_of, keys), None]
    for key, group, entry in zip([*keys, entries], groups, expected, strict=True):
        backend.cell.key, backend.cell.group = key, group
        assert value() == entry, f"the entry of {key}"


@dataclass
class Measured:
    """seconds: of the wall clock. MB: of memory beyond what there was before.

    peak_mb: at most. left_mb: at the end. Pages of files that are mapped do not count.
    """

    seconds: float = 0.0
    peak_mb: float = 0.0
    left_mb: float = 0.0


@contextmanager
def measuring() -> Iterator[Measured]:
    measured, ended, peak = Measured(), threading.Event(), 0
    info = psutil.Process().memory_info

    def held() -> int:
        now = info()
        return now.rss - now.shared

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, held())

    watcher = threading.Thread(target=watch)
    before = held()
    watcher.start()
    began = time.perf_counter()
    try:
        yield measured
    finally:
        measured.seconds = time.perf_counter() - began
        ended.set()
        watcher.join()
        left = held()
        measured.left_mb = (left - before) / MB
        measured.peak_mb = (max(peak, left) - before) / MB


def rate(work: Callable[[], object], size: int) -> float:
    """MB/s, the median of three; each result is in memory of its own, as a savepoint's is."""
    return size / MB / median(seconds(work))


def seconds(work: Callable[[], object]) -> list[float]:
    took: list[float] = []
    results: list[object] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        results.append(work())
        took.append(time.perf_counter() - began)
    return took


def disk_bounds(folder: Path, size: int) -> tuple[float, float, float]:
    """Writing a savepoint's bytes until they are durable, reading them back, and copying them.

    The median of three, each beside the one before: files that are written again and again, or
    behind the deletion of others, get pages of memory that were just in use, which on a virtual
    machine are five times as quick to fill as fresh ones (0.09 and 0.47 s of CPU for 537 MB).
    A savepoint gets fresh ones.
    """
    made, block = folder / "disk", NOISE * 16
    made.mkdir()
    times = max(1, size // len(block))
    names = (made / str(number) for number in count())
    first = made / "0"

    def write() -> None:
        with next(names).open("wb", buffering=0) as stream:
            for _ in range(times):
                stream.write(block)
            os.fsync(stream.fileno())

    def read() -> None:
        with first.open("rb", buffering=0) as stream:
            while stream.read(4 << 20):
                pass

    def copy() -> None:
        shutil.copyfile(first, next(names))

    wrote, was_read, copied = (
        times * len(block) / MB / median(seconds(work)) for work in (write, read, copy)
    )
    shutil.rmtree(made)
    return wrote, was_read, copied


def messagepack_bounds(entries: int) -> tuple[float, float]:
    """Keys and values to bytes, by key group as state is written, and back to objects."""
    key_of, value_of = serializer_of(Types.LONG()), serializer_of(ENTRY)
    found = in_groups(entries)
    parts = [found[start : start + BATCH] for start in range(0, entries, BATCH)]
    keys = [[key for _, key, _ in part] for part in parts]
    values = [[value for _, _, value in part] for part in parts]

    def encode() -> list[tuple[bytes, bytes]]:
        return [
            (key_of.encode_many(some), value_of.encode_many(of))
            for some, of in zip(keys, values, strict=True)
        ]

    pieces = encode()
    size = sum(len(key) + len(value) for key, value in pieces)

    def decode() -> list[tuple[list[object], list[object]]]:
        return [(key_of.decode_many(key), value_of.decode_many(value)) for key, value in pieces]

    return rate(encode, size), rate(decode, size)


def in_groups(entries: int) -> list[tuple[int, int, tuple[int, bytes]]]:
    """Key group, key and value of so many entries, by key group."""
    keys = list(range(entries))
    groups = KeyHasher(Types.LONG(), GROUPS).key_groups(keys).tolist()
    return sorted(zip(groups, keys, map(value_of, keys), strict=True))


def rocksdb_bounds(world: World, entries: int) -> tuple[float, float]:
    found = in_groups(entries)
    names = serializer_of(Types.LONG()).encode_each([key for _, key, _ in found])
    pieces = serializer_of(ENTRY).encode_each([value for _, _, value in found])
    stored = [
        (group.to_bytes(2) + bytes(2) + name, bytes(1) + piece)
        for (group, _, _), name, piece in zip(found, names, pieces, strict=True)
    ]
    size = sum(len(name) + len(piece) for name, piece in stored)
    parts = [stored[start : start + BATCH] for start in range(0, entries, BATCH)]
    slices = [([name for name, _ in part], [piece for _, piece in part]) for part in parts]
    stores = [RocksDBStore(world.folder / f"bound-{n}", world.memory) for n in range(TIMES)]
    empty = iter(stores)

    def write() -> None:
        next(empty).ingest(slices, world.folder / "bound")

    wrote = rate(write, size)
    read = rate(lambda: deque(stores[0].scan(b""), maxlen=0), size)
    for store in stores:
        store.destroy()
    return read, wrote


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=["hashmap", "rocksdb"])
    parser.add_argument("format", choices=["canonical", "native"])
    parser.add_argument("entries", type=int)
    parser.add_argument("act", nargs="?", choices=ACTS)
    parser.add_argument("folder", nargs="?", type=Path)
    args = parser.parse_args()
    if args.act is not None:
        gc.disable()  # as a slot has it while records run
        on_disk, canonical = args.backend == "rocksdb", args.format == "canonical"
        world = World(args.folder, on_disk=on_disk)
        act = ACTS[args.act]
        print(json.dumps(act(world, args.entries, canonical=canonical, on_disk=on_disk)))
        return
    folder = Path(tempfile.mkdtemp(prefix="tidegate-savepoint-"))
    try:
        print(json.dumps(measured(folder, args.backend, args.format, args.entries)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ACTS = {"written": written, "restored": restored, "bounds": bounds}


if __name__ == "__main__":
    main()
