"""Loops that call a user's function for each row; its results are drawn one by one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.loops.cells import KeyCell


class UserCall:
    """A user's function that gives any number of records for a row.

    own: makes a record the next operator's own; None if it may be shared. may_be_text: it may
    return text, which can be iterated and yet is no records. beside: makes the exception for what a
    generator returns beside its records. failed: makes the error of an exception, given that, the
    row, and what the function has returned last. It sets the cause: compiled code forgets it.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        own: Callable[[object], object] | None,
        may_be_text: bool,
        beside: Callable[[object], Exception],
        failed: Callable[[BaseException, object, object], Exception],
    ) -> None:
        self.call: Final = call
        self.own: Final = own
        self.may_be_text: Final = may_be_text
        self.beside: Final = beside
        self.failed: Final = failed


# The three loops stand apart, since one more call or generator for each row costs more than what
# they do beside the user's function (benchmarks/record_path.py).


def results_of_rows(
    user: UserCall,
    context: object,
    cell: KeyCell,
    values: list[Any],
    keys: list[Any],
    groups: list[int],
    stamps: list[Any],
) -> Iterator[object]:
    """Results of ``call(value, context)`` for each row, which stands in the cell meanwhile.

    keys, groups, stamps: one for each of the values.
    """
    call, own, may_be_text = user.call, user.own, user.may_be_text
    value: object = None
    results: Any = None
    try:
        for value, cell.key, cell.group, cell.timestamp_ms in zip(  # noqa: B905 - slow if strict
            values, keys, groups, stamps
        ):
            results = call(value, context)
            if results is not None:
                if may_be_text and (type(results) is str or type(results) is bytes):
                    raise TypeError("text is not an iterable of records")
                beside = yield from (results if own is None else map(own, results))
                if beside is not None:
                    raise user.beside(beside)
    except BaseException as error:
        raise user.failed(error, value, results)  # noqa: B904 - which sets the cause


def results_of_values(
    user: UserCall, cell: KeyCell, values: list[Any], stamps: list[Any]
) -> Iterator[object]:
    """Results of ``call(value)`` for each value, whose event time stands in the cell meanwhile."""
    call, own, may_be_text = user.call, user.own, user.may_be_text
    value: object = None
    results: Any = None
    try:
        for value, cell.timestamp_ms in zip(values, stamps):  # noqa: B905 - slow if strict
            results = call(value)
            if results is not None:
                if may_be_text and (type(results) is str or type(results) is bytes):
                    raise TypeError("text is not an iterable of records")
                beside = yield from (results if own is None else map(own, results))
                if beside is not None:
                    raise user.beside(beside)
    except BaseException as error:
        raise user.failed(error, value, results)  # noqa: B904 - which sets the cause


def results_of_timers(
    user: UserCall, context: object, cell: KeyCell, due: Iterator[tuple[int, object]]
) -> Iterator[object]:
    """Results of ``call(ms, context)`` for each timer; drawing one sets its key in the cell."""
    call, own, may_be_text = user.call, user.own, user.may_be_text
    ms: int | None = None
    results: Any = None
    try:
        for ms, _ in due:
            cell.timestamp_ms = ms
            results = call(ms, context)
            if results is not None:
                if may_be_text and (type(results) is str or type(results) is bytes):
                    raise TypeError("text is not an iterable of records")
                beside = yield from (results if own is None else map(own, results))
                if beside is not None:
                    raise user.beside(beside)
    except BaseException as error:
        raise user.failed(error, ms, results)  # noqa: B904 - which sets the cause


def draw_with_times(
    results: Iterator[object], count: int, timed: Any, values: list[Any], stamps: list[Any]
) -> None:
    """Append up to ``count`` results, and beside each the ``timestamp_ms`` of its moment.

    What was drawn before an exception stays.
    """
    for value in islice(results, count):
        values.append(value)
        stamps.append(timed.timestamp_ms)


class TypedReduce:
    """A reduce function whose results have one Python type; others are brought to it."""

    def __init__(
        self,
        call: Callable[[object, object], object],
        kind: type,
        bring: Callable[[object], object],
    ) -> None:
        self._call: Final = call
        self._kind: Final = kind
        self._bring: Final = bring

    def __call__(self, old: object, new: object) -> object:
        result = self._call(old, new)
        return result if type(result) is self._kind else self._bring(result)
