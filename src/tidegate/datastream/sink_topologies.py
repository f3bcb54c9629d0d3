"""A sink in several steps: writers, what its committables pass, committers, what comes behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.datastream.stream import DataStream
from tidegate.datastream.stream_sink import DataStreamSink
from tidegate.datastream.topologies import WithPostCommitTopology, WithPreCommitTopology
from tidegate.errors import GraphError
from tidegate.graph.transformations import NodeKind, OperatorTransformation
from tidegate.operators.sinks.sink_topology import CommitterOperator, SinkWriterOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import Operator
    from tidegate.api.sink import CommittableMessage, Committer, Sink


class StandardSinkTopologies:
    """Steps that many sinks need."""

    @staticmethod
    def add_global_committer(
        committables: DataStream[CommittableMessage], committer: Callable[[], Committer]
    ) -> None:
        """One committer for what all subtasks of a sink have prepared.

        It is called once for each completed checkpoint that has any, with all of them; and with all
        of them again where a failure leaves it open whether that was done. committer: makes it,
        in the slot; has to be picklable.

        >>> StandardSinkTopologies.add_global_committer(committables, TableCommitter)
        """
        # Broadcast to the only subtask: on a global exchange an unaligned barrier would overtake
        # some of a checkpoint's committables, which then counted for the next one.
        made = _added(committables.broadcast(), "Global Committer", CommitterOperator(committer))
        step = _step_of(made)
        step.parallelism = step.parallelism_max = 1


def in_parts(stream: DataStream[Any], sink: Sink) -> DataStreamSink:
    """A sink with steps of its own behind a stream. Raises GraphError where they give no stream."""
    name = type(sink).__name__
    written = committables = _added(stream, f"{name}: Writer", SinkWriterOperator(sink))
    if isinstance(sink, WithPreCommitTopology):
        committables = _stream(sink.add_pre_commit_topology(written), name)
    committed = _added(committables, f"{name}: Committer", CommitterOperator(sink.committer))
    feeding, committer = committables.transformation, _step_of(committed)
    if isinstance(feeding, OperatorTransformation) and feeding.parallelism_set:
        committer.parallelism, committer.parallelism_set = feeding.parallelism, True
    if isinstance(sink, WithPostCommitTopology):
        sink.add_post_commit_topology(committed)
    writer = _step_of(written)
    return DataStreamSink(writer, *stream.steps_after(writer))


def _added(stream: DataStream[Any], name: str, operator: Operator) -> DataStream[Any]:
    return stream.transform(name, operator, stateful=True, kind=NodeKind.SINK)


def _step_of(stream: DataStream[Any]) -> OperatorTransformation:
    return cast("OperatorTransformation", stream.transformation)


def _stream(made: object, name: str) -> DataStream[Any]:
    if isinstance(made, DataStream):
        return cast("DataStream[Any]", made)
    raise GraphError(
        f"add_pre_commit_topology of {name} gives {made!r:.100}, which is no DataStream",
        where="sink_to",
        remedy="Return the stream of committables that the committer is to get.",
    )
