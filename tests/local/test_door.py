"""A running job, reached from other processes by the command line."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.e2e.ledger import ledger_rows
from tests.e2e.runtimes import RETAIN, Jobs, failure_of, finished
from tests.e2e.savepoints import END_S, committed, counting, status, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, wait_running
from tests.house.source import ROOT
from tidegate import JobCanceled, list_savepoints
from tidegate.cli.main import commands
from tidegate.model.control import JobStatus

pytestmark = pytest.mark.slow

JOB = "counts at 1"


def tidegate(jobs: Jobs, *args: str) -> Result:
    return CliRunner().invoke(commands, [*args, "-d", str(jobs.checkpoints)])


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_job_is_found_by_name_and_id_saved_and_stopped(jobs: Jobs) -> None:
    client = counting(jobs, 1, 4_000, 1_000)
    wait_rows(client, 100)
    [head, listed] = printed(tidegate(jobs, "list")).splitlines()
    columns = ["job", "status", "start time", "uptime", "parallelism", "restarts", "id", "rest"]
    assert head.split() == " ".join([*columns, "newest checkpoint"]).split()
    [figures] = json.loads(printed(tidegate(jobs, "list", "--json")))
    began_ms = client.view().timestamps_ms[JobStatus.INITIALIZING]  # type: ignore[attr-defined]
    assert (figures["start_time"], figures["parallelism"], figures["restarts"]) == (began_ms, 1, 0)
    assert isinstance(figures["uptime"], int)
    assert listed.startswith(JOB) and "RUNNING" in listed and client.get_job_id() in listed
    target = str(jobs.folder / "savepoints")
    again = ["savepoint", JOB, target, "--trigger-id", "nightly", "-t", "native"]
    first = printed(tidegate(jobs, *again))
    assert first == printed(tidegate(jobs, *again)) and status(client) is JobStatus.RUNNING
    last = printed(tidegate(jobs, "stop", client.get_job_id(), "-p", target))
    assert status(client) is JobStatus.FINISHED
    infos = list_savepoints(target)
    assert {(info.path, info.kind, info.format.value, info.job_name) for info in infos} == {
        (first, "Savepoint", "NATIVE", JOB),
        (last, "Suspend Savepoint", "CANONICAL", JOB),
    }
    shown = printed(CliRunner().invoke(commands, ["list", "--savepoints", target]))
    assert len(shown.splitlines()) == 3 and first in shown and last in shown
    printed(CliRunner().invoke(commands, ["savepoint", "--dispose", first]))
    assert [info.path for info in list_savepoints(target)] == [last]
    finished(counting(jobs, 1, 4_000, None, start_from="latest", interval_ms=100))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 4_000)
    [ended] = json.loads(printed(tidegate(jobs, "list", "--json")))
    assert (ended["status"], ended["start_time"], ended["restarts"]) == ("FINISHED", None, None)


@pytest.mark.parametrize("saved", [False, True])
def test_a_job_is_cancelled_from_outside(jobs: Jobs, saved: bool) -> None:
    client = counting(jobs, 1, None, 500)
    wait_running(client)
    target = str(jobs.folder / "savepoints")
    said = printed(tidegate(jobs, "cancel", JOB, *(["-s", target] if saved else [])))
    assert isinstance(failure_of(client), JobCanceled)
    assert Path(said).is_dir() if saved else said == f"cancelled {JOB}"


@pytest.mark.feature("F075", "F294")
def test_only_a_stop_may_drain(jobs: Jobs) -> None:
    client = counting(jobs, 1, None, 500)
    wait_running(client)
    target = str(jobs.folder / "savepoints")
    refused = tidegate(jobs, "savepoint", JOB, target, "--drain")
    assert refused.exit_code == 2 and "--drain" in refused.output
    with pytest.raises(TypeError, match="advance_to_end_of_event_time"):
        client.trigger_savepoint(target, advance_to_end_of_event_time=True)  # type: ignore[call-arg]
    assert status(client) is JobStatus.RUNNING and not Path(target).exists()
    printed(tidegate(jobs, "stop", JOB, "--drain", "--savepoint-path", target))
    assert [info.kind for info in list_savepoints(target)] == ["Terminate Savepoint"]


def test_what_cannot_be_done_is_told(jobs: Jobs) -> None:
    client = counting(jobs, 1, None, 500)
    wait_running(client)
    cases = {
        ("stop", "no such job"): f"There is no job 'no such job'\n  where: {jobs.checkpoints}",
        ("stop", JOB): "There is no folder for the savepoint",
        ("savepoint",): "Name either a job, or a savepoint with --dispose",
        ("savepoint", "--dispose", str(jobs.folder)): "Cannot find meta data file",
    }
    for args, text in cases.items():
        result = tidegate(jobs, *args)
        assert result.exit_code == 2 and text in result.output, args
    empty = CliRunner().invoke(commands, ["list", "-d", str(jobs.folder)])
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert empty.stderr.startswith(f"no job has kept records in {jobs.folder}, or ")
    missing = CliRunner().invoke(commands, ["list", "-d", str(jobs.folder / "none")])
    assert missing.exit_code == 2 and "There is no folder" in missing.stderr
    nowhere = CliRunner().invoke(commands, ["cancel", JOB])
    assert nowhere.exit_code == 2 and "execution.checkpointing.dir" in nowhere.output
    client.cancel().result(END_S)
    ended = tidegate(jobs, "cancel", JOB)
    assert ended.exit_code == 2 and "The job has ended: CANCELED" in ended.output


PROGRAM = """
    from tidegate import StreamExecutionEnvironment
    from tidegate.connectors import FileSink
    env = StreamExecutionEnvironment.get_execution_environment()
    env.generate(str, None, 500).uid("numbers").sink_to(FileSink.json({out!r})).uid("files")
    env.execute("alone")
"""


def test_a_process_is_stopped_by_another_and_a_killed_one_is_seen_to_be_gone(jobs: Jobs) -> None:
    script, out = jobs.folder / "alone.py", jobs.folder / "out"
    script.write_text(textwrap.dedent(PROGRAM.format(out=str(out))))
    settings = {
        "execution.checkpointing.dir": str(jobs.checkpoints),
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.savepoint-dir": str(jobs.folder / "savepoints"),
        **RETAIN,
    }
    given = [f"-D{key}={value}" for key, value in settings.items()]
    run = [sys.executable, "-m", "tidegate.cli.main", "run", *given]
    with subprocess.Popen([*run, script], cwd=ROOT / "src") as process:
        until(lambda: list(out.glob("[!.]*")), "rows are committed")
        path = printed(tidegate(jobs, "stop", "alone"))
        assert process.wait(END_S) == 0
    rows = [int(row) for row in committed(out)]
    assert sorted(rows) == list(range(len(rows)))
    claim = ["--from", path, "--claim-mode", "claim"]
    with subprocess.Popen([*run, *claim, script], cwd=ROOT / "src") as process:
        until(lambda: not Path(path).exists(), "the claimed savepoint is subsumed")
        process.kill()
    assert "driver gone" in printed(tidegate(jobs, "list"))
    gone = tidegate(jobs, "stop", "alone")
    assert gone.exit_code == 1 and "was killed" in gone.output
