from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from tidegate.checkpoint.restore.redistribution import (
    java_hash_map_order,
    redistribute_keyed,
    redistribute_operator,
)

MODES = {name: mode for name, mode in zip("abcdef", 2 * list(StateDistribution), strict=True)}
parallelisms = st.integers(1, 12)


@st.composite
def old_handles(draw: st.DrawFn) -> list[OperatorStreamStateHandle | None]:
    """By old subtask; the elements of all have offsets of their own."""
    handles: list[OperatorStreamStateHandle | None] = []
    for subtask in range(draw(parallelisms)):
        sizes = draw(st.none() | st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 6)))
        if sizes is None:
            handles.append(None)
            continue
        states = {
            name: StateMetaInfo(MODES[name], tuple(1000 * subtask + i for i in range(size)))
            for name, size in sizes.items()
        }
        handles.append(OperatorStreamStateHandle(states, ByteStreamStateHandle("same", b"same")))
    return handles


def elements(handles: tuple[object, ...], name: str) -> Counter[int]:
    return Counter(
        offset
        for handle in handles
        if name in handle.states  # type: ignore[attr-defined]
        for offset in handle.states[name].offsets  # type: ignore[attr-defined]
    )


@given(old=old_handles(), parallelism=parallelisms)
def test_no_element_of_operator_state_is_lost_or_doubled(
    old: list[OperatorStreamStateHandle | None], parallelism: int
) -> None:
    new = redistribute_operator(old, parallelism)
    assert len(new) == parallelism
    before = tuple(handle for handle in old if handle is not None)
    for name, mode in MODES.items():
        had = elements(before, name)
        if mode is StateDistribution.SPLIT_DISTRIBUTE:
            got = [elements(handles, name) for handles in new]
            assert sum(got, Counter()) == had
            if parallelism != len(old):
                assert max(c.total() for c in got) - min(c.total() for c in got) <= 1
        elif mode is StateDistribution.UNION:
            assert all(elements(handles, name) == had for handles in new)
        elif parallelism != len(old):
            copies = [elements((handle,), name) for handle in before if name in handle.states]
            assert all(elements(handles, name) in (copies or [Counter()]) for handles in new)


@given(
    old_parallelism=parallelisms,
    parallelism=parallelisms,
    max_parallelism=st.integers(12, 300),
    canonical=st.booleans(),
)
def test_every_key_group_goes_to_the_subtask_that_owns_it_and_keeps_its_offset(
    old_parallelism: int, parallelism: int, max_parallelism: int, canonical: bool
) -> None:
    old: list[KeyGroupsStateHandle | KeyGroupsSavepointStateHandle | None] = []
    for subtask in range(old_parallelism):
        key_groups = KeyGroupRange.of(subtask, old_parallelism, max_parallelism)
        delegate = FileStateHandle(str(subtask), 1)
        if canonical:
            old.append(KeyGroupsSavepointStateHandle(key_groups, tuple(key_groups), delegate))
        else:
            old.append(KeyGroupsStateHandle(key_groups, tuple(key_groups), delegate, "id"))
    new = redistribute_keyed(old, parallelism, max_parallelism)
    for subtask, handles in enumerate(new):
        found = []
        for handle in handles:
            assert isinstance(handle, KeyGroupsStateHandle | KeyGroupsSavepointStateHandle)
            assert all(handle.offset_of(group) == group for group in handle.key_groups)
            found += list(handle.key_groups)
        assert found == list(KeyGroupRange.of(subtask, parallelism, max_parallelism))


def test_the_files_of_a_backend_go_whole_to_everybody_who_needs_a_part() -> None:
    file = FileStateHandle("f", 1)
    handle = IncrementalRemoteKeyedStateHandle(
        7, "uuid", KeyGroupRange(0, 63), 1, file, (), (), "id"
    )
    assert redistribute_keyed([handle, None], 4, 128) == [(handle,), (handle,), (), ()]


def test_a_changelog_is_cut_with_its_parts() -> None:
    file = FileStateHandle("f", 1)
    low = KeyGroupsStateHandle(KeyGroupRange(0, 31), tuple(range(32)), file, "low")
    high = KeyGroupsStateHandle(KeyGroupRange(32, 63), tuple(range(32)), file, "high")
    changes = ChangelogStateHandleStream(
        KeyGroupRange(0, 63), (HandleAndOffset(0, file),), 1, 1, "changes", "filesystem"
    )
    whole = ChangelogStateBackendHandle(
        KeyGroupRange(0, 63), (low, high), (changes,), 3, 7, 1, "whole"
    )
    ((first,), (second,), (), ()) = redistribute_keyed([whole, None], 4, 128)
    assert isinstance(first, ChangelogStateBackendHandle)
    assert isinstance(second, ChangelogStateBackendHandle)
    assert (first.materialized, second.materialized) == ((low,), (high,))
    assert [part.key_groups for part in first.non_materialized] == [KeyGroupRange(0, 31)]
    assert second.key_groups == KeyGroupRange(32, 63)


@given(names=st.lists(st.text(max_size=3), unique=True), newest_first=st.booleans())
def test_a_java_hash_map_keeps_every_key(names: list[str], newest_first: bool) -> None:
    walked = java_hash_map_order(names, newest_first=newest_first)
    assert sorted(walked) == sorted(names)
    assert java_hash_map_order(["Aa", "BB"], newest_first=True) == ["BB", "Aa"]
    assert java_hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]
