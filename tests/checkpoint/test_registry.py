"""Shared files: who uses them, and when they go. Checkpoint coordination §10.1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    InputChannelStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    SegmentFileStateHandle,
    StateScope,
    StreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    FINISHED,
    CheckpointMetadata,
    CheckpointProperties,
    OperatorState,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from flinkformat.state_streams import private_paths, shared_handles
from tests.checkpoint.world import keyed_state, restored_checkpoint
from tidegate.checkpoint.registry import SharedStateRegistry, shared_key
from tidegate.errors import CheckpointAborted
from tidegate.model.ids import CheckpointId, OperatorId

ALL = KeyGroupRange(0, 0)
ONE, TWO, THREE, FOUR = (CheckpointId(number) for number in range(1, 5))


def file(name: str, size: int = 5) -> FileStateHandle:
    return FileStateHandle(f"/shared/{name}", size)


def placeholder(name: str) -> PlaceholderStreamStateHandle:
    return PlaceholderStreamStateHandle(f"/shared/{name}", 5)


def incremental(*shared: StreamStateHandle) -> SubtaskState:
    files = tuple(HandleAndLocalPath(str(i), handle) for i, handle in enumerate(shared))
    private = (HandleAndLocalPath("MANIFEST", FileStateHandle("/chk/manifest", 1)),)
    meta = FileStateHandle("/chk/meta", 1)
    return SubtaskState(
        managed_keyed=IncrementalRemoteKeyedStateHandle(1, "b", ALL, 5, meta, files, private, "h")
    )


def register(registry: SharedStateRegistry, name: str, checkpoint: CheckpointId) -> None:
    registry.register(f"/shared/{name}", file(name), checkpoint)


def test_a_placeholder_stands_for_the_file_that_is_known() -> None:
    registry = SharedStateRegistry()
    register(registry, "a", ONE)
    assert registry.register("/shared/a", placeholder("a"), TWO) == file("a")


def test_a_placeholder_of_an_unknown_file_is_refused() -> None:
    with pytest.raises(CheckpointAborted, match="which nobody has"):
        SharedStateRegistry().register("/shared/a", placeholder("a"), ONE)


def test_the_same_file_may_be_named_again() -> None:
    registry = SharedStateRegistry()
    register(registry, "a", ONE)
    register(registry, "a", TWO)
    assert registry.release_below(TWO) == []
    assert registry.release_below(THREE) == ["/shared/a"]


def test_another_file_of_a_known_name_is_refused() -> None:
    registry = SharedStateRegistry()
    register(registry, "a", ONE)
    with pytest.raises(CheckpointAborted, match="another shared file"):
        registry.register("/shared/a", file("a", size=6), TWO)


def test_a_file_goes_once_every_kept_checkpoint_is_newer_than_its_last_use() -> None:
    registry = SharedStateRegistry()
    register(registry, "a", ONE)
    register(registry, "b", TWO)
    registry.register("/shared/a", placeholder("a"), THREE)
    registry.register("/shared/a", placeholder("a"), TWO)  # a late word takes nothing back
    assert registry.release_below(THREE) == ["/shared/b"]
    assert registry.release_below(FOUR) == ["/shared/a"]
    assert len(registry) == 0


def test_without_any_kept_checkpoint_all_files_go() -> None:
    registry = SharedStateRegistry()
    register(registry, "a", ONE)
    assert registry.release_below(None) == ["/shared/a"]


def test_a_state_is_registered_with_its_shared_files_and_loses_its_placeholders() -> None:
    registry = SharedStateRegistry()
    registry.register_state(incremental(file("a"), file("b")), ONE)
    state = incremental(placeholder("a"), file("c"))
    assert registry.register_state(state, TWO) == incremental(file("a"), file("c"))
    assert registry.release_below(TWO) == ["/shared/b"]


def test_inline_state_and_private_files_are_not_shared() -> None:
    registry = SharedStateRegistry()
    registry.register_state(incremental(ByteStreamStateHandle("x", b"x")), ONE)
    registry.register_state(keyed_state("/chk/a"), ONE)
    registry.register_state(SubtaskState(), ONE)
    assert len(registry) == 0


def test_checksums_of_shared_files_are_remembered_for_those_that_use_them() -> None:
    registry = SharedStateRegistry()
    registry.register_state(incremental(file("a")), ONE, {"/shared/a": (77, 5)})
    later = registry.register_state(incremental(placeholder("a"), file("b")), TWO)
    assert registry.checksums(later) == {"/shared/a": (77, 5)}
    assert registry.checksums(incremental(file("z"))) == {}


def segment(file: str, start: int, scope: StateScope = StateScope.SHARED) -> SegmentFileStateHandle:
    return SegmentFileStateHandle(f"/shared/{file}", start, 10, scope, f"logical-{file}")


def test_a_merged_file_goes_with_its_last_segment() -> None:
    registry = SharedStateRegistry()
    for start, checkpoint in ((0, ONE), (10, TWO)):
        state = SubtaskState(
            managed_keyed=KeyGroupsStateHandle(ALL, (0,), segment("merged", start), "h")
        )
        assert registry.register_state(state, checkpoint) == state
    assert registry.release_below(TWO) == []
    assert registry.release_below(THREE) == ["/shared/merged"]


def changelog(*keyed: KeyedStateHandle) -> SubtaskState:
    part = ChangelogStateHandleStream(ALL, (HandleAndOffset(0, file("log")),), 5, 5, "c", "fs")
    memory = InMemoryChangelogStateHandle(ALL, 0, 0, (), "m")
    return SubtaskState(
        raw_keyed=ChangelogStateBackendHandle(ALL, keyed, (part, memory), 1, 1, 5, "h")
    )


def test_a_changelog_shares_its_files_and_all_of_its_materialised_part() -> None:
    """That outlives the checkpoint which came with it, so no file of it is one checkpoint's own."""
    registry = SharedStateRegistry()
    inner = incremental(file("a")).managed_keyed
    assert inner is not None
    state = changelog(inner)
    assert registry.register_state(state, ONE) == state
    files = ["/chk/meta", "/chk/manifest", "/shared/a", "/shared/log"]
    assert [shared_key(h) for h in shared_handles(state)] == files
    assert private_paths(state) == []
    registry.register_state(state, TWO)
    assert registry.release_below(TWO) == []
    assert sorted(registry.release_below(CheckpointId(3))) == sorted(files)


def test_private_paths_are_all_that_nobody_else_uses() -> None:
    operators = OperatorStreamStateHandle({}, FileStateHandle("/chk/operators", 1))
    merged = FileMergingOperatorStreamStateHandle({}, "/task", "/shared", False, segment("m", 0))
    own = replace(merged, delegate=segment("own", 0, StateScope.EXCLUSIVE))
    channel = InputChannelStateHandle(0, 0, 0, (0,), 1, FileStateHandle("/chk/channel", 1))
    state = replace(
        incremental(file("a")),
        managed_operator=operators,
        raw_operator=merged,
        input_channel=(channel,),
    )
    assert private_paths(state) == ["/chk/operators", "/chk/meta", "/chk/manifest", "/chk/channel"]
    assert private_paths(SubtaskState(raw_operator=own)) == ["/shared/own"]


# --- restored checkpoints ---------------------------------------------------------------------


def snapshot(checkpoint: int, properties: CheckpointProperties) -> CheckpointMetadata:
    operator = OperatorState(
        operator_id=OperatorId(b"o" * 16),
        parallelism=2,
        max_parallelism=2,
        subtasks={0: incremental(file("a")), 1: FINISHED},
    )
    metadata = restored_checkpoint(checkpoint, properties).metadata
    return replace(metadata, operators=(operator,))


CHECKPOINT = restored_checkpoint(1).properties
NATIVE = CheckpointProperties.for_savepoint(
    SavepointType.savepoint(SavepointFormatType.NATIVE), forced=True
)


def test_a_claimed_checkpoint_s_files_become_ours_to_delete() -> None:
    registry = SharedStateRegistry()
    registry.register_restored(snapshot(7, CHECKPOINT), CHECKPOINT)
    assert registry.folders_in_use() == frozenset()
    assert registry.release_below(CheckpointId(8)) == ["/shared/a"]


def test_a_claimed_checkpoint_s_files_elsewhere_are_used_and_never_deleted() -> None:
    registry = SharedStateRegistry()
    registry.register_restored(snapshot(7, CHECKPOINT), CHECKPOINT, frozenset({"/shared/a"}))
    assert registry.register("/shared/a", placeholder("a"), CheckpointId(8)) == file("a")
    assert registry.release_below(CheckpointId(9)) == [] and len(registry) == 0


@pytest.mark.parametrize("properties", [CheckpointProperties.for_unclaimed_snapshot(), NATIVE])
def test_what_is_not_ours_to_delete_is_left_out(properties: CheckpointProperties) -> None:
    registry = SharedStateRegistry()
    registry.register_restored(snapshot(7, CHECKPOINT), properties)
    assert len(registry) == 0


def test_the_folder_of_a_claimed_savepoint_stays_while_its_files_are_used() -> None:
    registry = SharedStateRegistry()
    registry.register_restored(snapshot(7, NATIVE), CHECKPOINT)
    registry.register("/shared/a", placeholder("a"), CheckpointId(8))
    assert registry.folders_in_use() == {7}
    registry.release_below(CheckpointId(9))
    assert registry.folders_in_use() == frozenset()


def test_a_snapshot_that_says_nothing_of_itself_shares_like_a_checkpoint() -> None:
    registry = SharedStateRegistry()
    metadata = replace(snapshot(7, CHECKPOINT), properties=None)
    registry.register_restored(metadata, CHECKPOINT)
    assert registry.folders_in_use() == frozenset()
