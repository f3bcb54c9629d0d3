"""Operators that end a stream. Their modules, which need asyncio, are loaded with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.functions import SinkFunction
from tidegate.datastream.checking import checks

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidegate.api.operator import Operator
    from tidegate.api.sink import Committer, Sink
    from tidegate.typeinfo.types import TypeInformation


def of(sink: Sink) -> Operator:
    """An operator that writes to a sink."""
    from tidegate.operators.sinks.sink import SinkOperator

    return SinkOperator(sink)


def of_function(function: SinkFunction[Any] | Callable[[Any], object]) -> Operator:
    """An operator that hands each record to a function. Raises GraphError."""
    from tidegate.operators.sinks.function_sink import SinkFunctionOperator

    checks.check_function(function, SinkFunction, "add_sink")
    return SinkFunctionOperator(function)


def printing(identifier: str | None, record_type: TypeInformation | None) -> Operator:
    """An operator that prints a line for each record. Raises GraphError."""
    from tidegate.connectors.print import PrintSink

    if identifier is not None:
        checks.check_text(identifier, "print")
    return of(PrintSink(identifier, record_type))


def collecting(name: str) -> Operator:
    """An operator that sends records to the client, which has them under a name."""
    from tidegate.connectors.collect import CollectSink

    return of(CollectSink(name))


def writing(sink: Sink) -> Operator:
    """An operator that writes to a sink and passes on what there is to commit."""
    from tidegate.operators.sinks.sink_topology import SinkWriterOperator

    return SinkWriterOperator(sink)


def committing(committer: Callable[[], Committer | None]) -> Operator:
    """An operator that commits what it gets, and passes it on."""
    from tidegate.operators.sinks.sink_topology import CommitterOperator

    return CommitterOperator(committer)
