"""Where a stream's records go: to sinks, to the program, to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from tidegate.api.functions import SinkFunction
from tidegate.api.sink import Sink
from tidegate.datastream import results
from tidegate.datastream.checking import checks
from tidegate.datastream.results import CloseableIterator
from tidegate.datastream.stream_sink import DataStreamSink
from tidegate.datastream.told import step_text
from tidegate.datastream.topologies import WithPostCommitTopology, WithPreCommitTopology
from tidegate.graph.transformations import NodeKind, OperatorTransformation

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas
    import polars
    import pyarrow as pa

    from tidegate.api.job.client import JobClient
    from tidegate.api.operator import Operator
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.program import Program
    from tidegate.graph.transformations import Transformation
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")


class StreamOutputs(Generic[T]):
    """The half of a `DataStream` that ends it."""

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
        return f"<{type(self).__name__} {step_text(self._transformation, self._type)}>"

    @property
    def transformation(self) -> Transformation:
        """The node of the program that gives this stream's records."""
        return self._transformation

    def steps_after(self, step: OperatorTransformation) -> list[OperatorTransformation]:
        """The steps that were added to the program behind another one, in order."""
        return [each for each in self._program.operators if each.id > step.id]

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Records to a sink.

        >>> flights.sink_to(FileSink.parquet("out/"))
        """
        from tidegate.operators.sinks.sink import SinkOperator

        checks.check_sink(sink, "sink_to")
        if isinstance(sink, WithPreCommitTopology | WithPostCommitTopology):
            from tidegate.datastream.sink_topologies import in_parts
            from tidegate.datastream.stream import DataStream

            assert isinstance(self, DataStream), "the other half of a stream"
            return in_parts(cast("DataStream[object]", self), sink)
        return DataStreamSink(self._sunk(type(sink).__name__, SinkOperator(sink), stateful=True))

    def add_sink(self, sink_func: SinkFunction[T] | Sink | Callable[[T], object]) -> DataStreamSink:
        """Each record to a ``SinkFunction``, or to a plain function; at-least-once.

        A ``Sink`` is taken as ``sink_to`` takes it: PyFlink's ``JdbcSink`` goes here.

        >>> flights.add_sink(lambda flight: table.upsert(flight))
        """
        from tidegate.operators.sinks.function_sink import SinkFunctionOperator

        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        checks.check_function(sink_func, SinkFunction, "add_sink")
        operator = SinkFunctionOperator(sink_func)
        stateful = checks.has_state(sink_func)
        return DataStreamSink(self._sunk("Unnamed", operator, stateful=stateful))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Records to standard output, a line each, with the identifier in front.

        Records of a declared type are printed as Flink prints them, such as ``(a,1)``.
        """
        from tidegate.connectors.print import PrintSink
        from tidegate.operators.sinks.sink import SinkOperator

        if sink_identifier is not None:
            checks.check_text(sink_identifier, "print")
        sink = SinkOperator(PrintSink(sink_identifier, self._type))
        return DataStreamSink(self._sunk("Print to Std. Out", sink))

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
        """The same as a pandas DataFrame.

        >>> env.from_sequence(1, 10).to_pandas()["value"].sum()
        """
        return results.as_pandas(self.to_arrow(job_execution_name))

    def to_polars(self, job_execution_name: str | None = None) -> polars.DataFrame:
        """The same as a polars DataFrame."""
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
        from tidegate.operators.sinks.sink import SinkOperator

        frame = results.SparkFrame(self._environment, self._type, schema, folder, spark)
        inputs = (self._transformation,)
        columns = self._program.add(NodeKind.OPERATOR, "Columns", frame.columns, inputs)
        self._program.add(NodeKind.SINK, "Spark", SinkOperator(frame.sink), (columns,))
        self._environment.execute(job_execution_name)
        return frame.read()

    # Within

    def _collect(self, job_name: str | None, call: str) -> tuple[JobClient, str]:
        """Start the program with a sink whose records the client has under this name."""
        from tidegate.connectors.collect import CollectSink
        from tidegate.operators.sinks.sink import SinkOperator

        checks.check_name_of_job(job_name, call)
        name = f"collect-{self._program.number() + 1}"
        made = self._sunk("Collect", SinkOperator(CollectSink(name)))
        made.parallelism = made.parallelism_max = 1
        return self._environment.execute_async(job_name), name

    def _sunk(
        self, name: str, operator: Operator, *, stateful: bool = False
    ) -> OperatorTransformation:
        inputs = (self._transformation,)
        return self._program.add(NodeKind.SINK, name, operator, inputs, stateful=stateful)
