"""A process that ends, or is told to by Ctrl-C, SIGTERM, a closed pipe, while its jobs run.

Jobs are suspended behind a last checkpoint, so that what comes next goes on with them. That holds
for whoever waits for a job, and at the end of the process for every job that still runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Final

from tidegate.config import checkpointing, execution
from tidegate.config.checkpointing import checkpoint_settings
from tidegate.config.configuration import Configuration
from tidegate.config.log import print_line
from tidegate.config.warnings import Warn, process_warnings
from tidegate.errors import JobCanceled, JobFailed, TidegateError

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import FrameType

    from tidegate.api.job import JobClient, JobExecutionResult

CANCEL_TIMEOUT_S: Final = 30.0
"""How long a job that is to end is waited for."""

LOOK_S: Final = 0.2
"""How long the main thread waits before it looks whether a signal has come."""

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code of a program that SIGTERM has ended, as shells have it."""

OUTPUT_CLOSED: Final = 141
"""Exit code of a program whose reader has gone: 128 and the number of SIGPIPE."""

SIGTERM_NAME: Final = "SIGTERM"
CTRL_C_NAME: Final = "Ctrl-C"


class Terminated(SystemExit):
    """SIGTERM, raised in the main thread."""


class RunningJobs:
    """The jobs of this process. At the end of the process those that still run are suspended.

    begun: how many there have been.
    """

    def __init__(self) -> None:
        self.begun = 0
        self._process = os.getpid()
        self._jobs: dict[JobClient, Configuration] = {}
        self._terminated = False
        self._ending = False
        # Not atexit: executors, which the driver and libraries use, take nothing more by then.
        threading._register_atexit(self._at_exit)  # type: ignore[attr-defined]  # as executors do

    def add(self, client: JobClient, configuration: Configuration) -> None:
        """Look after a job. configuration: its own, with the runtime mode that it has."""
        if os.getpid() != self._process:  # forked from the program, whose jobs are not its own
            self._process, self._terminated = os.getpid(), False
            self._jobs.clear()
        self.begun += 1
        # A copy: the program may change its settings for the next job.
        self._jobs[client] = Configuration(configuration)
        client.get_job_execution_result().add_done_callback(lambda _: self._jobs.pop(client, None))
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._take_sigterm)

    @property
    def clients(self) -> list[JobClient]:
        """Clients of the jobs that run, in the order in which they were begun."""
        return list(self._jobs)

    def result_of(self, client: JobClient) -> JobExecutionResult:
        """Wait for the end of a job. Raises what it ended with.

        Ctrl-C and SIGTERM suspend the job and go on as `KeyboardInterrupt` and `SystemExit`; a
        second Ctrl-C goes on at once.
        """
        try:
            return _in_short_waits(client.get_job_execution_result(), None)
        except (KeyboardInterrupt, SystemExit) as told:
            self.suspend_for(told, client)
            raise
        except JobCanceled as error:
            if not error.output_closed:
                raise
            forget_output()
            raise SystemExit(OUTPUT_CLOSED) from error

    def suspend_for(self, told: KeyboardInterrupt | SystemExit, *clients: JobClient) -> None:
        """Suspend jobs, all unless some are given, since the process is told to stop."""
        self._suspend(CTRL_C_NAME if isinstance(told, KeyboardInterrupt) else SIGTERM_NAME, clients)

    def _suspend(self, reason: str, clients: tuple[JobClient, ...]) -> None:
        jobs = {
            client: each for client, each in self._jobs.items() if client in clients or not clients
        }
        self._ending = True
        try:
            for client, configuration in jobs.items():
                _say_what_follows(client, reason, configuration)
                client.suspend(reason)
            for client, configuration in jobs.items():
                _tell_end(client, configuration)
        except KeyboardInterrupt:
            for client in jobs:  # who is in a hurry is not to wait for them again
                self._jobs.pop(client, None)
            raise
        finally:
            self._ending = False

    def _take_sigterm(self, number: int, frame: FrameType | None) -> None:
        # A program that is told again, with its jobs suspended, still ends as it was told before.
        if os.getpid() != self._process or not (self._jobs or self._terminated):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._ending:  # who asks again may kill, or press Ctrl-C
            self._terminated = True
            raise Terminated(TERMINATED)

    def _at_exit(self) -> None:
        if not self._jobs or os.getpid() != self._process:
            return
        reason = "its program has ended"
        if self._terminated:
            reason = SIGTERM_NAME
        elif isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            reason = CTRL_C_NAME
        else:
            for client, configuration in list(self._jobs.items()):
                _warn_of_end(client, configuration)
        with contextlib.suppress(KeyboardInterrupt):
            self._suspend(reason, ())


@functools.cache
def running_jobs() -> RunningJobs:
    return RunningJobs()


def not_ended(client: JobClient, asked: str) -> JobFailed:
    """Error for a job that does not end. asked: how it was asked to."""
    return JobFailed(
        f"the job was {asked} and has not ended within {CANCEL_TIMEOUT_S:g} s",
        where=f"job {client.get_job_id()}",
        remedy="Its log says what it waits for; a function that never returns holds it up.",
    )


def _say_what_follows(client: JobClient, reason: str, configuration: Configuration) -> None:
    limit_s = configuration.get(checkpointing.LAST_CHECKPOINT_TIMEOUT) / 1000
    follows = (
        f"is being suspended behind a last checkpoint, for which it has {limit_s:g} s"
        if checkpoint_settings(configuration).periodic and not _is_batch(configuration)
        else "is being cancelled, for it takes no checkpoints"
    )
    ends = "Ctrl-C ends the program at once"
    print_line(sys.stderr, f"{reason}: job {client.get_job_id()} {follows}; {ends}")


def _is_batch(configuration: Configuration) -> bool:
    return configuration.get(execution.RUNTIME_MODE) is execution.RuntimeExecutionMode.BATCH


def _tell_end(client: JobClient, configuration: Configuration) -> None:
    """Wait for the end of a job that is being suspended, and say what became of it."""
    limit_s = configuration.get(checkpointing.LAST_CHECKPOINT_TIMEOUT) / 1000 + CANCEL_TIMEOUT_S
    try:
        _in_short_waits(client.get_job_execution_result(), limit_s)
    except TimeoutError:
        print_line(sys.stderr, str(not_ended(client, "suspended")))
    except TidegateError as error:
        print_line(sys.stderr, str(error))


def _in_short_waits(
    result: Future[JobExecutionResult], limit_s: float | None
) -> JobExecutionResult:
    """Wait for a result. Raises TimeoutError after the limit, if there is one.

    A signal that arrives just before a wait begins does not break it off: Python handles the
    signal when the wait is over. So no wait is long.
    """
    waits = count() if limit_s is None else range(ceil(limit_s / LOOK_S))
    for _ in waits:
        with contextlib.suppress(TimeoutError):
            return result.result(LOOK_S)
    raise TimeoutError


def _warn_of_end(client: JobClient, configuration: Configuration) -> None:
    process_warnings(configuration).warn(
        Warn.JOB_CUT_OFF,
        "the job still runs and ends with this process; to wait for its end call "
        "get_job_execution_result().result()",
        job=str(client.get_job_id()),
    )


def forget_output() -> None:
    """Python flushes its output at exit, and would complain that nobody reads it."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
