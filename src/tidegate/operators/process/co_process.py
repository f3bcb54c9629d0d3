"""Process functions of two streams. Ports and the two streams stand in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.operators.keys import SharedKeys
from tidegate.operators.process.process_functions import KeyedProcessOperator, ProcessOperator

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.model.elements import Batch


class CoProcessOperator(ProcessOperator):
    """A process function of two streams without keys."""

    methods = ("process_element1", "process_element2")


class KeyedCoProcessOperator(KeyedProcessOperator):
    """A process function of two keyed streams."""

    methods = ("process_element1", "process_element2")

    def open(self, context: OperatorContext) -> None:
        self._keys = SharedKeys(context.info.name)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Processes a batch. Raises UnsupportedKey if the streams' keys have two types."""
        return super().process(self._keys.checked(batch, port), port, out)
