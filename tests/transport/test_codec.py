"""Elements as bytes, and back."""

import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


class Channel:
    """Both ends of a channel, and the elements' bytes."""

    def __init__(self) -> None:
        self.encoder, self.decoder = codec.Encoder(), codec.Decoder()
        self.sent: list[bytes] = []

    def __call__(self, batch: pa.RecordBatch, link: object = "link") -> pa.RecordBatch:
        self.sent.append(b"".join(self.encoder.encode(ArrowBatch(batch), link)))
        got = self.decoder.decode(memoryview(self.sent[-1]))
        assert isinstance(got, ArrowBatch)
        return got.batch

    @property
    def kinds(self) -> list[int]:
        return [each[0] for each in self.sent]


TEXTS = st.lists(st.text(max_size=5) | st.none(), min_size=1, max_size=20)


@given(TEXTS, st.booleans(), st.booleans(), st.data())
def test_an_arrow_batch_of_a_known_schema_comes_back_as_it_was(
    texts: list[str | None], stamped: bool, keyed: bool, data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.floats() | st.none(), min_size=len(texts), max_size=len(texts)))
    nested = [None if each is None else [{"t": each}] for each in texts]
    whole = pa.record_batch(
        [pa.array(texts, pa.string()), pa.array(numbers, pa.float64()), pa.array(nested)],
        ["k", "x", "y"],
    )
    start = data.draw(st.integers(0, len(texts)))
    stamps = np.arange(len(texts)) if stamped else None
    groups = np.arange(len(texts), dtype=np.int16) if keyed else None
    sent = ArrowBatch(whole, stamps, "k" if keyed else None, groups).piece(start, len(texts))
    channel = Channel()
    channel(whole)
    encoded = b"".join(channel.encoder.encode(sent, "link"))
    got = channel.decoder.decode(memoryview(encoded))
    assert encoded[0] == 5 and isinstance(got, ArrowBatch)
    assert got.batch.schema.equals(whole.schema) and got.key_column == sent.key_column
    assert str(got.batch.to_pylist()) == str(sent.batch.to_pylist())
    for found, wanted in (
        (got.timestamps_ms, sent.timestamps_ms),
        (got.key_groups, sent.key_groups),
    ):
        assert (found is None) == (wanted is None)
        assert (
            found is None
            or wanted is None
            or (found.tolist() == wanted.tolist() and found.dtype == wanted.dtype)
        )


def test_a_schema_goes_over_a_channel_once_and_again_when_it_changes() -> None:
    channel = Channel()
    numbers, texts = pa.record_batch({"v": [1]}), pa.record_batch({"v": ["a"]})
    noted = numbers.replace_schema_metadata({"by": "hand"})
    for batch in (numbers, numbers, texts, texts, numbers, noted, noted):
        assert channel(batch).equals(batch, check_metadata=True)
    assert channel.kinds == [2, 5, 2, 5, 2, 2, 5]


def test_a_link_that_takes_the_place_of_another_is_told_the_schema_anew() -> None:
    channel = Channel()
    batch = pa.record_batch({"v": [1]})
    for link in ("first", "first", "second", "second", "first"):
        channel(batch, link)
    assert channel.kinds == [2, 5, 2, 5, 2]


def test_marks_and_rows_between_batches_leave_the_schema_known() -> None:
    channel = Channel()
    batch = pa.record_batch({"v": [1]})
    channel(batch)
    for each in (Watermark(1), RowBatch([1])):
        data = b"".join(channel.encoder.encode(each, "link"))
        assert channel.decoder.decode(memoryview(data)) == each
    channel(batch)
    assert channel.kinds == [2, 5]


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))]),
    ],
    ids=["column", "list", "struct"],
)
def test_batches_with_dictionaries_bring_their_schema_each_time(kind: pa.DataType) -> None:
    made = {"list": ["a", "b"], "struct": {"d": "b"}}
    value = next((each for name, each in made.items() if str(kind).startswith(name)), "a")
    batch = pa.record_batch([pa.array([value], kind)], ["v"])
    channel = Channel()
    for _ in range(3):
        assert channel(batch).to_pylist() == [{"v": value}]
    assert channel.kinds == [2, 2, 2]


def test_a_batch_whose_schema_has_not_come_is_a_format_error() -> None:
    channel, other = Channel(), codec.Decoder()
    batch = pa.record_batch({"v": [1]})
    channel(batch), channel(batch)
    with pytest.raises(FormatError, match="whose schema has not come"):
        other.decode(memoryview(channel.sent[1]))
    with pytest.raises(FormatError):
        codec.check_batch(memoryview(channel.sent[1]))  # no file holds it
    with pytest.raises(FormatError):
        codec.decode(memoryview(channel.sent[1]))


def test_columns_lie_where_numpy_takes_them_as_they_are() -> None:
    columns = {"v": np.arange(10), "w": np.arange(10) / 2}
    stamps, groups = np.arange(10), np.arange(10, dtype=np.int16)
    encoder, decoder = codec.Encoder(), codec.Decoder()
    for column in ("v", "a longer name"):
        sent = ArrowBatch(pa.record_batch(columns), stamps, column, groups)
        for _ in range(2):
            # As a frame comes: its length and header, then the element.
            frame = bytes(23) + b"".join(encoder.encode(sent, "link"))
            got = decoder.decode(memoryview(frame)[23:])
        assert isinstance(got, ArrowBatch) and got.timestamps_ms is not None
        arrays = [got.timestamps_ms, got.key_groups, *(each.to_numpy() for each in got.batch)]
        assert all(each is not None and each.flags.aligned for each in arrays)


def test_a_batch_of_a_known_schema_has_the_bytes_of_its_page() -> None:
    """Written down by hand from docs/formats/wire.md, but for Arrow's own message."""
    batch = pa.record_batch({"k": [7, 8]})
    encoder = codec.Encoder()
    sent = ArrowBatch(batch, np.array([1, 2]), "k", np.array([3, 4], np.int16))
    encoder.encode(sent, "link")
    found = b"".join(encoder.encode(sent, "link"))
    side = pickle.dumps((2, "k", "<i8", "<i2"), protocol=5)
    head = b"\x05" + len(side).to_bytes(4, "big") + side
    columns = bytes.fromhex("010000000000000002000000000000000300040000000000")
    padding = bytes(-(23 + len(head)) % 8)
    assert found == head + padding + columns + batch.serialize().to_pybytes()


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


class Secret:
    """A row whose own hook does not let it go."""

    def __reduce__(self) -> str:
        raise ValueError("not to be sent")


@pytest.mark.parametrize("row", [threading.Lock(), Secret()], ids=["a lock", "its own hook"])
def test_a_row_that_cannot_be_pickled_is_refused_where_it_is_sent(row: object) -> None:
    with pytest.raises(UserCodeFailed, match="cannot be sent to another subtask"):
        codec.encode(RowBatch([row]))


def test_a_row_whose_class_is_missing_says_so_where_it_is_read() -> None:
    data = b"".join(codec.encode(RowBatch([SlotLost("x")])))
    with pytest.raises(UserCodeFailed, match="cannot be read in this process"):
        codec.decode(memoryview(data.replace(b"SlotLost", b"SlotGone")))
