"""A source and a sink without a world, and a runtime that keeps what is submitted to it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tidegate.api.job import JobExecutionResult
from tidegate.config.configuration import Configuration
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.errors import JobSuspended
from tidegate.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.datastream.stream import DataStream
    from tidegate.graph.job_graph import JobGraph


class Numbers:
    """A source of nothing; `check` fails with what it is given."""

    bounded = True
    produced_type = None

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def enumerator(self, context: Any, restored: bytes | None) -> Any:
        raise NotImplementedError

    def reader(self, context: Any) -> Any:
        raise NotImplementedError


class Nowhere:
    """A sink that is never written to."""

    def writer(self, context: Any, restored: Any) -> Any:
        raise NotImplementedError

    def committer(self) -> None:
        return None


class _InterruptedWait(Future[JobExecutionResult]):
    """A result that is waited for when the process is told to stop."""

    def __init__(self, told: type[BaseException]) -> None:
        super().__init__()
        self._told = told

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        raise self._told


class Client:
    """A job that has ended, or that ends when it is cancelled."""

    def __init__(self, rows: list[object], error: Exception | None = None) -> None:
        self._rows = rows
        self.error = error
        self.cancelled = False
        self.suspended = ""
        self.interrupted: type[BaseException] | None = None
        self._waits: list[_InterruptedWait] = []

    def get_job_id(self) -> JobId:
        return JobId("0" * 32)

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        if self.interrupted and not self.suspended:
            self._waits.append(_InterruptedWait(self.interrupted))
            return self._waits[-1]
        ended: Future[JobExecutionResult] = Future()
        if self.error is None:
            ended.set_result(JobExecutionResult(self.get_job_id(), 1))
        else:
            ended.set_exception(self.error)
        return ended

    def get_web_interface_url(self) -> None:
        return None

    def cancel(self) -> Future[None]:
        self.cancelled = True
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def suspend(self, reason: str = "") -> Future[None]:
        self.suspended = reason
        self.error = JobSuspended(f"the job was suspended: {reason}")
        for wait in self._waits:
            wait.set_exception(self.error)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def collected(self, name: str) -> Iterator[object]:
        return iter(self._rows)

    def get_job_status(self) -> Any:
        raise NotImplementedError

    def trigger_checkpoint(self, *, full: bool = False) -> Any:
        raise NotImplementedError

    def trigger_savepoint(self, *args: Any, **settings: Any) -> Any:
        raise NotImplementedError

    def stop_with_savepoint(self, *args: Any, **settings: Any) -> Any:
        raise NotImplementedError

    def cancel_with_savepoint(self, *args: Any, **settings: Any) -> Any:
        raise NotImplementedError

    def view(self) -> object:
        raise NotImplementedError

    def log(self, *args: Any, **settings: Any) -> Any:
        raise NotImplementedError


class KeepingRuntime:
    """Runs nothing; `submitted` holds the job graphs."""

    def __init__(self, client: Client | None = None) -> None:
        self.client = client or Client([])
        self.submitted: list[JobGraph] = []

    def submit(self, graph: JobGraph) -> Client:
        self.submitted.append(graph)
        return self.client


def environment(
    runtime: KeepingRuntime | None = None, settings: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    kept = runtime or KeepingRuntime()
    make: Callable[[Configuration], KeepingRuntime] = lambda _: kept  # noqa: E731
    return StreamExecutionEnvironment(make, Configuration.from_dict(settings or {}))


def numbers(env: StreamExecutionEnvironment, name: str = "numbers") -> DataStream[Any]:
    return env.from_source(Numbers(), None, name)


def vertices(env: StreamExecutionEnvironment) -> list[str]:
    return [vertex.name for vertex in env.get_job_graph().topology.vertices]


def exchanges(env: StreamExecutionEnvironment) -> list[str]:
    return [edge.partitioner.name for edge in env.get_job_graph().topology.edges]
