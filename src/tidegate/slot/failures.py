"""Errors of subtasks, as the driver is told."""

from __future__ import annotations

import copy
import traceback

from tidegate.api.rows.batches import raised
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.model.descriptors import shortage


def as_ours(error: Exception, where: str) -> TidegateError:
    """The error in a form that can travel to the driver, with the place where it happened."""
    if isinstance(error, TidegateError):
        placed = copy.copy(error)  # the same error may be that of several subtasks
        placed.where = f"{error.where}, in {where}" if error.where else where
        return placed
    trace = "".join(traceback.format_exception(error))
    short = shortage(error)  # by the function, or by others of its process: its trace may tell
    remedy = short.remedy if short else ""
    return UserCodeFailed(raised(error), where=where, remedy=remedy, trace=trace)
