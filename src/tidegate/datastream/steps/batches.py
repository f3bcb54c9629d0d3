"""Operators of steps that work batch by batch; Arrow and what they need load with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    MapFunction,
)
from tidegate.datastream.checking import checks
from tidegate.errors import GraphError, UnsupportedKey
from tidegate.typeinfo.types import MapTypeInfo, is_any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.operator import KeyBy, Operator
    from tidegate.operators.arrow import Form
    from tidegate.typeinfo.types import TypeInformation


def mapping(func: object, schema: pa.Schema | None, form: Form) -> Operator:
    from tidegate.operators.arrow import MapBatchesOperator

    checks.check_batch_function(func, MapFunction, "map_batches", form)
    return MapBatchesOperator(cast("Callable[..., object]", func), schema, form)


def flat_mapping(func: object, schema: pa.Schema | None, form: Form) -> Operator:
    from tidegate.operators.arrow import FlatMapBatchesOperator

    checks.check_batch_function(func, FlatMapFunction, "flat_map_batches", form)
    return FlatMapBatchesOperator(cast("Callable[..., object]", func), schema, form)


def filtering(func: object, form: Form) -> Operator:
    from tidegate.operators.arrow import FilterBatchesOperator

    checks.check_batch_function(func, FilterFunction, "filter_batches", form)
    return FilterBatchesOperator(cast("Callable[..., object]", func), form)


def processing(
    func: KeyedBatchFunction, schema: pa.Schema | None, key: KeyBy, form: Form
) -> Operator:
    """An operator that gives batches for each, with columns of state. Raises GraphError."""
    from tidegate.operators.arrow import ProcessBatchesOperator, check_form

    checks.check_function_object(
        func,
        KeyedBatchFunction,
        "process_batches",
        otherwise="Derive a class from KeyedBatchFunction.",
    )
    column = key_column(key, "process_batches")
    check_form(form, "process_batches")
    return ProcessBatchesOperator(func, schema, column, key.key_type, form)


def running_aggregates(
    key: KeyBy, aggregates: Sequence[object], row_type: TypeInformation | None, call: str
) -> tuple[Operator, TypeInformation | None]:
    """An operator, and the type of its results. Raises GraphError.

    row_type: declared; None for records that become Arrow batches.
    """
    from tidegate.operators.aggregates.aggregated_columns import AggregatedColumns
    from tidegate.operators.aggregates.aggregated_rows import AggregatedRows
    from tidegate.operators.aggregates.running import RunningOperator

    checked = _checked(aggregates, [] if key.column is None else [key.column], call)
    if row_type is None or is_any(row_type) or isinstance(row_type, MapTypeInfo):
        return RunningOperator(checked, key.column, key.key_type), None
    rows = AggregatedRows(row_type, checked, call)
    AggregatedColumns(checked, rows.schema, call)
    _check_key_of_columns(key, call)
    operator = RunningOperator(checked, key.column, key.key_type, rows)
    return operator, rows.result_type


def _check_key_of_columns(key: KeyBy, call: str) -> None:
    from tidegate.typeinfo.arrow_keys import arrow_key_type

    if is_any(key.key_type):
        return
    try:
        arrow_key_type(cast("TypeInformation", key.key_type))
    except UnsupportedKey as error:
        raise GraphError(
            f"{call} keeps its state in columns, and {error.what}", where=call, remedy=error.remedy
        ) from None


def window_aggregates(
    key: KeyBy,
    windows: object,
    aggregates: Sequence[object],
    *,
    lateness_ms: int,
    late_tag: str | None,
    call: str,
) -> Operator:
    from tidegate.api.windows.assigners import (
        GlobalWindows,
        SlidingEventTimeWindows,
        TumblingEventTimeWindows,
    )
    from tidegate.operators.windows.global_batches import GlobalAggregateBatchesOperator
    from tidegate.operators.windows.window_batches import (
        END,
        START,
        WindowAggregateBatchesOperator,
    )

    column = key_column(key, call)
    if windows == GlobalWindows.create_with_end_of_stream_trigger():
        checked = _checked(aggregates, [column], call)
        return GlobalAggregateBatchesOperator(checked, column, key.key_type)
    if not isinstance(windows, TumblingEventTimeWindows | SlidingEventTimeWindows):
        raise GraphError(
            f"{call} has no windows like {windows!r}",
            where=call,
            remedy="Use TumblingEventTimeWindows, SlidingEventTimeWindows, or "
            "GlobalWindows.create_with_end_of_stream_trigger(); for others aggregate row by row.",
        )
    checked = _checked(aggregates, [column, START, END], call)
    return WindowAggregateBatchesOperator(
        windows, checked, column, key.key_type, lateness_ms=lateness_ms, late_tag=late_tag
    )


def key_column(key: KeyBy, call: str) -> str:
    """The column that a stream is keyed by; raises GraphError if it is by a function."""
    if key.column is None:
        raise GraphError(
            f"{call} needs the key as a column",
            where=call,
            remedy='Name the column: key_by("column").',
        )
    return key.column


def _checked(aggregates: Sequence[object], taken: list[str], call: str) -> list[Aggregate]:
    from tidegate.api.aggregates import Aggregate

    if not aggregates:
        raise GraphError(
            f"{call} has nothing to compute", where=call, remedy="Pass aggregates: Count(), ..."
        )
    checked: list[Aggregate] = []
    for each in aggregates:
        if not isinstance(each, Aggregate):
            given = each.__name__ if isinstance(each, type) else repr(each)
            raise GraphError(
                f"{call} takes aggregates, not {given}",
                where=call,
                remedy='Pass objects such as Count() or Sum("column").',
            )
        if each.output in taken:
            raise GraphError(
                f"{call} has two columns named '{each.output}', the second by {each}",
                where=call,
                remedy=f'Name one otherwise: {each}.alias("name").',
            )
        taken = [*taken, each.output]
        checked.append(each)
    return checked
