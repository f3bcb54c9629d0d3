"""Elements as bytes, and back."""

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from tidegate.errors import FormatError, SlotLost, UserCodeFailed
from tidegate.model.elements import (
    ArrowBatch,
    Barrier,
    CancelBarrier,
    CheckpointOptions,
    Element,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.ids import CheckpointId
from tidegate.transport import codec


def through(element: Element) -> Element:
    return codec.decode(memoryview(b"".join(codec.encode(element))))


def test_rows_come_back_with_times_keys_and_key_groups() -> None:
    rows = RowBatch(["a", {"b": [1]}, None], [1, -2, 3], ["k", 1, (2, "x")], [0, 127, 5])
    assert through(rows) == rows


def test_rows_without_times_and_keys_stay_without() -> None:
    assert through(RowBatch([1, 2])) == RowBatch([1, 2])


@pytest.mark.parametrize(
    "mark",
    [
        Watermark(-5),
        WatermarkStatus(idle=True),
        Barrier(CheckpointId(7), 123, CheckpointOptions(SnapshotKind.SAVEPOINT, target="s3://x")),
        CancelBarrier(CheckpointId(8)),
        EndOfData(),
        EndOfPartition(),
    ],
)
def test_each_mark_comes_back(mark: Element) -> None:
    assert through(mark) == mark


def test_arrow_batches_come_back_with_their_side_columns() -> None:
    batch = pa.record_batch({"k": ["a", "b", None], "v": [1.5, None, 3.0]})
    sent = ArrowBatch(batch, np.array([1, 2, 3]), "k", np.array([4, 5, 6], np.int16))
    got = through(sent)
    assert isinstance(got, ArrowBatch)
    assert got.batch.equals(batch) and got.key_column == "k"
    assert got.timestamps_ms is not None and got.timestamps_ms.tolist() == [1, 2, 3]
    assert got.key_groups is not None and got.key_groups.tolist() == [4, 5, 6]


def test_a_slice_of_an_arrow_batch_sends_only_its_rows() -> None:
    whole = pa.record_batch({"v": list(range(10_000))})
    part = ArrowBatch(whole).piece(10, 12)
    assert sum(map(len, codec.encode(part))) < 2_000
    got = through(part)
    assert isinstance(got, ArrowBatch)
    assert got.batch.column("v").to_pylist() == [10, 11] and got.timestamps_ms is None


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x09\0\0\0\0rest"])
def test_bytes_that_are_no_element_are_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        codec.decode(memoryview(data))


def test_rows_of_a_class_that_cannot_be_imported_travel_by_value() -> None:
    @dataclass
    class Word:
        text: str

    batch = RowBatch([Word("a"), Word("b")])
    assert through(batch) == batch


def test_a_row_that_cannot_be_pickled_is_refused_where_it_is_sent() -> None:
    with pytest.raises(UserCodeFailed, match="cannot be sent to another subtask"):
        codec.encode(RowBatch([threading.Lock()]))


def test_a_row_whose_class_is_missing_says_so_where_it_is_read() -> None:
    data = b"".join(codec.encode(RowBatch([SlotLost("x")])))
    with pytest.raises(UserCodeFailed, match="cannot be read in this process"):
        codec.decode(memoryview(data.replace(b"SlotLost", b"SlotGone")))
