"""Many values as one pickle, as fast as pickle can be, and by value where it must be."""

from __future__ import annotations

import io
import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import FormatError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Sequence

_CHECKS: Final[list[Callable[[str, str], None]]] = []
_ATOMS: Final = frozenset({int, str, float, bytes, bool, type(None)})


def pickled(values: Sequence[object]) -> bytes:
    """Pickles all values together, with protocol 5.

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


def pickled_value(value: object) -> bytes:
    """Pickles one value with protocol 5. Raises UserError as `pickled`."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return _pickled_by_value(value)


def _is_flat(value: object) -> bool:
    if type(value) is tuple:
        return _ATOMS.issuperset(map(type, cast("tuple[object, ...]", value)))
    return type(value) in _ATOMS


def _pickled_by_value(values: object) -> bytes:
    """Pickles by value objects whose classes can't be imported elsewhere, such as a script's."""
    from tidegate.typeinfo.by_value import pickled_by_value  # 30 ms that only such state pays for

    try:
        return pickled_by_value(values)
    except Exception as error:
        # The objects' own hooks may raise anything.
        raise UserError(
            f"A value in state can't be pickled: {error}",
            remedy="Keep only data in state; open files, locks and clients belong into open().",
        ) from error


def unpickled(body: memoryview) -> list[Any]:
    """The values of a pickle.

    Raises UserError if a class is missing, FormatError for bytes that are no pickle.
    """
    return _loaded(_unpickler(body))


def unpickled_value(data: bytes) -> object:
    """Value of a `pickled_value`; raises what `unpickled` raises."""
    return _loaded(_unpickler(data))


def loads(data: bytes | memoryview) -> Any:
    """Replaces `pickle.loads` for data that may come from a snapshot."""
    return _unpickler(data).load() if _CHECKS else pickle.loads(data)


@contextmanager
def names_checked(check: Callable[[str, str], None]) -> Generator[None]:
    """Within this block, on every thread, `check` can refuse the names in a pickle of state.

    check: takes module and name, before they are looked up.
    """
    _CHECKS.append(check)
    try:
        yield
    finally:
        _CHECKS.remove(check)


def unpickled_parts(body: memoryview, classes: Collection[type]) -> list[Any]:
    """Values of a pickle, with `Parts` for objects of the given classes.

    For classes that have changed since: what they would make of old parts may be anything.
    """
    return _loaded(_PartsUnpickler(io.BytesIO(body), classes))


class Parts:
    """Content of a pickle for an object whose class has not been called yet."""

    args: tuple[object, ...]
    state: object

    def __new__(cls, *args: object) -> Parts:
        """Called by the pickle instead of the class, so `__init__` is not used."""
        made = super().__new__(cls)
        made.args, made.state = args, None
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state

    def fields(self, names: Sequence[str]) -> dict[str, Any]:
        """Fields of the object. names: fields that its class had, in order."""
        match self.state:
            case dict():
                return cast("dict[str, Any]", self.state)
            case (None | dict(), dict()):  # of a class with slots, beside what it keeps in a dict
                plain, slots = cast("tuple[dict[str, Any] | None, dict[str, Any]]", self.state)
                return {**(plain or {}), **slots}
            case list():  # of a dataclass with slots
                return dict(zip(names, cast("list[Any]", self.state), strict=True))
            case _:
                return dict(zip(names, self.args, strict=True))


def _unpickler(data: bytes | memoryview) -> pickle.Unpickler:
    return (_Unpickler if _CHECKS else pickle.Unpickler)(io.BytesIO(data))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        for check in _CHECKS:
            check(module_name, global_name)
        return super().find_class(module_name, global_name)


class _PartsUnpickler(_Unpickler):
    def __init__(self, body: io.BytesIO, classes: Collection[type]) -> None:
        super().__init__(body)
        self._classes = classes

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = super().find_class(module_name, global_name)
        return Parts if found in self._classes else found


def _loaded(unpickler: pickle.Unpickler) -> Any:
    try:
        return unpickler.load()
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"A value in state is of a class that is not there: {error}",
            remedy="Put the class back under its old name and module.",
        ) from error
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError) as error:
        raise FormatError("State can't be unpickled", found=str(error)) from error
