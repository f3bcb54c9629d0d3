"""Where a program's records come from: the sources of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidegate.datastream.checking import checks, collections
from tidegate.datastream.checking.types import converted, result_type
from tidegate.graph.runtime import load_frames
from tidegate.graph.transformations import NodeKind
from tidegate.typeinfo.hints import declared_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas
    import polars
    import pyarrow as pa

    from tidegate.api.source import Source
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.program import Program
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")


class StreamSources:
    """The half of a `StreamExecutionEnvironment` that programs begin with."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def from_source(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Source",
        type_info: TypeHint | None = None,
    ) -> DataStream[Any]:
        """A stream of what a source reads.

        type_info: brings the records to a type; left out, they are of the source's own.

        >>> flights = FileSource.parquet("flights/")
        >>> env.from_source(flights, WatermarkStrategy.no_watermarks(), "flights")
        """
        checks.check_source(source, "from_source")
        if watermark_strategy is not None:
            checks.check_strategy(watermark_strategy, "from_source", can_rest=True)
        declared = declared_type(type_info, where="from_source")
        return self._read(source, watermark_strategy, source_name, declared)

    def from_collection(
        self, collection: Iterable[T], type_info: TypeHint | None = None
    ) -> DataStream[T]:
        """A bounded stream of these values, in order, at parallelism 1.

        type_info: brings them to a type, such as tuples to rows; left out, they are what they are.
        Tables of Arrow, pandas or polars are read as by ``from_arrow``. Raises GraphError for a
        value that cannot be of the type, and for an iterator without an end.

        >>> env.from_collection([("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
        """
        from tidegate.connectors.collection import CollectionSource

        declared = declared_type(type_info, where="from_collection")
        if not collections.is_table(collection):
            values = collections.values_of(collection)
        elif declared is None:
            return self.from_arrow(cast("pa.Table", collection))
        else:
            values = collections.table_of(collection, "from_collection").to_pylist()
        if declared is not None:
            values = converted(values, declared, "from_collection")
        source = CollectionSource(values, declared)
        return self._read(source, None, "Collection Source", None, parallelism_max=1)

    def from_arrow(
        self,
        table: pa.Table | pa.RecordBatch,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Arrow Table",
    ) -> DataStream[Any]:
        """A bounded stream of the rows of an Arrow table, in order, at parallelism 1.

        Rows come as Arrow batches, as dicts in functions of rows. The table travels with the job:
        read large ones from files. Raises GraphError for what is no table.

        >>> env.from_arrow(pa.table({"shop": ["x", "y"], "amount": [3, 4]})).key_by("shop")
        """
        return self._of_table(table, watermark_strategy, source_name, "from_arrow")

    def from_pandas(
        self,
        df: pandas.DataFrame,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "pandas DataFrame",
    ) -> DataStream[Any]:
        """The same for a pandas DataFrame; its index is left out, ``df.reset_index()`` keeps it.

        >>> env.from_pandas(pd.DataFrame({"shop": ["x", "y"], "amount": [3, 4]}))
        """
        return self._of_table(df, watermark_strategy, source_name, "from_pandas")

    def from_polars(
        self,
        df: polars.DataFrame,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "polars DataFrame",
    ) -> DataStream[Any]:
        """The same for a polars DataFrame."""
        return self._of_table(df, watermark_strategy, source_name, "from_polars")

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """The numbers from ``start`` to ``end``, both included, in order within a subtask.

        >>> env.from_sequence(1, 1_000_000)
        """
        from tidegate.connectors.generator import NumberSequenceSource

        for bound in (start, end):
            checks.check_whole_number(bound, "from_sequence")
        return self._read(NumberSequenceSource(start, end), None, "Sequence Source", None)

    def generate(
        self,
        generator_function: Callable[[int], T],
        count: int | None = None,
        rate: float | None = None,
        type_info: TypeHint | None = None,
    ) -> DataStream[T]:
        """What a function gives for 0, 1, 2 and so on.

        count: how many records; None goes on for ever. rate: records a second over all subtasks;
        None makes as many as are taken.

        >>> env.generate(lambda n: {"sensor": n % 5, "reading": n / 7}, count=1_000, rate=100)
        """
        from tidegate.connectors.generator import DataGeneratorSource

        checks.check_plain_function(generator_function, "generate")
        if count is not None:
            checks.check_whole_number(count, "the count of generate", 0)
        declared = result_type(type_info, generator_function, "generate")
        source = DataGeneratorSource(generator_function, count, rate, declared)
        return self._read(source, None, "Data Generator", declared)

    def read_text_file(self, file_path: str) -> DataStream[str]:
        """The lines of a text file, or of all files in a folder, each without its end.

        >>> env.read_text_file("logs/").filter(lambda line: "ERROR" in line)
        """
        from tidegate.connectors.files.file_source import FileSource

        return self._read(FileSource.text(file_path), None, "Text File Source", None)

    def from_spark(
        self,
        df: object,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Spark DataFrame",
        *,
        folder: str | None = None,
    ) -> DataStream[Any]:
        """A bounded stream of the rows of a Spark DataFrame: any table, file, JDBC or SQL query.

        Spark writes it as Parquet once, when the job starts and before it takes slots; readers
        keep positions in these files, which are deleted when the job has ended and keeps no
        checkpoint. Rows come as Arrow batches, as dicts in functions of rows.

        folder: where they are written; None is beside the checkpoints, or a temporary folder
        where there are none and Spark runs on this machine. Raises ConfigError, naming all columns
        at fault, for types that would not arrive as they are.

        >>> env.from_spark(spark.table("orders").where("price > 10"))
        """
        from tidegate.connectors.frames.frame_source import FrameSource

        source = FrameSource(load_frames().StagedFrame(df, folder))
        return self._read(source, watermark_strategy, source_name, None)

    def _of_table(
        self,
        table: object,
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        call: str,
    ) -> DataStream[Any]:
        from tidegate.connectors.tables import TableSource

        if watermark_strategy is not None:
            checks.check_strategy(watermark_strategy, call, can_rest=True)
        source = TableSource(collections.table_of(table, call))
        return self._read(source, watermark_strategy, name, None, parallelism_max=1)

    def _read(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation | None,
        *,
        parallelism_max: int | None = None,
    ) -> DataStream[Any]:
        from tidegate.datastream.stream import DataStream
        from tidegate.operators.sources.source import SourceReaderOperator

        operator = SourceReaderOperator(source, watermark_strategy, name, type_info)
        made = self._program.add(
            NodeKind.SOURCE, name, operator, stateful=True, parallelism_max=parallelism_max
        )
        environment = cast("StreamExecutionEnvironment", self)
        return DataStream(environment, self._program, made, type_info or source.produced_type)
