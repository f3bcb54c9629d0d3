"""What Flink has written: whole snapshots, and serializers with their values."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from flinkformat.metadata.wire import Reader as Bytes
from flinkformat.state import snappy
from flinkformat.state.composites import read_snapshot
from flinkformat.state_streams import files_of
from tests.fuzzing.cases import SLOW_FLOOR, Opened, Reader
from tests.fuzzing.of_metadata import FIXTURES
from tidegate.errors import FormatError, RestoreRefused, StorageFailed
from tidegate.snapshots.flink_snapshot import FlinkSnapshot, counted_states

REFUSED = (FormatError, RestoreRefused, StorageFailed)


def readers_of_flink() -> list[Reader]:
    """Damage is a FormatError; a file that a damaged name leads to is missing."""
    return [
        Reader("Flink's serializers", _serializers, (FormatError,)),
        Reader("Flink's values", _values, (FormatError,)),
        Reader("snappy", _snappy, (FormatError,)),
        Reader(
            "Flink's snapshots, in files",
            lambda: _snapshots(rocksdb=False),
            REFUSED,
            floor=SLOW_FLOOR,
        ),
        Reader(
            "Flink's snapshots, RocksDB",
            lambda: _snapshots(rocksdb=True),
            REFUSED,
            floor=SLOW_FLOOR,
        ),
    ]


def _golden() -> list[dict[str, str]]:
    lines = (FIXTURES / "golden-serializers.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _serializers() -> Opened:
    seeds = [bytes.fromhex(each["snapshot"]) for each in _golden() if "snapshot" in each]
    return Opened(seeds, lambda _, data: read_snapshot(Bytes(data)))


def _values() -> Opened:
    found = []
    for each in _golden():
        with suppress(FormatError):
            serializer = read_snapshot(Bytes(bytes.fromhex(each["snapshot"])))
            found += [
                (serializer, bytes.fromhex(v["bytes"])) for v in each["values"] if "bytes" in v
            ]
    serializers = [serializer for serializer, _ in found]
    return Opened(
        [data for _, data in found], lambda index, data: serializers[index].read(Bytes(data))
    )


def _snappy() -> Opened:
    seeds = [snappy.compressed(b"some words " * n) for n in (1, 40, 7_000)]
    return Opened(seeds, lambda _, data: list(snappy.chunks(data, 0, len(data), "here")))


def _snapshots(*, rocksdb: bool) -> Opened:
    """A file of a fixture is changed, and all of the fixture read."""
    places: list[Path] = []
    for folder in sorted(path.parent for path in FIXTURES.glob("*/state.json")):
        if ("rocks" in folder.name) == rocksdb:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            places += [path for path in files if path.suffix != ".json"]
    kept = tempfile.TemporaryDirectory(prefix="tidegate-fuzz-")
    shutil.copytree(FIXTURES, kept.name, dirs_exist_ok=True)
    seeds = [path.read_bytes() for path in places]

    def read(index: int, data: bytes) -> None:
        file = Path(kept.name) / places[index].relative_to(FIXTURES)
        if rocksdb and file.name != "_metadata":
            # A file of another size is refused before anybody looks into it.
            size = len(seeds[index])
            data = data[:size].ljust(size, b"\0")
        file.write_bytes(data)
        try:
            _read_all(Path(kept.name) / places[index].relative_to(FIXTURES).parts[0], file.name)
        finally:
            file.write_bytes(seeds[index])

    return Opened(seeds, read)


def _read_all(folder: Path, changed: str) -> None:
    """Read all operators whose state the changed file may be of."""
    told = json.loads((folder / "expected.json").read_text())
    was = told.get("originalSharedParent")
    snapshot = FlinkSnapshot.open(folder, moved={} if was is None else {was: str(folder)})
    for operator in snapshot.operators:
        if changed != "_metadata" and not any(p.endswith(changed) for p in files_of(operator)):
            continue
        # One operator that is refused leaves the others to be read.
        with suppress(*REFUSED):
            counted_states(snapshot, operator)
