"""A program that is told to stop while it waits for its job: by Ctrl-C, SIGTERM, a closed pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from tidegate.datastream.results import CANCEL_TIMEOUT_S, not_ended
from tidegate.errors import JobCanceled, TidegateError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from tidegate.api.client import JobClient, JobExecutionResult

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code of a program that SIGTERM has ended, as shells have it."""

OUTPUT_CLOSED: Final = 141
"""Exit code of a program whose reader has gone: 128 and the number of SIGPIPE."""


def result_of(client: JobClient, last_checkpoint_ms: int) -> JobExecutionResult:
    """Wait for the end of a job. Raises what it ended with.

    Ctrl-C and SIGTERM suspend the job and go on as `KeyboardInterrupt` and `SystemExit`; a second
    one goes on at once. last_checkpoint_ms: how long a job may take for its last checkpoint.
    """
    end_s = last_checkpoint_ms / 1000 + CANCEL_TIMEOUT_S
    try:
        with _sigterm_raised():
            try:
                return client.get_job_execution_result().result()
            except (KeyboardInterrupt, SystemExit) as told:
                reason = "SIGTERM" if isinstance(told, SystemExit) else "Ctrl-C"
                _suspended(client, reason, end_s)
                raise
    except JobCanceled as error:
        if not error.output_closed:
            raise
        _forget_output()
        raise SystemExit(OUTPUT_CLOSED) from error


@contextlib.contextmanager
def _sigterm_raised() -> Generator[None]:
    """SIGTERM raises `SystemExit` meanwhile, unless the program has a way of its own."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _suspended(client: JobClient, reason: str, timeout_s: float) -> None:
    """Suspend a job, wait for its end, and say what became of it."""
    client.suspend(reason)
    try:
        error = client.get_job_execution_result().exception(timeout_s)
    except TimeoutError as late:
        raise not_ended(client, "suspended") from late
    if isinstance(error, TidegateError):
        sys.stderr.write(f"{error}\n")


def _forget_output() -> None:
    """Python flushes its output at exit, and would complain that nobody reads it."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
