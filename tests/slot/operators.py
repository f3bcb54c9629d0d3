"""Operators and topologies that tests of slots share."""

from typing import Any

from tests.slot.cluster import line, vertex
from tests.worlds.subtask import Recorder, ScriptedSource
from tidegate.api.operator import Operator, OperatorContext, Output, Polled, Steps
from tidegate.api.state import OperatorStateDescriptor, ValueStateDescriptor
from tidegate.model.elements import Batch, RowBatch

NOTHING = [Polled.NOTHING] * 100
ONE_BY_ONE = line(vertex("source"), vertex("sink"))


class Stateful(Recorder):
    """Keeps a list of its own in operator state, and the rows it has seen by key."""

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.listed = context.state.operator_state(OperatorStateDescriptor("list"))
        self.listed.update(["of the subtask"])


class Counting(Stateful):
    """Counts rows by key."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.counts: Any = context.state.keyed_state(ValueStateDescriptor("count"))

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        assert isinstance(batch, RowBatch) and batch.keys and batch.key_groups
        for key, group in zip(batch.keys, batch.key_groups, strict=True):
            self.context.state.cell.key, self.context.state.cell.group = key, group
            self.counts.update((self.counts.value() or 0) + 1)
        return None


class Fresh(dict[str, list[Operator]]):
    """New operators for each subtask, as if each had been unpickled."""

    def __getitem__(self, name: str) -> list[Operator]:
        if name == "source":
            return [ScriptedSource(name, [], list(NOTHING))]
        return [Recorder(name, [])]


def pair(log: list[str], script: list[object] | None = None) -> dict[str, list[Operator]]:
    return {
        "source": [ScriptedSource("source", log, script or list(NOTHING))],
        "sink": [Recorder("sink", log)],
    }
