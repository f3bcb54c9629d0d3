from __future__ import annotations

import itertools
import json
import struct
from typing import TYPE_CHECKING

import pytest
from golden import FIXTURES

from flinkformat import metadata
from flinkformat.description import describe
from flinkformat.errors import FormatError
from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    FileStateHandle,
    InputChannelStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    MergedInputChannelStateHandle,
    OperatorStreamStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
    ResultSubpartitionStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import merge_inputs, merge_outputs, unmerge_input, unmerge_output
from flinkformat.snapshots import (
    EMPTY,
    FINISHED,
    FULL_CHECKPOINT,
    CheckpointMetadata,
    CheckpointProperties,
    MasterState,
    OperatorState,
    RetentionPolicy,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from tidegate.model.ids import CheckpointId, OperatorId

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATOR = OperatorId(bytes(range(16)))
RETAINED = CheckpointProperties.for_checkpoint(RetentionPolicy.RETAIN_ON_CANCELLATION)


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"id-{next(numbers)}"


def of_operator(state: SubtaskState, **fields: object) -> CheckpointMetadata:
    given: dict[str, object] = {
        "operator_id": OPERATOR,
        "parallelism": 2,
        "max_parallelism": 128,
        "subtasks": {1: state},
    }
    operator = OperatorState(**(given | fields))  # type: ignore[arg-type]
    return CheckpointMetadata(checkpoint_id=CheckpointId(7), operators=(operator,))


def round_trip(snapshot: CheckpointMetadata) -> CheckpointMetadata:
    return metadata.decode(metadata.encode(snapshot), ids())


def keyed(handle: KeyedStateHandle) -> CheckpointMetadata:
    return of_operator(SubtaskState(managed_keyed=handle))


def key_groups(delegate: object) -> KeyGroupsStateHandle:
    return KeyGroupsStateHandle(KeyGroupRange(4, 5), (10, 20), delegate, "handle")  # type: ignore[arg-type]


@pytest.mark.feature("F185")
def test_a_written_file_has_each_field_in_its_place() -> None:
    state = SubtaskState(
        managed_operator=OperatorStreamStateHandle(
            {"offsets": StateMetaInfo(StateDistribution.UNION, (5, 9))},
            ByteStreamStateHandle("h", b"xyz"),
        ),
        managed_keyed=key_groups(FileStateHandle("file:/data/f", 99)),
    )
    data = metadata.encode(
        CheckpointMetadata(
            checkpoint_id=CheckpointId(434),
            operators=(
                OperatorState(
                    operator_id=OPERATOR,
                    parallelism=3,
                    max_parallelism=128,
                    name="map",
                    subtasks={2: state, 0: FINISHED},
                ),
            ),
            master_states=(MasterState("hook", -1, b"\x05"),),
        )
    )
    fields = [
        (">IIq", (0x4960672D, 6, 434)),
        (">I", (1,)),  # one master state
        (">Iii", (0xC96B1696, 15, -1)),
        (">H4s", (4, b"hook")),
        (">i1s", (1, b"\x05")),
        (">I", (1,)),  # one operator
        (">H3sH", (3, b"map", 0)),
        (">16sii", (OPERATOR, 3, 128)),
        (">b", (0,)),  # no coordinator state
        (">i", (2,)),  # two subtasks
        (">ii", (2, 1)),  # the third one, with managed operator state
        (">bi", (4, 1)),
        (">H7sbiqq", (7, b"offsets", 1, 2, 5, 9)),
        (">bH1si3s", (1, 1, b"h", 3, b"xyz")),
        (">i", (0,)),  # no raw operator state
        (">biiqq", (12, 4, 2, 10, 20)),
        (">bqH12s", (2, 99, 12, b"file:/data/f")),
        (">H6s", (6, b"handle")),
        (">bii", (0, 0, 0)),  # no raw keyed state, no channel state
        (">i", (-1,)),  # the first subtask, finished
        (">5s", (bytes.fromhex("aced000570"),)),  # no properties
    ]
    offset = 0
    for form, values in fields:
        assert struct.unpack_from(form, data, offset) == values, f"at byte {offset}"
        offset += struct.calcsize(form)
    assert offset == len(data)


def test_the_smallest_file_has_29_bytes() -> None:
    snapshot = CheckpointMetadata(checkpoint_id=CheckpointId(434), operators=())
    assert metadata.encode(snapshot) == bytes.fromhex(
        "4960672d 00000006 00000000000001b2 00000000 00000000 aced000570"
    )


@pytest.mark.feature("F186")
def test_a_hook_s_record_comes_back_and_a_broken_one_is_refused() -> None:
    hooks = (MasterState("source-hook", 4, b"\x14\x5d"), MasterState("empty", -1, b""))
    snapshot = CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(), master_states=hooks)
    data = metadata.encode(snapshot)
    assert metadata.decode(data, ids()).master_states == hooks

    second = data.rindex(bytes.fromhex("c96b1696"))
    broken = data[:second] + b"\0" + data[second + 1 :]
    with pytest.raises(FormatError, match="incorrect magic number in master state") as caught:
        metadata.decode(broken, ids())
    error = caught.value
    assert (error.offset, error.expected, error.found) == (second, "c96b1696", "006b1696")
    assert error.where == "master state 2"


@pytest.mark.feature("F182")
def test_the_inspector_shows_id_operators_and_master_states() -> None:
    data = (FIXTURES / "keyed-heap-chk1" / "_metadata").read_bytes()
    shown = describe(metadata.decode(data, ids()), directory="d")
    real = json.loads((FIXTURES / "keyed-heap-chk1" / "expected.json").read_text())
    assert shown["checkpointId"] == real["checkpointId"]
    assert shown["masterStates"] == real["masterStates"] != []
    told = ("uid", "name", "parallelism")
    operators = shown["operatorStates"]
    assert isinstance(operators, list) and operators
    assert [[o[key] for key in told] for o in operators] == [
        [o[key] for key in told] for o in real["operatorStates"]
    ]


@pytest.mark.feature("F027", "F028")
def test_the_inspector_shows_inline_bytes_and_the_path_and_size_of_files() -> None:
    inline = describe(keyed(key_groups(ByteStreamStateHandle("h", b"\x01\xff"))), directory="d")
    assert "'handleName': 'h', 'data': '01ff'" in str(inline)
    file = describe(keyed(key_groups(FileStateHandle("file:/c/x", 77))), directory="d")
    assert "'filePath': 'file:/c/x', 'stateSize': 77" in str(file)
    relative = describe(keyed(key_groups(RelativeFileStateHandle("x", 77))), directory="/c/chk-1")
    assert "'filePath': '/c/chk-1/x', 'stateSize': 77" in str(relative)


@pytest.mark.feature("F029")
def test_the_inspector_lists_the_names_modes_and_offsets_of_operator_state() -> None:
    handle = OperatorStreamStateHandle(
        {
            "splits": StateMetaInfo(StateDistribution.SPLIT_DISTRIBUTE, (1, 2)),
            "all": StateMetaInfo(StateDistribution.UNION, ()),
            "rules": StateMetaInfo(StateDistribution.BROADCAST, (9,)),
        },
        ByteStreamStateHandle("h", b""),
    )
    shown = describe(of_operator(SubtaskState(managed_operator=handle)), directory="d")
    assert (
        "{'splits': {'mode': 'SPLIT_DISTRIBUTE', 'offsets': [1, 2]}, "
        "'all': {'mode': 'UNION', 'offsets': []}, "
        "'rules': {'mode': 'BROADCAST', 'offsets': [9]}}"
    ) in str(shown)


@pytest.mark.parametrize("text", ["a\0b", "é", "€", "𝄞", "\ud834", "\udd1e\ud834x", "", "z" * 9000])
def test_any_text_of_java_comes_back(text: str) -> None:
    snapshot = keyed(key_groups(FileStateHandle(text, 1)))
    assert round_trip(snapshot) == snapshot


def test_a_text_above_65535_bytes_is_refused_before_anything_is_written() -> None:
    with pytest.raises(FormatError, match="too long"):
        metadata.encode(of_operator(EMPTY, name="é" * 32768))
    assert round_trip(of_operator(EMPTY, name="é" * 32767)).operators[0].name == "é" * 32767


@pytest.mark.parametrize("field", ["name", "uid"])
def test_an_empty_name_is_refused_since_it_would_read_as_none(field: str) -> None:
    with pytest.raises(FormatError, match=f"Empty string operator {field} is not allowed"):
        metadata.encode(of_operator(EMPTY, **{field: ""}))


def test_a_placeholder_that_was_never_replaced_is_our_own_fault() -> None:
    with pytest.raises(AssertionError, match="registered handle"):
        metadata.encode(keyed(key_groups(PlaceholderStreamStateHandle("f", 1))))


def test_a_resolved_relative_handle_is_written_relative() -> None:
    resolved = RelativeFileStateHandle("x", 3, file_path="/moved/chk-1/x")
    assert round_trip(keyed(key_groups(resolved))) == keyed(
        key_groups(RelativeFileStateHandle("x", 3))
    )


def nested_changelog(levels: int) -> ChangelogStateBackendHandle:
    inner: tuple[KeyedStateHandle, ...] = ()
    for level in range(levels):
        inner = (ChangelogStateBackendHandle(KeyGroupRange(0, 1), inner, (), 0, 0, 0, str(level)),)
    return inner[0]  # type: ignore[return-value]


def test_handles_that_nest_without_end_are_refused() -> None:
    assert round_trip(keyed(nested_changelog(16))) == keyed(nested_changelog(16))
    with pytest.raises(FormatError, match="nested too deep"):
        metadata.decode(metadata.encode(keyed(nested_changelog(17))), ids())


def test_old_keyed_handles_get_an_id_each() -> None:
    nested = key_groups(ByteStreamStateHandle("h", b""))
    decoded = round_trip(keyed(key_groups(nested)))
    state = decoded.operators[0].subtasks[1]
    assert state is not FINISHED and isinstance(state.managed_keyed, KeyGroupsStateHandle)
    inner = state.managed_keyed.delegate
    assert isinstance(inner, KeyGroupsStateHandle) and inner.state_handle_id == "id-0"


PROPERTIES = {
    "never-retain": CheckpointProperties.for_checkpoint(
        RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS
    ),
    "retain-on-failure": CheckpointProperties.for_checkpoint(
        RetentionPolicy.DELETE_ON_CANCELLATION
    ),
    "retain-on-cancellation": RETAINED,
    "full-checkpoint": CheckpointProperties.for_checkpoint(
        RetentionPolicy.RETAIN_ON_CANCELLATION, snapshot_type=FULL_CHECKPOINT
    ),
    "savepoint-canonical": CheckpointProperties.for_savepoint(
        SavepointType.savepoint(SavepointFormatType.CANONICAL), forced=False
    ),
    "savepoint-native-forced": CheckpointProperties.for_savepoint(
        SavepointType.savepoint(SavepointFormatType.NATIVE), forced=True
    ),
    "savepoint-suspend": CheckpointProperties.for_savepoint(
        SavepointType.suspend(SavepointFormatType.NATIVE), forced=True
    ),
    "savepoint-terminate": CheckpointProperties.for_savepoint(
        SavepointType.terminate(SavepointFormatType.CANONICAL), forced=True
    ),
    "unclaimed": CheckpointProperties.for_unclaimed_snapshot(),
    "null": None,
}


@pytest.mark.parametrize("kind", PROPERTIES)
def test_the_properties_we_make_have_the_bytes_that_flink_writes(kind: str) -> None:
    real = (FIXTURES / f"meta-props-{kind}" / "_metadata").read_bytes()
    ours = CheckpointMetadata(
        checkpoint_id=metadata.decode(real, ids()).checkpoint_id,
        operators=(),
        properties=PROPERTIES[kind],
    )
    assert metadata.encode(ours) == real


def of_properties(change: Callable[[bytes], bytes]) -> bytes:
    data = metadata.encode(
        CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(), properties=RETAINED)
    )
    changed = change(data)
    assert changed != data
    return changed


def test_properties_of_another_release_of_the_same_classes_are_read() -> None:
    other_serial = of_properties(lambda data: data.replace(b"\xd6\xde\x4f\x03", b"\0\0\0\0"))
    assert metadata.decode(other_serial, ids()).properties == RETAINED


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (b"checkpoint.CheckpointProperties", b"checkpoint.CheckpointPropertieZ", "PropertieZ"),
        (b"checkpoint.CheckpointType", b"checkpoint.CheckpointTypo", "CheckpointTypo"),
        (b"FORWARD_BACKWARD", b"FORWARD_BACKWARDS"[1:], "ORWARD_BACKWARDS"),
        (b"discardCancelled", b"discardCanceled!", "None"),
        (b"Z\x00\x10discardCancelled", b"I\x00\x10discardCancelled", "type 49"),
        (b"\x74\x00\x0aCheckpoint", b"\x70\x70\x70\x70\x70\x70\x70\x70", "None"),
        (b"\xac\xed\x00\x05", b"\xac\xed\x00\x06", "aced0006"),
    ],
)
def test_properties_of_unknown_classes_are_refused(old: bytes, new: bytes, found: str) -> None:
    with pytest.raises(FormatError) as caught:
        metadata.decode(of_properties(lambda data: data.replace(old, new)), ids())
    assert found in caught.value.found
    assert caught.value.where == "checkpoint properties"


@pytest.mark.slow
def test_any_other_byte_in_properties_is_read_or_refused_with_its_place() -> None:
    whole = of_properties(lambda data: data + b"\0")
    begin = whole.index(b"\xac\xed\x00\x05")
    refused = 0
    for offset in range(begin, len(whole) - 1):
        for byte in (0x00, 0x02, 0x70, 0x71, 0x72, 0x73, 0x74, 0x78, 0x7E, 0xFF):
            changed = whole[:offset] + bytes([byte]) + whole[offset + 1 :]
            try:
                metadata.decode(changed, ids())
            except FormatError as error:
                refused += 1
                assert error.offset <= len(whole) and error.expected and error.found
    assert refused > 1_000


def test_bytes_behind_the_end_are_not_looked_at() -> None:
    snapshot = of_operator(EMPTY)
    assert metadata.decode(metadata.encode(snapshot) + b"junk", ids()) == snapshot


def test_channels_are_merged_and_unfolded_again() -> None:
    file = FileStateHandle("f", 100)
    inputs = (
        InputChannelStateHandle(1, 0, 3, (4,), 11, file),
        InputChannelStateHandle(1, 1, 0, (), 0, file),
    )
    merged = merge_inputs(inputs)
    assert merged.state_size == 11
    assert unmerge_input(merged) == inputs
    outputs = (ResultSubpartitionStateHandle(1, 0, 3, (4, 9), 11, file),)
    assert unmerge_output(merge_outputs(outputs)) == outputs


def test_merged_channels_that_hold_no_channels_are_refused_on_use_only() -> None:
    broken = MergedInputChannelStateHandle(1, 5, FileStateHandle("f", 1), b"\x7f\xff\xff\xff")
    snapshot = of_operator(SubtaskState(input_channel=(broken,)))
    assert round_trip(snapshot) == snapshot
    with pytest.raises(FormatError, match="merged channels"):
        unmerge_input(broken)


def test_sizes_add_up() -> None:
    state = SubtaskState(
        managed_keyed=key_groups(FileStateHandle("f", 100)),
        input_channel=(InputChannelStateHandle(1, 0, 3, (4,), 11, FileStateHandle("f", 100)),),
    )
    snapshot = of_operator(state, coordinator_state=ByteStreamStateHandle("c", b"12345"))
    assert snapshot.state_size == 116
    assert snapshot.operators[0].has_state
    assert EMPTY.is_empty and not state.is_empty
    assert not of_operator(EMPTY).operators[0].has_state
