"""What can be said of a sink once it is attached to a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.datastream import checks
from tidegate.datastream.slot_sharing import SlotSharingGroup, group_name
from tidegate.graph.transformations import ChainingStrategy

if TYPE_CHECKING:
    from tidegate.graph.transformations import OperatorTransformation


class DataStreamSink:
    """A sink that was attached to a stream, to name it and to set its parallelism."""

    def __init__(self, transformation: OperatorTransformation) -> None:
        self._transformation = transformation

    def name(self, name: str) -> DataStreamSink:
        """Names the sink, for plans, metrics and messages."""
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Gives the sink an id of its own, by which a restore finds its state."""
        self._transformation.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Sets the id, 32 hexadecimal digits, by which state is looked up first."""
        checks.set_uid_hash(self._transformation, uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Sets in how many subtasks the sink runs."""
        checks.set_parallelism(self._transformation, parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStreamSink:
        """Sets the upper bound of any later parallelism."""
        checks.set_max_parallelism(self._transformation, max_parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Describes the sink in the plan at more length than its name."""
        self._transformation.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Runs the sink in a task of its own."""
        self._transformation.chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Names a group; kept without effect, since each slot hosts a subtask of every step."""
        self._transformation.slot_sharing_group = group_name(slot_sharing_group)
        return self
