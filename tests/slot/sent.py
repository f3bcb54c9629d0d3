"""Channels of one subtask, and what goes over them."""

from collections.abc import Callable

from tests.loops.both import both_forms
from tests.worlds.subtask import Into
from tidegate.api.operator import KeyBy, OutputPlan
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.model.chance import SeededChance
from tidegate.model.elements import (
    ArrowBatch,
    Element,
    RowBatch,
)
from tidegate.model.ids import ChannelId
from tidegate.model.settings import SlotSettings
from tidegate.model.topology import Partitioner
from tidegate.slot.channels.output import ChannelOutput, Room
from tidegate.slot.channels.routes import Route, make_route
from tidegate.transport.credit import credit_for

MAX_PARALLELISM = 128
COMPILED = both_forms()[1].form


class Sent:
    """Some channels of one subtask, and what went over each."""

    def __init__(self, channels: int, *, rows: int = 8, credit: int = 1_000) -> None:
        self.room = Room()
        self.elements: list[list[Element]] = [[] for _ in range(channels)]
        settings = SlotSettings(rows=rows, credit=credit)
        self.channels = [
            ChannelOutput(ChannelId(0, 0, n), settings, Into(elements), self.room)
            for n, elements in enumerate(self.elements)
        ]
        for channel in self.channels:
            channel.resize(rows)
            channel.granted(credit - credit_for(1, credit))

    def route(
        self,
        partitioner: Partitioner,
        *,
        key: KeyBy | None = None,
        partition: Callable[[object, int], int] | None = None,
        subtask: int = 0,
        share: bool = False,
        trace: bool = True,
        read_as_columns: bool = True,
        repeatable: bool = False,
    ) -> Route:
        return make_route(
            OutputPlan(0, key, partition, read_as_columns),
            partitioner,
            self.channels,
            max_parallelism=MAX_PARALLELISM,
            subtask=subtask,
            settings=SlotSettings(
                object_reuse=share, trace_functions=trace, loops=COMPILED, repeatable=repeatable
            ),
            chance=SeededChance(7),
            where="the edge from 'a' to 'b'",
        )

    def flushed(self) -> list[list[object]]:
        """All values a channel, after a flush."""
        for channel in self.channels:
            channel.flush()
        return [
            [value for element in elements for value in values_of(element)]
            for elements in self.elements
        ]

    def batches(self, channel: int = 0) -> list[Element]:
        return self.elements[channel]


def values_of(element: Element) -> list[object]:
    if isinstance(element, RowBatch):
        return element.values
    if isinstance(element, ArrowBatch):
        return element.batch.column(0).to_pylist()
    return []


def rows(*values: object) -> RowBatch:
    return RowBatch(list(values))


def columns_of(sent: Sent) -> list[bool]:
    return [isinstance(each, ColumnRows) for elements in sent.elements for each in elements]
