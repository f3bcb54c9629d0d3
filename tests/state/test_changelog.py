"""A changelog over state in memory and on disk: what checkpoints hold, and what goes wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    InMemoryChangelogStateHandle,
)
from flinkformat.snapshots import SubtaskState
from tests.state.disk_world import Disk
from tests.state.log_world import SMALL, Logs, Place
from tests.state.world import Subtask, merged, restored
from tidegate import StateTtlConfig, Time
from tidegate.api.state import ColumnStateDescriptor, ValueStateDescriptor
from tidegate.errors import FormatError, StorageFailed, UserError
from tidegate.model.elements import CheckpointOptions, RowBatch, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import ChangelogSettings
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.state.pending import PendingSnapshot

TEXT = ValueStateDescriptor("text", Types.STRING())
LARGE = ChangelogSettings()


class Job:
    """One subtask over either backend, its logs and the driver."""

    def __init__(self, backend: str, settings: ChangelogSettings = LARGE) -> None:
        self.disk = Disk() if backend == "rocksdb" else None
        self.logs = Logs(settings)
        self.checkpoint = 0
        self.place = Place(self.logs)
        local = None if self.disk is None else self.disk.local()
        self.subtask = Subtask(log=self.logs.log, local=local)

    def close(self) -> None:
        self.subtask.backend.close()
        if self.disk is not None:
            self.disk.close()

    def write(self, values: dict[int, str | None]) -> None:
        keys = list(values)
        groups = [self.subtask.on(key).cell.group for key in keys]
        prepare = self.subtask.backend.before_batch
        assert prepare is not None
        prepare(RowBatch(keys, None, keys, groups))
        state: Any = self.subtask.backend.keyed_state(TEXT)
        for key, value in values.items():
            self.subtask.on(key)
            state.update(value) if value is not None else state.clear()

    def cut(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> PendingSnapshot:
        self.checkpoint += 1
        self.place = Place(self.logs)
        options = CheckpointOptions(kind)
        return self.subtask.backend.snapshot(CheckpointId(self.checkpoint), options)

    def acknowledged(self, pending: PendingSnapshot | None = None) -> SubtaskState:
        pending = pending or self.cut()
        pending.finish()
        state = self.logs.acknowledged(pending.upload(self.place), self.checkpoint)
        pending.acknowledged()
        return state

    def completed(self, pending: PendingSnapshot | None = None) -> ChangelogStateBackendHandle:
        state = self.acknowledged(pending)
        self.logs.completed(self.checkpoint)
        self.subtask.backend.on_complete(CheckpointId(self.checkpoint))
        assert isinstance(state.managed_keyed, ChangelogStateBackendHandle)
        return state.managed_keyed

    def materialized(self) -> None:
        base = self.subtask.backend.materialize()
        assert base is not None
        while not base.encode(0.1):
            pass
        base.write()
        base.take()
        self.logs.run()

    def restore(self, handle: ChangelogStateBackendHandle, at_ms: int = 0) -> None:
        self.subtask.backend.close()
        state = SubtaskState(managed_keyed=handle)
        local = (lambda: None) if self.disk is None else self.disk.local
        [self.subtask] = restored(
            [state], reader=self.logs, log=self.logs.log, local=local, at_ms=at_ms
        )

    def compact(self) -> None:
        """Put all that is on disk into files that no base has."""
        disk: Any = self.subtask.backend._keyed._inner
        disk._opened()._db.compact_range(None, None)

    def texts(self) -> dict[object, object]:
        self.subtask.backend.keyed_state(TEXT)
        return self.subtask.dump("text")


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def job(backend: str) -> Iterator[Job]:
    job = Job(backend)
    yield job
    job.close()


def parts(handle: ChangelogStateBackendHandle) -> int:
    return sum(
        len(each.handles) if isinstance(each, ChangelogStateHandleStream) else 1
        for each in handle.non_materialized
    )


def test_a_checkpoint_writes_what_changed_whatever_the_size_of_the_state(job: Job) -> None:
    texts: dict[int, str | None] = {key: f"{key} " * 50 for key in range(3_000)}
    job.write(texts)
    first = job.completed()
    job.materialized()
    job.write({7: "seven", 8: None})
    last = job.completed()
    assert last.checkpointed_size * 100 < last.state_size
    assert last.checkpointed_size < 1_000 < first.state_size
    job.restore(last)
    assert job.texts() == {**{k: v for k, v in texts.items() if k != 8}, 7: "seven"}


def test_what_gathers_is_written_before_a_checkpoint_asks_for_it(backend: str) -> None:
    job = Job(backend, SMALL)
    try:
        for start in range(0, 400, 20):
            job.write({key: f"text {key}" for key in range(start, start + 20)})
            job.logs.run()
        ahead = sum(map(len, job.logs.files.values()))
        last = job.completed()
        assert parts(last) > 3
        assert ahead > last.state_size / 2
        assert last.checkpointed_size < last.state_size / 2
        job.restore(last)
        assert job.texts() == {key: f"text {key}" for key in range(400)}
    finally:
        job.close()


def test_what_is_still_written_when_the_subtask_ends_goes_by_itself(backend: str) -> None:
    """The driver may have swept by then."""
    job = Job(backend, SMALL)
    try:
        for start in range(0, 100, 20):
            job.write({key: "x" * 20 for key in range(start, start + 20)})
        assert job.logs.waiting, "an upload is under way"
        job.subtask.backend.close()
        job.logs.run()
        assert job.logs.files == {}
    finally:
        job.close()


def test_an_upload_that_fails_is_made_up_for_by_the_next_checkpoint(backend: str) -> None:
    job = Job(backend, SMALL)
    try:
        for start in range(0, 100, 20):
            job.write({key: "x" * 20 for key in range(start, start + 20)})
        job.logs.fails = True
        job.logs.run()
        with pytest.raises(StorageFailed):
            job.acknowledged()
        job.logs.fails = False
        job.restore(job.completed())
        assert job.texts() == dict.fromkeys(range(100), "x" * 20)
    finally:
        job.close()


def test_a_base_cuts_the_log_and_what_it_makes_needless_goes(job: Job) -> None:
    for number in range(5):
        job.write({number: "before"})
        handle = job.completed()
    assert parts(handle) == 5 and not handle.materialized
    job.materialized()
    job.write({9: "after"})
    last = job.completed()
    assert parts(last) == 1 and len(last.materialized) == 1
    assert last.materialization_id > handle.materialization_id
    assert set(job.logs.files) == set(job.logs.registry.paths())
    job.restore(last)
    assert job.texts() == {**dict.fromkeys(range(5), "before"), 9: "after"}


def test_a_base_that_no_checkpoint_has_named_goes_with_the_next_one(backend: str) -> None:
    job = Job(backend, SMALL)
    try:
        for start in range(0, 400, 20):
            job.write({key: f"text {key}" for key in range(start, start + 20)})
            job.logs.run()
            if start % 100 == 80:
                job.materialized()
        last = job.completed()
        job.logs.run()
        assert last.materialization_id == 4
        assert set(job.logs.files) == set(job.logs.registry.paths())
        job.restore(last)
        assert job.texts() == {key: f"text {key}" for key in range(400)}
    finally:
        job.close()


def test_what_two_bases_had_that_no_checkpoint_has_named_goes_with_the_last_of_them() -> None:
    job = Job("rocksdb")
    try:
        job.write({0: "of the first"})
        job.completed()
        for number in range(4):
            job.write({key: f"text {number}" for key in range(number * 10, 100)})
            job.materialized()
            if number == 2:
                job.compact()
        job.restore(job.completed())
        assert set(job.logs.files) == set(job.logs.registry.paths())
        assert job.texts()[99] == "text 3"
    finally:
        job.close()


def test_what_a_base_on_its_way_may_name_again_stays() -> None:
    job = Job("rocksdb")
    try:
        job.write({1: "one"})
        first = job.subtask.backend.snapshot(CheckpointId(1))
        job.write({2: "two"})
        second = job.subtask.backend.snapshot(CheckpointId(2))
        for each in (first, second):
            each.finish()
        first.upload(Place(job.logs))
        del first, each  # it was written, and then another operator's state could not be

        def third_begins() -> None:
            job.subtask.backend.snapshot(CheckpointId(3)).finish()
            job.logs.run()

        job.logs.meanwhile.append(third_begins)
        state = job.logs.acknowledged(second.upload(Place(job.logs)), 2)
        assert isinstance(state.managed_keyed, ChangelogStateBackendHandle)
        job.restore(state.managed_keyed)
        assert job.texts() == {1: "one", 2: "two"}
    finally:
        job.close()


@pytest.mark.feature("F221")
def test_a_full_checkpoint_names_no_file_of_those_before_it(job: Job) -> None:
    job.write({key: "of a base" for key in range(100)})
    job.completed()
    job.materialized()
    job.write({7: "seven"})
    job.completed()
    before = set(job.logs.files)
    full = job.completed(job.cut(SnapshotKind.FULL_CHECKPOINT))
    assert before and not before & set(job.logs.registry.paths())
    assert full.non_materialized == ()
    job.restore(full)
    assert job.texts() == {**dict.fromkeys(range(100), "of a base"), 7: "seven"}


def test_a_base_that_a_full_checkpoint_has_replaced_goes_once_that_is_durable(job: Job) -> None:
    job.write({0: "of the first"})
    job.completed()
    job.write({key: "of a base" for key in range(100)})
    job.materialized()
    job.completed(job.cut(SnapshotKind.FULL_CHECKPOINT))
    job.write({7: "seven"})
    last = job.completed()
    job.logs.run()
    assert set(job.logs.files) == set(job.logs.registry.paths())
    job.restore(last)
    assert job.texts() == {**dict.fromkeys(range(100), "of a base"), 7: "seven"}


def test_what_follows_a_full_checkpoint_that_failed_may_name_the_base_before_it() -> None:
    job = Job("rocksdb")
    try:
        job.write({0: "of the first"})
        job.completed()
        job.write({key: "of a base" for key in range(100)})
        job.materialized()
        job.logs.fails = True
        with pytest.raises(StorageFailed):
            job.acknowledged(job.cut(SnapshotKind.FULL_CHECKPOINT))
        job.logs.fails = False
        job.write({7: "seven"})
        job.completed()
        assert job.place.named.keys() >= set(job.logs.registry.paths()), "a checksum is missing"
        for text in ("of another", "of the last"):
            job.write({key: text for key in range(50, 100)})
            job.materialized()
            job.compact()
        assert set(job.logs.files) >= set(job.logs.registry.paths()), "a file is gone"
        last = job.completed()
        job.logs.run()
        assert set(job.logs.files) == set(job.logs.registry.paths())
        job.restore(last)
        assert job.texts()[7] == "seven" and job.texts()[99] == "of the last"
    finally:
        job.close()


def test_a_base_that_comes_while_a_checkpoint_is_encoded_takes_nothing_from_it(
    backend: str,
) -> None:
    job = Job(backend, SMALL)
    try:
        job.write({0: "of the base"})
        job.completed()
        for start in range(0, 100, 20):
            job.write({key: f"text {key}" for key in range(start, start + 20)})
        job.write({7: "the last"})
        pending = job.cut()
        job.materialized()
        job.restore(job.completed(pending))
        assert job.texts() == {key: f"text {key}" for key in range(100)} | {7: "the last"}
    finally:
        job.close()


def test_a_base_goes_without_what_a_checkpoint_has_logged_and_not_brought_to_disk(
    job: Job,
) -> None:
    job.write({1: "one"})
    job.completed()
    job.write({2: "two"})
    job.subtask.backend.snapshot(CheckpointId(2)).finish()  # and its upload waits for a thread
    job.materialized()
    job.write({3: "three"})
    job.checkpoint = 2
    last = job.completed()
    assert last.materialization_id > 0
    job.restore(last)
    assert job.texts() == {1: "one", 2: "two", 3: "three"}


def test_after_a_rescale_nobody_goes_on_with_a_base_that_is_anothers_too(job: Job) -> None:
    job.write({key: f"text {key}" for key in range(20)})
    job.completed()
    job.materialized()
    job.write({20: "one more"})
    last = SubtaskState(managed_keyed=job.completed())
    local = (lambda: None) if job.disk is None else job.disk.local
    halves = restored([last], 2, reader=job.logs, log=job.logs.log, local=local)
    left: dict[object, object] = {key: f"text {key}" for key in range(20)} | {20: "one more"}
    texts: Any = halves[0].backend.keyed_state(TEXT)
    for key in [key for key in left if halves[0].owns(key)]:
        halves[0].on(key)
        texts.clear()
        del left[key]

    def acknowledged(checkpoint: int) -> list[SubtaskState]:
        pieces = [half.backend.snapshot(CheckpointId(checkpoint)) for half in halves]
        for piece in pieces:
            piece.finish()
        places = [Place(job.logs) for _ in pieces]
        written = [piece.upload(place) for piece, place in zip(pieces, places, strict=True)]
        return [job.logs.acknowledged(state, checkpoint) for state in written]

    acknowledged(8)
    base = halves[0].backend.materialize()
    if base is not None:
        base.encode(math.inf)
        base.write()
        base.take()
    states = acknowledged(9)
    whole = restored(states, reader=job.logs, local=local)
    assert 0 < len(left) < 21 and merged(whole, TEXT) == left
    for each in (*halves, *whole):
        each.backend.close()


def test_nothing_is_materialised_where_nothing_has_changed(job: Job) -> None:
    assert job.subtask.backend.materialize() is None
    job.write({1: "one"})
    job.completed()
    job.materialized()
    assert job.subtask.backend.materialize() is None


def test_a_restored_subtask_goes_on_with_the_log_that_there_is(job: Job) -> None:
    job.write({1: "one"})
    job.completed()
    job.materialized()
    job.write({2: "two"})
    before = job.completed()
    job.restore(before)
    job.write({3: "three"})
    after = job.completed()
    assert after.materialized == before.materialized
    assert parts(after) == parts(before) + 1
    job.restore(after)
    assert job.texts() == {1: "one", 2: "two", 3: "three"}


def test_each_file_is_told_with_its_checksum(job: Job) -> None:
    job.write({1: "one"})
    job.completed()
    job.materialized()
    job.write({2: "two"})
    job.completed()
    assert set(job.place.named) == set(job.logs.files)


@pytest.mark.parametrize(
    "settings", [ChangelogSettings(in_memory=True), ChangelogSettings(compressed=True)]
)
def test_a_log_may_be_in_the_metadata_or_compressed(
    backend: str, settings: ChangelogSettings
) -> None:
    job = Job(backend, settings)
    try:
        job.write({key: "x" * 100 for key in range(50)})
        job.completed()
        job.write({key: None for key in range(10)})
        last = job.completed()
        inline = [isinstance(p, InMemoryChangelogStateHandle) for p in last.non_materialized]
        assert all(inline) if settings.in_memory else last.state_size < 5_000
        job.restore(last)
        assert job.texts() == dict.fromkeys(range(10, 50), "x" * 100)
        assert parts(job.completed()) == 2
    finally:
        job.close()


def test_a_value_that_is_none_is_told_by_the_checkpoint_and_put_right_by_a_write(
    backend: str,
) -> None:
    job = Job(backend, LARGE)
    try:
        wrong: Any = {1: 3.5, 2: "two"}
        job.write(wrong)
        with pytest.raises(UserError) as told:
            job.acknowledged()
        assert "operator 'counts', state 'text'" in told.value.where
        job.write({1: "one"})
        job.restore(job.completed())
        assert job.texts() == {1: "one", 2: "two"}
    finally:
        job.close()


def test_what_is_expired_stays_expired(job: Job) -> None:
    ttl = StateTtlConfig.new_builder(Time.milliseconds(100)).build()
    descriptor = ValueStateDescriptor("short", Types.LONG())
    descriptor.enable_time_to_live(ttl)
    state: Any = job.subtask.backend.keyed_state(descriptor)
    job.subtask.at(0).on(1)
    state.update(1)
    job.subtask.at(90).on(2)
    state.update(2)
    job.restore(job.completed(), at_ms=120)
    again: Any = job.subtask.backend.keyed_state(descriptor)
    job.subtask.on(1)
    assert again.value() is None
    job.subtask.on(2)
    assert again.value() == 2


def test_timers_and_states_with_namespaces_come_back(job: Job) -> None:
    timers = job.subtask.backend.timers("user", None, lambda ms: None)
    for key in range(5):
        job.subtask.on(key)
        timers.event.register(key * 10)
        timers.event.register(1_000)
    job.subtask.on(3)
    timers.event.delete(1_000)
    job.completed()
    job.materialized()
    job.subtask.on(4)
    timers.event.delete(40)
    job.restore(job.completed())
    again = job.subtask.backend.timers("user", None, lambda ms: None)
    due = sorted((ms, job.subtask.cell.key) for ms, _ in again.event.due(2_000))
    assert due == [(0, 0), (10, 1), (20, 2), (30, 3), *((1_000, key) for key in (0, 1, 2, 4))]


def test_columns_are_written_whole_beside_the_log(job: Job) -> None:
    columns = job.subtask.backend.keyed_columns(Types.LONG())
    keys = pa.array(range(20))
    groups = job.subtask.on(0).key_groups
    rows = columns.index(keys, pa.array([g % len(groups) for g in range(20)]).to_numpy())
    total = job.subtask.backend.column_state(ColumnStateDescriptor("total", pa.int64()))
    total.put(rows, rows * 2)
    job.write({1: "one"})
    job.completed()
    total.put(rows, rows * 3)
    job.restore(job.completed())
    again = job.subtask.backend.column_state(ColumnStateDescriptor("total", pa.int64()))
    found = job.subtask.backend.keyed_columns(Types.LONG())
    assert again.get(found.index(keys, pa.array([0] * 20).to_numpy())).tolist() == [
        row * 3 for row in rows.tolist()
    ]
    assert job.texts() == {1: "one"}
    handle = job.completed()
    assert sum(part.state_handle_id.startswith("columns-") for part in handle.materialized) == 1  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_state_that_the_program_does_not_ask_for_is_part_of_a_base(job: Job) -> None:
    job.write({1: "one"})
    other: Any = job.subtask.backend.keyed_state(ValueStateDescriptor("other", Types.LONG()))
    job.subtask.on(1)
    other.update(5)
    job.restore(job.completed())
    job.write({2: "two"})
    job.completed()
    job.materialized()
    job.restore(job.completed())
    job.subtask.backend.keyed_state(ValueStateDescriptor("other", Types.LONG()))
    assert job.subtask.dump("other") == {1: 5}
    assert job.texts() == {1: "one", 2: "two"}


def test_a_damaged_part_is_told_with_its_file(job: Job) -> None:
    job.write({1: "one"})
    handle = job.completed()
    [name] = job.logs.files
    job.logs.files[name] = job.logs.files[name][:-3]
    with pytest.raises(FormatError) as told:
        job.restore(handle)
    assert name in told.value.where


def test_bytes_by_name_are_those_of_the_newest_base(job: Job, backend: str) -> None:
    assert job.subtask.backend.sizes() == {}
    job.write({key: "text" for key in range(300)})
    job.completed()
    assert job.subtask.backend.sizes() == {}
    job.materialized()
    first = job.subtask.backend.sizes()
    if backend == "rocksdb":
        assert first == {}
        return
    assert first["text"] > 300 * len("text")
    job.write({key: "text" for key in range(300, 600)})
    job.completed()
    assert job.subtask.backend.sizes() == first
    job.materialized()
    assert 1.9 * first["text"] < job.subtask.backend.sizes()["text"] < 2.2 * first["text"]
