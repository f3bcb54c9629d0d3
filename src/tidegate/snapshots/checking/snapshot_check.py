"""Compares one snapshot with its files: all there, with the right bytes and content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flinkformat import metadata as codec
from flinkformat.handles import SegmentFileStateHandle
from flinkformat.snapshots import FINISHED
from flinkformat.state_streams import file_of, files_of, place_of, private_paths, streams
from tidegate.checkpoint.provenance import check_seal, checksums_of, name_of, provenance_of
from tidegate.errors import FileMissing, FormatError, RestoreRefused, StorageFailed
from tidegate.model.files import FileChecksum
from tidegate.snapshots.checking.findings import CheckedSnapshot, Fault, Finding
from tidegate.snapshots.checking.integrity import contents_of
from tidegate.snapshots.folders import job_name_of, properties_of
from tidegate.state.format.blocks import KEYED_MAGIC, OPERATOR_MAGIC, reading
from tidegate.storage import paths
from tidegate.storage.state_files import StateFiles, resolve_relative
from tidegate.storage.store import Checksum, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flinkformat.handles import StreamStateHandle
    from flinkformat.snapshots import CheckpointMetadata, OperatorState, SubtaskState
    from tidegate.storage.stores import Stores

_PART_BYTES: Final = 4 << 20


@dataclass(slots=True)
class SnapshotCheck:
    """Knowledge about one snapshot.

    metadata: None if it can't be read. trusted: whether it names what it was to name. named:
    handles and operators by the place of their file. own: places that no other snapshot may use.
    """

    path: str
    metadata: CheckpointMetadata | None = None
    trusted: bool = True
    is_savepoint: bool = False
    job: str = ""
    named: dict[str, list[tuple[StreamStateHandle, str]]] = field(
        default_factory=dict[str, "list[tuple[StreamStateHandle, str]]"]
    )
    own: frozenset[str] = frozenset()
    findings: list[Finding] = field(default_factory=list[Finding])

    def found(self, fault: Fault, path: str, what: str, operator: str = "") -> None:
        self.findings.append(Finding(fault, path, what, (self.path,), operator))

    def damaged(self, error: FormatError) -> None:
        self.trusted = False
        self.found(Fault.METADATA, paths.join(self.path, paths.METADATA), told(error))

    def summary(self, sizes: dict[str, int]) -> CheckedSnapshot:
        read = self.metadata
        if read is None:
            return CheckedSnapshot(self.path, -1, "", self.job, 0, 0)
        size = sum(sizes.get(place, 0) for place in self.named)
        kind = properties_of(read).snapshot_type.name
        return CheckedSnapshot(self.path, read.checkpoint_id, kind, self.job, len(self.named), size)


class SnapshotChecker:
    """Checks snapshots; reads a file that several of them share once.

    on_file: told the place of each file before it is read. key: snapshots have to be signed with
    it; None if they need not be.
    """

    def __init__(
        self, stores: Stores, on_file: Callable[[str], object], key: bytes | None = None
    ) -> None:
        self._key = key
        self._stores = stores
        self._on_file = on_file
        self._files = StateFiles(stores)
        self._read: dict[str, FileChecksum | FileMissing | StorageFailed] = {}

    @property
    def sizes(self) -> dict[str, int]:
        return {
            place: seen.size for place, seen in self._read.items() if isinstance(seen, FileChecksum)
        }

    def opened(self, path: str) -> SnapshotCheck:
        """Reads the metadata of a snapshot, but not its files. path: its folder."""
        check = SnapshotCheck(path)
        try:
            data = self._stores.open(path).read(paths.METADATA)
        except StorageFailed as error:
            check.trusted = False
            check.found(Fault.UNREADABLE, paths.join(path, paths.METADATA), told(error))
            return check
        try:
            decoded = codec.decode(data)
        except FormatError as error:
            check.damaged(error)
            return check
        check.metadata = resolve_relative(decoded, path)
        try:
            job = job_name_of(decoded) or ""
            check_seal(data, decoded, self._key)
        except FormatError as error:
            check.damaged(error)
        except RestoreRefused as error:
            check.trusted = False
            check.found(Fault.UNSIGNED, paths.join(path, paths.METADATA), error.what)
        else:
            check.job = job
        self._note_files(check, check.metadata)
        self._check_identity(check, check.metadata)
        return check

    def look_at_files(self, check: SnapshotCheck) -> None:
        if check.metadata is None:
            return
        known: dict[str, FileChecksum] = {}
        if check.trusted:
            known = checksums_of(check.metadata)
        faulty: set[str] = set()
        for place, uses in check.named.items():
            fault = self._fault_of(place, [handle for handle, _ in uses], known)
            if fault is not None:
                faulty.add(place)
                check.found(*fault, ", ".join(dict.fromkeys(operator for _, operator in uses)))
        if check.trusted and provenance_of(check.metadata) is not None:
            self._look_through(check, check.metadata, faulty)

    def _note_files(self, check: SnapshotCheck, read: CheckpointMetadata) -> None:
        own: set[str] = set()
        for operator, state in _states(read):
            own.update(private_paths(state))
            for stream in streams(state):
                if (place := file_of(stream.handle)) is not None:
                    check.named.setdefault(place, []).append((stream.handle, label(operator)))
        check.own = frozenset(own)
        properties = read.properties
        check.is_savepoint = properties is not None and properties.is_savepoint

    def _check_identity(self, check: SnapshotCheck, read: CheckpointMetadata) -> None:
        """Checks that the folder's name and the writer match the checkpoint."""
        file = paths.join(check.path, paths.METADATA)
        number = paths.checkpoint_of(check.path)
        if number is not None and number != read.checkpoint_id:
            check.found(
                Fault.METADATA,
                file,
                f"It is of checkpoint {read.checkpoint_id}, and lies in the folder of {number}",
            )
        if not check.trusted:
            return
        if provenance_of(read) is not None:
            for place in sorted(check.named) if check.is_savepoint else ():
                if paths.parent(place) != check.path:
                    check.found(
                        Fault.OUTSIDE, place, "A savepoint needs it, and it is not in its folder"
                    )
        elif _looks_ours(check, read):
            check.trusted = False
            check.found(
                Fault.METADATA,
                file,
                "Its state was written by Tidegate, and it has no master state 'tidegate', which "
                "says so and holds the checksums",
            )

    def _fault_of(
        self, place: str, handles: list[StreamStateHandle], known: dict[str, FileChecksum]
    ) -> tuple[Fault, str, str] | None:
        written = known.get(name_of(place))
        seen = self._seen(place, sha256=written is not None and bool(written.sha256))
        if isinstance(seen, FileMissing):
            return Fault.MISSING, place, "It is not there"
        if isinstance(seen, StorageFailed):
            return Fault.UNREADABLE, place, told(seen)
        size = seen.size
        for handle in handles:
            whole = not isinstance(handle, SegmentFileStateHandle)
            end = handle.state_size if whole else handle.start_position + handle.state_size
            if size != end if whole else size < end:
                return Fault.SIZE, place, f"It has {size} bytes, and {end} were written"
        if self._key is not None and known and not (written and written.sha256):
            return Fault.UNSIGNED, place, "Its snapshot is signed, and says nothing of it"
        if written is None:
            return None
        if written.size != size:
            return Fault.SIZE, place, f"It has {size} bytes, and {written.size} were written"
        if written.crc32c != seen.crc32c:
            crcs = f"crc32c {seen.crc32c:08x} for {written.crc32c:08x}"
            return Fault.CHECKSUM, place, f"Its bytes are not those that were written: {crcs}"
        if written.sha256 and written.sha256 != seen.sha256:
            return Fault.UNSIGNED, place, "Its SHA-256 is not the signed one"
        return None

    def _seen(self, place: str, *, sha256: bool) -> FileChecksum | FileMissing | StorageFailed:
        """Result of reading a file, or why it can't be read."""
        seen = self._read.get(place)
        if seen is None or (sha256 and isinstance(seen, FileChecksum) and not seen.sha256):
            seen = self._read[place] = self._read_file(place, sha256=sha256)
        return seen

    def _read_file(self, place: str, *, sha256: bool) -> FileChecksum | FileMissing | StorageFailed:
        self._on_file(place)
        checksum = Checksum(sha256=sha256)
        store, name = self._stores.locate(place)
        try:
            with open_stream(store, name) as stream:
                while part := stream.read(_PART_BYTES):
                    checksum.add(part)
        except StorageFailed as error:
            return error
        return checksum.file

    def _look_through(
        self, check: SnapshotCheck, read: CheckpointMetadata, faulty: set[str]
    ) -> None:
        for operator, state in _states(read):
            for handles, look in contents_of(operator, state, self._files.open_handle):
                places = [place for handle in handles for place in files_of(handle)]
                if faulty.intersection(places):
                    continue
                file = places[0] if places else paths.join(check.path, paths.METADATA)
                try:
                    with reading(file):
                        look()
                except FileMissing as error:
                    # A job that runs has deleted the checkpoint since its files were read.
                    check.found(Fault.MISSING, file, told(error), label(operator))
                except FormatError as error:
                    held = error.where if error.where in places else file
                    check.found(Fault.CONTENTS, held, told(error), label(operator))


def job_in(home: str, checks: Mapping[str, SnapshotCheck]) -> str:
    """Name of the job that wrote the snapshots of a folder, if they tell one; else empty."""
    names = {each.job for at, each in checks.items() if paths.parent(at) == home and each.job}
    return names.pop() if len(names) == 1 else ""


def label(operator: OperatorState) -> str:
    return operator.uid or operator.name or operator.operator_id.hex()


def told(error: FormatError | StorageFailed) -> str:
    parts = [error.what]
    if isinstance(error, FormatError):
        parts += [f"at byte {error.offset}"] if error.offset >= 0 else []
        parts += [f"expected {error.expected}"] if error.expected else []
        parts += [f"found {error.found}"] if error.found else []
    return ", ".join(parts)


def _states(read: CheckpointMetadata) -> Iterator[tuple[OperatorState, SubtaskState]]:
    for operator in read.operators:
        for state in operator.subtasks.values():
            if state is not FINISHED:
                yield operator, state


def _looks_ours(check: SnapshotCheck, read: CheckpointMetadata) -> bool:
    """True if only Tidegate writes state in this form."""
    if any(paths.epoch_of(place) is not None for place in check.named):
        return True
    for _, state in _states(read):
        for stream in streams(state):
            held = place_of(stream.handle)
            if isinstance(held, bytes) and held.startswith((KEYED_MAGIC, OPERATOR_MAGIC)):
                return True
    return False
