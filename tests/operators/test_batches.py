"""Functions of whole Arrow batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.operators.world import Hosted, World, arrow
from tidegate.api.functions import BatchContext, KeyedBatchFunction
from tidegate.api.state import ColumnStateDescriptor
from tidegate.errors import UserCodeFailed
from tidegate.model.elements import ArrowBatch, RowBatch, Watermark
from tidegate.operators.arrow import (
    FilterBatchesOperator,
    FlatMapBatchesOperator,
    MapBatchesOperator,
    ProcessBatchesOperator,
)

STAMPS = np.array([10, 20, 30])


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.multiply(batch["n"], 2)})


def test_map_batches_keeps_timestamps(world: World) -> None:
    step = Hosted(MapBatchesOperator(doubled), world)
    step.process(arrow({"n": [1, 2, 3]}, timestamps_ms=STAMPS))
    assert step.out.values == [{"n": 2}, {"n": 4}, {"n": 6}]
    assert step.out.stamps == [10, 20, 30]


def test_rows_become_columns_with_the_names_of_all_rows(world: World) -> None:
    step = Hosted(FlatMapBatchesOperator(lambda batch: batch), world)
    step.process(RowBatch([{"a": 1}, {"a": 2, "b": "x"}]))
    assert step.out.values == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


LATER: list[dict[str, Any]] = [{"n": 5}, {"n": None}, {"more": 1}, {"n": 6, "more": 2}, {"more": 3}]


@pytest.mark.parametrize("cuts", [[1], [1, 2, 3, 4, 5], [2, 4]])
def test_the_types_of_rows_do_not_hang_on_where_batches_end(world: World, cuts: list[int]) -> None:
    step = Hosted(FlatMapBatchesOperator(lambda batch: batch.select(["n"])), world)
    rows = [{"n": 5.5}, *LATER]
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        step.process(RowBatch(rows[start:end]))
    assert [row["n"] for row in step.out.values] == [5.5, 5.0, None, None, 6.0, None]


def test_rows_that_no_type_holds_together_are_given_as_they_are(world: World) -> None:
    step = Hosted(FlatMapBatchesOperator(lambda batch: batch.select(["k"])), world)
    for value in (1, "x", 2**53 + 1, 0.5, 2**53 + 1):
        step.rows({"k": "a", "n": value})
    assert step.out.values == [{"k": "a"}] * 5


def test_rows_of_ever_other_names_do_not_add_up(world: World) -> None:
    widths: list[int] = []

    def noted(batch: pa.RecordBatch) -> None:
        widths.append(batch.num_columns)

    step = Hosted(FlatMapBatchesOperator(noted), world)
    for first in range(0, 4000, 400):
        step.rows({str(name): 1 for name in range(first, first + 400)})
    assert widths[:2] == [400, 800] and max(widths) == 800


@pytest.mark.parametrize("values", [[1, None], [None, None], [0.5, 1.5]])
def test_a_result_is_brought_to_a_wider_declared_type(world: World, values: list[Any]) -> None:
    schema = pa.schema([("n", pa.float64())])
    step = Hosted(MapBatchesOperator(lambda batch: batch, schema), world)
    step.process(arrow({"n": values}))
    [made] = step.out.batches
    assert made.batch.schema == schema and made.batch["n"].to_pylist() == values


@pytest.mark.parametrize(
    ("values", "declared"),
    [(["5"], pa.int64()), ([5], pa.string()), ([5.0], pa.int64()), ([2**53 + 1], pa.float64())],
)
def test_a_result_that_its_declared_type_does_not_hold_is_refused(
    world: World, values: list[Any], declared: pa.DataType
) -> None:
    step = Hosted(MapBatchesOperator(lambda batch: batch, pa.schema([("n", declared)])), world)
    with pytest.raises(UserCodeFailed, match=f"field 'n' is .*, declared as {declared}"):
        step.process(arrow({"n": values}))


@pytest.mark.parametrize("row", [1, "text", (1, 2)])
def test_rows_without_names_are_refused_with_operator_and_row(world: World, row: object) -> None:
    step = Hosted(MapBatchesOperator(doubled), world, name="double")
    with pytest.raises(UserCodeFailed, match="operator 'double' wants Arrow batches") as caught:
        step.rows(row)
    assert "`map`" in caught.value.remedy


def test_a_column_of_two_types_is_refused_by_name(world: World) -> None:
    step = Hosted(MapBatchesOperator(doubled), world)
    with pytest.raises(UserCodeFailed, match="column 'n' holds 'x'"):
        step.rows({"n": 1}, {"n": "x"})


def test_another_number_of_rows_from_map_batches_is_refused(world: World) -> None:
    step = Hosted(MapBatchesOperator(lambda batch: batch.slice(1)), world, name="cut")
    with pytest.raises(UserCodeFailed, match="operator 'cut' returned 2 rows for 3"):
        step.process(arrow({"n": [1, 2, 3]}))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (pa.record_batch({"m": [1]}), "field 'n' is missing"),
        (pa.record_batch({"n": ["x"]}), "field 'n' is string, declared as int64"),
        (pa.record_batch({"n": [1], "m": [1]}), "field 'm' is not declared"),
        (pa.table({"n": ["x"]}), "field 'n' is string, declared as int64"),
        (pd.DataFrame({"m": [1]}), "field 'm' is missing|field 'n' is missing"),
        (pd.DataFrame({"n": ["x"]}), "data frame that does not become Arrow columns"),
        (pl.DataFrame({"n": ["x"]}), "data frame that does not become Arrow columns"),
        (7, "returned an int, not a batch"),
    ],
)
def test_a_result_of_another_schema_is_refused_by_field(
    world: World, result: object, text: str
) -> None:
    schema = pa.schema([("n", pa.int64())])
    step = Hosted(MapBatchesOperator(lambda batch: result, schema), world, name="bad")
    with pytest.raises(UserCodeFailed, match=text) as caught:
        step.process(arrow({"n": [1]}))
    assert "operator 'bad'" in caught.value.what


def test_a_generator_of_batches_that_also_returns_one_is_refused(world: World) -> None:
    def mixed(batch: pa.RecordBatch) -> Any:
        yield batch
        return batch

    step = Hosted(FlatMapBatchesOperator(mixed), world, name="mixed")
    with pytest.raises(UserCodeFailed, match="'mixed' yields records and also returned"):
        step.process(arrow({"n": [1]}))


def test_fields_in_another_order_are_refused(world: World) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    other = pa.record_batch({"b": [1], "a": [1]})
    step = Hosted(MapBatchesOperator(lambda batch: other, schema), world)
    with pytest.raises(UserCodeFailed, match="fields are in the order"):
        step.process(arrow({"a": [1]}))


@pytest.mark.parametrize(
    "mask",
    [
        lambda batch: pc.greater(batch["n"], 1),
        lambda batch: np.array([False, True, True]),
        lambda batch: pa.array([None, True, True]),
        lambda batch: pa.chunked_array([[False], [True, True]]),
        lambda batch: [False, True, True],
        lambda batch: pd.array([None, True, True], dtype="boolean"),
        lambda batch: pd.Series([False, True, True], dtype="boolean"),
        lambda batch: pl.Series([None, True, True]),
    ],
)
def test_filter_batches_takes_any_kind_of_booleans(world: World, mask: object) -> None:
    step = Hosted(FilterBatchesOperator(mask), world)
    step.process(arrow({"n": [1, 2, 3]}, timestamps_ms=STAMPS))
    assert step.out.values == [{"n": 2}, {"n": 3}]
    assert step.out.stamps == [20, 30]


@pytest.mark.parametrize("mask", [lambda b: np.array([True]), lambda b: np.array([1, 2, 3])])
def test_a_mask_that_is_none_is_refused(world: World, mask: object) -> None:
    step = Hosted(FilterBatchesOperator(mask), world)
    with pytest.raises(UserCodeFailed, match="for 3 rows"):
        step.process(arrow({"n": [1, 2, 3]}))


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (pa.record_batch({"n": [2, 3]}), "a RecordBatch"),
        (pd.DataFrame({"n": [2, 3]}), "a DataFrame"),
        (True, "a bool"),
        (None, "None"),
        ("x", "a str"),
        ((each for each in [True, True, True]), "a generator"),
    ],
)
def test_a_result_that_is_no_mask_is_told_by_its_kind(
    world: World, result: object, kind: str
) -> None:
    step = Hosted(FilterBatchesOperator(lambda batch: result), world, name="some")
    told = f"operator 'some' returned {kind}, not a boolean for each row"
    with pytest.raises(UserCodeFailed, match=told):
        step.process(arrow({"n": [1, 2, 3]}))


def test_a_batch_function_that_raises_is_named_with_its_first_row(world: World) -> None:
    step = Hosted(MapBatchesOperator(lambda batch: batch["missing"]), world, name="broken")
    with pytest.raises(UserCodeFailed) as caught:
        step.process(arrow({"n": [1, 2]}))
    assert "operator 'broken' raised KeyError" in caught.value.what
    assert caught.value.where.endswith("{'n': 1}")


def test_flat_map_batches_waits_for_room_between_batches(world: World) -> None:
    def many(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while True:
            yield batch

    operator = FlatMapBatchesOperator(many)
    step = Hosted(operator, world)
    step.out.has_room = False
    steps = operator.process(arrow({"n": [1]}), 0, step.out)
    assert steps is not None
    next(steps)
    next(steps)
    assert len(step.out.batches) == 2


SUM = ColumnStateDescriptor("sum", pa.int64())


class RunningSum(KeyedBatchFunction):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        state, index = ctx.column_state(SUM), ctx.key_index
        added = np.zeros(ctx.keys_total, np.int64)
        np.add.at(added, index, batch["n"].to_numpy())
        keys = np.unique(index)
        state.put(keys, state.get(keys) + added[keys])
        return pa.record_batch({"k": batch["k"], "sum": state.get(index)})


def keyed(columns: dict[str, list[object]]) -> ArrowBatch:
    rows = len(next(iter(columns.values())))
    return arrow(columns, key_column="k", key_groups=np.zeros(rows, np.int16))


def test_a_keyed_batch_function_keeps_a_column_of_state(world: World) -> None:
    schema = pa.schema([("k", pa.string()), ("sum", pa.int64())])
    step = Hosted(ProcessBatchesOperator(RunningSum(), schema, "k"), world)
    step.process(keyed({"k": ["a", "b", "a"], "n": [1, 2, 3]}))
    step.process(keyed({"k": ["c", "a"], "n": [10, 5]}))
    assert [row["sum"] for row in step.out.values] == [4, 2, 4, 10, 9]


def test_a_keyed_batch_function_is_held_to_its_schema(world: World) -> None:
    schema = pa.schema([("k", pa.string()), ("sum", pa.int32())])
    step = Hosted(ProcessBatchesOperator(RunningSum(), schema, "k"), world, name="sums")
    with pytest.raises(UserCodeFailed, match="field 'sum' is int64, declared as int32"):
        step.process(keyed({"k": ["a"], "n": [1]}))


def test_a_batch_function_may_return_nothing(world: World) -> None:
    step = Hosted(FlatMapBatchesOperator(lambda batch: None), world)
    step.process(arrow({"n": [1]}))
    assert step.out.batches == []


def test_a_generator_of_batches_that_raises_is_named(world: World) -> None:
    def broken(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch
        raise OSError("gone")

    step = Hosted(FlatMapBatchesOperator(broken), world)
    with pytest.raises(UserCodeFailed, match="raised OSError: gone"):
        step.process(arrow({"n": [1]}))


def test_empty_results_are_not_passed_on(world: World) -> None:
    for results in (lambda b: b.slice(0, 0), lambda b: [b.slice(0, 0)]):
        step = Hosted(FlatMapBatchesOperator(results), world)
        step.process(arrow({"n": [1]}))
        assert step.out.batches == []


def test_a_field_that_is_nullable_or_not_is_brought_to_the_declared_form(world: World) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    step = Hosted(MapBatchesOperator(doubled, schema), world)
    step.process(arrow({"n": [1]}))
    assert step.out.batches[0].batch.schema.equals(schema)


FRAMES = {
    "arrow": lambda batch: pa.record_batch({"n": pc.add(batch["n"], 1), "t": batch["t"]}),
    "table": lambda table: table.set_column(0, "n", pc.add(table["n"], 1)),
    "pandas": lambda frame: frame.assign(n=frame["n"] + 1),
    "polars": lambda frame: frame.with_columns(pl.col("n") + 1),
}
DECLARED = pa.schema([("n", pa.int64()), ("t", pa.string())])


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize("declared", [None, DECLARED])
def test_functions_are_given_the_form_they_ask_for(
    world: World, form: str, declared: pa.Schema | None
) -> None:
    given = arrow({"n": [1, 2, 3], "t": ["a", None, "c"]}, timestamps_ms=STAMPS)
    wanted = [{"n": 2, "t": "a"}, {"n": 3, "t": None}, {"n": 4, "t": "c"}]
    for operator in (MapBatchesOperator, FlatMapBatchesOperator):
        step = Hosted(operator(FRAMES[form], declared, form), world)
        step.process(given)
        assert step.out.values == wanted
        if declared is not None:
            assert step.out.batches[0].batch.schema.equals(declared)


def test_nulls_of_a_pandas_column_come_back_as_integers_where_they_are_declared(
    world: World,
) -> None:
    schema = pa.schema([("n", pa.int64())])
    step = Hosted(MapBatchesOperator(lambda frame: frame + 1, schema, "pandas"), world)
    step.process(arrow({"n": [1, None]}))
    assert step.out.values == [{"n": 2}, {"n": None}]


@pytest.mark.parametrize(
    ("form", "mask"),
    [
        ("pandas", lambda frame: frame["n"] > 1),
        ("polars", lambda frame: frame["n"] > 1),
        ("table", lambda table: pc.greater(table["n"], 1)),
    ],
)
def test_masks_may_be_series(world: World, form: str, mask: object) -> None:
    step = Hosted(FilterBatchesOperator(mask, form), world)
    step.process(arrow({"n": [1, 2, 3]}, timestamps_ms=STAMPS))
    assert step.out.values == [{"n": 2}, {"n": 3}]


def test_empty_data_frames_are_not_passed_on(world: World) -> None:
    for form in ("pandas", "polars", "table"):
        step = Hosted(FlatMapBatchesOperator(lambda frame: frame[:0], form=form), world)
        step.process(arrow({"n": [1]}))
        assert step.out.batches == []


def test_a_schema_that_changes_in_the_middle_of_the_stream_is_refused_by_field(
    world: World,
) -> None:
    step = Hosted(MapBatchesOperator(lambda batch: batch), world, name="same")
    step.process(arrow({"n": [1]}))
    step.process(arrow({"n": [2]}))
    with pytest.raises(
        UserCodeFailed,
        match=r"operator 'same' changed the schema .* field 'n' is string, before as int64",
    ) as caught:
        step.process(arrow({"n": ["x"]}))
    assert "output_schema" in caught.value.remedy


class LateRows(KeyedBatchFunction):
    """The rows that lie before the watermark."""

    def process_batch(self, batch: pl.DataFrame, ctx: BatchContext) -> pl.DataFrame:
        assert ctx.timestamps_ms is not None
        return batch.filter(ctx.timestamps_ms <= ctx.watermark_ms)


def test_a_keyed_batch_function_knows_event_time_and_watermark(world: World) -> None:
    step = Hosted(ProcessBatchesOperator(LateRows(), None, "k", form="polars"), world)
    batch = keyed({"k": ["a", "b"]})
    batch.timestamps_ms = np.array([5, 7])
    step.process(batch)
    assert step.out.values == []
    step.drive(step.operator.on_watermark(Watermark(5), step.out))
    step.process(batch)
    assert step.out.values == [{"k": "a"}] and step.out.watermarks == [Watermark(5)]
