"""Each serializer of Flink that is known: its snapshot and its values, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import FIXTURES
from state_text import shown

from flinkformat.errors import FormatError
from flinkformat.metadata.wire import Reader, Writer
from flinkformat.state.composites import decode, encode, read_snapshot, write_snapshot

GOLDEN = FIXTURES / "golden-serializers.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def serializer_of(case: Any) -> Any:
    reader = Reader(bytes.fromhex(case["snapshot"]))
    serializer = read_snapshot(reader)
    assert reader.remaining == 0
    return serializer


def test_all_cases_are_here() -> None:
    assert len(CASES) == 35


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_snapshot_is_read_and_written_back(case: Any) -> None:
    serializer = serializer_of(case)
    assert serializer.snapshot_class == case["snapshotClass"]
    assert serializer.length == case["length"]
    writer = Writer()
    write_snapshot(writer, serializer)
    assert writer.finished().hex() == case["snapshot"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_are_read_and_written_back(case: Any) -> None:
    serializer = serializer_of(case)
    for each in case["values"]:
        if "error" in each:
            with pytest.raises(FormatError):
                encode(serializer, each["value"])
            continue
        data = bytes.fromhex(each["bytes"])
        value = decode(serializer, data)
        assert shown(serializer, value) == each["value"]
        assert encode(serializer, value) == data
