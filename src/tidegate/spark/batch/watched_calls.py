"""Calls in the driver of a batch that may hang, such as those of a store or of a sink."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.config.log import process_log
from tidegate.errors import as_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError

T = TypeVar("T")

_LOOK_S: Final = 0.5
_LOOKS_UNTOLD: Final = 60
"""After so many looks at a call that is not done, somebody may wonder what the job waits for."""


class WatchedCalls:
    """Runs calls, each on a thread of its own, and waits for none once the job is to end.

    job: its name. ended_by: why the job is to end before its time; None where it is not.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self.ended_by: TidegateError | None = None

    def end(self, error: TidegateError) -> None:
        """The job is to end with this error; the first one counts. Any thread may call this."""
        self.ended_by = self.ended_by or error

    def check(self) -> None:
        """Raises the error that the job is to end with, if it is to end."""
        if self.ended_by is not None:
            raise self.ended_by

    def run(self, call: Callable[[], T], what: str = "", *, grace_s: float = 0) -> T:
        """Result of a call. Raises what it raises, or what the job is to end with.

        what: for the log, where the call does not tell by itself that it waits. grace_s: how long a
        job that is to end waits all the same, in seconds.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as raised:
                done.set_exception(as_error(raised))

        name, work = "tidegate-batch-call", copy_context().run
        threading.Thread(target=work, args=(run,), name=name, daemon=True).start()
        looks = 0
        while not wait((done,), timeout=_LOOK_S).done:
            looks += 1
            if self.ended_by is not None:
                grace_s -= _LOOK_S
                if grace_s < 0:
                    raise self.ended_by
            if what and looks % _LOOKS_UNTOLD == 0:
                log = process_log().bind(job=self._job)
                log.warning("a batch still waits", call=what, seconds=round(looks * _LOOK_S))
        return done.result()
