"""A user's exception on its way to the person who can mend it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.api.batches import shown
from tidegate.errors import TidegateError, UserCodeFailed

if TYPE_CHECKING:
    from types import TracebackType

_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


def user_code_failed(
    error: Exception, *, operator: str, row: object = None, call: str = ""
) -> TidegateError:
    """What to raise for an exception that left a user's function.

    operator: its name. row: what the function was given, or the first row of it. call: the call
    that failed, where it was given no row. An error of our own, such as an unfit state, is what it
    says already and is given back as it is.
    """
    if isinstance(error, TidegateError):
        return error
    place = f"in its {call}" if call else f"at the row {shown(row)}"
    return UserCodeFailed(
        f"the function of operator '{operator}' raised {type(error).__name__}: {error}",
        where=f"operator '{operator}', {place}",
        remedy="The traceback below starts in your code.",
        trace=user_trace(error),
    )


def user_trace(error: BaseException) -> str:
    """The traceback as text, without the engine's frames before the user's first."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
