"""Process functions of two streams. Ports and the two streams stand in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.rows.batches import as_rows
from tidegate.errors import UnsupportedKey
from tidegate.operators.process.process_functions import (
    KeyedProcessOperator,
    ProcessOperator,
    keys_of,
)
from tidegate.typeinfo.key_classes import may_be_alike
from tidegate.typeinfo.key_hash import key_type_of

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.typeinfo.types import TypeInformation


class CoProcessOperator(ProcessOperator):
    """A process function of two streams without keys."""

    methods = ("process_element1", "process_element2")


class KeyedCoProcessOperator(KeyedProcessOperator):
    """A process function of two keyed streams."""

    methods = ("process_element1", "process_element2")

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open the function."""
        self._keys = SharedKeys(context.name)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Process a batch. Raises UnsupportedKey where the streams' keys are of two types."""
        return super().process(self._keys.checked(batch, port), port, out)


class SharedKeys:
    """Sees to it that the keys of two streams have one type: others would never meet.

    where: name of the operator. The keys of one stream have one type already.
    """

    def __init__(self, where: str) -> None:
        self._where = f"operator '{where}'"
        self._types: dict[int, TypeInformation] = {}

    def checked(self, batch: Batch, port: int) -> RowBatch:
        """The rows of a batch. Raises UnsupportedKey."""
        rows = as_rows(batch)
        if port not in self._types and rows.values:
            key = keys_of(rows)[0][0]
            found = self._types[port] = key_type_of(key, where=self._where)
            for held in self._types.values():
                if not may_be_alike(held, found):
                    raise UnsupportedKey(
                        f"The keys of the two streams have two types, {held} and {found}: key "
                        f"{key!r} of input {port + 1} is none of the other input",
                        where=self._where,
                        remedy="Let both key selectors give keys of one type.",
                    )
        return rows
