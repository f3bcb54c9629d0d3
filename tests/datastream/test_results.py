from __future__ import annotations

import _thread
import signal
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from tests.datastream.fakes import Client, KeepingRuntime, environment, numbers
from tidegate.config.configuration import Configuration
from tidegate.datastream.process.interrupts import RunningJobs, running_jobs
from tidegate.datastream.results import CloseableIterator
from tidegate.errors import JobFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.api.job import JobExecutionResult


def test_the_records_come_in_their_order_and_end() -> None:
    rows: CloseableIterator[object] = CloseableIterator(Client([1, 2, 3]), "c")
    assert rows.next() == 1
    assert list(rows) == [2, 3]
    with pytest.raises(StopIteration):
        rows.next()


def test_leaving_early_cancels_the_job() -> None:
    client = Client([1, 2, 3])
    with CloseableIterator[object](client, "c") as rows:
        assert next(rows) == 1
    assert client.cancelled
    assert list(rows) == []


def test_a_loop_that_is_left_early_cancels_the_job() -> None:
    client = Client([1, 2, 3])
    for row in numbers(environment(KeepingRuntime(client))).collect():
        if row == 2:
            break
    assert client.cancelled


def test_a_loop_that_is_left_by_an_error_cancels_the_job() -> None:
    client = Client([1, 2, 3])
    with pytest.raises(LookupError):
        for row in numbers(environment(KeepingRuntime(client))).collect():
            raise LookupError(row)
    assert client.cancelled


def test_whoever_interrupts_suspends_the_job_and_the_process_may_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in a notebook, where only the cell ends."""

    def rows() -> Iterator[object]:
        yield 1
        raise KeyboardInterrupt

    within, between = Client([]), Client([1, 2])
    within.collected = lambda name: rows()
    for client in (within, between):
        client.interrupted = KeyboardInterrupt
        running_jobs().add(client, Configuration())
    with pytest.raises(KeyboardInterrupt), CloseableIterator[object](within, "c") as records:
        list(records)
    with pytest.raises(KeyboardInterrupt), CloseableIterator[object](between, "c") as records:
        assert next(records) == 1
        raise KeyboardInterrupt
    for client in (within, between):
        assert (client.suspended, client.cancelled) == ("Ctrl-C", False)
    assert capsys.readouterr().err.count("the job was suspended: Ctrl-C") == 2
    assert list(records) == []


@pytest.fixture
def _hears_ctrl_c() -> Iterator[None]:
    """Python does not, where whoever started it has Ctrl-C ignored, as shells do in background."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("_hears_ctrl_c")
@pytest.mark.parametrize("already_told", [False, True])
def test_a_signal_that_breaks_off_no_wait_is_heard_all_the_same(*, already_told: bool) -> None:
    """As one that comes just before the main thread begins to wait, or while it tells the end."""
    client = Client([])
    never: Future[JobExecutionResult] = Future()
    jobs = RunningJobs()
    wake = threading.Timer(0.01, _thread.interrupt_main)  # sets the signal, and wakes nobody

    def ends_never() -> Future[JobExecutionResult]:
        wake.start()
        return never

    if already_told:
        client.get_job_execution_result = lambda: never
        jobs.add(client, Configuration())
    client.get_job_execution_result = ends_never
    with pytest.raises(KeyboardInterrupt):
        if already_told:
            jobs.suspend_for(KeyboardInterrupt(), client)
        else:
            jobs.result_of(client)
    wake.join()


def test_nothing_is_cancelled_once_the_job_has_ended() -> None:
    client = Client([1])
    with CloseableIterator[object](client, "c") as rows:
        assert list(rows) == [1]
    rows.close()
    del rows
    assert not client.cancelled
    assert list(numbers(environment(KeepingRuntime(client))).collect()) == [1]
    assert not client.cancelled


def test_a_failed_job_raises_after_its_last_record() -> None:
    client = Client([1], JobFailed("the job failed"))
    rows: CloseableIterator[object] = CloseableIterator(client, "c")
    assert next(rows) == 1
    with pytest.raises(JobFailed):
        next(rows)


def test_the_error_of_a_job_comes_once_it_has_ended() -> None:
    """A program that ends with the error is not warned of a job that still runs."""

    def rows() -> Iterator[object]:
        raise error
        yield

    client, error = Client([]), JobFailed("the job failed")
    ended: Future[JobExecutionResult] = Future()
    client.collected = lambda name: rows()
    client.get_job_execution_result = lambda: ended
    records: CloseableIterator[object] = CloseableIterator(client, "c")
    end = threading.Timer(0.05, ended.set_exception, [error])
    end.start()
    with pytest.raises(JobFailed) as raised:
        records.next()
    assert (raised.value, ended.done()) == (error, True)
    end.join()


def test_a_job_that_failed_is_not_cancelled() -> None:
    def rows() -> Iterator[object]:
        yield 1
        raise JobFailed("the job failed")

    client = Client([])
    client.collected = lambda name: rows()
    with pytest.raises(JobFailed), CloseableIterator[object](client, "c") as records:
        list(records)
    assert not client.cancelled


def test_with_a_limit_a_list_comes_and_the_job_is_cancelled() -> None:
    client = Client(["a", "b", "c"])
    runtime = KeepingRuntime(client)
    stream = numbers(environment(runtime).set_parallelism(2)).map(str)
    assert stream.execute_and_collect("few", limit=2) == ["a", "b"]
    assert client.cancelled
    (graph,) = runtime.submitted
    assert graph.name == "few"
    assert [vertex.parallelism for vertex in graph.topology.vertices] == [2, 1]
    assert graph.topology.vertices[-1].name == "Sink: Collect"


def test_without_a_limit_the_records_are_iterated_over() -> None:
    client = Client(["a", "b"])
    with numbers(environment(KeepingRuntime(client))).execute_and_collect() as rows:
        assert list(rows) == ["a", "b"]
        assert rows.get_job_client() is client
