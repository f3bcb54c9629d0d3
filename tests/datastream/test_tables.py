"""A stream's records as a table: to_arrow, to_pandas, to_polars; and what cannot become one."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.datastream.fakes import Client, KeepingRuntime, environment, numbers
from tests.e2e.watch import until
from tidegate import (
    BadRecord,
    Configuration,
    GraphError,
    JobFailed,
    MapFunction,
    StreamExecutionEnvironment,
    Types,
)
from tidegate.datastream import results
from tidegate.datastream.process import interrupts

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate import RuntimeContext


def local(parallelism: int = 1, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict(settings)
    return StreamExecutionEnvironment.local(parallelism, configuration=configuration)


CHECKPOINTS = {"execution.checkpointing.interval": "20 ms"}


@pytest.mark.parametrize("settings", [{}, CHECKPOINTS], ids=["plain", "checkpoints"])
def test_rows_become_columns(settings: dict[str, str]) -> None:
    rows = local(1, **settings).from_sequence(1, 10_000)
    table = rows.map(lambda n: {"n": n, "even": n % 2 == 0}).to_arrow()
    assert table.schema == pa.schema([("n", pa.int64()), ("even", pa.bool_())])
    assert table["n"].to_pylist() == list(range(1, 10_001))


@pytest.mark.parametrize("settings", [{}, CHECKPOINTS], ids=["plain", "checkpoints"])
def test_batches_stay_as_they_are(settings: dict[str, str]) -> None:
    def as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = pc.cast(pc.bit_wise_and(batch["value"], 127), pa.uint8())
        return pa.record_batch({"small": column})

    rows = local(1, **settings).from_sequence(0, 9_999).map(lambda n: {"value": n})
    table = rows.map_batches(as_bytes).to_arrow("small numbers")
    assert table.schema == pa.schema([("small", pa.uint8())])
    assert table["small"].to_pylist() == [n & 127 for n in range(10_000)]


def test_a_program_takes_batches_row_by_row() -> None:
    rows = local().from_sequence(0, 99).map(lambda n: {"value": n})
    batches = rows.map_batches(lambda batch: batch)
    with batches.execute_and_collect() as collected:
        assert list(collected) == [{"value": n} for n in range(100)]


def test_pandas_and_polars_get_the_same() -> None:
    def pairs() -> Any:
        declared = Types.ROW_NAMED(["n", "word"], [Types.INT(), Types.STRING()])
        return local().from_collection([(1, "a"), (2, "b"), (3, "c")]).map(tuple, declared)

    frame = pairs().to_pandas()
    assert list(frame.columns) == ["n", "word"] and frame["n"].sum() == 6
    assert (
        pairs()
        .to_polars()
        .equals(
            pl.DataFrame(
                {"n": [1, 2, 3], "word": ["a", "b", "c"]}, {"n": pl.Int32, "word": pl.String}
            )
        )
    )


def test_nothing_has_the_declared_columns() -> None:
    declared = Types.ROW_NAMED(["n"], [Types.INT()])
    nothing = local().from_collection([(1,)]).map(tuple, declared).filter(lambda _: False)
    assert nothing.to_arrow().schema == pa.schema([("n", pa.int32())])


def test_a_column_of_two_types_is_named_and_the_job_is_gone() -> None:
    values = local(**{"tidegate.batch.rows": "10"}).from_sequence(0, 99)
    rows = values.map(lambda n: {"id": n, "mixed": n if n < 50 else str(n)})
    # Which of the two is seen depends on where the batches were cut.
    told = "column 'mixed' (is int64 in some records and string|holds '50', which does not fit)"
    with pytest.raises(BadRecord, match=told):
        rows.to_arrow()


def test_what_fails_the_job_is_raised() -> None:
    with pytest.raises(JobFailed, match="division by zero"):
        local().from_sequence(0, 3).map(lambda n: 1 / n).to_arrow()


@pytest.mark.parametrize("call", ["to_arrow", "to_pandas", "to_polars", "to_spark"])
def test_a_job_without_an_end_is_refused(call: str) -> None:
    env = local()
    endless = env.generate(lambda n: n).name("clock")
    with pytest.raises(GraphError, match="its source 'clock' has no end"):
        getattr(env.from_sequence(1, 3).union(endless.map(str)).map(str), call)()


def test_another_part_of_the_program_without_an_end_counts_too() -> None:
    env = local()
    env.generate(lambda n: n).name("clock").print()
    with pytest.raises(GraphError, match="its source 'clock' has no end"):
        env.from_sequence(1, 3).to_arrow()


def test_a_type_that_polars_lacks_is_refused_by_name() -> None:
    table = pa.table({"fine": [1], "wide": pa.array([1], pa.decimal256(60, 2))})
    with pytest.raises(GraphError, match="as in 'wide'"):
        results.as_polars(table)


def test_closing_says_when_the_job_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "CANCEL_TIMEOUT_S", 0.01)
    client = Client([1, 2])
    client.cancel = Future
    rows = numbers(environment(KeepingRuntime(client))).execute_and_collect()
    with pytest.raises(JobFailed, match=r"has not ended within 0\.01 s"):
        rows.close()


class Counted(MapFunction[int, int]):
    """Leaves a byte a row in a file."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def open(self, runtime_context: RuntimeContext) -> None:
        self._file = self._log.open("ab", buffering=0)

    def map(self, value: int) -> int:
        self._file.write(b".")
        return value

    def close(self) -> None:
        self._file.close()


def test_a_program_that_takes_no_more_holds_back_the_job(tmp_path: Path) -> None:
    log = tmp_path / "seen"
    endless = local(1).generate(lambda n: n).map(Counted(log))
    with endless.execute_and_collect() as rows:
        assert len(rows.take(3)) == 3
        sizes = [0]

        def stands() -> bool:
            sizes.append(log.stat().st_size)
            return len(sizes) > 20 and sizes[-1] == sizes[-20]

        until(stands, "the job waits for its program", 30)
        assert sizes[-1] < 300_000
        more = sizes[-1] + 1_000
        assert len(set(rows.take(more))) == more
