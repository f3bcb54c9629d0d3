"""Many values as one pickle, as fast as pickle can be, and by value where it must be."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import FormatError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ATOMS: Final = frozenset({int, str, float, bytes, bool, type(None)})


def pickled(values: Sequence[object]) -> bytes:
    """The values as one pickle of protocol 5.

    Raises UserError for a value that can't be pickled at all.
    """
    if values and _is_flat(values[0]):
        # Without a memo of what it has seen, the pickler is two to three times as fast. Cycles,
        # which need the memo, are noticed.
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, protocol=5)
        pickler.fast = True
        try:
            pickler.dump(values)
            return buffer.getvalue()
        except (ValueError, RecursionError, pickle.PicklingError, TypeError, AttributeError):
            pass
    try:
        return pickle.dumps(values, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return _pickled_by_value(values)


def _is_flat(value: object) -> bool:
    if type(value) is tuple:
        return _ATOMS.issuperset(map(type, cast("tuple[object, ...]", value)))
    return type(value) in _ATOMS


def _pickled_by_value(values: Sequence[object]) -> bytes:
    """For objects of classes that can't be imported elsewhere, such as those of a script."""
    import cloudpickle  # 30 ms that only such state pays for

    try:
        return cloudpickle.dumps(values, protocol=5)
    except Exception as error:
        # Whatever the objects' own hooks raise.
        raise UserError(
            f"A value in state can't be pickled: {error}",
            remedy="Keep only data in state; open files, locks and clients belong into open().",
        ) from error


def unpickled(body: memoryview) -> list[Any]:
    """The values of a pickle.

    Raises UserError where a class is missing, FormatError for bytes that are no pickle.
    """
    try:
        return pickle.loads(body)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"A value in state is of a class that is not there: {error}",
            remedy="Put the class back under its old name and module.",
        ) from error
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError) as error:
        raise FormatError("State can't be unpickled", found=str(error)) from error
