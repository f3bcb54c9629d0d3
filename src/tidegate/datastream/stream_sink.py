"""Settings of a sink once it is attached to a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.datastream.checking import checks
from tidegate.datastream.settings.slot_sharing import SlotSharingGroup, group_name
from tidegate.datastream.told import step_text
from tidegate.graph.transformations import ChainingStrategy

if TYPE_CHECKING:
    from tidegate.graph.transformations import OperatorTransformation


class DataStreamSink:
    """A sink that was attached to a stream, to name it and to set its parallelism.

    parts: the steps that it consists of beside the first, in order. What is said of the sink holds
    for those too of which the sink itself has said nothing.
    """

    def __init__(
        self, transformation: OperatorTransformation, *parts: OperatorTransformation
    ) -> None:
        self._transformation = transformation
        self._parts = parts

    def __repr__(self) -> str:
        return f"<DataStreamSink {step_text(self._transformation, None)}>"

    def name(self, name: str) -> DataStreamSink:
        """Names the sink, for plans, metrics and messages."""
        checks.check_text(name, "name")
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Gives the sink an id of its own, by which a restore finds its state.

        Its other steps without one have the same with their name and place behind it.
        """
        checks.check_text(uid, "uid")
        self._transformation.state.uid = uid
        for place, part in enumerate(self._parts, 1):
            part.state.uid = part.state.uid or f"{uid}: {part.name} {place}"
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Sets the id, 32 hexadecimal digits, by which state is looked up first."""
        checks.set_uid_hash(self._transformation, uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Sets in how many subtasks the sink runs."""
        checks.set_parallelism(self._transformation, parallelism)
        for part in self._parts:
            if not part.placement.is_set and part.placement.most is None:
                checks.set_parallelism(part, parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStreamSink:
        """Sets the upper bound of any later parallelism."""
        for part in (self._transformation, *self._parts):
            checks.set_max_parallelism(part, max_parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Describes the sink in the plan at more length than its name."""
        self._transformation.notes.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Runs the sink in a task of its own."""
        for part in (self._transformation, *self._parts):
            part.placement.chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Names a group; kept without effect, since each slot hosts a subtask of every step."""
        for part in (self._transformation, *self._parts):
            part.notes.slot_sharing_group = group_name(slot_sharing_group)
        return self
