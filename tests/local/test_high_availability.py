"""Drivers that die and are started again, with who leads kept in a real ZooKeeper."""

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from tests.e2e.driver import Orders
from tests.e2e.drivers import START_S, check_one_job, driver
from tests.e2e.files import committed_rows, hidden_files
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import END_S, RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, wait_completed, wait_running
from tests.e2e.zookeeper import PASSWORD, USER, ZooKeeperServer, sasl_only
from tidegate.connectors import FileSink
from tidegate.errors import StorageFailed

pytestmark = pytest.mark.slow

ROWS = 2_000
COMPLETED = "checkpoint completed"
STARTING = "starting from checkpoint"


@dataclass(frozen=True)
class Log:
    """What a driver has logged."""

    path: Path

    def numbers(self, event: str, field: str = "checkpoint") -> list[int]:
        """A field of each line of an event."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line for line in text.splitlines() if f"] {event} " in f"{line} "]
        return [int(re.findall(rf"\b{field}=(\d+)", line)[0]) for line in lines]

    def texts(self, event: str, field: str) -> list[str]:
        """A field of each line of an event, as it stands there."""
        lines = [line for line in self.path.read_text().splitlines() if f"] {event} " in line]
        return [re.findall(rf"\b{field}=(\S+)", line)[0] for line in lines]


@dataclass(frozen=True)
class Runs:
    """Drivers of one job, one after the other, each with a log of its own."""

    folder: Path
    settings: Mapping[str, str]

    def orders(self, **changed: object) -> Orders:
        settings = {
            "tidegate.ha.lease": "1 s",
            "tidegate.ha.beat-interval": "100 ms",
            "execution.checkpointing.num-retained": 1,
        }
        orders = Orders(str(self.folder), ROWS, rate=1_000, settings={**settings, **self.settings})
        return replace(orders, **changed)

    def log(self, number: int) -> Log:
        return Log(self.folder / f"driver-{number}.log")

    def dies(self, number: int, place: str) -> Log:
        """A driver runs to where it dies."""
        log = self.log(number)
        with driver(self.orders(place=place), log.path) as process:
            assert process.wait(START_S) == -signal.SIGKILL, log.path.read_text()
        return log

    def finishes(self, number: int, **changed: object) -> Log:
        """A driver runs to the end of the job."""
        log = self.log(number)
        with driver(self.orders(**changed), log.path) as process:
            assert process.wait(START_S) == 0, log.path.read_text()
        return log

    def check_counted(self) -> None:
        """Every number was counted and written once."""
        check_each_counted_once(committed_rows(self.folder / "out"), ROWS)

    def check_exact(self) -> None:
        """So it was, and nothing is left."""
        self.check_counted()
        assert not hidden_files(self.folder / "out")
        check_one_job(self.folder / "checkpoints")


@pytest.fixture
def runs(tmp_path: Path, zookeeper: ZooKeeperServer) -> Runs:
    return Runs(tmp_path, zookeeper.options())


@pytest.mark.feature("F039", "F278")
@pytest.mark.parametrize(
    ("place", "newest"),
    [
        ("before the metadata is written", 2),
        ("before the pointer is added", 2),
        ("before the pointer's answer is seen", 3),
        ("before anybody is told", 3),
        ("when one slot is told", 3),
        ("before the older one is deleted", 4),
    ],
)
def test_a_driver_that_dies_while_it_completes_a_checkpoint_is_followed_by_an_exact_one(
    runs: Runs, place: str, newest: int
) -> None:
    """The second is started as the first was: that the job goes on is known from ZooKeeper."""
    first = runs.dies(1, place)
    second = runs.finishes(2)
    assert second.numbers(STARTING) == [newest]
    assert second.numbers("reset checkpoint id", "next_id")[0] > newest
    assert second.numbers(COMPLETED)[0] > max(newest, *first.numbers(COMPLETED))
    runs.check_exact()


@pytest.mark.feature("F200")
def test_a_driver_that_was_stopped_for_a_while_can_complete_and_delete_nothing(runs: Runs) -> None:
    """It is stopped when it is about to delete, and does so once another has taken over."""
    place = "before the older one is deleted"
    stopped, log = runs.orders(place=place, signal=signal.SIGSTOP), runs.log(1)
    with driver(stopped, log.path) as first:
        until(
            lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED,
            "the first driver stops",
            START_S,
        )
        completed = log.numbers(COMPLETED)
        successor = runs.log(2)
        with driver(runs.orders(), successor.path) as second:
            until(lambda: successor.numbers(COMPLETED), "the second completes", START_S)
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(START_S) != 0
            assert second.wait(START_S) == 0, successor.path.read_text()
    assert "another driver leads it now" in log.path.read_text()
    assert log.numbers(COMPLETED) == completed
    assert successor.numbers(STARTING)[0] >= completed[-1]
    assert successor.numbers(COMPLETED)[0] > successor.numbers(STARTING)[0]
    runs.check_counted()  # what its slots were writing meanwhile is left, and counts for nothing


@pytest.mark.feature("F201")
def test_the_next_driver_has_all_checkpoints_that_were_retained(runs: Runs) -> None:
    settings = {**runs.settings, "execution.checkpointing.num-retained": "3"}
    runs = replace(runs, settings=settings)
    runs.dies(1, "before anybody is told")
    second = runs.finishes(2)
    assert "retained=[1, 2, 3]" in second.path.read_text()
    runs.check_exact()


@pytest.mark.feature("F190", "F195", "F197")
@pytest.mark.parametrize(
    ("place", "newest"), [("before the metadata is written", 2), ("before anybody is told", 3)]
)
def test_a_named_snapshot_counts_until_there_is_a_newer_checkpoint(
    runs: Runs, jobs: Jobs, place: str, newest: int
) -> None:
    env = jobs.checkpointed(1, 3_600_000, **RETAIN)
    sink = FileSink.parquet(str(runs.folder / "out"), COUNT_SCHEMA)
    running_counts(env, ROWS, 1_000).sink_to(sink).uid("files")
    before = jobs.start(env, "before")
    wait_running(before)
    for _ in range(2):
        named = before.trigger_checkpoint().result(timeout=END_S)
    before.cancel().result(timeout=END_S)
    settings = {**runs.settings, "execution.state-recovery.path": named.pointer}
    runs = replace(runs, settings=settings)
    first = runs.dies(1, place)
    assert first.numbers("starting from savepoint") == [2]
    assert first.texts("starting from savepoint", "path") == [named.pointer]
    assert first.numbers("reset checkpoint id", "next_id") == [3]
    second = runs.finishes(2)
    assert second.numbers("starting from savepoint") == []
    assert second.numbers(STARTING) == [newest]
    assert (second.texts(STARTING, "path") == [named.pointer]) == (newest == 2)
    runs.check_counted()
    assert (Path(named.pointer) / "_metadata").exists(), "it belongs to the other job"


@pytest.mark.feature("F279")
def test_a_finished_job_is_not_run_again_by_the_driver_that_follows_one_that_died(
    runs: Runs,
) -> None:
    first = runs.dies(1, "before the end is told")
    assert len(committed_rows(runs.folder / "out")) == ROWS
    second = runs.finishes(2)
    assert "the job has already ended and does not run again" in second.path.read_text()
    assert first.numbers("subtasks deployed", "attempt") == [0]
    assert second.numbers("subtasks deployed", "attempt") == []
    runs.check_exact()
    anew = runs.finishes(3)
    assert anew.numbers("subtasks deployed", "attempt") == [0]
    assert len(committed_rows(runs.folder / "out")) == 2 * ROWS


@pytest.mark.feature("F204", "F279")
def test_a_finished_job_is_not_gone_on_with(tmp_path: Path) -> None:
    runs = Runs(tmp_path, {})
    runs.finishes(1)
    log = runs.log(2)
    with driver(runs.orders(resume=True), log.path) as second:
        assert second.wait(START_S) != 0
    assert "No completed checkpoint available" in log.path.read_text()
    runs.check_exact()


def test_a_store_that_hangs_costs_checkpoints_and_nothing_else(
    jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ZooKeeperServer(tmp_path / "server")
    try:
        server.start()
        env = jobs.checkpointed(
            1,
            200,
            **server.options(),
            **{"high-availability.zookeeper.client.connection-timeout": "300 ms"},
        )
        running_counts(env, 6_000, 1_000).sink_to(LedgerSink(tmp_path / "out")).uid("ledger")
        client = jobs.start(env, "counts")
        wait_completed(client, 2)
        server.hang()
        try:
            until(lambda: "unknown whether" in capsys.readouterr().err, "it is told", END_S)
        finally:
            server.go_on()
        completed = client.view().checkpoints.counts.completed
        wait_completed(client, completed + 2)
        finished(client)
        check_each_counted_once(ledger_rows(tmp_path / "out"), 6_000)
    finally:
        server.stop()


def test_a_job_keeps_its_records_where_only_its_user_reads_them(jobs: Jobs, tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "server", sasl_only(tmp_path))
    options = {
        "high-availability.zookeeper.client.acl": "creator",
        "tidegate.ha.zookeeper.username": USER,
        "tidegate.ha.zookeeper.password": PASSWORD,
    }
    try:
        server.start()
        env = jobs.checkpointed(1, 100, **server.options(), **options)
        running_counts(env, 1_000, 1_000).sink_to(LedgerSink(tmp_path / "out")).uid("ledger")
        finished(jobs.start(env, "counts"))
        check_each_counted_once(ledger_rows(tmp_path / "out"), 1_000)
        options["tidegate.ha.zookeeper.password"] = "guessed"
        env = jobs.checkpointed(1, 100, **server.options(), **options)
        env.from_sequence(1, 10).print()
        with pytest.raises(StorageFailed, match="does not accept the driver's login"):
            jobs.start(env, "counts")
    finally:
        server.stop()
