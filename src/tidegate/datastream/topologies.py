"""What a sink implements that has steps of its own between its writers and behind its committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tidegate.api.sink import CommittableMessage
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
