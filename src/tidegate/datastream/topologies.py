"""A sink in several steps: writers, what its committables pass, committers, what comes behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from tidegate.datastream import stream as streams
from tidegate.datastream.steps import ends
from tidegate.datastream.stream_sink import DataStreamSink
from tidegate.errors import GraphError
from tidegate.graph.transformations import NodeKind, OperatorTransformation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import Operator
    from tidegate.api.sink import CommittableMessage, Committer, Sink
    from tidegate.datastream.stream import DataStream


@runtime_checkable
class WithPreCommitTopology(Protocol):
    """A sink whose committables pass steps on their way to its committer; beside ``Sink``.

    Its writer, the steps and its committer are then operators of their own. A writer is made
    without waiting for commits of a restored checkpoint.
    """

    def add_pre_commit_topology(
        self, committables: DataStream[CommittableMessage]
    ) -> DataStream[CommittableMessage]:
        """The stream that the committer gets; its last step says at what parallelism it runs.

        What comes from writers before a barrier has to leave before it: no step may hold it back
        to a later checkpoint, unless it has it in state.
        """
        ...


@runtime_checkable
class WithPostCommitTopology(Protocol):
    """A sink with steps behind its committer, such as a global committer; beside ``Sink``.

    They get what the committer gets, before the barrier of the checkpoint that it belongs to, and
    are told of the same completed checkpoint as the committer, in no order. So that nothing is left
    over at the end of a job.
    """

    def add_post_commit_topology(self, committables: DataStream[CommittableMessage]) -> None:
        """Add steps; ``StandardSinkTopologies.add_global_committer`` is one."""
        ...


class StandardSinkTopologies:
    """Steps that many sinks need."""

    @staticmethod
    def add_global_committer(
        committables: DataStream[CommittableMessage], committer: Callable[[], Committer]
    ) -> None:
        """One committer for what all subtasks of a sink have prepared.

        It is called once for each checkpoint that has any, with all of them: for an aborted one
        ahead of the next that completes. Where a failure leaves it open whether that was done, it
        is called with all of them again. committer: makes it, in the slot; has to be picklable.

        >>> StandardSinkTopologies.add_global_committer(committables, TableCommitter)
        """
        # Broadcast to the only subtask: on a global exchange an unaligned barrier would overtake
        # some of a checkpoint's committables, which then counted for the next one.
        made = _added(committables.broadcast(), "Global Committer", ends.committing(committer))
        step = _step_of(made)
        step.placement.parallelism = step.placement.most = 1


def has_steps(sink: Sink) -> bool:
    """True for a sink with steps of its own, which `in_parts` attaches."""
    return isinstance(sink, WithPreCommitTopology | WithPostCommitTopology)


def in_parts(stream: DataStream[Any], sink: Sink) -> DataStreamSink:
    """A sink with steps of its own behind a stream. Raises GraphError if they give no stream."""
    name = type(sink).__name__
    written = committables = _added(stream, f"{name}: Writer", ends.writing(sink))
    if isinstance(sink, WithPreCommitTopology):
        committables = _stream(sink.add_pre_commit_topology(written), name)
    committed = _added(committables, f"{name}: Committer", ends.committing(sink.committer))
    feeding, committer = committables.transformation, _step_of(committed)
    if isinstance(feeding, OperatorTransformation) and feeding.placement.is_set:
        committer.placement.parallelism = feeding.placement.parallelism
        committer.placement.is_set = True
    if isinstance(sink, WithPostCommitTopology):
        sink.add_post_commit_topology(committed)
    writer = _step_of(written)
    return DataStreamSink(writer, *stream.steps_after(writer))


def _added(stream: DataStream[Any], name: str, operator: Operator) -> DataStream[Any]:
    return stream.transform(name, operator, stateful=True, kind=NodeKind.SINK)


def _step_of(stream: DataStream[Any]) -> OperatorTransformation:
    return cast("OperatorTransformation", stream.transformation)


def _stream(made: object, name: str) -> DataStream[Any]:
    if isinstance(made, streams.DataStream):
        return cast("DataStream[Any]", made)
    raise GraphError(
        f"add_pre_commit_topology of {name} gives {made!r:.100}, which is not a DataStream",
        where="sink_to",
        remedy="Return the stream of committables that the committer is to get.",
    )
