"""`tidegate run` with a real job: it fails on the way, and another driver goes on from there."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROWS = 3_000
PROGRAM = """
import sys
from tidegate import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor
from tidegate.connectors import DataGeneratorSource, FileSink

output, uid, rows, fails_at = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])

class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        if value == fails_at:
            raise RuntimeError("this row was not expected")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield {"row": value, "key": value % 7, "count": count}

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(DataGeneratorSource(lambda i: i, rows, 2_000.0), None, "numbers")
counts = numbers.uid("numbers").key_by(lambda row: row % 7).process(Count()).uid(uid)
counts.sink_to(FileSink.json(output)).uid("files")
env.execute("counts")
"""


class Program:
    """The program in a folder of its own, run again and again over the same checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "counts.py"
        self._script.write_text(PROGRAM)
        (folder / "conf.yaml").write_text(
            f"execution.checkpointing:\n"
            f"  interval: 100 ms\n"
            f"  dir: {folder / 'checkpoints'}\n"
            f"  externalized-checkpoint-retention: RETAIN_ON_CANCELLATION\n"
            f"restart-strategy.type: none\n"
        )

    def run(
        self, *options: str, fails_at: int = -1, uid: str = "counts"
    ) -> subprocess.CompletedProcess[str]:
        conf = str(self.folder / "conf.yaml")
        output = str(self.folder / "output")
        command = [sys.executable, "-m", "tidegate.cli.main", "run", "--runtime", "local"]
        arguments = ["-c", conf, *options, str(self._script), output, uid, str(ROWS), str(fails_at)]
        return subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": "src"},
        )

    def newest_checkpoint(self) -> Path:
        found = (self.folder / "checkpoints").glob("*/chk-*/_metadata")
        return max(found, key=lambda path: int(path.parent.name[4:])).parent

    def committed(self) -> list[dict]:
        files = (self.folder / "output").glob("[!.]*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def assert_each_row_counted_once(self) -> None:
        rows = self.committed()
        assert sorted(row["row"] for row in rows) == list(range(ROWS))
        counts = defaultdict(list)
        for row in rows:
            counts[row["key"]].append(row["count"])
        for each in counts.values():
            assert sorted(each) == list(range(1, len(each) + 1))


@pytest.fixture
def failed(tmp_path: Path) -> Program:
    """The program after a run that has failed at two thirds of its rows."""
    program = Program(tmp_path)
    run = program.run(fails_at=2_000)
    assert run.returncode == 1
    assert "this row was not expected" in run.stderr
    assert "what to do" in run.stderr
    assert 0 < len(program.committed()) < ROWS
    return program


@pytest.mark.parametrize("how", ["--from", "-s"])
def test_latest_goes_on_from_the_newest_checkpoint_of_the_job(failed: Program, how: str) -> None:
    run = failed.run(how, "latest")
    assert run.returncode == 0, run.stderr
    failed.assert_each_row_counted_once()


def test_latest_does_not_begin_a_finished_job_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    keeps_nothing = (
        "-Dexecution.checkpointing.externalized-checkpoint-retention=DELETE_ON_CANCELLATION"
    )
    assert program.run(keeps_nothing).returncode == 0
    again = program.run("--from", "latest")
    assert again.returncode == 2
    assert "ended (FINISHED)" in again.stderr
    program.assert_each_row_counted_once()


def test_a_path_goes_on_from_that_checkpoint_at_another_parallelism(failed: Program) -> None:
    run = failed.run("-p", "2", "--from", str(failed.newest_checkpoint()))
    assert run.returncode == 0, run.stderr
    failed.assert_each_row_counted_once()


TWO_JOBS = """
from tidegate import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda n: n + 1).print()
env.execute("whole")
print("between the jobs")
env.from_collection(["1", "x"]).map(int).print()
env.execute("broken")
"""


def test_what_the_jobs_did_is_written_as_json_and_the_output_stays_the_programs(
    tmp_path: Path,
) -> None:
    script, told = tmp_path / "two.py", tmp_path / "told.jsonl"
    script.write_text(TWO_JOBS)
    told.write_text("of an earlier run\n")
    options = ["--runtime", "local", "-p", "1", "--json", str(told)]
    run = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", "run", *options, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    assert run.returncode == 1, run.stderr
    assert run.stdout.splitlines()[:4] == ["2", "3", "4", "between the jobs"]
    first, second = (json.loads(line) for line in told.read_text().splitlines())
    assert (first["name"], first["status"], first["rows"]["read"]) == ("whole", "FINISHED", 3)
    assert (second["name"], second["status"], second["restarts"]) == ("broken", "FAILED", 0)
    assert first["id"] != second["id"] and first["runtime_ms"] > 0
    assert {"checkpoints", "checkpoints_failed"} <= set(first)
    assert set(first["rows"]) == {"read", "written", "late", "skipped", "dead_letters"}


def test_state_that_no_operator_takes_is_refused_unless_allowed(failed: Program) -> None:
    refused = failed.run("--from", "latest", uid="sums")
    assert refused.returncode == 2
    assert "error:" in refused.stderr
    assert "Traceback" not in refused.stderr
    allowed = failed.run("--from", "latest", "-n", uid="sums")
    assert allowed.returncode == 0, allowed.stderr
    rows = [row["row"] for row in failed.committed()]
    assert sorted(rows) == list(range(ROWS))


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    run = Program(tmp_path).run("--from", str(tmp_path / "chk-9"))
    assert run.returncode == 2
    assert "chk-9" in run.stderr
    assert "Traceback" not in run.stderr
