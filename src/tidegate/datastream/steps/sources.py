"""Sources and event time. Each module of a source is loaded with the first that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.datastream.checking import checks, collections
from tidegate.datastream.checking.types import converted
from tidegate.graph.runtime import load_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.api.operator import Operator
    from tidegate.api.source import Source
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.typeinfo.types import TypeInformation


def reading(
    source: Source[Any],
    strategy: WatermarkStrategy | None,
    name: str,
    record_type: TypeInformation | None,
) -> Operator:
    """An operator that reads a source."""
    from tidegate.operators.sources.source import SourceReaderOperator

    return SourceReaderOperator(source, strategy, name, record_type)


def restamping(strategy: WatermarkStrategy) -> Operator:
    """An operator that gives records the event time of a strategy. Raises GraphError."""
    from tidegate.operators.event_time.restamping import TimestampsOperator

    checks.check_strategy(strategy, "assign_timestamps_and_watermarks", can_rest=False)
    return TimestampsOperator(strategy)


def collection(given: Iterable[Any], record_type: TypeInformation | None) -> Source[Any]:
    """A source of values, in order. Raises GraphError for what cannot be of the type."""
    from tidegate.connectors.collection import CollectionSource

    if collections.is_table(given):
        values = collections.table_of(given, "from_collection").to_pylist()
    else:
        values = collections.values_of(given)
    if record_type is not None:
        values = converted(values, record_type, "from_collection")
    return CollectionSource(values, record_type)


def table(given: object, strategy: WatermarkStrategy | None, call: str) -> Source[Any]:
    """A source of the rows of a table. Raises GraphError for what is none."""
    from tidegate.connectors.tables import TableSource

    if strategy is not None:
        checks.check_strategy(strategy, call, can_rest=True)
    return TableSource(collections.table_of(given, call))


def sequence(start: int, end: int) -> Source[Any]:
    """A source of the numbers between two bounds, both included. Raises GraphError."""
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
    """A source of what a function gives for 0, 1, 2 and so on."""
    from tidegate.connectors.generator import DataGeneratorSource

    return DataGeneratorSource(function, count, rate, record_type)


def lines(path: str) -> Source[Any]:
    """A source of the lines of text files."""
    from tidegate.connectors.files.file_source import FileSource

    return FileSource.text(path)


def frame(df: object, folder: str | None) -> Source[Any]:
    """A source of the rows of a Spark DataFrame. Raises ConfigError."""
    from tidegate.connectors.frames.frame_source import FrameSource

    return FrameSource(load_frames().StagedFrame(df, folder))
