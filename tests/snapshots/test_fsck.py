"""``tidegate fsck``: every planted damage is found, and nothing else is."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from golden import FIXTURES

from flinkformat.snapshots import SavepointFormatType
from tests.snapshots.damages import (
    DAMAGES,
    DISK,
    HEAP,
    INLINE,
    MERGED,
    SHARED,
    Damage,
    Snapshots,
    checkpoint_that_no_record_names,
    foreign,
    left,
)
from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate.cli.main import commands
from tidegate.errors import ConfigError, StorageFailed
from tidegate.ha.chain import beat_path
from tidegate.model.ids import JobId, OperatorId
from tidegate.snapshots.checking import snapshot_check
from tidegate.snapshots.checking.findings import Fault
from tidegate.snapshots.checking.fsck import check, fsck
from tidegate.snapshots.checking.integrity import contents_of
from tidegate.storage import paths
from tidegate.storage.memory import MemoryFiles, MemoryStore
from tidegate.storage.store import FileInfo, Store
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKENDS = ("hashmap", "incremental", "rocksdb")
KINDS = [
    Kind(backend, parallelism, compression, merged, inline, in_flight)
    for backend, parallelism, (compression, merged, inline, in_flight) in itertools.product(
        BACKENDS,
        (1, 3),
        [
            (False, False, 16, False),
            (True, False, 16, True),
            (False, True, 16, False),
            (False, False, 20_000, True),
        ],
    )
]


@pytest.fixture(scope="module")
def healthy() -> dict[Kind, Snapshots]:
    """Snapshots of each kind that the catalogue damages."""
    return {kind: Snapshots(kind) for kind in (HEAP, INLINE, MERGED, SHARED, DISK)}


def test_the_catalogue_is_long_and_has_every_fault_that_bytes_can_have() -> None:
    assert len(DAMAGES) == len({damage.name for damage in DAMAGES}) >= 50
    assert {damage.fault for damage in DAMAGES} == set(Fault) - {Fault.UNREADABLE, Fault.UNSIGNED}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_a_damage_is_found(healthy: dict[Kind, Snapshots], damage: Damage) -> None:
    snapshots = healthy[damage.kind].restored()
    damage.do(snapshots)
    findings = check(snapshots.stores, snapshots.root).findings
    told = [finding for finding in findings if finding.fault is damage.fault]
    assert told and any(damage.at in finding.path for finding in told), findings


@pytest.mark.parametrize("kind", [HEAP, INLINE, MERGED, SHARED, DISK], ids=str)
def test_what_is_damaged_here_was_healthy_before(
    healthy: dict[Kind, Snapshots], kind: Kind
) -> None:
    snapshots = healthy[kind].restored()
    report = check(snapshots.stores, snapshots.root)
    assert (report.findings, report.notes, report.healthy) == ((), (), True)
    assert sorted((each.checkpoint, each.kind) for each in report.snapshots) == [
        *((number, "Checkpoint") for number in (1, 2, 3)),
        *((number, "Savepoint") for number in (4, 5)),
    ]
    assert {each.job for each in report.snapshots} == {snapshots.name}
    assert report.size_bytes == sum(
        len(data)
        for file, data in snapshots.files.items()
        if "/.jobs/" not in file and not file.endswith("/_metadata")
    )


@pytest.mark.slow
def test_no_false_alarm_on_200_healthy_snapshots() -> None:
    checked = 0
    for seed, kind in enumerate(KINDS):
        with JobWorld(kind, seed) as world:
            for _ in range(6):
                world.work()
                world.checkpoint()
            savepoints = [world.savepoint(format) for format in SavepointFormatType]
            world.work()
            savepoints += [world.savepoint(format) for format in SavepointFormatType]
            world.recorded()
            report = check(world.stores, world.root)
            assert (report.findings, report.notes) == ((), ()), kind
            assert len(report.snapshots) == 10
            checked += 10
            for path in (world.folder, *savepoints, world.completed[2].location):
                assert check(world.stores, path).healthy, (kind, path)
    assert checked >= 200


def test_a_file_that_several_checkpoints_need_is_told_once_with_all_of_them(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[DISK].restored()
    users = {
        file: {n for n in (1, 2, 3) if file in str(snapshots.read(snapshots.chk(n)))}
        for file in snapshots.files
        if "/shared/" in file
    }
    file = max(users, key=lambda file: len(users[file]))
    del snapshots.files[file]
    [told] = check(snapshots.stores, snapshots.folder).findings
    assert (told.fault, told.path, told.operator) == (Fault.MISSING, file, "counts")
    assert set(told.snapshots) == {snapshots.chk(n) for n in users[file]}
    assert len(told.snapshots) > 1


def test_a_file_that_cannot_be_read_is_told_with_the_reason(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    file = snapshots.state("chk-3 TGKS")

    class Refusing(MemoryStore):
        def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
            if f"{self.root}/{path}" == file:
                raise StorageFailed("Cannot read it: Permission denied")
            return super().read(path, offset=offset, size=size)

    class RefusingStores(Stores):
        def open(self, location: str) -> Store:
            return Refusing(world, location)

    world = MemoryFiles()
    world.files = snapshots.files
    [finding] = check(RefusingStores(), snapshots.root).findings
    assert (finding.fault, finding.path) == (Fault.UNREADABLE, file)
    assert "Permission denied" in finding.what


def test_a_snapshot_is_named_by_its_metadata_too_and_each_file_is_told_once(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    told: list[str] = []
    report = check(snapshots.stores, f"{snapshots.chk(3)}/_metadata", on_file=told.append)
    assert report.healthy and report.path == snapshots.chk(3)
    assert sorted(told) == sorted(
        file
        for file in snapshots.files
        if file.startswith(f"{snapshots.chk(3)}/") and not file.endswith("/_metadata")
    )


def test_a_half_written_savepoint_is_known_by_its_files_whatever_its_name(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    renamed = "memory:/my savepoint"
    for file in [file for file in snapshots.files if file.startswith(snapshots.native)]:
        if not file.endswith("/_metadata"):
            snapshots.files[file.replace(snapshots.native, renamed)] = snapshots.files[file]
    [finding] = check(snapshots.stores, renamed).findings
    assert (finding.fault, finding.path) == (Fault.INCOMPLETE, renamed)


# --- deleting ---


def left_all_over(snapshots: Snapshots) -> None:
    for place in ("chk-3", "chk-9", "shared", "taskowned", "canonical"):
        left(place)(snapshots)


def test_orphans_are_deleted_only_when_asked_and_nothing_else_is(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    before = dict(snapshots.files)
    left_all_over(snapshots)
    foreign("chk-2")(snapshots)
    report = check(snapshots.stores, snapshots.root)
    orphans = {each.path for each in report.findings if each.fault is Fault.ORPHAN}
    assert len(orphans) == 5 and orphans < snapshots.files.keys()
    report = check(snapshots.stores, snapshots.root, delete_orphans=True)
    assert {each.path for each in report.findings if each.deleted} == orphans
    assert not report.healthy, "the foreign file is still there"
    assert snapshots.files.keys() - before.keys() == {f"{snapshots.chk(2)}/notes.txt"}
    del snapshots.files[f"{snapshots.chk(2)}/notes.txt"]
    assert check(snapshots.stores, snapshots.root).findings == ()
    left("shared")(snapshots)
    assert check(snapshots.stores, snapshots.root, delete_orphans=True).healthy
    assert snapshots.files == before


TRY = paths.try_file(JobId("ab" * 16))


def test_a_try_of_a_micro_batch_is_nothing_foreign(healthy: dict[Kind, Snapshots]) -> None:
    snapshots = healthy[HEAP].restored()
    for folder in (snapshots.chk(2), snapshots.chk(9)):  # complete, and just begun
        snapshots.files[f"{folder}/{TRY}"] = b""
    before = dict(snapshots.files)
    report = check(snapshots.stores, snapshots.root, delete_orphans=True)
    assert (report.findings, report.notes, snapshots.files) == ((), (), before)
    snapshots.files[f"{snapshots.root}/{TRY}"] = b""
    snapshots.files[f"{snapshots.folder}/{TRY}"] = b""
    [finding] = check(snapshots.stores, snapshots.root).findings
    assert (finding.fault, finding.path) == (Fault.FOREIGN, f"{snapshots.folder}/{TRY}")


@pytest.mark.parametrize("states", [0, 1])
def test_a_try_in_a_folder_without_metadata_is_no_file_of_state(
    healthy: dict[Kind, Snapshots], states: int
) -> None:
    """As of micro-batches, which keep no records of jobs."""
    snapshots = healthy[HEAP].restored()
    for file in [file for file in snapshots.files if "/.jobs/" in file]:
        del snapshots.files[file]
    snapshots.files[f"{snapshots.chk(9)}/{TRY}"] = b""
    for number in range(states):
        snapshots.files[f"{snapshots.chk(9)}/1-0-{number:016x}"] = b"state"
    found = check(snapshots.stores, snapshots.root).findings
    assert [each.path for each in found] == [snapshots.chk(9)] * states
    assert all("It holds 1 files of state" in each.what for each in found)


def test_a_checkpoint_that_no_record_names_is_deleted_as_a_whole(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    checkpoint_that_no_record_names(snapshots)
    assert check(snapshots.stores, snapshots.root, delete_orphans=True).healthy
    assert not any(file.startswith(f"{snapshots.chk(2)}/") for file in snapshots.files)
    assert check(snapshots.stores, snapshots.root).findings == ()


def test_nothing_is_deleted_beside_a_damaged_snapshot_that_may_name_it(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[SHARED].restored()
    left("shared")(snapshots)
    file = f"{snapshots.chk(2)}/_metadata"
    snapshots.files[file] = snapshots.files[file][:-20]
    before = dict(snapshots.files)
    report = check(snapshots.stores, snapshots.root, delete_orphans=True)
    assert {each.fault for each in report.findings} == {Fault.METADATA}
    assert snapshots.files == before
    assert any("is damaged" in note for note in report.notes)


class Beating:
    """The records of a job whose leader gives a new sign of life at each look."""

    def __init__(self, records: Store, root: str) -> None:
        self._records = records
        self._beats = 0
        self.read, self.info, self.root = records.read, records.info, root

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        if prefix != "beats":
            return self._records.list(prefix)
        self._beats += 1
        return iter([FileInfo(beat_path(1, self._beats), 0)])


class BeatingStores(Stores):
    """Stores of a world in which the job runs."""

    def open(self, location: str) -> Any:
        store = super().open(location)
        return Beating(store, store.root) if "/.jobs/" in location else store


def running(snapshots: Snapshots, *, beating: bool) -> Stores:
    """The world of a job that has not said that it has ended."""
    file = next(file for file in snapshots.files if "/chains/" in file)
    snapshots.files[file] = snapshots.files[file].replace(b'"CANCELED"', b'"RUNNING"')
    world = MemoryFiles()
    world.files = snapshots.files
    return BeatingStores(world) if beating else Stores(world)


def test_files_of_a_job_that_lives_are_not_judged_and_never_deleted(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[SHARED].restored()
    stores = running(snapshots, beating=True)
    for place in ("chk-3", "chk-9", "shared", "taskowned"):
        left(place)(snapshots)
    before = dict(snapshots.files)
    report = check(stores, snapshots.root, delete_orphans=True)
    assert (report.findings, snapshots.files) == ((), before)
    [note] = report.notes
    assert note == (
        f"4 files that no snapshot names are not judged: the job lives ({snapshots.folder})"
    )


def test_files_of_a_job_whose_driver_shows_no_life_are_orphans_if_earlier_runs_left_them(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[SHARED].restored()
    stores = running(snapshots, beating=False)
    for place in ("chk-9", "shared"):
        left(place)(snapshots)
    before = dict(snapshots.files)
    snapshots.files[f"{snapshots.folder}/shared/0-0-{1:016x}"] = b"of an earlier run"
    report = check(stores, snapshots.root, delete_orphans=True, lease_ms=20)
    assert [each.fault for each in report.findings] == [Fault.ORPHAN] and report.healthy
    assert snapshots.files == before, "a driver that stood still may go on"
    assert report.notes[0].startswith("2 files") and "the next run deletes" in report.notes[0]


def test_files_that_a_later_run_has_written_are_not_deleted(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[SHARED].restored()
    snapshots.files[f"{snapshots.folder}/shared/2-0-{1:016x}"] = b"of a new leader"
    report = check(snapshots.stores, snapshots.root, delete_orphans=True)
    assert [each.fault for each in report.findings] == [Fault.ORPHAN] and not report.healthy
    assert f"{snapshots.folder}/shared/2-0-{1:016x}" in snapshots.files


def test_files_of_a_job_without_records_are_not_judged(healthy: dict[Kind, Snapshots]) -> None:
    snapshots = healthy[SHARED].restored()
    for file in [file for file in snapshots.files if "/.jobs/" in file]:
        del snapshots.files[file]
    left("shared")(snapshots)
    report = check(snapshots.stores, snapshots.folder, delete_orphans=True)
    assert report.findings == ()
    assert "no record tells whether the job lives" in report.notes[0]


def test_a_file_that_another_job_names_is_no_orphan(healthy: dict[Kind, Snapshots]) -> None:
    """Another job has gone on from a checkpoint that was claimed, and is deleted by now."""
    snapshots = healthy[SHARED].restored()
    other = f"{snapshots.root}/{'0' * 32}/chk-3"
    for file in [file for file in snapshots.files if file.startswith(snapshots.chk(3))]:
        snapshots.files[file.replace(snapshots.chk(3), other)] = snapshots.files.pop(file)
    record = next(file for file in snapshots.files if "/chains/" in file)
    gone = f', [3, "{snapshots.chk(3)}"]'.encode()
    assert gone in snapshots.files[record]
    snapshots.files[record] = snapshots.files[record].replace(gone, b"")
    before = dict(snapshots.files)
    report = check(snapshots.stores, snapshots.folder, delete_orphans=True)
    assert (report.findings, snapshots.files) == ((), before)


def test_a_snapshot_that_is_deleted_while_it_is_checked_does_not_count(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()

    class Subsuming(Stores):
        """Its job deletes checkpoint 1 as soon as somebody has read its metadata."""

        def open(self, location: str) -> Store:
            store = super().open(location)
            if location == snapshots.chk(2):
                for file in [file for file in snapshots.files if "/chk-1/" in file]:
                    del snapshots.files[file]
            return store

    world = MemoryFiles()
    world.files = snapshots.files
    report = check(Subsuming(world), snapshots.folder)
    assert snapshots.chk(1) not in str(report.findings)


def test_a_snapshot_that_is_deleted_before_its_contents_are_looked_through_does_not_count(
    healthy: dict[Kind, Snapshots], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = healthy[HEAP].restored()
    looked: list[object] = []

    def subsumed(*arguments: Any) -> Any:
        for file in [file for file in snapshots.files if "/chk-1/" in file]:
            del snapshots.files[file]
        for each in contents_of(*arguments):
            looked.append(each)
            yield each

    monkeypatch.setattr(snapshot_check, "contents_of", subsumed)
    report = check(snapshots.stores, snapshots.folder)
    assert looked and snapshots.chk(1) not in str(report.findings)


def test_a_checkpoint_that_its_job_has_passed_meanwhile_is_not_missed(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()
    gone = [file for file in snapshots.files if file.startswith(f"{snapshots.chk(1)}/")]

    class Passing(Stores):
        """Its job goes on when somebody looks whether checkpoint 1 is there."""

        def open(self, location: str) -> Store:
            if location == snapshots.chk(1):
                file = next(file for file in snapshots.files if "/chains/" in file)
                named = f'[1, "{snapshots.chk(1)}"], '.encode()
                snapshots.files[file] = snapshots.files[file].replace(named, b"")
            return super().open(location)

    for file in gone:
        del snapshots.files[file]
    world = MemoryFiles()
    world.files = snapshots.files
    assert check(Passing(world), snapshots.folder).findings == ()


def test_a_checkpoint_that_its_job_deletes_while_it_is_read_is_not_missed(
    healthy: dict[Kind, Snapshots],
) -> None:
    snapshots = healthy[HEAP].restored()

    class Deleting(Stores):
        """The job deletes checkpoint 1 when somebody comes to read it."""

        def open(self, location: str) -> Store:
            if location == snapshots.chk(1):
                for file in [*snapshots.files]:
                    if file.startswith(f"{location}/"):
                        del snapshots.files[file]
            return super().open(location)

    world = MemoryFiles()
    world.files = snapshots.files
    report = check(Deleting(world), snapshots.folder)
    assert snapshots.chk(1) not in str(report.findings)


@pytest.mark.parametrize("kind", [HEAP, SHARED, DISK])
def test_state_that_another_operator_has_taken_over_is_sound(
    healthy: dict[Kind, Snapshots], kind: Kind
) -> None:
    snapshots = healthy[kind].restored()
    for folder in (snapshots.chk(3), snapshots.canonical):
        read = snapshots.read(folder)
        operators = tuple(
            replace(each, operator_id=OperatorId(bytes([number]) * 16))
            for number, each in enumerate(read.operators)
        )
        snapshots.write(folder, replace(read, operators=operators), checksums=True)
    assert check(snapshots.stores, snapshots.root).findings == ()


# --- the command ---


@pytest.fixture
def on_disk(tmp_path: Path) -> JobWorld:
    with JobWorld(SHARED, root=str(tmp_path / "checkpoints")) as world:
        world.work()
        world.checkpoint()
        world.savepoint()
        world.recorded()
        return world


def test_the_command_tells_that_all_is_well(on_disk: JobWorld) -> None:
    result = CliRunner().invoke(commands, ["fsck", on_disk.root])
    assert result.exit_code == 0, result.output
    assert "2 snapshots" in result.output and "healthy" in result.output
    assert on_disk.folder in result.output


def test_small_state_is_no_file_of_its_own(tmp_path: Path) -> None:
    with JobWorld(Kind("hashmap", inline_threshold=20_000), root=str(tmp_path)) as world:
        world.work()
        world.checkpoint()
    result = CliRunner().invoke(commands, ["fsck", world.root])
    assert "1 snapshot, 0 files beside _metadata, 0 bytes: healthy" in result.output


def test_the_command_tells_what_is_wrong_and_exits_with_1(on_disk: JobWorld) -> None:
    file = next(Path(on_disk.folder, "shared").iterdir())
    file.write_bytes(file.read_bytes()[:-1])
    result = CliRunner().invoke(commands, ["fsck", on_disk.root])
    assert result.exit_code == 1
    assert "wrong size" in result.output and str(file) in result.output
    result = CliRunner().invoke(commands, ["fsck", on_disk.root, "--json"])
    told = json.loads(result.output)
    assert (result.exit_code, told["healthy"]) == (1, False)
    [finding] = told["findings"]
    assert (finding["fault"], finding["path"]) == ("wrong size", str(file))
    assert finding["snapshots"] == [on_disk.completed[0].location]


def test_the_command_deletes_orphans_and_says_which(on_disk: JobWorld) -> None:
    file = Path(on_disk.folder, "shared", f"1-0-{5:016x}")
    file.write_bytes(b"left")
    assert CliRunner().invoke(commands, ["fsck", on_disk.root]).exit_code == 1
    assert file.exists()
    result = CliRunner().invoke(commands, ["fsck", on_disk.root, "--delete-orphans"])
    assert (result.exit_code, file.exists()) == (0, False)
    assert "deleted" in result.output and str(file) in result.output


@pytest.mark.parametrize("make", ["nothing", "an empty folder", "a foreign folder"])
def test_where_nothing_can_be_checked_the_command_exits_with_2(tmp_path: Path, make: str) -> None:
    place = tmp_path / "place"
    if make != "nothing":
        place.mkdir()
    if make == "a foreign folder":
        (place / "data.csv").write_text("1,2")
    result = CliRunner().invoke(commands, ["fsck", str(place)])
    assert result.exit_code == 2
    assert str(place) in result.output and "what to do: Name the folder" in result.output
    with pytest.raises(ConfigError):
        fsck(place)


# What is shared by checkpoints of Flink is named by places on the machine that wrote them.
MOVED = {"keyed-rocks-chk1", "keyed-rocks-chk2", "filemerging-chk"}
OF_FLINK = sorted(
    file.parent.name
    for file in FIXTURES.glob("*/_metadata")
    if not file.parent.name.startswith("meta-") and file.parent.name not in MOVED
)


@pytest.mark.parametrize("name", OF_FLINK)
def test_no_false_alarm_on_snapshots_of_flink(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    shutil.copytree(FIXTURES / name, place)
    for beside in ("expected.json", "state.json"):
        (place / beside).unlink(missing_ok=True)
    report = fsck(place)
    assert report.findings == () and report.files == len(list(place.rglob("*"))) - 1
    if report.files:
        file = next(file for file in sorted(place.iterdir()) if file.name != "_metadata")
        file.write_bytes(file.read_bytes()[:-1])
        assert [each.fault for each in fsck(place).findings] == [Fault.SIZE]
