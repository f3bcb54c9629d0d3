"""Where end-to-end jobs run: on this machine, or on Spark. The jobs are the same."""

from collections.abc import Callable
from pathlib import Path

from tests.e2e.watch import until
from tidegate import Configuration, JobClient, StreamExecutionEnvironment

END_S = 100.0
"""How long a job of these tests may take to end; far beyond what it takes."""

MakeEnvironment = Callable[[int, Configuration], StreamExecutionEnvironment]

RESTART_AT_ONCE = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 ms",
    "restart-strategy.fixed-delay.attempts": 1_000,
}
WITHOUT_CHECKPOINTS = {"tidegate.warnings.silenced": "no-checkpoints"}
"""For a job whose sink would show its output with a checkpoint, of which the job takes none."""

RETAIN = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


class Jobs:
    """Makes environments, and sees to it that every job started in them has ended.

    make: from a parallelism and settings; folder: for the checkpoints of one test.
    """

    def __init__(self, make: MakeEnvironment, folder: Path) -> None:
        self.make = make
        self._started: list[JobClient] = []
        self.folder = folder
        self.checkpoints = folder / "checkpoints"

    def env(self, parallelism: int = 1, **settings: object) -> StreamExecutionEnvironment:
        """An environment. settings: by option key, given as ``**{...}``."""
        configuration = Configuration()
        for key, value in settings.items():
            configuration.set(key, value)
        if str(settings.get("execution.checkpointing.dir")).startswith("faulty:"):
            configuration.set("tidegate.local.in-process", "true")  # see tests/e2e/faulty_store.py
        return self.make(parallelism, configuration)

    def checkpointed(
        self, parallelism: int, interval_ms: int, **settings: object
    ) -> StreamExecutionEnvironment:
        """An environment with checkpoints in the test's folder, that restarts without a wait."""
        given = {
            "execution.checkpointing.interval": interval_ms,
            "execution.checkpointing.dir": str(self.checkpoints),
            **RESTART_AT_ONCE,
        }
        return self.env(parallelism, **{**given, **settings})

    def start(self, env: StreamExecutionEnvironment, name: str) -> JobClient:
        """Start the environment's program."""
        client = env.execute_async(name)
        self._started.append(client)
        return client

    def end_all(self) -> None:
        """End what still runs."""
        for client in self._started:
            client.cancel().exception(timeout=END_S)  # one that has failed says so again


def failure_of(client: JobClient, timeout_s: float = END_S) -> BaseException | None:
    """What a job ended with, once it has; None where it has finished."""
    return client.get_job_execution_result().exception(timeout=timeout_s)


def finished(client: JobClient, timeout_s: float = END_S) -> None:
    """Wait until a job has finished; raises what it failed with."""
    client.get_job_execution_result().result(timeout=timeout_s)


def finish_by_checkpoints(client: JobClient) -> None:
    """Bring a job without periodic checkpoints to its end: each one asked for may be its last."""
    result = client.get_job_execution_result()

    def over() -> bool:
        # Asked for too early, or too late, it fails: the job is not running all along.
        client.trigger_checkpoint().exception(timeout=END_S)
        return result.done()

    until(over, "the job finished", END_S)
    result.result()
