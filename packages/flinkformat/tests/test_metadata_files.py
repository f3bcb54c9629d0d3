"""Every ``_metadata`` that real Flink wrote is read as Flink reads it, and written back."""

from __future__ import annotations

import pytest
from golden import BAD, FIXTURES, GOOD, expected, without_places

from flinkformat import metadata
from flinkformat.description import describe
from flinkformat.errors import FormatError

# What was written by hand holds forms that no writer makes: old versions, old handles, junk.
WRITTEN_BY_FLINK = [name for name in GOOD if "-hand-" not in name]


def read(name: str) -> bytes:
    return (FIXTURES / name / "_metadata").read_bytes()


def random_id() -> str:
    return "<random>"


def test_there_is_a_file_for_each_version_and_kind_of_handle() -> None:
    assert {metadata.version_of(read(name)) for name in GOOD} == {2, 3, 4, 5, 6}
    assert len(GOOD) == 59 and len(BAD) == 24


@pytest.mark.feature("F184")
@pytest.mark.parametrize("name", GOOD)
def test_a_file_of_flink_says_what_flink_says_it_says(name: str) -> None:
    data = read(name)
    shown = describe(metadata.decode(data, random_id), directory="${DIR}")
    assert {"version": metadata.version_of(data)} | shown == without_places(expected(name))


@pytest.mark.parametrize("name", WRITTEN_BY_FLINK)
def test_a_file_of_flink_is_written_back_byte_for_byte(name: str) -> None:
    data = read(name)
    decoded = metadata.decode(data, random_id)
    assert metadata.encode(decoded, metadata.version_of(data)) == data


@pytest.mark.parametrize("name", sorted(set(GOOD) - set(WRITTEN_BY_FLINK)))
def test_an_old_file_keeps_its_meaning_when_written_as_the_newest_version(name: str) -> None:
    decoded = metadata.decode(read(name), random_id)
    assert metadata.decode(metadata.encode(decoded), random_id) == decoded


@pytest.mark.parametrize("version", [3, 4, 5])
def test_merged_channels_are_written_one_by_one_where_a_version_has_no_form(version: int) -> None:
    merged = metadata.decode(read("meta-channels-merged-v6"), random_id)
    old = metadata.decode(metadata.encode(merged, version), random_id)
    for operator, shown in zip(
        old.operators, expected("meta-channels-merged-v6")["operatorStates"], strict=True
    ):
        for index, state in operator.subtasks.items():
            expected_state = shown["subtaskStates"][str(index)]
            for ours, theirs in [
                (state.input_channel, expected_state["inputChannelState"]),
                (state.result_subpartition, expected_state["resultSubpartitionState"]),
            ]:
                sizes = [plain["stateSize"] for handle in theirs for plain in handle["unmerged"]]
                assert [handle.state_size for handle in ours] == sizes


@pytest.mark.parametrize("name", [case["file"] for case in BAD])
def test_what_flink_refuses_is_refused_naming_the_place(name: str) -> None:
    data = (FIXTURES / "bad" / name).read_bytes()
    with pytest.raises(FormatError) as caught:
        metadata.decode(data, random_id)
    error = caught.value
    assert 0 <= error.offset <= len(data)
    assert error.what and error.expected and error.found


SAME_WORDS = [
    "version7",
    "version0",
    "version1",
    "negative-id",
    "negative-master-count",
    "parallelism-over-max",
    "finished-with-coordinator",
    "unknown-keyed-type",
    "unknown-stream-type",
    "unknown-operator-type",
    "v6-unknown-channel-type",
]


@pytest.mark.parametrize("name", SAME_WORDS)
def test_a_refusal_uses_the_words_of_flink(name: str) -> None:
    said = next(case["message"] for case in BAD if case["file"] == f"{name}.metadata")
    with pytest.raises(FormatError) as caught:
        metadata.decode((FIXTURES / "bad" / f"{name}.metadata").read_bytes(), random_id)
    assert caught.value.what == said
