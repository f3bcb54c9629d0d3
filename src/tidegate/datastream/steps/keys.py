"""Keys of records, and the subtasks that they go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.functions import KeySelector, Partitioner
from tidegate.api.operator import KeyBy
from tidegate.datastream.checking import checks, types
from tidegate.typeinfo.hints import declared_key_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import Operator
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation


def key_of(
    selector: object, key_type: TypeHint | None, record_type: TypeInformation | None, call: str
) -> KeyBy:
    """How records get their key: from a column, or by a function. Raises GraphError."""
    declared = declared_key_type(key_type, where=f"key_type of {call}")
    checks.check_key_type(declared, call)
    if isinstance(selector, str):
        types.check_column(record_type, selector, call)
        return KeyBy(column=selector, key_type=declared)
    checks.check_function(selector, KeySelector, call)
    types.check_returned(selector, "get_key", declared, f"key_type of {call}")
    if isinstance(selector, KeySelector):
        checks.check_never_opened(selector, call)
        return KeyBy(selector=selector.get_key, key_type=declared)
    assert callable(selector), "checked above"
    return KeyBy(selector=selector, key_type=declared)


def no_key(_: object) -> int:
    return 0


def partition_of(partitioner: object) -> Callable[..., int]:
    """The function of (key, number of subtasks) of a partitioner. Raises GraphError."""
    if isinstance(partitioner, Partitioner):
        checks.check_never_opened(partitioner, "partition_custom")
        return partitioner.partition
    checks.check_function(partitioner, Partitioner, "partition_custom")
    return cast("Callable[..., int]", partitioner)


def reinterpreting(key: KeyBy) -> Operator:
    """An operator that fails the job for a record in a subtask that its key does not go to."""
    from tidegate.operators.keys import ReinterpretOperator  # NumPy

    return ReinterpretOperator(key)


def pairing() -> Operator:
    from tidegate.operators.keys import WithKeyOperator  # NumPy

    return WithKeyOperator()
