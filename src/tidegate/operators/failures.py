"""Reports a user's exception to the person who can fix it."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeGuard, cast

from tidegate.api.rows.batches import raised, shown
from tidegate.errors import (
    FROM_OUTSIDE,
    FailedCall,
    TidegateError,
    UserCodeFailed,
    with_article,
)
from tidegate.loops.forms import PACKAGE
from tidegate.typeinfo.copies import ReturnedLazily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

TEXTS: Final = frozenset({str, bytes})
"""What is iterable and yet no iterable of records."""

_OURS: Final = (str(Path(__file__).resolve().parents[1]), f"{PACKAGE}/")
"""What names of our files begin with: as they are, and as compiled modules name themselves."""


class ReturnedBeside(Exception):
    """A generator yields records and also returns a value, which would be lost."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value = value


def user_code_failed(
    error: BaseException,
    *,
    operator: str,
    row: object = None,
    call: str = "",
    returned: object = None,
    at: int | None = None,
) -> TidegateError:
    """Error for an exception that left a user's function.

    operator: its name. row: what the function was given, or the first row of it. call: the call
    that failed, where it was given no row. returned: what a function that gives any number of
    records has returned last, which may be what is wrong. at: place of the row in the batch that
    the operator was given, where it is known. Result: has the exception as its cause. An error of
    our own, such as an unfit state, is what it says already and is given back as it is. Raises
    what has ended the call from outside.
    """
    if isinstance(error, FROM_OUTSIDE):
        raise error
    if isinstance(error, TidegateError):
        return error
    failure = _in_words(error, operator, row, call, returned)
    failure.call = FailedCall(operator, row, call, at)
    failure.__cause__ = error
    return failure


def raise_user_code_failed(
    error: BaseException,
    *,
    operator: str,
    row: object = None,
    call: str = "",
    at: int | None = None,
) -> NoReturn:
    """Raises `user_code_failed`; ``from error`` would make an error of our own its own cause."""
    raise user_code_failed(error, operator=operator, row=row, call=call, at=at)


def _in_words(
    error: BaseException, operator: str, row: object, call: str, returned: object
) -> UserCodeFailed:
    place = f"in its {call}" if call else f"at the row {shown(row)}"
    if isinstance(error, ReturnedBeside):
        return UserCodeFailed(
            f"the function of operator '{operator}' yields records and also returned "
            f"{shown(error.value)}, which would be lost",
            where=f"operator '{operator}', {place}",
            remedy="Yield what it returns, such as `yield from records` in place of `return "
            "records`; a `return` without a value may stay.",
        )
    if isinstance(error, ReturnedLazily):
        return UserCodeFailed(
            f"the function of operator '{operator}' returned a {error.kind} where a record is due",
            where=f"operator '{operator}', {place}",
            remedy="Use flat_map for a generator, AsyncDataStream for an `async def`. Within one, "
            "await the call of another.",
        )
    if returned is not None and not are_records(returned):
        return UserCodeFailed(
            f"the function of operator '{operator}' returned {shown(returned)}, "
            f"{with_article(type(returned))}, and not single records",
            where=f"operator '{operator}', {place}",
            remedy="Yield each record, or return a list of them; None is for no record.",
        )
    return UserCodeFailed(
        f"the function of operator '{operator}' raised {raised(error)}",
        where=f"operator '{operator}', {place}",
        remedy=f"{_timeless(error)}The traceback below starts in your code.",
        trace=user_trace(error),
    )


def _timeless(error: BaseException) -> str:
    """Hint for a failure in arithmetic with the event time of a record that has none."""
    frames = traceback.extract_tb(error.__traceback__)
    asked = bool(frames) and "timestamp()" in (frames[-1].line or "")
    if asked and isinstance(error, TypeError) and "NoneType" in str(error):
        return (
            "The record has no event time, so timestamp() is None: give records one with "
            "assign_timestamps_and_watermarks. "
        )
    return ""


def may_give_text(call: Callable[..., Any]) -> bool:
    """True if a function may return text; results of a generator function never are."""
    return not inspect.isgeneratorfunction(call)


def are_records(returned: object) -> TypeGuard[Iterable[object]]:
    """True if a function's result can be iterated as records."""
    if isinstance(returned, str | bytes):
        return False
    try:
        iter(cast("Iterable[object]", returned))
    except TypeError:
        return False
    return True


def user_trace(error: BaseException) -> str:
    """The traceback as text, without the engine's frames before the user's first."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
