"""Streams: what is done to records, one call after another.

Names and meaning are PyFlink's. A call that adds a step gives a new stream; ``name``, ``uid``,
``set_parallelism`` and the like change the step that made the stream, and give the stream itself.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from tidegate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from tidegate.api.functions import Partitioner as PartitionFunction
from tidegate.api.operator import KeyBy
from tidegate.api.windows.assigners import count_windows
from tidegate.config.spans import millis_of
from tidegate.datastream.checking import checks, types
from tidegate.datastream.outputs import StreamOutputs
from tidegate.datastream.settings.slot_sharing import SlotSharingGroup, group_name
from tidegate.errors import GraphError
from tidegate.graph.transformations import (
    ChainingStrategy,
    NodeKind,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    UnionTransformation,
)
from tidegate.model.topology import Partitioner
from tidegate.operators.map import FilterOperator, FlatMapOperator, MapOperator, Projection
from tidegate.operators.process.process_functions import ProcessOperator
from tidegate.typeinfo.hints import declared_key_type, declared_type
from tidegate.typeinfo.types import BYTE, PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.operator import Operator
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state import MapStateDescriptor
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.api.windows.assigners import WindowAssigner
    from tidegate.config.spans import Span
    from tidegate.datastream.connected import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.joined import CoGroupedWindows, JoinedStreams, JoinedWindows
    from tidegate.datastream.keyed import KeyedStream
    from tidegate.datastream.settings.execution_config import ExecutionConfig
    from tidegate.datastream.windowed import AllWindowedStream
    from tidegate.graph.transformations import Transformation
    from tidegate.operators.arrow.frames import Form
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
K = TypeVar("K")


class DataStream(StreamOutputs[T]):
    """A stream of records.

    >>> words = env.from_collection(["to be", "or not"]).flat_map(str.split)
    """

    # The step that made the stream

    def get_name(self) -> str:
        """Name of the step that made the stream."""
        return self._step("get_name").name

    def name(self, name: str) -> DataStream[T]:
        """Names the step, for plans, metrics and messages."""
        checks.check_text(name, "name")
        self._step("name").name = name
        return self

    def uid(self, uid: str) -> DataStream[T]:
        """Gives the step an id of its own, by which a restore finds its state.

        >>> counts = words.key_by(str).process(Count()).uid("counts")
        """
        checks.check_text(uid, "uid")
        self._step("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStream[T]:
        """Sets the id, 32 hexadecimal digits, by which state is looked up first."""
        checks.set_uid_hash(self._step("set_uid_hash"), uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStream[T]:
        """Sets in how many subtasks the step runs."""
        checks.set_parallelism(self._step("set_parallelism"), parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream[T]:
        """Sets the step's number of key groups, the upper bound of any later parallelism."""
        checks.set_max_parallelism(self._step("set_max_parallelism"), max_parallelism)
        return self

    def force_non_parallel(self) -> DataStream[T]:
        """Runs the step in one subtask, now and after any rescale."""
        step = self._step("force_non_parallel")
        step.parallelism = step.parallelism_max = step.max_parallelism = 1
        return self

    def set_description(self, description: str) -> DataStream[T]:
        """Describes the step in the plan at more length than its name."""
        checks.check_text(description, "set_description")
        self._step("set_description").description = description
        return self

    def set_buffer_timeout(self, timeout_millis: Span) -> DataStream[T]:
        """Sets at which age part-filled batches of the step are sent; a number is milliseconds."""
        timeout_ms = millis_of(timeout_millis, where="set_buffer_timeout")
        self._step("set_buffer_timeout").buffer_timeout_ms = timeout_ms
        return self

    def start_new_chain(self) -> DataStream[T]:
        """Begins a new chain of operators with this step."""
        self._step("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> DataStream[T]:
        """Runs the step in a task of its own."""
        self._step("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStream[T]:
        """Names a group; kept without effect, since each slot hosts a subtask of every step."""
        self._step("slot_sharing_group").slot_sharing_group = group_name(slot_sharing_group)
        return self

    def get_type(self) -> TypeInformation:
        """Type of the records; of any picklable object where none was declared."""
        return self._type or PICKLED

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream was built on."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The execution settings of its environment; changing them changes the job."""
        return self._environment.get_config()

    # Steps, record by record

    def map(
        self,
        func: MapFunction[T, R] | Callable[[T], R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """One record for each.

        output_type: brings the results to a type: ``Types.ROW([...])``, ``tuple[str, int]``, a
        dataclass; left out, they are any Python objects.

        >>> env.from_collection([1, 2]).map(lambda n: n * 10)
        """
        checks.check_function(func, MapFunction, "map")
        declared = types.result_type(output_type, func, "map")
        return self._then("Map", MapOperator(func), func, declared)

    def flat_map(
        self,
        func: FlatMapFunction[T, R] | Callable[[T], Iterable[R] | None],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records for each: an iterable, a generator, or None for nothing.

        >>> lines.flat_map(lambda line: line.split())
        """
        checks.check_function(func, FlatMapFunction, "flat_map")
        declared = types.result_type(output_type, func, "flat_map", iterable=True)
        return self._then("FlatMap", FlatMapOperator(func), func, declared)

    def filter(self, func: FilterFunction[T] | Callable[[T], object]) -> DataStream[T]:
        """The records for which the function gives something true.

        >>> numbers.filter(lambda n: n % 2)
        """
        checks.check_function(func, FilterFunction, "filter")
        checks.check_decides(func)
        return self._then("Filter", FilterOperator(func), func, self._type)

    def process(
        self, func: ProcessFunction[T, R], output_type: TypeHint | None = None
    ) -> DataStream[R]:
        """Any number of records for each, knowing its event time."""
        checks.check_function_object(
            func,
            ProcessFunction,
            "process",
            otherwise="Call key_by first."
            if isinstance(func, KeyedProcessFunction)
            else "Derive a class from ProcessFunction.",
        )
        declared = types.result_type(output_type, func, "process_element", iterable=True)
        return self._then("Process", ProcessOperator(func), func, declared)

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """What the step that made the stream yields with a tag; nothing where it yields none.

        >>> late = OutputTag("late")
        >>> numbers.process(SplitLate(late)).get_side_output(late)
        """
        checks.check_tag(output_tag, "get_side_output")
        step = self._step("get_side_output")
        if output_tag.type_info is not None:
            side = {output_tag.tag_id: output_tag.type_info}
            step.operator.side_types = {**step.operator.side_types, **side}
        made = SideOutputTransformation(step, output_tag.tag_id)
        return DataStream(self._environment, self._program, made, output_tag.type_info)

    def dead_letters(self, output_tag: OutputTag[DeadLetter]) -> DataStream[T]:
        """Rows for which the step's function fails go to a side output; else they fail the job.

        The side output gets a ``DeadLetter`` for each, and nothing that the failing call gave. Of a
        batch that fails, rows are tried one by one. Raises GraphError for a step with state.

        >>> BAD = OutputTag("bad")
        >>> parsed = lines.map(int).dead_letters(BAD)
        >>> parsed.get_side_output(BAD).print()
        """
        from tidegate.datastream.steps.dead_letters import tell_failed_rows

        checks.check_tag(output_tag, "dead_letters")
        tell_failed_rows(self._step("dead_letters"), output_tag)
        return self

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> DataStream[T]:
        """The records with the event time of a strategy from here on, whatever they had before.

        Watermarks from above are dropped, apart from the last one.

        >>> orders.assign_timestamps_and_watermarks(
        ...     WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
        ... )
        """
        from tidegate.operators.event_time.restamping import TimestampsOperator

        checks.check_strategy(
            watermark_strategy, "assign_timestamps_and_watermarks", can_rest=False
        )
        return self.transform(
            "Timestamps/Watermarks", TimestampsOperator(watermark_strategy), self._type
        )

    def project(self, *field_indexes: int) -> DataStream[Any]:
        """Some fields of each tuple, in the order given; the stream's type must be a tuple.

        >>> env.from_collection([(1, "a")], tuple[int, str]).project(1, 0)
        """
        kept = types.projected(self._type, field_indexes)
        operator = MapOperator(Projection(field_indexes))
        operator.keeps_type = True
        return self.transform("Projection", operator, kept)

    # Steps, batch by batch

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], object],
        output_schema: pa.Schema | None = None,
        *,
        form: Form = "arrow",
    ) -> DataStream[Any]:
        """An Arrow batch of as many rows for each; records become columns where they have to.

        output_schema: what the function gives, else what its first result has; each is held to it.
        form: what the function is given: ``"arrow"`` a ``pyarrow.RecordBatch``, ``"table"`` a
        ``pyarrow.Table``, ``"pandas"`` or ``"polars"`` a data frame. It may return any of these.

        >>> flights.map_batches(lambda batch: batch.select(["carrier", "dep_delay"]))
        >>> flights.map_batches(lambda df: df.with_columns(late=pl.col("dep_delay") > 15),
        ...     form="polars")
        """
        from tidegate.operators.arrow.batches import MapBatchesOperator

        checks.check_batch_function(func, MapFunction, "map_batches", form)
        return self._then("MapBatches", MapBatchesOperator(func, output_schema, form), func, None)

    def flat_map_batches(
        self,
        func: Callable[[pa.RecordBatch], object],
        output_schema: pa.Schema | None = None,
        *,
        form: Form = "arrow",
    ) -> DataStream[Any]:
        """Any number of Arrow batches, of any number of rows, for each; they lose event time.

        The function returns or yields them, or None for nothing. output_schema, form: as for
        ``map_batches``.
        """
        from tidegate.operators.arrow.batches import FlatMapBatchesOperator

        checks.check_batch_function(func, FlatMapFunction, "flat_map_batches", form)
        operator = FlatMapBatchesOperator(func, output_schema, form)
        return self._then("FlatMapBatches", operator, func, None)

    def filter_batches(
        self, func: Callable[[pa.RecordBatch], object], *, form: Form = "arrow"
    ) -> DataStream[T]:
        """The rows for which the function's booleans are true: of Arrow, NumPy, pandas or polars.

        >>> flights.filter_batches(lambda batch: pc.greater(batch["dep_delay"], 15))
        """
        from tidegate.operators.arrow.batches import FilterBatchesOperator

        checks.check_batch_function(func, FilterFunction, "filter_batches", form)
        return self._then("FilterBatches", FilterBatchesOperator(func, form), func, self._type)

    # How records find their subtask

    @overload
    def key_by(self, key_selector: str, key_type: TypeHint | None = None) -> KeyedStream[T]: ...
    @overload
    def key_by(
        self,
        key_selector: KeySelector[T, K] | Callable[[T], K],
        key_type: TypeHint | None = None,
    ) -> KeyedStream[T]: ...
    def key_by(
        self,
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
        key_type: TypeHint | None = None,
    ) -> KeyedStream[T]:
        """Records of one key to one subtask; what follows has state for each key.

        key_selector: a function of the record, or the name of a column, which works on Arrow
        batches as they are. key_type: declares the key's type; otherwise it is what the keys are,
        which have to be of one type.

        >>> flights.key_by(lambda f: (f["origin"], f["carrier"])).process(DelayStats())
        """
        from tidegate.datastream.keyed import KeyedStream

        key = self._key_by(key_selector, key_type, "key_by")
        made = PartitionTransformation(self._transformation, Partitioner.HASH, key)
        return KeyedStream(self._environment, self._program, made, key, self._type)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream[T]:
        """All records in windows, in one subtask.

        >>> clicks.window_all(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(max)
        """
        from tidegate.datastream.windowed import AllWindowedStream

        return AllWindowedStream(self.key_by(_no_key, BYTE), window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T]:
        """Windows of so many records, one after the other, or one starting each slide.

        Only windows that are full fire.
        """
        return self.window_all(count_windows(size, slide))

    def reinterpreted(self, key_selector: object, key_type: TypeHint | None) -> KeyedStream[T]:
        """See ``DataStreamUtils.reinterpret_as_keyed_stream``."""
        from tidegate.datastream.keyed import KeyedStream
        from tidegate.operators.process.keying import ReinterpretOperator

        key = self._key_by(key_selector, key_type, "reinterpret_as_keyed_stream")
        keyed = self.transform("Reinterpret", ReinterpretOperator(key), None)
        made = PartitionTransformation(keyed._transformation, Partitioner.FORWARD, key)
        return KeyedStream(self._environment, self._program, made, key, self._type)

    def partition_custom(
        self,
        partitioner: PartitionFunction | Callable[[K, int], int],
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
    ) -> DataStream[T]:
        """Each record to the subtask that the partitioner gives for (key, number of subtasks)."""
        if isinstance(partitioner, PartitionFunction):
            checks.check_never_opened(partitioner, "partition_custom")
            partition: Callable[..., int] = partitioner.partition
        else:
            checks.check_function(partitioner, PartitionFunction, "partition_custom")
            partition = partitioner
        key = self._key_by(key_selector, None, "partition_custom")
        made = PartitionTransformation(self._transformation, Partitioner.CUSTOM, key, partition)
        return self._with(made)

    def rebalance(self) -> DataStream[T]:
        """Records to all subtasks in turn."""
        return self._partitioned(Partitioner.REBALANCE)

    def rescale(self) -> DataStream[T]:
        """Records in turn to those subtasks that are near, without a full exchange."""
        return self._partitioned(Partitioner.RESCALE)

    def shuffle(self) -> DataStream[T]:
        """Each record to a subtask drawn at random."""
        return self._partitioned(Partitioner.SHUFFLE)

    @overload
    def broadcast(self) -> DataStream[T]: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[T]: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T] | BroadcastStream[T]:
        """Each record to every subtask; with descriptors, into broadcast state there (`connect`).

        >>> rules.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
        """
        if broadcast_state_descriptor is None:
            return self._partitioned(Partitioner.BROADCAST)
        from tidegate.datastream.connected import BroadcastStream

        given = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return BroadcastStream(self, given)

    def forward(self) -> DataStream[T]:
        """Each subtask's records to one subtask; both sides have the same parallelism."""
        return self._partitioned(Partitioner.FORWARD)

    def global_(self) -> DataStream[T]:
        """All records to the first subtask (``global`` in Flink, a keyword here)."""
        return self._partitioned(Partitioner.GLOBAL)

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """This stream and others as one, in no order between them.

        >>> morning.union(evening, night)
        """
        self._check_together(streams, "union")
        if not streams:
            return self._with(self._transformation)
        given = (self, *streams)
        made = UnionTransformation(tuple(each._transformation for each in given))
        of = types.united([each._type for each in given])
        return DataStream(self._environment, self._program, made, of)

    @overload
    def connect(self, ds: BroadcastStream[S]) -> BroadcastConnectedStream[T, S]: ...
    @overload
    def connect(self, ds: DataStream[S]) -> ConnectedStreams[T, S]: ...
    def connect(
        self, ds: DataStream[S] | BroadcastStream[S]
    ) -> ConnectedStreams[T, S] | BroadcastConnectedStream[T, S]:
        """This stream and another one as the two inputs of one step, which shares its state.

        >>> orders.connect(payments).key_by(order_of, paid_order_of).process(Match())
        """
        from tidegate.datastream import connected

        if isinstance(ds, connected.BroadcastStream):
            descriptors = ds.broadcast_state_descriptors
            return connected.BroadcastConnectedStream(self, ds, descriptors)
        checks.check_stream(ds, DataStream, "connect")
        return connected.ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream[S]) -> JoinedStreams[JoinedWindows[T, S]]:
        """Pairs of records of this stream and another that have a key and a window in common.

        >>> orders.join(payments).where(key_of).equal_to(key_of).window(windows).apply(pair_up)
        """
        from tidegate.datastream.joined import JoinedStreams, JoinedWindows

        checks.check_stream(other_stream, DataStream, "join")
        return JoinedStreams(self, other_stream, JoinedWindows[T, S])

    def co_group(self, other_stream: DataStream[S]) -> JoinedStreams[CoGroupedWindows[T, S]]:
        """As ``join``, for all records of a key and window at once, those without a pair too."""
        from tidegate.datastream.joined import CoGroupedWindows, JoinedStreams

        checks.check_stream(other_stream, DataStream, "co_group")
        return JoinedStreams(self, other_stream, CoGroupedWindows[T, S])

    # Within

    if not TYPE_CHECKING:  # a checker should flag what is not there

        def __getattr__(self, name: str) -> object:
            raise _missing(type(self), name)

    def transform(
        self,
        name: str,
        operator: Operator,
        output_type: TypeHint | None = None,
        *,
        others: Sequence[DataStream[Any]] = (),
        keyed: bool = False,
        stateful: bool = False,
        kind: NodeKind = NodeKind.OPERATOR,
    ) -> DataStream[Any]:
        """What an operator makes of this stream, its port 0, and of others, the ports after it.

        keyed: it has state of the streams' keys. stateful: it has state that a restore looks up.
        kind: what it is in a plan.
        Raises GraphError for streams of two environments.
        """
        self._check_together(others, name)
        output_type = declared_type(output_type, where=f"output_type of {name}")
        operator.result_type = output_type
        made = self._program.add(
            kind,
            name,
            operator,
            tuple(each._transformation for each in (self, *others)),
            keyed=keyed,
            stateful=stateful,
        )
        return DataStream(self._environment, self._program, made, output_type)

    def _check_together(self, others: Sequence[DataStream[Any]], call: str) -> None:
        for other in others:
            checks.check_stream(other, DataStream, call)
        if any(other._environment is not self._environment for other in others):
            raise GraphError(
                "Streams of two environments cannot be put together",
                where=call,
                remedy="Build both on one environment.",
            )

    def _step(self, call: str) -> OperatorTransformation:
        if isinstance(self._transformation, OperatorTransformation):
            return self._transformation
        raise GraphError(
            f"{call} has nothing to apply to: a union or a partitioning is no operator of its own",
            where=call,
            remedy=f"Call {call} on the step before or after it.",
        )

    def _key_by(self, selector: object, key_type: TypeHint | None, call: str) -> KeyBy:
        declared = declared_key_type(key_type, where=f"key_type of {call}")
        checks.check_key_type(declared, call)
        if isinstance(selector, str):
            types.check_column(self._type, selector, call)
            return KeyBy(column=selector, key_type=declared)
        checks.check_function(selector, KeySelector, call)
        types.check_returned(selector, "get_key", declared, f"key_type of {call}")
        if isinstance(selector, KeySelector):
            checks.check_never_opened(selector, call)
            return KeyBy(selector=selector.get_key, key_type=declared)
        assert callable(selector), "checked above"
        return KeyBy(selector=selector, key_type=declared)

    def _then(
        self, name: str, operator: Operator, func: object, output_type: TypeHint | None
    ) -> DataStream[Any]:
        return self.transform(name, operator, output_type, stateful=checks.has_state(func))

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T]:
        return self._with(PartitionTransformation(self._transformation, partitioner))

    def _with(self, transformation: Transformation) -> DataStream[T]:
        return DataStream(self._environment, self._program, transformation, self._type)


_KNOWN_ELSEWHERE: Final = {
    "groupby": "key_by",
    "where": "filter",
    "select": "map",
    "foreach": "add_sink",
    "withcolumn": "map",
}
"""What pandas, Spark and SQL call it, in small letters without underscores."""


def _missing(kind: type, name: str) -> AttributeError:
    """The error for a method that is not there. It says where the method is, or the nearest."""
    from tidegate.datastream.keyed import KeyedStream
    from tidegate.datastream.windowed import WindowedStream

    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    near = _KNOWN_ELSEWHERE.get(name.replace("_", "").lower())
    if near is not None:
        text += f"; did you mean {near!r}?"
    elif hasattr(KeyedStream, name):
        text += f"; {name} works on a keyed stream: call key_by first"
    elif hasattr(WindowedStream, name):
        first = "window" if issubclass(kind, KeyedStream) else "key_by and window"
        text += f"; {name} works on a windowed stream: call {first} first"
    elif alike := get_close_matches(name, [each for each in dir(kind) if each[0] != "_"], n=1):
        text += f"; did you mean {alike[0]!r}?"
    return AttributeError(text, name=name, obj=None)  # else Python guesses once more


def _no_key(_: object) -> int:
    return 0
