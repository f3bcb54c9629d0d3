"""Whole snapshots without a job: real backends and storage, files in memory, everything seeded."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from flinkformat import metadata
from flinkformat.handles import (
    ByteStreamStateHandle,
    InputChannelStateHandle,
    ResultSubpartitionStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import merge_inputs, merge_outputs
from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    MasterState,
    OperatorState,
    RetentionPolicy,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from tests.state.disk_world import Disk
from tests.worlds.clock import StepClock
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    ValueStateDescriptor,
)
from tidegate.checkpoint.channel_state.file_format import chunk, file_header
from tidegate.checkpoint.provenance import Provenance, sealed, to_master_state
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.ha.chain import JobRecord, Pointer, claim_path, encode, place_path
from tidegate.loops.cells import KeyCell
from tidegate.model.control import JobStatus
from tidegate.model.elements import Barrier, CheckpointOptions, RowBatch, SnapshotKind
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
from tidegate.model.settings import CheckpointSettings
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.state.scope import StateScope
from tidegate.storage import paths
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores
from tidegate.transport import codec
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.state import StateDescriptor
    from tidegate.storage.places import Place

ROOT = "memory:/checkpoints"
EPOCH = Epoch(1)
MAX_PARALLELISM = 16

COUNT = ValueStateDescriptor("count", Types.LONG())
WORDS = ListStateDescriptor("words", Types.STRING())
PRICES = MapStateDescriptor("prices", Types.STRING(), Types.DOUBLE())
ANYTHING = ValueStateDescriptor("anything", None)
SPLITS = OperatorStateDescriptor("splits", Types.STRING())
OFFSETS = OperatorStateDescriptor("offsets", Types.LONG(), RedistributionMode.UNION)
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


@dataclass(frozen=True)
class Kind:
    """How snapshots are taken. backend: hashmap, incremental or rocksdb."""

    backend: str = "hashmap"
    parallelism: int = 2
    compression: bool = False
    merged: bool = False
    inline_threshold: int = 16
    in_flight: bool = False


def operator_id(uid: str) -> OperatorId:
    """An id that tells what it is of."""
    return OperatorId(uid.encode().ljust(16, b".")[:16])


class JobWorld:
    """A job with one keyed operator, ``counts``, and one with operator state, ``source``."""

    def __init__(
        self,
        kind: Kind,
        seed: int = 0,
        *,
        root: str = ROOT,
        uids: tuple[str, str] = ("counts", "source"),
    ) -> None:
        self.kind = kind
        self._uids = uids
        self.root = root
        self.random = random.Random(f"{kind} {seed}")
        self.job = JobId(f"{self.random.getrandbits(128):032x}")
        self.name = f"job {seed}"
        self.files = MemoryFiles()
        self.stores = Stores(self.files)
        settings = CheckpointSettings(
            storage="filesystem",
            directory=root,
            inline_threshold_bytes=kind.inline_threshold,
            merged_file_max_bytes=1 << 20 if kind.merged else None,
        )
        self.storage = CheckpointStorage(self.job, settings, self.stores)
        self.folder = paths.join(self.storage.root, self.job)
        self._disk = Disk()
        self._registry = SharedStateRegistry()
        self._clock = StepClock()
        self._number = 0
        self.completed: list[Pointer] = []
        self.expected: dict[str, int] = {}
        self._hasher = KeyHasher(None, MAX_PARALLELISM)
        self.counts = [self._backend(uids[0], i) for i in range(kind.parallelism)]
        self.sources = [self._backend(uids[1], i) for i in range(kind.parallelism)]

    def __enter__(self) -> JobWorld:
        return self

    def __exit__(self, *_: object) -> None:
        for backend in (*self.counts, *self.sources):
            backend.close()
        self._disk.close()

    def _backend(self, uid: str, index: int) -> OperatorBackend:
        kind = self.kind
        keyed = uid == self._uids[0]
        scope = StateScope(
            operator_id(uid),
            KeyGroupRange.of(index, kind.parallelism, MAX_PARALLELISM),
            MAX_PARALLELISM,
            self._clock,
            KeyCell(),
            compression=kind.compression,
        )
        rows = keyed_backend(
            scope,
            local=self._disk.local() if keyed and kind.backend == "rocksdb" else None,
            shared_as=f"{index:08}" if keyed and kind.backend == "incremental" else None,
        )
        return OperatorBackend(scope, rows)

    # --- what the job does between snapshots ---

    def put(self, values: dict[str, int]) -> None:
        """Set counts, and what goes with them."""
        for key, value in values.items():
            group = self.group_of(key)
            backend = next(b for b, r in zip(self.counts, self._ranges, strict=True) if group in r)
            backend.cell.key, backend.cell.group = key, group
            state = cast("Callable[[StateDescriptor], Any]", backend.keyed_state)
            state(COUNT).update(value)
            self.expected[key] = value
            state(WORDS).add(f"word {value}")
            state(PRICES).put("net", value / 2)
            state(ANYTHING).update({"seen": {value}})

    def drop(self, key: str) -> None:
        """Remove the count of a key."""
        group = self.group_of(key)
        backend = next(b for b, r in zip(self.counts, self._ranges, strict=True) if group in r)
        backend.cell.key, backend.cell.group = key, group
        backend.keyed_state(COUNT).clear()
        self.expected.pop(key, None)

    def put_anything(self, key: str, value: object) -> None:
        """Set a value of no declared type."""
        group = self.group_of(key)
        backend = next(b for b, r in zip(self.counts, self._ranges, strict=True) if group in r)
        backend.cell.key, backend.cell.group = key, group
        cast("Any", backend.keyed_state(ANYTHING)).update(value)

    def splits(self, names: list[str]) -> None:
        """Set what the first source has."""
        self.sources[0].operator_state(SPLITS).update(names)

    def group_of(self, key: str) -> int:
        """The key group of a key."""
        return int(self._hasher.key_groups([key])[0])

    def work(self, rows: int = 40) -> None:
        """Some rows for some keys."""
        draw = self.random.randrange
        self.put({f"key {draw(60)}": draw(1_000) for _ in range(rows)})
        for backend in self.sources:
            backend.operator_state(SPLITS).add(f"split {draw(1_000)}")
            backend.operator_state(OFFSETS).update([draw(1_000)])
            backend.broadcast_state(RULES).put(f"rule {draw(5)}", draw(9))

    @property
    def _ranges(self) -> list[KeyGroupRange]:
        parallelism = self.kind.parallelism
        return [KeyGroupRange.of(i, parallelism, MAX_PARALLELISM) for i in range(parallelism)]

    # --- snapshots ---

    def checkpoint(self) -> str:
        """An automatic checkpoint, named by the job's records; its folder."""
        number = self._next()
        location = self.storage.initialize_location(number)
        properties = CheckpointProperties.for_checkpoint(RetentionPolicy.RETAIN_ON_CANCELLATION)
        self._snapshot(number, CheckpointOptions(), location, properties)
        self.completed.append(Pointer(number, location))
        for backend in (*self.counts, *self.sources):
            backend.on_complete(number)
        return location

    def savepoint(self, format: SavepointFormatType = SavepointFormatType.CANONICAL) -> str:
        """A savepoint; its folder."""
        number = self._next()
        target = paths.join(self.storage.root, "savepoints")
        bits = self.random.getrandbits(64)
        location = self.storage.initialize_savepoint_location(target, bits)
        options = CheckpointOptions(
            kind=SnapshotKind.SAVEPOINT,
            target=location,
            canonical=format is SavepointFormatType.CANONICAL,
        )
        kind = SavepointType.savepoint(format)
        properties = CheckpointProperties.for_savepoint(kind, forced=False)
        self._snapshot(number, options, location, properties)
        return location

    def recorded(self, status: JobStatus = JobStatus.CANCELED) -> None:
        """Write what the job's leader says of it."""
        record = JobRecord(
            self.job, EPOCH, "t", tuple(self.completed), CheckpointId(self._number + 1), status
        )
        chain = self.stores.open(paths.join(self.storage.root, paths.chain_folder(self.name)))
        chain.create(claim_path(EPOCH), b"t")
        chain.create(place_path(EPOCH, 1), encode(record))

    def _next(self) -> CheckpointId:
        self._number += 1
        return CheckpointId(self._number)

    def _snapshot(
        self,
        number: CheckpointId,
        options: CheckpointOptions,
        location: str,
        properties: CheckpointProperties,
    ) -> None:
        checksums: dict[str, tuple[int, int]] = {}
        operators = [
            self._operator(self._uids[0], self.counts, number, options, checksums),
            self._operator(self._uids[1], self.sources, number, options, checksums),
        ]
        facts = {"job_name": self.name, "versions": {"tidegate": "0.1.0"}}
        read = CheckpointMetadata(
            checkpoint_id=number,
            operators=tuple(operators),
            master_states=(
                MasterState("hook", 1, b"of a hook"),
                to_master_state(Provenance(facts, checksums)),
            ),
            properties=properties,
        )
        self.storage.files.write_metadata(location, sealed(metadata.encode(read), read))

    def _operator(
        self,
        uid: str,
        backends: Sequence[OperatorBackend],
        number: CheckpointId,
        options: CheckpointOptions,
        checksums: dict[str, tuple[int, int]],
    ) -> OperatorState:
        subtasks: dict[int, SubtaskState] = {}
        for index, backend in enumerate(backends):
            execution = ExecutionId(
                SubtaskId(VertexId(operator_id(uid)), index), Attempt(index), EPOCH
            )
            place = self.storage.place(
                Barrier(number, 0, options),
                execution,
                lambda: self.random.getrandbits(64),
                merged=True,
            )
            piece = backend.snapshot(number, options)
            piece.finish()
            state = piece.upload(place)
            piece.acknowledged()
            if self.kind.in_flight and backends is self.counts and options.target is None:
                state = replace(state, **self._in_flight(place, index))
            place.close()
            checksums.update(place.checksums)
            subtasks[index] = self._registry.register_state(state, number, place.checksums)
            checksums.update(self._registry.checksums(subtasks[index]))
        coordinator = ByteStreamStateHandle(f"coordinator-{number}", b"splits left: 3")
        return OperatorState(
            operator_id=operator_id(uid),
            parallelism=len(backends),
            max_parallelism=MAX_PARALLELISM,
            name=f"the {uid}",
            uid=uid,
            coordinator_state=coordinator if backends is self.sources else None,
            subtasks=subtasks,
        )

    def _in_flight(self, place: Place, index: int) -> dict[str, Any]:
        chunks = [
            chunk(b"".join(codec.encode(RowBatch([f"row {n}"], [n], None, None)))) for n in range(3)
        ]
        file = place.write([file_header(), *chunks], merged=False)
        offsets = [len(file_header())]
        for each in chunks[:-1]:
            offsets.append(offsets[-1] + len(each))
        sizes = [len(each) for each in chunks]
        inputs = merge_inputs(
            tuple(
                InputChannelStateHandle(index, 0, n, (offsets[n],), sizes[n], file)
                for n in range(2)
            )
        )
        output = ResultSubpartitionStateHandle(index, 0, 0, (offsets[2],), sizes[2], file)
        return {"input_channel": (inputs,), "result_subpartition": (merge_outputs((output,)),)}
