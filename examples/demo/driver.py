"""The driver of a demonstration: a process of its own, so that it can be killed like a worker.

It is started by ``examples.demo.conduct`` with its settings as JSON, and writes what happens
to the job to its standard output, a line each; everything else it prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import wait
from typing import TYPE_CHECKING

import msgspec

from examples.demo.job import NAME, Replay, build
from examples.demo.news import Broken, Ended, to_line
from examples.demo.watch import JobWatch
from tidegate import JobCanceled, StreamExecutionEnvironment, TidegateError, UserError
from tidegate.clock import SystemClock
from tidegate.config import checkpointing, execution, recovery, reporting, slots
from tidegate.config.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.demo.news import News
    from tidegate import JobClient

CHECKPOINT_MS = 1_000
WATERMARK_MS = 50
CANCEL_TIMEOUT_S = 20.0


class DriverSettings(msgspec.Struct, frozen=True):
    """Settings with which a driver starts.

    resume: go on from the newest checkpoint of the job. watch_ms: time between two looks at it.
    """

    runtime: str
    parallelism: int
    checkpoints: str
    replay: Replay
    resume: bool = False
    watch_ms: int = 50


def main() -> None:
    """Run the job, and tell its news until it has ended."""
    settings = msgspec.json.decode(sys.argv[1], type=DriverSettings)
    with os.fdopen(os.dup(1), "wb", buffering=0) as pipe:
        os.dup2(2, 1)

        def tell(news: News) -> None:
            pipe.write(to_line(news))

        try:
            drive(settings, tell)
        except BrokenPipeError:
            sys.exit(1)  # nobody is watching any more


def drive(settings: DriverSettings, tell: Callable[[News], None]) -> None:
    """Run one job to its end. Ctrl-C cancels it, and so does a reader that has gone."""
    clock = SystemClock()
    try:
        client = start(settings)
        try:
            watch(client, settings.watch_ms, tell, clock)
        except BaseException:
            client.cancel().result(timeout=CANCEL_TIMEOUT_S)
            raise
        status = status_at_end(client)
    except KeyboardInterrupt:
        status = "CANCELED"
    except TidegateError as error:
        tell(_broken(error, clock.wall_ms()))
        return
    tell(Ended(clock.wall_ms(), status))


def start(settings: DriverSettings) -> JobClient:
    """Submit the job with its settings."""
    configuration = Configuration()
    configuration.set(execution.PARALLELISM, settings.parallelism)
    configuration.set(checkpointing.CHECKPOINT_INTERVAL, CHECKPOINT_MS)
    configuration.set(checkpointing.CHECKPOINT_DIRECTORY, settings.checkpoints)
    configuration.set(recovery.RESTART_STRATEGY, "fixed-delay")
    configuration.set(recovery.FIXED_DELAY, 0)
    configuration.set(recovery.FIXED_DELAY_ATTEMPTS, 100)
    # A replayed day takes 50 ms; windows and what waits for them are not to lag many days behind.
    configuration.set(execution.AUTO_WATERMARK_INTERVAL, WATERMARK_MS)
    # Figures of the subtasks come with the beats; the display wants them fresher than each second.
    configuration.set(slots.HEARTBEAT_INTERVAL, 250)
    configuration.set(reporting.SUMMARY, False)  # the display says more
    if settings.resume:
        configuration.set(recovery.RESTORE_PATH, "latest")
    if settings.runtime == "spark":
        env = StreamExecutionEnvironment.on_spark(configuration=configuration)
    else:
        env = StreamExecutionEnvironment.local(configuration=configuration)
    build(env, settings.replay)
    return env.execute_async(NAME)


def watch(
    client: JobClient, every_ms: int, tell: Callable[[News], None], clock: SystemClock
) -> None:
    """Tell the job's news until it has ended."""
    result = client.get_job_execution_result()
    job = JobWatch()
    ended = False
    while not ended:
        ended = bool(wait([result], timeout=every_ms / 1000).done)
        for news in job.look(client.view(), clock.wall_ms()):
            tell(news)


def _broken(error: TidegateError, now_ms: int) -> Broken:
    by_user = isinstance(error, UserError)
    return Broken(now_ms, error.what, error.where, error.remedy, str(error), by_user)


def status_at_end(client: JobClient) -> str:
    """How the job ended. Raises what made it fail."""
    try:
        client.get_job_execution_result().result(timeout=0)
    except JobCanceled:
        return "CANCELED"
    return "FINISHED"


if __name__ == "__main__":
    main()
