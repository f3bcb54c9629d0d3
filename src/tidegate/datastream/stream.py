"""Streams: what is done to records, one call after another.

Names and meaning are PyFlink's. A call that adds a step gives a new stream; ``name``, ``uid``,
``set_parallelism`` and the like change the step that made the stream, and give the stream itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from tidegate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    SinkFunction,
)
from tidegate.api.functions import Partitioner as PartitionFunction
from tidegate.api.sink import Sink
from tidegate.config.spans import millis_of
from tidegate.datastream import results, told
from tidegate.datastream.checking import checks, types
from tidegate.datastream.results import CloseableIterator
from tidegate.datastream.settings.slot_sharing import SlotSharingGroup, group_name
from tidegate.datastream.steps import batches, dead_letters, ends, keys
from tidegate.datastream.stream_sink import DataStreamSink
from tidegate.errors import GraphError, UserError
from tidegate.graph.transformations import (
    ChainingStrategy,
    NodeKind,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    UnionTransformation,
)
from tidegate.model.topology import Partitioner
from tidegate.operators.map import FilterOperator, FlatMapOperator, MapOperator
from tidegate.operators.process.process_functions import ProcessOperator
from tidegate.traced.projection import Projection
from tidegate.typeinfo.hints import declared_type
from tidegate.typeinfo.types import BYTE, PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas
    import polars
    import pyarrow as pa

    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.job import JobClient
    from tidegate.api.operator import Operator
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state import MapStateDescriptor
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.api.windows.assigners import WindowAssigner
    from tidegate.config.spans import Span
    from tidegate.datastream import connected, joined, windowed
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.program import Program
    from tidegate.datastream.settings.configs import ExecutionConfig
    from tidegate.graph.transformations import Transformation
    from tidegate.operators.arrow import Form
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
K = TypeVar("K")


class DataStream(Generic[T]):
    """A stream of records.

    >>> words = env.from_collection(["to be", "or not"]).flat_map(str.split)
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        program: Program,
        transformation: Transformation,
        output_type: TypeInformation | None = None,
    ) -> None:
        self._environment = environment
        self._program = program
        self._transformation = transformation
        self._type = output_type

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {told.step_text(self._transformation, self._type)}>"

    def _repr_html_(self) -> str | None:
        """The steps up to this one as a drawing, in notebooks; None if they do not fit together."""
        from tidegate.graph.html import steps_svg  # a notebook alone asks for it
        from tidegate.graph.stream_graph import build_stream_graph

        try:
            return steps_svg(build_stream_graph([self._transformation]))
        except UserError:
            return None

    @property
    def transformation(self) -> Transformation:
        """Node of the program that produces this stream."""
        return self._transformation

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
        self._step("uid").state.uid = uid
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
        placement = self._step("force_non_parallel").placement
        placement.parallelism = placement.most = placement.max_parallelism = 1
        return self

    def set_description(self, description: str) -> DataStream[T]:
        """Describes the step in the plan at more length than its name."""
        checks.check_text(description, "set_description")
        self._step("set_description").notes.description = description
        return self

    def set_buffer_timeout(self, timeout_millis: Span) -> DataStream[T]:
        """Sets at which age part-filled batches of the step are sent; a number is milliseconds."""
        timeout_ms = millis_of(timeout_millis, where="set_buffer_timeout")
        self._step("set_buffer_timeout").notes.buffer_timeout_ms = timeout_ms
        return self

    def start_new_chain(self) -> DataStream[T]:
        """Begins a new chain of operators with this step."""
        self._step("start_new_chain").placement.chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> DataStream[T]:
        """Runs the step in a task of its own."""
        self._step("disable_chaining").placement.chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStream[T]:
        """Names a group; kept without effect, since each slot hosts a subtask of every step."""
        notes = self._step("slot_sharing_group").notes
        notes.slot_sharing_group = group_name(slot_sharing_group)
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
        """Records that the step before emits with a tag; empty if it emits none.

        Raises GraphError where a tag with the same id and another type was asked for before.

        >>> late = OutputTag("late")
        >>> numbers.process(SplitLate(late)).get_side_output(late)
        """
        checks.check_tag(output_tag, "get_side_output")
        step = self._step("get_side_output")
        if output_tag.type_info is not None:
            types.declare_side(step.operator, output_tag.tag_id, output_tag.type_info)
        made = SideOutputTransformation(step, output_tag.tag_id)
        return DataStream(self._environment, self._program, made, output_tag.type_info)

    def dead_letters(self, output_tag: OutputTag[DeadLetter]) -> DataStream[T]:
        """Rows for which the step's function fails go to a side output; else they fail the job.

        The side output gets a ``DeadLetter`` for each, and nothing that the failing call gave. The
        rows of a failed batch are tried one by one. Raises GraphError for a step with state.

        >>> BAD = OutputTag("bad")
        >>> parsed = lines.map(int).dead_letters(BAD)
        >>> parsed.get_side_output(BAD).print()
        """
        checks.check_tag(output_tag, "dead_letters")
        dead_letters.tell_failed_rows(self._step("dead_letters"), output_tag)
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
        operator = ends.restamping(watermark_strategy)
        return self.transform("Timestamps/Watermarks", operator, self._type)

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
        operator = batches.mapping(func, output_schema, form)
        return self._then("MapBatches", operator, func, None)

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
        operator = batches.flat_mapping(func, output_schema, form)
        return self._then("FlatMapBatches", operator, func, None)

    def filter_batches(
        self, func: Callable[[pa.RecordBatch], object], *, form: Form = "arrow"
    ) -> DataStream[T]:
        """The rows for which the function's booleans are true: of Arrow, NumPy, pandas or polars.

        >>> flights.filter_batches(lambda batch: pc.greater(batch["dep_delay"], 15))
        """
        return self._then("FilterBatches", batches.filtering(func, form), func, self._type)

    # How records find their subtask

    @overload
    def key_by(
        self, key_selector: str, key_type: TypeHint | None = None
    ) -> keyed.KeyedStream[T]: ...
    @overload
    def key_by(
        self,
        key_selector: KeySelector[T, K] | Callable[[T], K],
        key_type: TypeHint | None = None,
    ) -> keyed.KeyedStream[T]: ...
    def key_by(
        self,
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
        key_type: TypeHint | None = None,
    ) -> keyed.KeyedStream[T]:
        """Records of one key to one subtask; what follows has state for each key.

        key_selector: a function of the record, or the name of a column, which works on Arrow
        batches as they are. key_type: declares the key's type; otherwise it is what the keys are,
        which have to be of one type.

        >>> flights.key_by(lambda f: (f["origin"], f["carrier"])).process(DelayStats())
        """
        key = keys.key_of(key_selector, key_type, self._type, "key_by")
        made = PartitionTransformation(self._transformation, Partitioner.HASH, key)
        return keyed.KeyedStream(self._environment, self._program, made, key, self._type)

    def window_all(
        self, window_assigner: WindowAssigner[Any, Any]
    ) -> windowed.AllWindowedStream[T]:
        """All records in windows, in one subtask.

        >>> clicks.window_all(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(max)
        """
        from tidegate.datastream import windowed

        return windowed.AllWindowedStream(self.key_by(keys.no_key, BYTE), window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> windowed.AllWindowedStream[T]:
        """Windows of so many records, one after the other, or one starting each slide.

        Only windows that are full fire.
        """
        from tidegate.api.windows.assigners import count_windows

        return self.window_all(count_windows(size, slide))

    def reinterpreted(
        self, key_selector: object, key_type: TypeHint | None
    ) -> keyed.KeyedStream[T]:
        """See ``DataStreamUtils.reinterpret_as_keyed_stream``."""
        key = keys.key_of(key_selector, key_type, self._type, "reinterpret_as_keyed_stream")
        checked = self.transform("Reinterpret", keys.reinterpreting(key), None)
        made = PartitionTransformation(checked._transformation, Partitioner.FORWARD, key)
        return keyed.KeyedStream(self._environment, self._program, made, key, self._type)

    def partition_custom(
        self,
        partitioner: PartitionFunction | Callable[[K, int], int],
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
    ) -> DataStream[T]:
        """Each record to the subtask that the partitioner gives for (key, number of subtasks)."""
        partition = keys.partition_of(partitioner)
        key = keys.key_of(key_selector, None, self._type, "partition_custom")
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
    ) -> connected.BroadcastStream[T]: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T] | connected.BroadcastStream[T]:
        """Each record to every subtask; with descriptors, into broadcast state there (`connect`).

        >>> rules.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
        """
        if broadcast_state_descriptor is None:
            return self._partitioned(Partitioner.BROADCAST)
        from tidegate.datastream import connected

        given = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return connected.BroadcastStream(self, given)

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
    def connect(
        self, ds: connected.BroadcastStream[S]
    ) -> connected.BroadcastConnectedStream[T, S]: ...
    @overload
    def connect(self, ds: DataStream[S]) -> connected.ConnectedStreams[T, S]: ...
    def connect(
        self, ds: DataStream[S] | connected.BroadcastStream[S]
    ) -> connected.ConnectedStreams[T, S] | connected.BroadcastConnectedStream[T, S]:
        """This stream and another one as the two inputs of one step, which shares its state.

        >>> orders.connect(payments).key_by(order_of, paid_order_of).process(Match())
        """
        from tidegate.datastream import connected

        if isinstance(ds, connected.BroadcastStream):
            descriptors = ds.broadcast_state_descriptors
            return connected.BroadcastConnectedStream(self, ds, descriptors)
        checks.check_stream(ds, DataStream, "connect")
        return connected.ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream[S]) -> joined.JoinedStreams[joined.JoinedWindows[T, S]]:
        """Pairs of records of this stream and another that have a key and a window in common.

        >>> orders.join(payments).where(key_of).equal_to(key_of).window(windows).apply(pair_up)
        """
        checks.check_stream(other_stream, DataStream, "join")
        from tidegate.datastream import joined

        return joined.JoinedStreams(self, other_stream, joined.JoinedWindows[T, S])

    def co_group(
        self, other_stream: DataStream[S]
    ) -> joined.JoinedStreams[joined.CoGroupedWindows[T, S]]:
        """Works as ``join``, for all records of a key and window at once, paired or not."""
        checks.check_stream(other_stream, DataStream, "co_group")
        from tidegate.datastream import joined

        return joined.JoinedStreams(self, other_stream, joined.CoGroupedWindows[T, S])

    # Where records go

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Records to a sink.

        >>> flights.sink_to(FileSink.parquet("out/"))
        """
        checks.check_sink(sink, "sink_to")
        if topologies.has_steps(sink):
            return topologies.in_parts(self, sink)
        return DataStreamSink(self._sunk(type(sink).__name__, ends.into(sink), stateful=True))

    def add_sink(self, sink_func: SinkFunction[T] | Sink | Callable[[T], object]) -> DataStreamSink:
        """Each record to a ``SinkFunction``, or to a plain function; at-least-once.

        A ``Sink`` is taken as ``sink_to`` takes it: PyFlink's ``JdbcSink`` goes here.

        >>> flights.add_sink(lambda flight: table.upsert(flight))
        """
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        operator = ends.into_function(sink_func)
        stateful = checks.has_state(sink_func)
        return DataStreamSink(self._sunk("Unnamed", operator, stateful=stateful))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Records to standard output, a line each, with the identifier in front.

        Records of a declared type are printed as Flink prints them, such as ``(a,1)``.
        """
        operator = ends.printing(sink_identifier, self._type)
        return DataStreamSink(self._sunk("Print to Std. Out", operator))

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T]: ...
    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T] | list[T]:
        """Runs the program and gives this stream's records to it.

        Without limit an iterator; closing it cancels the job. With limit a list of at most so many
        records, after which the job is cancelled. Raises what ends the job.

        >>> with env.from_collection([1, 2]).map(str).execute_and_collect() as texts:
        ...     print(list(texts))
        """
        if limit is not None:
            checks.check_whole_number(limit, "the limit of execute_and_collect", 1)
        started = self._collect(job_execution_name, "execute_and_collect")
        rows: CloseableIterator[T] = CloseableIterator(*started)
        if limit is None:
            return rows
        with rows:
            return rows.take(limit)

    def collect(self, job_execution_name: str | None = None) -> CloseableIterator[T]:
        """Run the program, and get this stream's records while the job runs.

        The loop raises what ends the job. A loop that is left early cancels it; a ``with`` block
        around the loop also waits for its end.

        >>> for word in words.collect():
        ...     print(word)
        """
        return CloseableIterator(*self._collect(job_execution_name, "collect"))

    def to_arrow(self, job_execution_name: str | None = None) -> pa.Table:
        """Run the program, which has to end, and get this stream's records as an Arrow table.

        Columns come from Arrow batches as they are, from rows by the declared type, else as their
        values are: fields by name, a tuple's as f0, f1 and so on, anything else as `value`. Raises
        BadRecord that names the column which cannot be of one type.

        >>> env.from_collection([{"id": 1}, {"id": 2}]).to_arrow()
        """
        results.check_bounded((*self._program.operators, self._transformation), "to_arrow")
        return results.table(*self._collect(job_execution_name, "to_arrow"), self._type)

    def to_pandas(self, job_execution_name: str | None = None) -> pandas.DataFrame:
        """All records as a pandas DataFrame.

        >>> env.from_sequence(1, 10).to_pandas()["value"].sum()
        """
        return results.as_pandas(self.to_arrow(job_execution_name))

    def to_polars(self, job_execution_name: str | None = None) -> polars.DataFrame:
        """All records as a polars DataFrame."""
        return results.as_polars(self.to_arrow(job_execution_name))

    def to_spark(
        self,
        schema: object = None,
        *,
        folder: str | None = None,
        spark: object = None,
        job_execution_name: str | None = None,
    ) -> Any:
        """Run the program, which has to end, and get this stream's records as a Spark DataFrame.

        They are written to Parquet files, exactly-once, which the DataFrame reads whenever it is
        used. Columns are made as by `to_arrow`, but decimals whose width nobody has declared are
        decimal(38, 18).

        schema: the columns: Spark's, as a StructType or a text, or Arrow's; None takes the declared
        type, else finds them. folder: an empty one for the files, which then stay; None makes one
        that is deleted when this process ends. spark: the session; None takes the environment's.

        >>> env.from_sequence(1, 10).to_spark("value bigint").count()
        """
        results.check_bounded((*self._program.operators, self._transformation), "to_spark")
        columns = results.columns_for_spark(self._type, schema)
        session = self._environment.spark if spark is None else spark
        settings = self._environment.get_configuration()
        frame = results.SparkFrame(columns, session, settings, folder)
        self.transform("Columns", frame.columns)._sunk("Spark", ends.into(frame.sink))
        self._environment.execute(job_execution_name)
        return frame.read()

    # Within

    if not TYPE_CHECKING:  # a checker should flag what is not there

        def __getattr__(self, name: str) -> object:
            from tidegate.datastream import windowed

            kinds = keyed.KeyedStream, windowed.WindowedStream
            raise told.missing(type(self), name, *kinds)

    def steps_after(self, step: OperatorTransformation) -> list[OperatorTransformation]:
        """The steps that were added to the program behind another one, in order."""
        return [each for each in self._program.operators if each.id > step.id]

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
        """Applies an operator to this stream, its port 0, and to others, the ports after it.

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
            f"{call} has nothing to apply to: a union or a partitioning does not make an operator",
            where=call,
            remedy=f"Call {call} on the step before or after it.",
        )

    def _then(
        self, name: str, operator: Operator, func: object, output_type: TypeHint | None
    ) -> DataStream[Any]:
        return self.transform(name, operator, output_type, stateful=checks.has_state(func))

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T]:
        return self._with(PartitionTransformation(self._transformation, partitioner))

    def _with(self, transformation: Transformation) -> DataStream[T]:
        return DataStream(self._environment, self._program, transformation, self._type)

    def _collect(self, job_name: str | None, call: str) -> tuple[JobClient, str]:
        """Start the program with a sink whose records the client has under this name."""
        checks.check_name_of_job(job_name, call)
        name = f"collect-{self._program.number() + 1}"
        made = self._sunk("Collect", ends.collecting(name))
        made.placement.parallelism = made.placement.most = 1
        return self._environment.execute_async(job_name), name

    def _sunk(
        self, name: str, operator: Operator, *, stateful: bool = False
    ) -> OperatorTransformation:
        inputs = (self._transformation,)
        return self._program.add(NodeKind.SINK, name, operator, inputs, stateful=stateful)


# Last, for these modules need the class above: a keyed stream is a stream. Windows, joins and pairs
# of streams are loaded by the methods that need them: most programs have none, and each module
# that a program loads makes its first row later.
from tidegate.datastream import keyed, topologies  # noqa: E402
