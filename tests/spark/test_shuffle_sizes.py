"""No row of Spark's shuffle is large, however wide the rows of a program are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.api.rows.batches import as_rows
from tidegate.model.elements import ArrowBatch, Batch, RowBatch
from tidegate.model.ids import ChannelId
from tidegate.spark.batch.channels import ToSubtask
from tidegate.spark.batch.shuffle import ROW_BYTES, ShuffleReader, ShuffleWriter

ROWS, WIDE = 800, 20_000


def columns() -> pa.RecordBatch:
    texts = [f"{n:06}" + "x" * WIDE for n in range(ROWS)]
    return pa.record_batch({"n": np.arange(ROWS), "text": texts})


def sent(*batches: Batch) -> list[pa.RecordBatch]:
    writer = ShuffleWriter(0, 0)
    channel = ToSubtask(
        writer, ChannelId(0, 0, 0), ordered=True, arrow_ordered=True, rows_max=9_999
    )
    for batch in batches:
        channel.send(batch)
    channel.flush()
    writer.said([], [0])
    return writer.take()


def numbers(made: list[pa.RecordBatch]) -> list[int]:
    reader, found = ShuffleReader(), list[int]()
    list(reader.read(made[-1].slice(len(made[-1]) - 1)))
    for came in [came for rows in made for came in reader.read(rows) if came.batch is not None]:
        values: Any = as_rows(came.batch).values
        found += [row["n"] for row in values]
    return found


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("form", ["rows", "columns", "a few columns at a time", "Arrow"])
def test_wide_rows_are_given_to_spark_in_small_parts(form: str, timed: bool) -> None:
    batch = columns()
    times = np.zeros(ROWS, np.int64) if timed else None
    arrow = ArrowBatch(batch, times, "n", np.zeros(ROWS, np.int16))
    given: list[Batch] = [arrow]
    if form == "rows":
        nobody = [None] * ROWS
        stamps = [0] * ROWS if timed else None
        given = [RowBatch(batch.to_pylist(), stamps, list(nobody), [0] * ROWS)]
    elif form == "columns":
        given = [as_rows(arrow)]
    elif form == "a few columns at a time":
        given = [as_rows(arrow).piece(at, at + 40) for at in range(0, ROWS, 40)]
    made = sent(*given)
    assert max(rows.nbytes for rows in made) < 2 * ROW_BYTES
    assert numbers(made) == list(range(ROWS))


def test_numbers_are_gathered_as_they_were() -> None:
    rows = as_rows(ArrowBatch(pa.record_batch({"n": np.arange(9_999)})))
    assert [
        len(part) for part in sent(*(rows.piece(at, at + 99) for at in range(0, 9_999, 99)))
    ] == [2]
