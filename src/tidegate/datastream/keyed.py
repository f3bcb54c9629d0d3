"""Keyed streams: the same steps, with state for each key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from tidegate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
    TimeDomain,
)
from tidegate.config.spans import millis_of
from tidegate.datastream.checking import checks, types
from tidegate.datastream.steps import batches, functions, keys
from tidegate.datastream.steps.functions import KeyedFilter, KeyedFlatMap, KeyedMap
from tidegate.datastream.stream import DataStream
from tidegate.errors import GraphError
from tidegate.operators.aggregates.reduce import ReduceOperator, RollingOperator
from tidegate.operators.process.process_functions import KeyedProcessOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.functions import Partitioner, ProcessFunction
    from tidegate.api.operator import KeyBy, Operator
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.windows.assigners import WindowAssigner
    from tidegate.config.spans import Span
    from tidegate.datastream import joined, windowed
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.program import Program
    from tidegate.datastream.results import CloseableIterator
    from tidegate.graph.transformations import OperatorTransformation, PartitionTransformation
    from tidegate.model.topology import Partitioner as Exchange
    from tidegate.operators.aggregates.reduce import RollingCall
    from tidegate.operators.arrow import Form
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
S = TypeVar("S")


class KeyedStream(DataStream[T]):
    """A stream whose records have keys; made by ``key_by``, and no operator of its own.

    >>> env.from_collection([("a", 1), ("a", 2)]).key_by(lambda r: r[0]).reduce(
    ...     lambda x, y: (x[0], x[1] + y[1])
    ... )
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        program: Program,
        transformation: PartitionTransformation,
        key: KeyBy,
        output_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(environment, program, transformation, output_type)
        self._key = key
        self._partition = transformation

    def map(
        self,
        func: MapFunction[T, R] | Callable[[T], R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """One record for each; a ``MapFunction`` may use state of the record's key."""
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        declared = types.result_type(output_type, func, "map")
        return self._keyed("Map", self._process(KeyedMap(func)), declared)

    def flat_map(
        self,
        func: FlatMapFunction[T, R] | Callable[[T], Iterable[R] | None],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records; a ``FlatMapFunction`` may use state of the record's key."""
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        declared = types.result_type(output_type, func, "flat_map", iterable=True)
        return self._keyed("FlatMap", self._process(KeyedFlatMap(func)), declared)

    def filter(self, func: FilterFunction[T] | Callable[[T], object]) -> DataStream[T]:
        """Some of the records; a ``FilterFunction`` may use state of the record's key."""
        if not isinstance(func, FilterFunction):
            return super().filter(func)
        checks.check_decides(func)
        operator = self._process(KeyedFilter(func))
        operator.keeps_type = True
        return self._keyed("Filter", operator, self._type)

    def process(
        self,
        func: KeyedProcessFunction[T, R] | ProcessFunction[T, R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records for each, with state of its key: a ``KeyedProcessFunction``.

        >>> flights.key_by(lambda f: f["carrier"]).process(DelayStats()).uid("delays")
        """
        checks.check_function_object(
            func,
            KeyedProcessFunction,
            "process",
            otherwise="Derive a class from KeyedProcessFunction.",
        )
        keyed = cast("KeyedProcessFunction[T, R]", func)
        declared = types.result_type(output_type, func, "process_element", iterable=True)
        return self._keyed("KeyedProcess", self._process(keyed), declared)

    def reduce(self, func: ReduceFunction[T] | Callable[[T, T], T]) -> DataStream[T]:
        """For each record what its key's records so far reduce to; the first passes as it is.

        >>> sales.key_by(lambda s: s.shop).reduce(lambda x, y: x + y)
        """
        checks.check_function(func, ReduceFunction, "reduce")
        types.check_returned(func, "reduce", self._type, "reduce")
        return self._keyed("Reduce", ReduceOperator(func, self._type), self._type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> windowed.WindowedStream[T]:
        """Each key's records in windows.

        >>> clicks.key_by(str).window(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(max)
        """
        from tidegate.datastream import windowed

        return windowed.WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> windowed.WindowedStream[T]:
        """Windows of so many records of a key, one after the other, or one starting each slide.

        Only windows that are full fire.
        """
        from tidegate.api.windows.assigners import count_windows

        return self.window(count_windows(size, slide))

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """For each record the sum of a field over its key's records so far.

        position_to_sum: a field's position or name; left out where a record is itself the number.
        All other fields are those of the key's first record.

        >>> env.from_collection([("a", 1), ("a", 2)]).key_by(lambda r: r[0]).sum(1)
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """For each record the least value of a field so far, in the key's first record."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """For each record the greatest value of a field so far, in the key's first record."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """For each record that record of its key whose field is least so far, the first of equal.

        >>> offers.key_by(lambda o: o.product).min_by("price")
        """
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """For each record that record of its key whose field is greatest, the first of equal."""
        return self._rolling("max_by", position_to_max_by)

    def execute_and_collect(  # type: ignore[override]
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[Any] | list[Any]:
        """Works as on any stream; each record is a ``Row(f0=key, f1=record)``."""
        paired = self.transform("WithKey", keys.pairing(), None, keyed=True)
        if limit is None:
            return paired.execute_and_collect(job_execution_name)
        return paired.execute_and_collect(job_execution_name, limit=limit)

    def project(self, *field_indexes: int) -> NoReturn:
        """Always refused, as in Flink. Raises GraphError."""
        raise GraphError(
            "project cannot follow key_by",
            where="project",
            remedy="Call project before key_by, or map after it.",
        )

    def process_batches(
        self,
        func: KeyedBatchFunction,
        output_schema: pa.Schema | None = None,
        *,
        form: Form = "arrow",
    ) -> DataStream[Any]:
        """Arrow batches for each Arrow batch, with columns of state by the rows' keys.

        The stream must be keyed by a column: ``key_by("carrier")``. output_schema, form: as for
        ``map_batches``.

        >>> flights.key_by("carrier").process_batches(RunningMean(), schema)
        """
        operator = batches.processing(func, output_schema, self._key, form)
        return self._keyed("ProcessBatches", operator, None)

    def running(self, *aggregates: Aggregate) -> DataStream[Any]:
        """Each record again with its key's aggregates so far behind it.

        As ``COUNT(*) OVER (PARTITION BY key ORDER BY arrival)`` in SQL. Arrow batches get a column
        for each aggregate, and so do records of no declared type, which become Arrow batches.
        Records of a declared type get a field for each: a tuple, whose fields are named f0, f1 and
        so on, stays a tuple; a value without fields, named ``value``, becomes one; all others
        become a ``Row``. Records keep their order and their timestamps.

        >>> sales.key_by("shop").running(Count(), Sum("price"), Max("price").alias("dearest"))
        """
        operator, made = batches.running_aggregates(self._key, aggregates, self._type, "running")
        return self._keyed("Running", operator, made)

    def aggregate_batches(self, *aggregates: Aggregate) -> DataStream[Any]:
        """Each Arrow batch again with its key's aggregates so far behind each row.

        As ``running``, for Arrow batches alone: the stream must be keyed by a column. Rows keep
        their order and their timestamps.

        >>> flights.key_by("carrier").aggregate_batches(Count(), Mean("dep_delay").alias("delay"))
        """
        batches.key_column(self._key, "aggregate_batches")
        operator, _ = batches.running_aggregates(self._key, aggregates, None, "aggregate_batches")
        return self._keyed("AggregateBatches", operator, None)

    def partition_custom(
        self,
        partitioner: Partitioner | Callable[[K, int], int],
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
    ) -> NoReturn:
        """Always refused: the records have their subtasks already. Raises GraphError."""
        raise _partitioned_already("partition_custom")

    def interval_join(self, other_stream: KeyedStream[S]) -> joined.IntervalJoin[T, S]:
        """Pairs of records of this stream and another of equal key and about the same event time.

        >>> orders.interval_join(payments).between(Time.seconds(0), Time.minutes(5)).process(Pay())
        """
        from tidegate.datastream import joined

        checks.check_stream(other_stream, KeyedStream, "interval_join")
        return joined.IntervalJoin(self, other_stream)

    def deduplicate(self, ttl: Span | None = None) -> DataStream[T]:
        """The first record of each key.

        ttl: how long a key is remembered since its first record passed, by the clock; then its next
        record passes again. Left out, every key is remembered for ever, and state grows with them.

        >>> orders.key_by(lambda order: order["id"]).deduplicate("1 d").uid("once")
        """
        return self.filter(functions.FirstOfKey(ttl)).name("Deduplicate")

    def count(self, ttl: Span | None = None) -> DataStream[tuple[Any, int]]:
        """For each record its key and how many records of the key there were, this one included.

        ttl: a key without records for so long, by the clock, begins anew. Left out, every key is
        kept for ever.

        >>> words.key_by(lambda word: word).count().uid("counts")
        """
        return self.process(functions.CountOfKey(ttl)).name("Count")

    def top_n(
        self,
        n: int,
        by: Callable[[T], Any],
        *,
        same: Callable[[T], object] | None = None,
        ttl: Span | None = None,
    ) -> DataStream[tuple[Any, list[T]]]:
        """A key and its n records of the greatest ``by``, greatest first, each time they change.

        Of equal ones the earlier goes before. same: a record takes the place of the ranked one for
        which this gives the same, so that a product whose sales go up is ranked once; one that has
        left the ranking comes back with its next record only. ttl: a ranking that has not changed
        for so long, by the clock, is forgotten; left out, each key's is kept for ever.

        >>> sold.key_by(lambda s: s.shop).top_n(3, by=lambda s: s.total, same=lambda s: s.product)
        """
        if n < 1:
            raise GraphError(f"The n of top_n is {n}", where="top_n", remedy="Ask for 1 or more.")
        for function in (by, same):
            if function is not None:
                checks.check_function(function, KeySelector, "top_n")
        kept = functions.of_records(self._type)
        return self.process(functions.TopOfKey(n, by, same, ttl, kept)).name(f"Top {n}")

    def as_of_join(
        self,
        other: KeyedStream[S],
        *,
        tolerance: Span | None = None,
        late: OutputTag[T] | None = None,
    ) -> DataStream[tuple[T, S | None]]:
        """Each record with the newest of another stream that has its key and is no later, or None.

        It goes by event time: a record waits until the watermark has passed it. tolerance: how much
        older the other may be; left out, the newest of each key is kept for ever. late: where
        records go that the watermark has passed already; left out, they are dropped and counted.

        >>> trades.as_of_join(quotes, tolerance="5 s").map(lambda pair: priced(*pair))
        """
        checks.check_stream(other, KeyedStream, "as_of_join")
        if late is not None:
            checks.check_tag(late, "as_of_join")
        limit_ms = None if tolerance is None else millis_of(tolerance, where="as_of_join")
        kept = functions.of_records(self._type), functions.of_records(other._type)
        joined = self.connect(other).process(functions.AsOf(limit_ms, late, kept))
        return joined.name("As-of join")

    def rate(
        self, per: Span, *, domain: TimeDomain = TimeDomain.EVENT_TIME
    ) -> DataStream[tuple[Any, int, float]]:
        """For each span of time: key, end of the span in ms since 1970, records of a second in it.

        Only keys with records in the span have one. per: how long a span is. domain: the clock that
        spans go by.

        >>> requests.key_by(lambda r: r.host).rate("10 s").uid("rates")
        """
        from tidegate.api.windows.assigners import (
            TumblingEventTimeWindows,
            TumblingProcessingTimeWindows,
        )

        kinds = {
            TimeDomain.EVENT_TIME: TumblingEventTimeWindows,
            TimeDomain.PROCESSING_TIME: TumblingProcessingTimeWindows,
        }
        windows = self.window(kinds[domain].of(per))
        return windows.aggregate(functions.Counting(), functions.PerSecond()).name("Rate")

    def keys_shared_with(
        self, other: KeyedStream[S], call: str
    ) -> tuple[KeyedStream[T], KeyedStream[S]]:
        """Both streams, with keys of the type that one of them may have declared.

        Raises GraphError if they have declared two.
        """
        mine, yours = self._key.key_type, other._key.key_type
        if mine is not None and yours is not None and mine != yours:
            raise GraphError(
                f"The keys of the two streams have two types, {mine} and {yours}",
                where=call,
                remedy="Let both selectors give keys of one type, and declare that one.",
            )
        return self._with_key_type(mine or yours), other._with_key_type(mine or yours)

    @property
    def key_type(self) -> TypeInformation | None:
        """Declared type of the keys; None if they say it themselves."""
        return self._key.key_type

    @property
    def key(self) -> KeyBy:
        """How records get their key."""
        return self._key

    def windowed_by(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        *,
        alone: bool,
        others: Sequence[KeyedStream[Any]] = (),
    ) -> DataStream[Any]:
        """The stream made by a window operator. alone: in one subtask."""
        made = self._keyed(name, operator, output_type, others)
        return made.force_non_parallel() if alone else made

    def _rolling(self, call: RollingCall, field: int | str) -> DataStream[T]:
        types.check_field(self._type, field, call)
        operator = RollingOperator(call, field, self._type)
        return self._keyed("Keyed Aggregation", operator, self._type)

    def _with_key_type(self, key_type: TypeInformation | None) -> KeyedStream[T]:
        key = replace(self._key, key_type=key_type)
        made = replace(self._partition, key=key)
        return KeyedStream(self._environment, self._program, made, key, self._type)

    def _process(self, func: KeyedProcessFunction[T, R]) -> Operator:
        return KeyedProcessOperator(func, self._key.key_type)

    def _keyed(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        others: Sequence[KeyedStream[Any]] = (),
    ) -> DataStream[Any]:
        operator.key_type = operator.key_type or self._key.key_type
        return self.transform(name, operator, output_type, others=others, keyed=True, stateful=True)

    def _step(self, call: str) -> OperatorTransformation:
        raise GraphError(
            f"{call} has nothing to apply to: key_by does not make an operator",
            where=call,
            remedy=f"Call {call} on the step before or after key_by.",
        )

    def _partitioned(self, partitioner: Exchange) -> NoReturn:
        raise _partitioned_already(partitioner.value.lower())


def _partitioned_already(call: str) -> GraphError:
    return GraphError(
        f"{call} cannot follow key_by: a keyed stream has its subtasks already",
        where=call,
        remedy=f"Leave out key_by, or call {call} before it.",
    )
