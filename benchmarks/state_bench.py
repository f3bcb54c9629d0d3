"""Cost of state: an access, a snapshot, a restore, a batch of columns; memory of a million keys.

Guards: `value` and `update` 120 ns each, in a snapshot too after an entry's first write; the quick
part of a snapshot of a million keys within twice that of ten thousand (F109); slices of 10 ms
within 15; columns 15 ns a row for ten thousand keys and 60 for a million; less than 600 MB for a
million keys of integers. Sketch: an access is one Python call (20 ns), two indexed reads (10) and a
dict operation (25); an entry is encoded in 30 ns and its key in 10, so a million in 40 to 60 ms; at
a million keys memory adds several times that, since no object lies beside the next.

Times are the processor's; those of the quick part and of slices are a clock's.

    python -m benchmarks.state_bench
"""

import gc
import itertools
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from random import Random
from time import perf_counter_ns, thread_time_ns

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.measure import keep
from flinkformat.handles import ByteStreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from tidegate.api.state import ColumnStateDescriptor, ValueStateDescriptor
from tidegate.clock import SystemClock
from tidegate.loops.cells import KeyCell
from tidegate.model.ids import CheckpointId, OperatorId
from tidegate.model.restore import RestoredOperatorState
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.storage.streams import CheckpointStateOutputStream
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

FEATURES = {"F109": "state.jsonl"}
GROUPS = 128
BATCH = 4_000
COLUMN_BATCH = 65_536
SLICE_MS = 10.0
TYPED = ValueStateDescriptor("state", Types.TUPLE([Types.LONG(), Types.LONG()]))
UNDECLARED = ValueStateDescriptor("state")
COUNT = ColumnStateDescriptor("count", pa.int64())


def main(console: Console) -> bool:
    """Print all figures, keep the result; whether F109 holds."""
    gc.disable()  # as a slot does while records run
    figures: dict[str, float] = {}
    for name, descriptor in (("typed", TYPED), ("undeclared", UNDECLARED)):
        figures |= {f"{name}: {key}": value for key, value in accesses(descriptor).items()}
    few, many = Loaded(10_000), Loaded(1_000_000)
    figures["sync ms, 10 k keys"] = few.sync_ms()
    figures["sync ms, 1 M keys"] = many.sync_ms()
    figures |= many.snapshot()
    figures |= many.snapshot(writing=True)
    figures["RSS MB, 1 M keys and their snapshot"] = psutil.Process().memory_info().rss / 1e6
    figures["restore ms, 1 M keys"] = many.restore_ms()
    del few, many
    gc.collect()
    for keys in (10_000, 1_000_000):
        figures |= {f"columns, {keys:,} keys: {k}": v for k, v in columns(keys).items()}
    figures |= {f"columns, texts: {k}": v for k, v in columns(10_000, texts=True).items()}
    table = Table("figure", "value", title="State")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3f}")
    console.print(table)
    ratio = figures["sync ms, 1 M keys"] / figures["sync ms, 10 k keys"]
    console.print(f"sync part, 1 M keys to 10 k keys: {ratio:.2f}")
    keep(FEATURES["F109"], {"features": {"F109": ratio <= 2.0}, "figures": figures})
    return ratio <= 2.0


class Keyed:
    """A backend and rows that come for it."""

    def __init__(self, descriptor: ValueStateDescriptor = TYPED) -> None:
        self.cell = KeyCell()
        self.backend = OperatorBackend(
            StateScope(
                OperatorId(bytes(16)),
                KeyGroupRange(0, GROUPS - 1),
                GROUPS,
                SystemClock(),
                self.cell,
            )
        )
        self.descriptor = descriptor
        self.state = self.backend.keyed_state(descriptor)

    def nothing(self) -> None: ...

    def rows(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """The keys, each with its key group."""
        groups = KeyHasher(Types.LONG(), GROUPS).key_groups(keys).tolist()
        return list(zip(keys, groups, strict=True))


def accesses(descriptor: ValueStateDescriptor) -> dict[str, float]:
    """Nanoseconds a call, of 10,000 keys, without the loop around it."""
    keyed = Keyed(descriptor)
    chance = Random(1)
    rows = keyed.rows([chance.randrange(10_000) for _ in range(BATCH)])
    fill(keyed, keyed.rows(range(10_000)))
    state, value = keyed.state, (1, 2)

    def nothing() -> None:
        for keyed.cell.key, keyed.cell.group in rows:
            pass

    def call() -> None:
        for keyed.cell.key, keyed.cell.group in rows:
            keyed.nothing()

    def read() -> None:
        for keyed.cell.key, keyed.cell.group in rows:
            state.value()

    def write() -> None:
        for keyed.cell.key, keyed.cell.group in rows:
            state.update(value)

    loop = least_ns(nothing)
    figures = {
        "a call of nothing ns": least_ns(call) - loop,
        "value ns": least_ns(read) - loop,
        "update ns": least_ns(write) - loop,
    }
    pending = keyed.backend.snapshot(CheckpointId(1))
    figures["first update ns in a snapshot"] = least_ns(write, rounds=1) - loop
    figures["value ns in a snapshot"] = least_ns(read) - loop
    figures["next update ns in a snapshot"] = least_ns(write) - loop
    pending.cancel()
    return figures


def least_ns(work: Callable[[], None], *, rounds: int = 300) -> float:
    """Nanoseconds a row in the quickest of many rounds: what else the machine does only adds."""
    took: list[int] = []
    for _ in range(rounds):
        began = thread_time_ns()
        work()
        took.append(thread_time_ns() - began)
    return min(took) / BATCH


def fill(keyed: Keyed, rows: Iterable[tuple[int, int]], add: int = 0) -> None:
    """Set the state of each key to a tuple of its own."""
    update, cell = keyed.state.update, keyed.cell
    for cell.key, cell.group in rows:
        update((cell.key, add))


class Loaded(Keyed):
    """Integer keys with a tuple of two integers each."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        self._all = self.rows(range(keys))
        Random(2).shuffle(self._all)
        fill(self, self._all)
        self._checkpoint = itertools.count(1)
        self._handle: object = None

    def sync_ms(self) -> float:
        """Milliseconds of the quick part, the median of 30."""
        took: list[float] = []
        for _ in range(30):
            began = perf_counter_ns()
            pending = self.backend.snapshot(CheckpointId(next(self._checkpoint)))
            took.append((perf_counter_ns() - began) / 1e6)
            pending.cancel()
        return statistics.median(took)

    def snapshot(self, *, writing: bool = False) -> dict[str, float]:
        """Milliseconds of encoding in slices; writing: between two of them, BATCH rows come."""
        pending = self.backend.snapshot(CheckpointId(next(self._checkpoint)))
        slices: list[float] = []
        encoding: list[float] = []
        writes: list[float] = []
        done = False
        while not done:
            began, busy = perf_counter_ns(), thread_time_ns()
            done = pending.encode(SLICE_MS)
            slices.append((perf_counter_ns() - began) / 1e6)
            encoding.append((thread_time_ns() - busy) / 1e6)
            if writing and not done:
                at = len(writes) * BATCH
                began = thread_time_ns()
                fill(self, self._all[at : at + BATCH], add=1)
                writes.append((thread_time_ns() - began) / BATCH)
        began = thread_time_ns()
        self._handle = pending.upload(Memory()).managed_keyed
        upload_ms = (thread_time_ns() - began) / 1e6
        when = ", rows between" if writing else ""
        figures = {
            f"encode ms, 1 M keys{when}": sum(encoding),
            f"longest slice ms{when}": max(slices),
            f"slices{when}": len(slices),
        }
        if writes:
            return figures | {"update ns between slices": statistics.median(writes)}
        return figures | {"upload ms": upload_ms, "MB": self._handle.state_size / 1e6}

    def restore_ms(self) -> float:
        """Milliseconds from the bytes to the state, the median of three."""
        took: list[float] = []
        for _ in range(3):
            again = OperatorBackend(
                StateScope(
                    OperatorId(bytes(16)),
                    KeyGroupRange(0, GROUPS - 1),
                    GROUPS,
                    SystemClock(),
                    KeyCell(),
                )
            )
            began = thread_time_ns()
            again.restore(RestoredOperatorState(managed_keyed=(self._handle,)), Memory())
            again.keyed_state(self.descriptor)
            took.append((thread_time_ns() - began) / 1e6)
        return statistics.median(took)


class Memory:
    """Where all state stays in its handle."""

    def stream(self) -> CheckpointStateOutputStream:
        """A stream into its handle."""
        return CheckpointStateOutputStream("memory:/state", None, buffer_max=1 << 40)

    where = "memory"

    def read(self, handle: ByteStreamStateHandle) -> bytes:
        """All bytes of a handle."""
        return handle.data


def columns(keys: int, *, texts: bool = False) -> dict[str, float]:
    """Nanoseconds a row of batches of 64 k, and milliseconds of a snapshot."""
    cell = KeyCell()
    backend = OperatorBackend(
        StateScope(OperatorId(bytes(16)), KeyGroupRange(0, GROUPS - 1), GROUPS, SystemClock(), cell)
    )
    rows, state = backend.keyed_columns(None), backend.column_state(COUNT)
    hasher = KeyHasher(None, GROUPS)
    chance = np.random.default_rng(1)
    universe = chance.permutation(np.int64(keys)) * 7919 - keys
    everything = pa.array(universe if not texts else [f"user-{n}" for n in universe.tolist()])
    longest = 0.0
    began = thread_time_ns()
    for start in range(0, keys, COLUMN_BATCH):
        batch = everything.slice(start, COLUMN_BATCH)
        groups = hasher.key_groups_of_column(batch)
        before = thread_time_ns()
        state.put(rows.index(batch, groups), np.arange(len(batch)))
        longest = max(longest, (thread_time_ns() - before) / 1e6)
    added = (thread_time_ns() - began) / keys
    batch = everything.take(pa.array(chance.integers(0, keys, COLUMN_BATCH)))
    groups = hasher.key_groups_of_column(batch)
    index = rows.index(batch, groups)
    values = state.get(index)
    figures = {
        "new key ns a row": added,
        "longest batch of new keys ms": longest,
        "index ns a row": column_ns(lambda: rows.index(batch, groups)),
        "get ns a row": column_ns(lambda: state.get(index)),
        "put ns a row": column_ns(lambda: state.put(index, values)),
    }
    took: list[float] = []
    for checkpoint in range(1, 10):
        began = thread_time_ns()
        pending = backend.snapshot(CheckpointId(checkpoint))
        took.append((thread_time_ns() - began) / 1e6)
        pending.cancel()
    pending, copying = backend.snapshot(CheckpointId(10)), thread_time_ns()
    pending.finish()
    figures["copying pages ms"] = (thread_time_ns() - copying) / 1e6
    began = thread_time_ns()
    handle = pending.upload(Memory()).managed_keyed
    figures["sync ms"] = statistics.median(took)
    figures["sort and write ms"] = (thread_time_ns() - began) / 1e6
    again = OperatorBackend(
        StateScope(OperatorId(bytes(16)), KeyGroupRange(0, GROUPS - 1), GROUPS, SystemClock(), cell)
    )
    began = thread_time_ns()
    again.restore(RestoredOperatorState(managed_keyed=(handle,)), Memory())
    figures["restore ms"] = (thread_time_ns() - began) / 1e6
    return figures


def column_ns(work: Callable[[], object]) -> float:
    """Nanoseconds a row in the quickest of 30 rounds."""
    took: list[int] = []
    for _ in range(30):
        began = thread_time_ns()
        work()
        took.append(thread_time_ns() - began)
    return min(took) / COLUMN_BATCH


if __name__ == "__main__":
    sys.exit(0 if main(Console(width=110)) else 1)
