"""Checkpoints of state in memory that name again the key groups that did not change."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsStateHandle,
    PlaceholderStreamStateHandle,
)
from tests.properties import examples
from tests.state.disk_world import Disk
from tests.state.files_world import Driver
from tests.state.world import Subtask, stored
from tidegate import StateTtlConfig, Time
from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.state import ListStateDescriptor, ValueStateDescriptor
from tidegate.checkpoint.restore.redistribution import redistribute_keyed
from tidegate.errors import RestoreRefused
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.snapshots.sizes import keyed_sizes
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from tidegate.state.pending import PendingSnapshot
    from tidegate.storage.places import Place

ID = "00000000-0000-0000-0000-000000000001"
TEXT = ValueStateDescriptor("text", Types.STRING())
SEEN = ListStateDescriptor("seen")
TOTAL = ReducingStateDescriptor("total", lambda x, y: x + y, Types.LONG())
GROUPS = 64
KEYS = 200
Handle = IncrementalRemoteKeyedStateHandle


class Job:
    """One subtask with states of three sorts, its storage and the driver's registry."""

    def __init__(
        self,
        handles: list[Handle] | None = None,
        driver: Driver | None = None,
        groups: int = GROUPS,
    ) -> None:
        self.driver = driver or Driver()
        self.groups = groups
        self.subtask = Subtask(max_parallelism=groups, shared_as=ID)
        if handles is not None:
            restore(self.subtask, handles, self.driver)
        backend = self.subtask.backend
        self.text: Any = backend.keyed_state(TEXT)
        self.seen: Any = backend.keyed_state(SEEN)
        self.total: Any = backend.keyed_state(TOTAL)
        self.checkpoint = 0

    def write(self, key: int, text: str) -> None:
        self.subtask.on(key)
        self.text.update(text)

    def fill(self) -> Job:
        for key in range(KEYS):
            self.write(key, f"text {key}")
        return self

    def group_of(self, key: int) -> int:
        self.subtask.on(key)
        return self.subtask.cell.group

    def sent(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> tuple[Any, Any]:
        """A checkpoint as it is sent, and as the driver keeps it."""
        self.checkpoint += 1
        number = CheckpointId(self.checkpoint)
        pending = self.subtask.backend.snapshot(number, CheckpointOptions(kind))
        pending.finish()
        place = self.driver.place(number, kind)
        handle = pending.upload(place).managed_keyed
        if not isinstance(handle, Handle):
            place.close()
            return handle, handle
        return handle, self.driver.acknowledged(handle, place)

    def completed(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> Handle:
        _, known = self.sent(kind)
        self.subtask.backend.on_complete(CheckpointId(self.checkpoint))
        return known

    def contents(self) -> dict[str, dict[object, object]]:
        return contents(self.subtask)

    def counted(self, handle: Handle) -> dict[str, int]:
        """Bytes by state, as `tidegate inspect` counts them in files."""
        found = keyed_sizes([handle], self.driver.storage.files, self.driver.reader())
        return {
            name: sum(size.size_bytes for size in groups.values()) for name, groups in found.items()
        }


def contents(subtask: Subtask) -> dict[str, dict[object, object]]:
    for descriptor in (TEXT, SEEN, TOTAL):
        subtask.backend.keyed_state(descriptor)
    return {each.name: copy.deepcopy(subtask.dump(each.name)) for each in (TEXT, SEEN, TOTAL)}


def restore(subtask: Subtask, handles: Any, driver: Driver) -> None:
    subtask.backend.restore(RestoredOperatorState(managed_keyed=tuple(handles)), driver.reader())


def new_files(handle: Handle) -> list[FileStateHandle]:
    return [file.handle for file in handle.shared_state if isinstance(file.handle, FileStateHandle)]


def test_a_touched_key_group_is_written_and_no_other() -> None:
    job = Job().fill()
    first = job.completed()
    job.write(7, "other")
    sent, known = job.sent()
    [file] = new_files(sent)
    assert first.checkpointed_size > 8 * file.state_size
    assert sum(isinstance(f.handle, PlaceholderStreamStateHandle) for f in sent.shared_state) == 1
    again = Job([known], job.driver)
    assert again.contents() == job.contents()
    alike = [key for key in range(KEYS) if job.group_of(key) == job.group_of(7)]
    assert file.state_size < 500 + 25 * len(alike)


def test_a_checkpoint_without_changes_writes_no_file() -> None:
    job = Job().fill()
    first = job.completed()
    for key in range(KEYS):
        job.subtask.on(key)
        assert job.text.value() == f"text {key}"  # reads are no writes
        assert list(job.seen.get()) == [] and job.total.get() is None
    files = job.driver.files
    sent, known = job.sent()
    assert new_files(sent) == []
    assert not any("/shared/" in path for path in job.driver.files - files)
    assert sent.checkpointed_size < first.checkpointed_size / 5
    assert Job([known], job.driver).contents() == job.contents()


def test_of_a_key_group_only_the_changed_keys_are_written() -> None:
    job = Job(groups=1).fill()
    first = job.completed()
    job.write(7, "other")
    job.subtask.on(8)
    job.text.clear()
    job.seen.add([1])
    sent, known = job.sent()
    [file] = new_files(sent)
    assert file.state_size * 4 < first.checkpointed_size
    again = Job([known], job.driver, 1)
    assert again.contents() == job.contents()
    assert again.contents()["text"][7] == "other" and 8 not in again.contents()["text"]


def test_a_state_that_is_emptied_in_a_key_group_is_empty_after_a_restore() -> None:
    job = Job(groups=1).fill()
    job.subtask.on(1)
    job.total.add(1)
    for _ in range(2):
        job.write(2, "some more")
        job.completed()
    job.subtask.on(1)
    job.total.clear()
    known = job.completed()
    assert Job([known], job.driver, 1).contents()["total"] == {}


def test_what_changed_is_laid_over_at_most_so_often() -> None:
    """So a restore reads a bounded number of files, and twice the state at most."""
    job = Job(groups=1).fill()
    job.completed()
    files: list[int] = []
    for round in range(60):
        job.write(round % 3, f"round {round}")
        known = job.completed()
        files.append(len(known.shared_state))
        assert known.state_size < 2 * KEYS * 40
    assert 10 < max(files) <= 32
    assert Job([known], job.driver, 1).contents() == job.contents()


def test_where_most_keys_change_it_is_not_noted_which() -> None:
    job = Job(groups=1).fill()
    first = job.completed()
    for round in range(3):
        for key in range(KEYS):
            job.write(key, f"round {round}")
        sent, known = job.sent()
        job.subtask.backend.on_complete(CheckpointId(job.checkpoint))
        assert sum(file.state_size for file in new_files(sent)) > first.checkpointed_size / 2
        assert len(known.shared_state) == 1
    for _ in range(9):  # until it is looked at again
        job.write(7, "calm")
        sent, known = job.sent()
        job.subtask.backend.on_complete(CheckpointId(job.checkpoint))
    assert sum(file.state_size for file in new_files(sent)) * 4 < first.checkpointed_size
    assert Job([known], job.driver, 1).contents() == job.contents()


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_rescaled_job_finds_each_key_once(parallelism: int) -> None:
    job = Job().fill()
    job.completed()
    for key in (1, 2, 3):
        job.write(key, "new")
        known = job.completed()
    found: dict[object, object] = {}
    for index, handles in enumerate(redistribute_keyed([known], parallelism, GROUPS)):
        subtask = Subtask(index, parallelism, max_parallelism=GROUPS, shared_as=ID)
        restore(subtask, handles, job.driver)
        part = contents(subtask)["text"]
        assert part and not found.keys() & part.keys()
        found |= part
    assert found == job.contents()["text"]


def test_files_that_no_checkpoint_names_are_deleted_and_few_are_half_empty() -> None:
    job = Job().fill()
    before = job.completed()
    for round in range(40):
        for key in range(round, KEYS, 40):
            job.write(key, f"round {round}")
        known = job.completed()
        job.driver.subsume(before)
        before = known
        named = {f.handle.physical_id for f in known.shared_state}
        shared = {path for path in job.driver.files if "/shared/" in path}
        assert {path.rpartition("/")[2] for path in shared} == {
            path.rpartition("/")[2] for path in named if "memory:" in path
        }
        assert known.state_size < 4 * KEYS * 40
    assert Job([before], job.driver).contents() == job.contents()


def test_an_aborted_checkpoint_is_never_named() -> None:
    job = Job().fill()
    job.completed()
    job.write(1, "aborted")
    aborted, _ = job.sent()
    job.subtask.backend.on_aborted(CheckpointId(2))
    sent, known = job.sent()
    [lost], [again] = new_files(aborted), new_files(sent)
    assert again.state_size == lost.state_size and again != lost
    assert Job([known], job.driver).contents()["text"][1] == "aborted"


def test_what_a_checkpoint_in_the_balance_does_without_is_not_named() -> None:
    job = Job().fill()
    job.completed()
    for key in range(KEYS):
        job.write(key, "all anew")
    job.sent()
    third, known = job.sent()
    assert len(new_files(third)) == 1, "the first file goes once the second checkpoint is complete"
    assert Job([known], job.driver).contents() == job.contents()


@pytest.mark.feature("F221")
@pytest.mark.parametrize("kind", [SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_a_full_checkpoint_names_nothing_and_a_savepoint_stands_alone(kind: SnapshotKind) -> None:
    job = Job().fill()
    job.completed()
    job.write(1, "since")
    sent, known = job.sent(kind)
    assert isinstance(sent, KeyGroupsStateHandle if kind.is_savepoint else Handle)
    if not kind.is_savepoint:
        assert all(isinstance(file.handle, FileStateHandle) for file in sent.shared_state)
    assert Job([known], job.driver).contents() == job.contents()
    job.subtask.backend.on_complete(CheckpointId(2))
    after, known = job.sent()
    assert sum(file.state_size for file in new_files(after)) < 1_000
    assert Job([known], job.driver).contents() == job.contents()


def test_the_first_checkpoint_after_a_restore_is_a_full_one() -> None:
    job = Job().fill()
    again = Job([job.completed()], job.driver)
    again.checkpoint = 1
    sent, _ = again.sent()
    assert all(isinstance(file.handle, FileStateHandle) for file in sent.shared_state)


def test_a_state_that_is_asked_for_later_is_in_the_next_checkpoint() -> None:
    job = Job().fill()
    job.completed()
    later: Any = job.subtask.on(3).backend.keyed_state(ValueStateDescriptor("later", int))
    later.update(5)
    _, known = job.sent()
    again = Job([known], job.driver)
    again.subtask.backend.keyed_state(ValueStateDescriptor("later", int))
    assert again.subtask.dump("later") == {3: 5}


def test_a_state_that_nobody_asks_for_any_more_stays_whole() -> None:
    job = Job().fill()
    for key in range(KEYS):
        job.subtask.on(key)
        job.total.add(key)
    known = job.completed()
    again = Job.__new__(Job)
    again.driver, again.checkpoint = job.driver, 1
    again.subtask = Subtask(max_parallelism=GROUPS, shared_as=ID)
    restore(again.subtask, [known], job.driver)
    again.text = again.subtask.backend.keyed_state(TEXT)
    again.completed()
    again.write(7, "other")
    known = again.completed()
    job.write(7, "other")
    assert Job([known], job.driver).contents() == job.contents()


def test_what_expires_meanwhile_counts_as_no_write() -> None:
    job = Job()
    fleeting = ValueStateDescriptor("fleeting", Types.LONG())
    life = StateTtlConfig.new_builder(Time.milliseconds(100)).cleanup_incrementally(1_000, False)
    fleeting.enable_time_to_live(life.build())
    state: Any = job.subtask.at(0).backend.keyed_state(fleeting)
    for key in range(KEYS):
        job.subtask.on(key)
        state.update(key)
    job.completed()
    job.subtask.at(200).on(0)
    assert state.value() is None, "and the clean-up came by the others"
    assert len(job.subtask.dump("fleeting")) < KEYS / 2
    sent, known = job.sent()
    assert sum(file.state_size for file in new_files(sent)) < 1_000
    again = Job([known], job.driver)
    again.subtask.at(200).backend.keyed_state(fleeting)
    held: Any = again.subtask.on(5).backend.keyed_state(fleeting)
    assert held.value() is None


def test_a_missing_file_is_told_by_its_name() -> None:
    job = Job().fill()
    known = job.completed()
    [file] = new_files(known)
    job.driver.storage.files.delete_files([file.file_path])
    with pytest.raises(RestoreRefused) as raised:
        Job([known], job.driver)
    assert file.file_path.rpartition("/")[2] in str(raised.value)
    assert "operator 'counts'" in str(raised.value)


def test_state_on_disk_is_restored_from_them() -> None:
    job = Job().fill()
    job.completed()
    job.write(7, "other")
    known = job.completed()
    disk = Disk()
    try:
        subtask = Subtask(max_parallelism=GROUPS, local=disk.local())
        restore(subtask, [known], job.driver)
        assert contents(subtask) == job.contents()
        subtask.backend.close()
    finally:
        disk.close()


def test_files_of_state_on_disk_are_refused() -> None:
    job = Job().fill()
    known = job.completed()
    own = HandleAndLocalPath("CURRENT", ByteStreamStateHandle("CURRENT", b"MANIFEST"))
    foreign = replace(known, private_state=(own,))
    with pytest.raises(RestoreRefused, match="can't be read by the HashMap backend"):
        Job([foreign], job.driver)


WRITES = st.tuples(
    st.sampled_from(("text", "clear", "seen", "total")), st.integers(0, 30), st.integers(0, 9)
)
STEPS = st.sampled_from(
    (
        *("checkpoint", "checkpoint", "snapshot", "slice", "slice", "write_waiting"),
        *("acknowledge", "complete", "notify", "abort"),
    )
)


@dataclass
class Taken:
    """A checkpoint under way: its model, and the handles once it is acknowledged."""

    number: CheckpointId
    model: dict[str, dict[object, object]]
    pending: PendingSnapshot
    place: Place
    known: Handle | None = None


class Driven(Job):
    """A job, a driver that completes and aborts its checkpoints, and messages that come late."""

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)
        self.model: dict[str, dict[object, object]] = {"text": {}, "seen": {}, "total": {}}
        self.taken: list[Taken] = []
        self.newest: Taken | None = None
        self.told: list[CheckpointId] = []

    def do(self, what: str, key: int, value: int) -> None:
        self.subtask.on(key)
        match what:
            case "text":
                self.text.update(f"text {value}")
                self.model["text"][key] = f"text {value}"
            case "clear":
                for state in (self.text, self.seen, self.total):
                    state.clear()
                for held in self.model.values():
                    held.pop(key, None)
            case "seen":
                self.seen.add([value])
                held: Any = self.model["seen"].setdefault(key, [])
                held.append([value])
            case _:
                self.total.add(value)
                sum_so_far: Any = self.model["total"].get(key, 0)
                self.model["total"][key] = sum_so_far + value

    def snapshot(self) -> None:
        for each in self.taken:
            each.pending.finish()
        self.checkpoint += 1
        number = CheckpointId(self.checkpoint)
        pending = self.subtask.backend.snapshot(number)
        model = copy.deepcopy(self.model)
        self.taken.append(Taken(number, model, pending, self.driver.place(number)))

    def take_checkpoint(self) -> None:
        """One that nothing comes between."""
        self.snapshot()
        while self.taken and self.taken[-1].known is None and self.acknowledge():
            pass
        self.complete()
        self.notify()

    def slice(self) -> None:
        if self.taken:
            self.taken[-1].pending.encode(0.0)

    def write_waiting(self) -> None:
        if self.taken and self.taken[-1].pending.waiting:
            self.taken[-1].pending.write(self.taken[-1].place)
            assert not self.taken[-1].pending.waiting

    def acknowledge(self) -> bool:
        for each in self.taken:
            if each.known is None:
                each.pending.finish()
                handle = each.pending.upload(each.place).managed_keyed
                assert handle is None or isinstance(handle, Handle)
                if handle is not None:
                    each.known = self.driver.acknowledged(handle, each.place)
                return handle is not None
        return False

    def complete(self) -> None:
        done = next((each for each in self.taken if each.known is not None), None)
        if done is None:
            return
        while self.taken[0] is not done:
            self.abort()
        self.taken.remove(done)
        before, self.newest = self.newest, done
        if before is not None and before.known is not None:
            self.driver.subsume(before.known)
        self.told.append(done.number)
        assert done.known is not None
        assert Job([done.known], self.driver, self.groups).contents() == done.model

    def notify(self) -> None:
        if self.told:
            self.subtask.backend.on_complete(self.told.pop(0))

    def abort(self) -> None:
        if self.taken:
            given_up = self.taken.pop(0)
            given_up.pending.cancel()
            self.subtask.backend.on_aborted(given_up.number)


@pytest.mark.slow
@examples(100)
@given(
    script=st.lists(STEPS | STEPS | WRITES, min_size=20, max_size=60),
    groups=st.sampled_from((GROUPS, 2)),
)
def test_each_completed_checkpoint_is_the_state_at_its_barrier(
    script: list[Any], groups: int
) -> None:
    """Of many key groups all that have changed are written whole, of two only keys."""
    driven = Driven(groups)
    driven.subtask.clock.step_ms = 1_000
    for key in range(31 if groups == GROUPS else KEYS):
        driven.do("text", key, key)
        driven.do("seen", key, key)
    for each in ["checkpoint", *script, "checkpoint"]:
        if each == "checkpoint":
            driven.take_checkpoint()
        elif isinstance(each, str):
            getattr(driven, each)()
        else:
            driven.do(*each)
    assert driven.contents() == driven.model
    if driven.newest is not None and driven.newest.known is not None:
        assert Job([driven.newest.known], driven.driver, groups).contents() == driven.newest.model


def test_bytes_by_name_are_those_of_all_sections_that_a_checkpoint_names() -> None:
    job = Job().fill()
    backend = job.subtask.backend
    assert backend.sizes() == {}
    counted = job.counted(job.completed())
    assert backend.sizes() == {"text": counted["text"], "seen": 0, "total": 0}
    job.subtask.on(7)
    job.seen.add(["more"])
    job.total.add(5)
    known = job.completed()
    assert backend.sizes() == job.counted(known)
    assert backend.sizes()["text"] == counted["text"] and backend.sizes()["seen"] > 0
    for round in range(3):
        job.write(7, f"round {round}")
        known = job.completed()
    # A section that lies over another one is counted beside it until both are written again.
    assert job.counted(known)["text"] < backend.sizes()["text"] < counted["text"] + 100
    savepoint, _ = job.sent(SnapshotKind.SAVEPOINT)
    assert backend.sizes() == job.counted(savepoint)


def test_a_restored_subtask_knows_bytes_by_name_from_its_first_checkpoint_on() -> None:
    before = Job().fill()
    known = before.completed()
    after = Subtask(max_parallelism=GROUPS, shared_as=ID)
    restore(after, [known], before.driver)
    assert after.backend.sizes() == {}
    # Nobody has asked for the state yet, and its bytes are written as they came.
    stored(after.backend.snapshot(CheckpointId(2), CheckpointOptions(SnapshotKind.SAVEPOINT)))
    assert {name: size for name, size in after.backend.sizes().items() if size} == {
        "text": before.subtask.backend.sizes()["text"]
    }
