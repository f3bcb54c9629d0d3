"""``_metadata``, and the records of a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from flinkformat import metadata
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from flinkformat.snapshots import FINISHED
from tests.fuzzing.cases import Opened, Reader
from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate.api.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.checkpoint.provenance import (
    check_seal,
    checksums_of,
    encoded,
    hook_states,
    provenance_of,
    sealed,
)
from tidegate.driver.client.door import read_sign
from tidegate.errors import ConfigError, FormatError, RestoreRefused
from tidegate.ha.chain import JobRecord, Pointer, Seal, decode, encode
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch, JobId
from tidegate.snapshots.rows import StateDeclaration
from tidegate.snapshots.writing.distributed import DeclaredTypes
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.state_files import resolve_relative
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata

KEY = b"a key that nobody else has"
FIXTURES = Path(__file__).parents[2] / "packages" / "flinkformat" / "tests" / "fixtures"


def readers_of_metadata() -> list[Reader]:
    """Each refuses with FormatError, or with what says that the input is none of ours."""
    return [
        Reader("metadata", _metadata, (FormatError,)),
        Reader("provenance", _provenance, (FormatError,)),
        Reader("signed metadata", _signed, (FormatError, RestoreRefused)),
        Reader("declared states", _declared, (ConfigError,), text=True),
        Reader("record chain", _records, (FormatError,), text=True),
        Reader("signs of doors", _signs, (FormatError,), text=True),
    ]


def _decoded(data: bytes) -> CheckpointMetadata:
    numbers = iter(range(1 << 30))
    return metadata.decode(data, lambda: f"handle-{next(numbers)}")


def written_metadata() -> list[bytes]:
    """Of jobs of ours, with state of each kind."""
    found: list[bytes] = []
    for kind in (Kind("hashmap", in_flight=True), Kind("incremental"), Kind(merged=True)):
        with JobWorld(kind) as world:
            for _ in range(2):
                world.work()
                world.checkpoint()
            world.savepoint()
            found += [d for f, d in sorted(world.files.files.items()) if f.endswith("_metadata")]
    return found


def _metadata() -> Opened:
    files = [*FIXTURES.glob("*/_metadata"), *FIXTURES.glob("bad/*.metadata")]
    seeds = [path.read_bytes() for path in sorted(files)] + written_metadata()

    def read(_: int, data: bytes) -> None:
        found = _decoded(data)
        resolve_relative(found, "/somewhere")
        for operator in found.operators:
            for subtask in operator.subtasks.values():
                if subtask is not FINISHED:
                    _unmerged(subtask)
        again = metadata.encode(found)
        assert metadata.encode(_decoded(again)) == again, "read and written again it is another"

    return Opened(seeds, read)


def _unmerged(subtask: object) -> None:
    try:
        for handle in subtask.input_channel:  # type: ignore[attr-defined]
            unmerge_input(handle)
        for handle in subtask.result_subpartition:  # type: ignore[attr-defined]
            unmerge_output(handle)
    except FormatError:
        pass  # refused here alone: what is around it is looked at further


def _provenance() -> Opened:
    seeds = written_metadata()

    def read(_: int, data: bytes) -> None:
        found = _decoded(data)
        provenance_of(found)
        checksums_of(found)
        hook_states(found)
        sealed(data, found)
        check_seal(data, found)

    return Opened(seeds, read)


def _signed() -> Opened:
    seeds = [encoded(_decoded(data), KEY) for data in written_metadata()]

    def read(_: int, data: bytes) -> None:
        found = _decoded(data)
        check_seal(data, found, KEY)
        assert data in seeds, "somebody else has signed it"

    return Opened(seeds, read)


def _declared() -> Opened:
    seeds: list[bytes] = []
    for descriptor in (
        ValueStateDescriptor("state", Types.LONG()),
        MapStateDescriptor("state", Types.STRING(), Types.TUPLE([Types.INT(), Types.DOUBLE()])),
        ListStateDescriptor("state"),
    ):
        declared, _ = StateDeclaration.of(descriptor, where="here")
        seeds.append(DeclaredTypes(declared, Types.STRING(), Types.LONG()).to_text().encode())

    def read(_: int, data: bytes) -> None:
        DeclaredTypes.from_text("state", data.decode("utf-8", "replace"))

    return Opened(seeds, read)


def _records() -> Opened:
    pointers = tuple(Pointer(CheckpointId(n), f"file:///c/job/chk-{n}") for n in range(1, 4))
    records = [
        JobRecord(JobId("a" * 32), Epoch(n), f"token {n}", pointers[:n], CheckpointId(9), status)
        for n, status in enumerate(JobStatus)
    ]
    claimed = Pointer(CheckpointId(7), "s3://bucket/savepoint-1", claimed=True)
    records.append(JobRecord(JobId("b"), Epoch(3), "t", (claimed,), CheckpointId(8)))
    seeds = [encode(record) for record in records] + [encode(Seal(Epoch(4)))]
    return Opened(seeds, lambda _, data: encode(decode(data, "chains/1/1")))


def _signs() -> Opened:
    sign = {"host": "a-host", "pid": 4711, "socket": "/tmp/tidegate-x/door", "rest": ""}
    seeds = [json.dumps(sign).encode(), json.dumps({**sign, "rest": "http://[::1]:80"}).encode()]

    def read(_: int, data: bytes) -> None:
        files = MemoryFiles()
        store = files.store("memory:/root")
        store.create(paths.door_file("job", Epoch(1)), data)
        read_sign(store, "job")

    return Opened(seeds, read)
