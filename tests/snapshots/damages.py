"""What can go wrong with snapshots: a catalogue of damages, each with what is to be told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flinkformat import metadata
from flinkformat.handles import (
    FileStateHandle,
    KeyGroupsStateHandle,
    MergedInputChannelStateHandle,
    OperatorStreamStateHandle,
)
from flinkformat.snapshots import FINISHED, SavepointFormatType
from tests.snapshots.snapshot_world import EPOCH, JobWorld, Kind
from tidegate.checkpoint.provenance import (
    NAME,
    Provenance,
    hook_states,
    provenance_of,
    sealed,
    to_master_state,
)
from tidegate.model.ids import Attempt
from tidegate.snapshots.checking.findings import Fault
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.snapshots import CheckpointMetadata, OperatorState, SubtaskState

HEAP = Kind("hashmap", in_flight=True)
INLINE = Kind("hashmap", inline_threshold=20_000, in_flight=True)
MERGED = Kind("hashmap", merged=True)
SHARED = Kind("incremental")
DISK = Kind("rocksdb")


class Snapshots:
    """What a job of a kind has left: checkpoints 1 to 3, a canonical and a native savepoint."""

    def __init__(self, kind: Kind) -> None:
        with JobWorld(kind) as world:
            for _ in range(3):
                world.work()
                world.checkpoint()
            self.savepoints = {form: world.savepoint(form) for form in SavepointFormatType}
            world.recorded()
        self.root, self.folder, self.name = world.root, world.folder, world.name
        self._healthy = dict(world.files.files)
        self.files = self._healthy

    def restored(self) -> Snapshots:
        """Themselves, undamaged."""
        self.files = dict(self._healthy)
        return self

    @property
    def stores(self) -> Stores:
        world = MemoryFiles()
        world.files = self.files
        return Stores(world)

    def chk(self, number: int) -> str:
        return f"{self.folder}/chk-{number}"

    @property
    def canonical(self) -> str:
        return self.savepoints[SavepointFormatType.CANONICAL]

    @property
    def native(self) -> str:
        return self.savepoints[SavepointFormatType.NATIVE]

    def state(self, place: str) -> str:
        """A file of state by a word such as ``chk-3 TGKS``, ``shared TGKS``, ``native sst``."""
        where, _, what = place.partition(" ")
        folder = {"canonical": self.canonical, "native": self.native}.get(
            where, f"{self.folder}/{where}"
        )
        looks = LOOKS.get(what, lambda data: data.startswith(what.encode()))
        return next(
            file
            for file, data in sorted(self.files.items())
            if paths.parent(file) == folder and looks(data)
        )

    def read(self, folder: str) -> CheckpointMetadata:
        return metadata.decode(self.files[f"{folder}/_metadata"], lambda: "new")

    def write(self, folder: str, read: CheckpointMetadata, *, checksums: bool) -> None:
        """A ``_metadata`` that is in order by itself; without checksums for its files."""
        known = provenance_of(read)
        assert known is not None
        told = Provenance(known.facts, known.checksums if checksums else {})
        read = replace(read, master_states=(*hook_states(read), to_master_state(told)))
        self.files[f"{folder}/_metadata"] = sealed(metadata.encode(read), read)

    def unchecked(self, folder: str) -> None:
        """Forget the checksums, as if an older release had written it."""
        self.write(folder, self.read(folder), checksums=False)

    def change(
        self,
        folder: str,
        change: Callable[[SubtaskState], SubtaskState],
        uid: str,
        *,
        checksums: bool = False,
    ) -> None:
        """Change the first subtask of an operator in a ``_metadata``."""
        read = self.read(folder)

        def changed(operator: OperatorState) -> OperatorState:
            if operator.uid != uid:
                return operator
            first = operator.subtasks[0]
            assert first is not FINISHED
            return replace(operator, subtasks={**operator.subtasks, 0: change(first)})

        operators = tuple(map(changed, read.operators))
        self.write(folder, replace(read, operators=operators), checksums=checksums)


SST_END = bytes.fromhex("f7cff485b741e288")
"""The magic number in which every table of RocksDB ends."""

LOOKS: dict[str, Callable[[bytes], bool]] = {
    "sst": lambda data: data.endswith(SST_END),
    "manifest": lambda data: b"BytewiseComparator" in data and not data.endswith(SST_END),
    "in-flight": lambda data: data.startswith(bytes(6)),
    "current": lambda data: data.startswith(b"MANIFEST-"),
}
"""What files of state that have no magic of ours look like."""


@dataclass(frozen=True)
class Damage:
    """fault: that has to be found. at: a word that its path has to have."""

    name: str
    kind: Kind
    do: Callable[[Snapshots], None]
    fault: Fault
    at: str = ""


# --- files ---


def lost(place: str) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        del snapshots.files[snapshots.state(place)]

    return do


def cut(place: str) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        file = snapshots.state(place)
        snapshots.files[file] = snapshots.files[file][:-1]

    return do


def emptied(place: str) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        snapshots.files[snapshots.state(place)] = b""

    return do


def longer(place: str) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        snapshots.files[snapshots.state(place)] += b"\0"

    return do


def flipped(place: str, at: float = 0.7) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        flip(snapshots, snapshots.state(place), at)

    return do


def flip(snapshots: Snapshots, file: str, at: float) -> None:
    data = bytearray(snapshots.files[file])
    data[int(len(data) * at)] ^= 4
    snapshots.files[file] = bytes(data)


def swapped(one: str, other: str) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        files, a, b = snapshots.files, snapshots.state(one), snapshots.state(other)
        files[a], files[b] = files[b], files[a]

    return do


# --- metadata ---


def of_metadata(change: Callable[[bytes], bytes], number: int = 3) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        file = f"{snapshots.chk(number)}/_metadata"
        snapshots.files[file] = change(snapshots.files[file])

    return do


def newer_version(data: bytes) -> bytes:
    return data[:4] + (7).to_bytes(4, "big") + data[8:]


def bit_of_inline_state(data: bytes) -> bytes:
    at = data.index(b"word ") + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def bit_of_a_fact(data: bytes) -> bytes:
    return data.replace(b'"job_name":"job', b'"job_name":"kob')


def bit_of_own_name(data: bytes) -> bytes:
    return data.replace(b"\0\x08tidegate", b"\0\x08tidegatf", 1)


def no_master_state(snapshots: Snapshots) -> None:
    read = snapshots.read(snapshots.chk(2))
    states = tuple(state for state in read.master_states if state.name != NAME)
    plain = metadata.encode(replace(read, master_states=states))
    snapshots.files[f"{snapshots.chk(2)}/_metadata"] = plain


def metadata_of_another_checkpoint(snapshots: Snapshots) -> None:
    files = snapshots.files
    files[f"{snapshots.chk(3)}/_metadata"] = files[f"{snapshots.chk(2)}/_metadata"]


def metadata_of_another_job(snapshots: Snapshots) -> None:
    with JobWorld(HEAP, seed=99) as other:
        other.work()
        location = other.checkpoint()
        data = other.files.files[f"{location}/_metadata"]
    snapshots.files[f"{snapshots.chk(1)}/_metadata"] = data


def lost_metadata(snapshots: Snapshots) -> None:
    del snapshots.files[f"{snapshots.chk(3)}/_metadata"]


def half_written_savepoint(snapshots: Snapshots) -> None:
    del snapshots.files[f"{snapshots.canonical}/_metadata"]


def savepoint_without_a_byte(snapshots: Snapshots) -> None:
    file = f"{snapshots.native}/_metadata"
    snapshots.files[file] = snapshots.files[file][:-1]


# --- what lies in files, where no checksum tells ---


def without_checksums(
    damage: Callable[[Snapshots], None], *, of: str = "chk-3"
) -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        folder = {"native": snapshots.native}.get(of, f"{snapshots.folder}/{of}")
        damage(snapshots)
        snapshots.unchecked(folder)

    return do


def keyed(change: Callable[[KeyGroupsStateHandle], KeyedStateHandle]) -> Callable[..., None]:
    def changed(state: SubtaskState) -> SubtaskState:
        assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
        return replace(state, managed_keyed=change(state.managed_keyed))

    return lambda snapshots: snapshots.change(snapshots.chk(3), changed, "counts")


def section_longer_than_any_file(snapshots: Snapshots) -> None:
    file = snapshots.state("chk-3 TGKS")
    data = snapshots.files[file]
    size_at = 12 + int.from_bytes(data[8:12], "little") + 4
    snapshots.files[file] = data[:size_at] + b"\xff" * 8 + data[size_at + 8 :]


def offset_beside_its_section(handle: KeyGroupsStateHandle) -> KeyedStateHandle:
    return replace(handle, offsets=tuple(each and each + 1 for each in handle.offsets))


def offset_of_another_key_group(handle: KeyGroupsStateHandle) -> KeyedStateHandle:
    return replace(handle, offsets=(*handle.offsets[1:], handle.offsets[0]))


def elements_beyond_the_end(snapshots: Snapshots) -> None:
    def changed(state: SubtaskState) -> SubtaskState:
        operator = state.managed_operator
        assert isinstance(operator, OperatorStreamStateHandle)
        states = {
            name: replace(meta, offsets=tuple(each + 100_000 for each in meta.offsets))
            for name, meta in operator.states.items()
        }
        return replace(state, managed_operator=replace(operator, states=states))

    snapshots.change(snapshots.chk(3), changed, "source")


def a_state_that_the_file_has_not(snapshots: Snapshots) -> None:
    def changed(state: SubtaskState) -> SubtaskState:
        operator = state.managed_operator
        assert isinstance(operator, OperatorStreamStateHandle)
        states = {f"{name}!": meta for name, meta in operator.states.items()}
        return replace(state, managed_operator=replace(operator, states=states))

    snapshots.change(snapshots.chk(3), changed, "source")


def channels_cut_off(snapshots: Snapshots) -> None:
    def changed(state: SubtaskState) -> SubtaskState:
        [handle] = state.input_channel
        assert isinstance(handle, MergedInputChannelStateHandle)
        fewer = replace(handle, channel_offsets=handle.channel_offsets[:-3])
        return replace(state, input_channel=(fewer,))

    snapshots.change(snapshots.chk(3), changed, "counts", checksums=True)


# --- whose ---


def left(*parts: str) -> Callable[[Snapshots], None]:
    """A file of an attempt that failed."""

    def do(snapshots: Snapshots) -> None:
        folder = {"canonical": snapshots.canonical}.get(
            parts[0], paths.join(snapshots.folder, *parts)
        )
        snapshots.files[f"{folder}/{paths.state_file(EPOCH, Attempt(7), 1)}"] = b"left"

    return do


def foreign(*parts: str, name: str = "notes.txt") -> Callable[[Snapshots], None]:
    def do(snapshots: Snapshots) -> None:
        folder = {"native": snapshots.native}.get(parts[0] if parts else "")
        snapshots.files[f"{folder or paths.join(snapshots.folder, *parts)}/{name}"] = b"mine"

    return do


def metadata_under_way(snapshots: Snapshots) -> None:
    snapshots.files[f"{snapshots.chk(2)}/_metadata.part"] = b"half"


def checkpoint_that_no_record_names(snapshots: Snapshots) -> None:
    file = next(file for file in snapshots.files if "/chains/" in file)
    data = snapshots.files[file]
    snapshots.files[file] = data.replace(f'[2, "{snapshots.chk(2)}"], '.encode(), b"")


def record_of_another_version(snapshots: Snapshots) -> None:
    file = next(file for file in snapshots.files if "/chains/" in file)
    snapshots.files[file] = snapshots.files[file].replace(b'"version": 1', b'"version": 9')


def torn_record(snapshots: Snapshots) -> None:
    file = next(file for file in snapshots.files if "/chains/" in file)
    snapshots.files[file] = snapshots.files[file][:-9]


def checkpoint_deleted_by_hand(snapshots: Snapshots) -> None:
    for file in [file for file in snapshots.files if file.startswith(f"{snapshots.chk(2)}/")]:
        del snapshots.files[file]


def savepoint_that_leans_on_a_checkpoint(snapshots: Snapshots) -> None:
    file = snapshots.state("chk-3 TGKS")

    def changed(state: SubtaskState) -> SubtaskState:
        assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
        handle = FileStateHandle(file, len(snapshots.files[file]))
        return replace(state, managed_keyed=replace(state.managed_keyed, delegate=handle))

    snapshots.change(snapshots.native, changed, "counts")


def file_that_two_call_their_own(snapshots: Snapshots) -> None:
    file = snapshots.state("chk-2 TGKS")

    def changed(state: SubtaskState) -> SubtaskState:
        assert isinstance(state.managed_keyed, KeyGroupsStateHandle)
        old = snapshots.read(snapshots.chk(2)).operators[0].subtasks[0]
        assert old is not FINISHED and isinstance(old.managed_keyed, KeyGroupsStateHandle)
        handle = FileStateHandle(file, len(snapshots.files[file]))
        return replace(state, managed_keyed=replace(old.managed_keyed, delegate=handle))

    snapshots.change(snapshots.chk(3), changed, "counts")


DAMAGES = [
    Damage("a checkpoint's metadata is gone", HEAP, lost_metadata, Fault.MISSING, "chk-3/_meta"),
    Damage("metadata cut in half", HEAP, of_metadata(lambda d: d[: len(d) // 2]), Fault.METADATA),
    Damage("empty metadata", HEAP, of_metadata(lambda _: b""), Fault.METADATA, "chk-3/_metadata"),
    Damage("metadata is garbage", HEAP, of_metadata(lambda d: b"\x7f" * len(d)), Fault.METADATA),
    Damage("metadata of a newer version", HEAP, of_metadata(newer_version), Fault.METADATA),
    Damage("a bit of inline state", INLINE, of_metadata(bit_of_inline_state), Fault.METADATA),
    Damage("a bit of the job's name", HEAP, of_metadata(bit_of_a_fact, 1), Fault.METADATA),
    Damage("a bit of our own name", HEAP, of_metadata(bit_of_own_name, 2), Fault.METADATA),
    Damage("our master state is gone", INLINE, no_master_state, Fault.METADATA, "chk-2"),
    Damage("bytes behind the metadata", HEAP, of_metadata(lambda d: d + b"x"), Fault.METADATA),
    Damage("another checkpoint's metadata", HEAP, metadata_of_another_checkpoint, Fault.METADATA),
    Damage("another job's metadata", HEAP, metadata_of_another_job, Fault.MISSING),
    Damage("a half-written savepoint", HEAP, half_written_savepoint, Fault.INCOMPLETE, "savepoint"),
    Damage("a savepoint's metadata cut", DISK, savepoint_without_a_byte, Fault.METADATA),
    Damage("keyed state missing", HEAP, lost("chk-2 TGKS"), Fault.MISSING, "chk-2"),
    Damage("keyed state cut", HEAP, cut("chk-3 TGKS"), Fault.SIZE, "chk-3"),
    Damage("a bit of keyed state", HEAP, flipped("chk-1 TGKS"), Fault.CHECKSUM, "chk-1"),
    Damage("keyed state emptied", HEAP, emptied("chk-3 TGKS"), Fault.SIZE, "chk-3"),
    Damage("operator state missing", HEAP, lost("chk-3 TGOS"), Fault.MISSING),
    Damage("operator state too long", HEAP, longer("chk-3 TGOS"), Fault.SIZE),
    Damage("a bit of operator state", HEAP, flipped("chk-3 TGOS"), Fault.CHECKSUM),
    Damage(
        "keyed and operator state swapped", HEAP, swapped("chk-3 TGKS", "chk-3 TGOS"), Fault.SIZE
    ),
    Damage("two checkpoints' state swapped", HEAP, swapped("chk-2 TGKS", "chk-3 TGKS"), Fault.SIZE),
    Damage("data in flight missing", HEAP, lost("chk-3 in-flight"), Fault.MISSING),
    Damage("a bit of data in flight", HEAP, flipped("chk-3 in-flight"), Fault.CHECKSUM),
    Damage("data in flight cut", HEAP, cut("chk-3 in-flight"), Fault.SIZE),
    Damage("channels cut off", HEAP, channels_cut_off, Fault.CONTENTS),
    Damage("a merged file missing", MERGED, lost("chk-3 TGKS"), Fault.MISSING),
    Damage("a merged file cut", MERGED, cut("chk-3 TGKS"), Fault.SIZE),
    Damage("a bit of a merged file", MERGED, flipped("chk-3 TGKS", 0.99), Fault.CHECKSUM),
    Damage("a shared file deleted", SHARED, lost("shared TGKS"), Fault.MISSING, "shared"),
    Damage("a bit of a shared file", SHARED, flipped("shared TGKS"), Fault.CHECKSUM, "shared"),
    Damage("a shared file cut", SHARED, cut("shared TGKS"), Fault.SIZE, "shared"),
    Damage("the list of shared files gone", SHARED, lost("chk-3 TGKI"), Fault.MISSING),
    Damage("a table deleted", DISK, lost("shared sst"), Fault.MISSING, "shared"),
    Damage("a bit of a table", DISK, flipped("shared sst", 0.2), Fault.CHECKSUM, "shared"),
    Damage("CURRENT gone", DISK, lost("chk-3 current"), Fault.MISSING),
    Damage("description of states cut", DISK, cut("chk-3 TGRD"), Fault.SIZE),
    Damage("a native savepoint's table gone", DISK, lost("native sst"), Fault.MISSING, "savepoint"),
    Damage("a canonical savepoint's bit", DISK, flipped("canonical TGKS"), Fault.CHECKSUM),
    Damage("a canonical savepoint's file gone", SHARED, lost("canonical TGOS"), Fault.MISSING),
    Damage("offsets beside sections", HEAP, keyed(offset_beside_its_section), Fault.CONTENTS),
    Damage(
        "a section longer than any file",
        HEAP,
        without_checksums(section_longer_than_any_file),
        Fault.CONTENTS,
        "chk-3",
    ),
    Damage("offsets of others", HEAP, keyed(offset_of_another_key_group), Fault.CONTENTS),
    Damage("elements beyond the end", HEAP, elements_beyond_the_end, Fault.CONTENTS),
    Damage("a state that is not there", HEAP, a_state_that_the_file_has_not, Fault.CONTENTS),
    Damage(
        "an unchecked header flipped",
        HEAP,
        without_checksums(flipped("chk-3 TGKS", 0.02)),
        Fault.CONTENTS,
    ),
    Damage(
        "an unchecked manifest flipped",
        DISK,
        without_checksums(flipped("native manifest", 0.5), of="native"),
        Fault.CONTENTS,
    ),
    Damage("a file that an attempt left", HEAP, left("chk-3"), Fault.ORPHAN, "chk-3"),
    Damage("a shared file of nobody", SHARED, left("shared"), Fault.ORPHAN, "shared"),
    Damage("a slot's file of nobody", HEAP, left("taskowned"), Fault.ORPHAN, "taskowned"),
    Damage("a savepoint's file of nobody", HEAP, left("canonical"), Fault.ORPHAN, "savepoint"),
    Damage("a checkpoint that was given up", HEAP, left("chk-4"), Fault.ORPHAN, "chk-4"),
    Damage("metadata under way", HEAP, metadata_under_way, Fault.ORPHAN, "_metadata.part"),
    Damage("no record names it", HEAP, checkpoint_that_no_record_names, Fault.ORPHAN, "chk-2"),
    Damage("a foreign file", HEAP, foreign("chk-2"), Fault.FOREIGN, "notes.txt"),
    Damage("a foreign file in a savepoint", DISK, foreign("native"), Fault.FOREIGN, "savepoint"),
    Damage("a foreign file beside checkpoints", HEAP, foreign(), Fault.FOREIGN, "notes.txt"),
    Damage("a record of a newer version", HEAP, record_of_another_version, Fault.RECORD, ".jobs"),
    Damage("a torn record", HEAP, torn_record, Fault.RECORD, ".jobs"),
    Damage(
        "a checkpoint deleted by hand", HEAP, checkpoint_deleted_by_hand, Fault.MISSING, "chk-2"
    ),
    Damage(
        "a savepoint that does not stand alone",
        HEAP,
        savepoint_that_leans_on_a_checkpoint,
        Fault.OUTSIDE,
    ),
    Damage("a file of two owners", HEAP, file_that_two_call_their_own, Fault.OUTSIDE, "chk-2"),
]
