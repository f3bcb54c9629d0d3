"""Both ends of a stream: sources, what a program passes in, and sinks.

Each module of a source or sink is loaded with the first that is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.functions import SinkFunction
from tidegate.datastream.checking import checks
from tidegate.datastream.checking.types import converted
from tidegate.datastream.spark_frames import load_frames
from tidegate.errors import GraphError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tidegate.api.operator import Operator
    from tidegate.api.sink import Committer, Sink
    from tidegate.api.source import Source
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.typeinfo.types import TypeInformation


def reading(
    source: Source[Any],
    strategy: WatermarkStrategy | None,
    name: str,
    record_type: TypeInformation | None,
) -> Operator:
    from tidegate.operators.sources.source import SourceReaderOperator

    return SourceReaderOperator(source, strategy, name, record_type)


def restamping(strategy: WatermarkStrategy) -> Operator:
    from tidegate.operators.event_time.event_time import TimestampsOperator

    checks.check_strategy(strategy, "assign_timestamps_and_watermarks", can_rest=False)
    return TimestampsOperator(strategy)


def collection(given: Iterable[Any], record_type: TypeInformation | None) -> Source[Any]:
    from tidegate.connectors.collection import CollectionSource

    table = table_of(given, "from_collection") if is_table(given) else None
    values = values_of(given) if table is None else table.to_pylist()
    if record_type is not None:
        values = converted(values, record_type, "from_collection")
    return CollectionSource(values, record_type)


def table(given: object, strategy: WatermarkStrategy | None, call: str) -> Source[Any]:
    from tidegate.connectors.tables import TableSource

    if strategy is not None:
        checks.check_strategy(strategy, call, can_rest=True)
    return TableSource(table_of(given, call))


def sequence(start: int, end: int) -> Source[Any]:
    from tidegate.connectors.generator import NumberSequenceSource

    for bound in (start, end):
        checks.check_whole_number(bound, "from_sequence")
    return NumberSequenceSource(start, end)


def generated(
    function: Callable[[int], Any],
    count: int | None,
    rate: float | None,
    record_type: TypeInformation | None,
) -> Source[Any]:
    from tidegate.connectors.generator import DataGeneratorSource

    return DataGeneratorSource(function, count, rate, record_type)


def lines(path: str) -> Source[Any]:
    from tidegate.connectors.files.file_source import FileSource

    return FileSource.text(path)


def frame(df: object, folder: str | None) -> Source[Any]:
    from tidegate.connectors.frames.frame_source import FrameSource

    return FrameSource(load_frames().StagedFrame(df, folder))


def into(sink: Sink) -> Operator:
    from tidegate.operators.sinks.sink import SinkOperator

    return SinkOperator(sink)


def into_function(function: SinkFunction[Any] | Callable[[Any], object]) -> Operator:
    from tidegate.operators.map import SinkFunctionOperator

    checks.check_function(function, SinkFunction, "add_sink")
    return SinkFunctionOperator(function)


def printing(identifier: str | None, record_type: TypeInformation | None) -> Operator:
    from tidegate.connectors.print import PrintSink

    if identifier is not None:
        checks.check_text(identifier, "print")
    return into(PrintSink(identifier, record_type))


def collecting(name: str) -> Operator:
    from tidegate.connectors.collect import CollectSink

    return into(CollectSink(name))


def writing(sink: Sink) -> Operator:
    from tidegate.operators.sinks.sink_topology import SinkWriterOperator

    return SinkWriterOperator(sink)


def committing(committer: Callable[[], Committer | None]) -> Operator:
    from tidegate.operators.sinks.sink_topology import CommitterOperator

    return CommitterOperator(committer)


ENDLESS: Final = 10_000_000
"""Values of an iterator after which it is taken for one without an end."""

_FRAMES: Final = {("pandas", "DataFrame"), ("polars", "DataFrame")}
_TABLES: Final = {("pyarrow", "Table"), ("pyarrow", "RecordBatch"), *_FRAMES}
_COLUMNS: Final = {("pyarrow", "ChunkedArray"): "to_pylist", ("numpy", "ndarray"): "tolist"}


def is_table(given: object) -> bool:
    """True for a table of Arrow, pandas or polars; loads none of them."""
    return _kind(given) in _TABLES


def values_of(given: object) -> list[Any]:
    """Values of an iterable. Raises GraphError for anything else, and for one without an end."""
    if isinstance(given, Mapping):
        raise _unfit(given, "a mapping, of which only the keys would be taken", "its items()")
    if isinstance(given, str | bytes):
        raise _unfit(given, "a text, of which each character would be a record", "a list of texts")
    library, kind = _kind(given)
    as_python = _COLUMNS.get((library, kind))
    if library == "pyarrow" and kind.endswith("Array"):
        as_python = "to_pylist"
    if as_python is not None:
        return getattr(given, as_python)()
    if not isinstance(given, Iterable):
        raise _unfit(given, with_article(type(given)), "a list, or another iterable of values")
    values = cast("Iterable[Any]", given)
    if isinstance(given, Sized):
        return list(values)
    taken = list(islice(values, ENDLESS + 1))
    if len(taken) > ENDLESS:
        raise GraphError(
            f"{type(given).__name__} has given {ENDLESS:,} values and does not end",
            where="from_collection",
            remedy="A collection is held in memory: take env.generate or a source for a stream "
            "without an end, and hand in a list where there really are so many values.",
        )
    return taken


def table_of(given: object, call: str) -> pa.Table:
    """A table of Arrow, pandas or polars as Arrow's.

    Raises GraphError for anything else, and for columns that do not become Arrow's.
    """
    import pyarrow as pa

    from tidegate.operators.arrow import taken

    if isinstance(given, pa.Table):
        return given
    try:
        batch = taken(given, None)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise GraphError(
            f"the data frame does not become Arrow columns: {error}",
            where=call,
            remedy="Make the values of each column of one type.",
        ) from None
    if batch is None:
        raise GraphError(
            f"{call} takes a table or data frame, not {type(given).__name__}",
            where=call,
            remedy="Give a pyarrow.Table or RecordBatch, or a DataFrame of pandas or polars; "
            "from_collection takes lists.",
        )
    return pa.Table.from_batches([batch])


def _kind(given: object) -> tuple[str, str]:
    kind = type(given)
    return kind.__module__.partition(".")[0], kind.__name__


def _unfit(given: object, what: str, instead: str) -> GraphError:
    return GraphError(
        f"from_collection was given {what}",
        where="from_collection",
        remedy=f"Give {instead}.",
    )
