"""Jobs of this machine: threads, processes and results from their start to their end."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from structlog.testing import capture_logs

from tests.threads import left_behind
from tidegate import StreamExecutionEnvironment
from tidegate.config.configuration import Configuration
from tidegate.driver import thread
from tidegate.driver.thread import start_driver
from tidegate.errors import JobCanceled, JobFailed, StorageFailed
from tidegate.jobmaster.machine import JobMaster
from tidegate.minicluster import processes
from tidegate.minicluster.forking import forking
from tidegate.minicluster.in_process import LoopProvider
from tidegate.minicluster.processes import ProcessProvider, slot_process
from tidegate.model.control import (
    CheckpointAcknowledged,
    JobStatus,
    Offer,
    SlotInvitation,
)
from tidegate.model.settings import LinkSettings
from tidegate.transport.memory import MemoryNetwork
from tidegate.transport.security import LinkSecurity

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidegate.api.job import JobClient
    from tidegate.driver.client.driver_client import DriverClient
    from tidegate.jobmaster.view import JobView
    from tidegate.model.ids import Epoch

LIMIT_S = 100.0


def endless(parallelism: int, **settings: str) -> DriverClient:
    env = StreamExecutionEnvironment.local(
        parallelism, configuration=Configuration.from_dict(settings)
    )
    env.generate(lambda n: n, rate=100).filter(lambda n: False).print()
    return env.execute_async("endless")  # type: ignore[return-value]


def view_once(client: JobClient, reached: Callable[[JobView], bool]) -> JobView:
    """The job's view as soon as it is as wished."""
    for _ in range(int(LIMIT_S * 100)):
        view: JobView = client.view()  # type: ignore[assignment]
        if reached(view):
            return view
        threading.Event().wait(0.01)
    raise AssertionError("the job did not get there")


def all_run(view: JobView) -> bool:
    states = {s.state.value for v in view.vertices for s in v.subtasks}
    return states == {"RUNNING"}


def slot_processes() -> set[int]:
    """Slots of this process's jobs: what its fork server has forked and not buried."""
    server = forking().pid
    assert server is not None, "a local environment has started it"
    return {child.pid for child in psutil.Process(server).children()}


def drivers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("tidegate")]


@pytest.mark.feature("F080", "F082")
def test_a_job_of_two_takes_two_slot_processes_and_gives_them_back() -> None:
    client = endless(2)
    view = view_once(client, all_run)
    assert view.status is JobStatus.RUNNING and view.name == "endless"
    assert (len(view.slots), view.slots_wanted) == (2, 2)
    pids = {slot.pid for slot in view.slots}
    assert pids == slot_processes()
    client.cancel().result(LIMIT_S)
    assert slot_processes() == set()


def test_a_result_is_given_out_when_nothing_of_the_job_is_left() -> None:
    env = StreamExecutionEnvironment.local(1)
    env.from_sequence(1, 10).filter(lambda n: False).print()
    client = env.execute_async()
    client.get_job_execution_result().result(LIMIT_S)
    assert [t for t in drivers() if t.is_alive() and t.name == "tidegate-io"] == []
    assert left_behind(set(), prefix="tidegate", within_s=1) == []


def test_a_job_that_has_ended_still_answers() -> None:
    client = endless(1)
    view_once(client, all_run)
    client.cancel().result(LIMIT_S)
    assert left_behind(set(), prefix="tidegate", within_s=1) == []
    assert client.get_job_status().result(LIMIT_S) is JobStatus.CANCELED
    assert client.view().status is JobStatus.CANCELED  # type: ignore[attr-defined]
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(LIMIT_S)
    with pytest.raises(JobFailed, match="has ended"):
        client.trigger_checkpoint().result(LIMIT_S)
    client.cancel().result(LIMIT_S)
    with pytest.raises(JobCanceled):
        list(client.collected("nothing"))


@pytest.mark.feature("F134")
@pytest.mark.slow
def test_acknowledgements_of_worker_processes_reach_the_coordinator_on_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: set[str] = set()
    handle = JobMaster.handle

    def noting(self: JobMaster, event: object, now_ms: int) -> object:
        if isinstance(event, CheckpointAcknowledged | Offer):
            threads.add(threading.current_thread().name)
        return handle(self, event, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(JobMaster, "handle", noting)
    client = endless(2)
    view_once(client, all_run)
    assert client.trigger_checkpoint().result(LIMIT_S).checkpoint == 1
    client.cancel().result(LIMIT_S)
    assert threads == {"tidegate-driver"}


def test_a_driver_that_cannot_even_be_made_says_so_to_who_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> object:
        raise StorageFailed("no scheme 'foo'")

    monkeypatch.setattr(thread, "_world", broken)
    env = StreamExecutionEnvironment.local(1)
    env.from_sequence(1, 10).print()
    network = MemoryNetwork()
    with pytest.raises(StorageFailed, match="no scheme 'foo'"):
        start_driver(env.get_job_graph(), LoopProvider(network), network)


class Failing:
    """An archive that fails when it is to be written last; signs: those of the job at that time."""

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self.signs: list[Path] = []

    def open(self, client: JobClient, epoch: Epoch) -> None:
        pass

    def shut(self) -> None:
        self.signs = [each for each in self._checkpoints.rglob("doors/*") if each.is_file()]
        raise LookupError("no archive today")


def test_a_result_comes_where_the_archive_fails_which_comes_before_the_sign_goes(
    tmp_path: Path,
) -> None:
    checkpoints = {"execution.checkpointing.dir": str(tmp_path)}
    settings = Configuration.from_dict(checkpoints)
    env = StreamExecutionEnvironment.local(1, configuration=settings)
    env.from_sequence(1, 10).filter(lambda n: False).print()
    network, archive = MemoryNetwork(), Failing(tmp_path)
    with capture_logs() as logged:
        graph, provider = env.get_job_graph(), LoopProvider(network)
        client = start_driver(graph, provider, network, archive=archive)
        assert client.get_job_execution_result().result(LIMIT_S).get_net_runtime() >= 0
    assert [each["what"] for each in logged if each["log_level"] == "error"] == ["Failing"]
    assert len(archive.signs) == 1
    assert not [each for each in tmp_path.rglob("doors/*") if each.is_file()]


class Interrupting:
    """Breaks the start off, as Ctrl-C does."""

    def open(self, client: JobClient, epoch: Epoch) -> None:
        raise KeyboardInterrupt

    def shut(self) -> None:
        pass


@pytest.mark.parametrize(("checkpoints", "ended"), [(True, "SUSPENDED"), (False, "CANCELED")])
def test_a_job_whose_start_is_broken_off_can_go_on_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, checkpoints: bool, ended: str
) -> None:
    every = {"execution.checkpointing.interval": "1 h"} if checkpoints else {}
    settings = {"execution.checkpointing.dir": str(tmp_path), **every}
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.generate(lambda n: n, rate=100).filter(lambda n: False).print()
    network = MemoryNetwork()
    graph, provider = env.get_job_graph("interrupted"), LoopProvider(network)
    with pytest.raises(KeyboardInterrupt):
        start_driver(graph, provider, network, archive=Interrupting())
    assert left_behind(set(), prefix="tidegate", within_s=LIMIT_S) == []
    assert f"job 'interrupted' is {ended}" in capfd.readouterr().err


def test_a_slot_whose_job_was_ended_while_it_started_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert slot_process(SlotInvitation(driver=f"127.0.0.1:{port}", secret=b"s" * 32)) == 1
    assert capfd.readouterr() == ("", "")


def test_a_slot_process_that_does_not_go_is_killed_and_the_loop_goes_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "CLOSE_TIMEOUT_S", 0.3)

    async def work() -> None:
        server = await asyncio.start_server(_hold, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        provider = ProcessProvider(forking(), LinkSecurity(LinkSettings(), "127.0.0.1"))
        failures: list[str] = []
        provider.start(
            SlotInvitation(driver=f"127.0.0.1:{port}", secret=b"s" * 32),
            lambda request, error, final: failures.append(request),
            lambda who: None,
        )
        provider.request(1)
        closing = asyncio.ensure_future(provider.close())
        turns = 0
        while not closing.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 5 and failures == []
        server.close()
        held = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*held), LIMIT_S)

    asyncio.run(work())
    assert slot_processes() == set()


async def _hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take the link and never answer."""
    await reader.read()
    writer.close()


def test_a_slot_process_that_fails_before_its_offer_is_asked_for_again() -> None:
    failures: list[tuple[str, bool]] = []

    async def work() -> None:
        provider = ProcessProvider(forking(), LinkSecurity(LinkSettings(), "127.0.0.1"))
        failed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note(request: str, error: object, final: bool) -> None:
            failures.append((request, final))
            loop.call_soon_threadsafe(failed.set)

        provider.start(
            SlotInvitation(driver="127.0.0.1:1", secret=b"s" * 32), note, lambda who: None
        )
        provider.request(1)
        async with asyncio.timeout(LIMIT_S):
            await failed.wait()
        await provider.close()

    asyncio.run(work())
    assert failures == [("process-0", False)]
