"""A second job from a running one, which goes on as if there were no second."""

import json
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.e2e.jobs import KEYS, running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_files, ledger_rows
from tests.e2e.leftovers import referenced
from tests.e2e.probes import BreakingOnce
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.savepoints import END_S, committed, counting, status, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, view, wait_completed
from tidegate import JobClient, JobStatus, Types, list_savepoints
from tidegate.cli.main import commands
from tidegate.connectors import FileSink

pytestmark = pytest.mark.slow

TOTAL = 3_000
IN_FILES = {"execution.checkpointing.data-inline-threshold": "0 b"}


def forked(jobs: Jobs, path: str, broken: Latch) -> JobClient:
    """A fork that goes on from there, and fails once where it is told to."""
    settings = {
        "tidegate.fork.name": "the fork",
        "execution.state-recovery.path": path,
        "execution.state-recovery.claim-mode": "CLAIM",
        **IN_FILES,
    }
    env = jobs.checkpointed(1, 50, **settings)
    counts = running_counts(env, TOTAL, 1_500).map(BreakingOnce(broken))
    counts.sink_to(LedgerSink(jobs.folder / "fork")).uid("ledger")
    return jobs.start(env, "counts at 2")


def test_a_fork_and_its_origin_leave_each_other_alone(jobs: Jobs) -> None:
    """The origin subsumes and ends, the fork restarts and ends, each with all its output."""
    broken, settings = Latch(jobs.folder / "broken"), {**IN_FILES}
    origin = counting(jobs, 2, TOTAL, 750, interval_ms=50, settings=settings)
    wait_rows(origin, TOTAL // 20)
    path = origin.trigger_savepoint(jobs.folder / "savepoints").result(END_S)
    held = len(ledger_rows(jobs.folder / "out"))
    before = view(origin).checkpoints.counts.completed
    fork = forked(jobs, path, broken)
    assert view(fork).name == "the fork" and fork.get_job_id() != origin.get_job_id()
    broken.set()
    wait_completed(origin, before + 2)
    until(lambda: view(fork).restarts == 1, "the fork restarts")
    until(lambda: not Path(path).exists(), "the fork has deleted what it began with")
    check_files_of(origin, jobs)
    finished(fork)
    finished(origin)
    assert view(origin).restarts == 0
    everything = ledger_rows(jobs.folder / "out")
    check_each_counted_once(everything, TOTAL)
    # What the origin had not committed at the savepoint came out there alone.
    after = ledger_rows(jobs.folder / "fork")
    made = {file.name for file in ledger_files(jobs.folder / "fork")}
    assert made and not [name for name in made if name.startswith(origin.get_job_id())]
    assert 0 < held <= TOTAL - len(after)
    assert len({row["number"] for row in after}) == len(after)
    for key in range(KEYS):
        counts = sorted(row["count"] for row in after if row["key"] == key)
        last = len(range(key, TOTAL, KEYS))
        assert counts == list(range(last - len(counts) + 1, last + 1)), f"key {key}"


PROGRAM = """
    import sys
    from tidegate import StreamExecutionEnvironment, Types
    from tidegate.connectors import FileSink
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.generate(lambda n: (n % 3, n), 30_000, None, Types.TUPLE([Types.LONG()] * 2))
    keyed = numbers.uid("numbers").key_by(lambda pair: pair[0], Types.LONG())
    sums = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid({uid!r})
    sums.sink_to(FileSink.json(sys.argv[1])).uid("files")
    env.execute("sums")
"""


def sums(jobs: Jobs, name: str = "sums") -> JobClient:
    """The program's job, which takes a minute for what the program does at once."""
    env = jobs.checkpointed(1, 50)
    pair = Types.TUPLE([Types.LONG()] * 2)
    numbers = env.generate(lambda n: (n % 3, n), 30_000, 500, pair).uid("numbers")
    keyed = numbers.key_by(lambda pair: pair[0], Types.LONG())
    summed = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
    summed.sink_to(FileSink.json(str(jobs.folder / ("out" if name == "sums" else name)))).uid(
        "files"
    )
    return jobs.start(env, name)


def tidegate(jobs: Jobs, *args: object) -> Result:
    given = ["--savepoint-path", str(jobs.folder / "savepoints"), "-d", str(jobs.checkpoints)]
    return CliRunner().invoke(commands, ["fork", *given, *map(str, args)])


def test_a_command_forks_a_job_and_says_what_stands_in_the_way(jobs: Jobs) -> None:
    client = sums(jobs)
    wait_completed(client, 2)
    script, out = jobs.folder / "sums.py", jobs.folder / "new"
    script.write_text(textwrap.dedent(PROGRAM.format(uid="sums")))
    told = jobs.folder / "told.jsonl"
    done = tidegate(jobs, "--json", told, "sums", script, out)
    assert done.exit_code == 0, done.output
    assert json.loads(told.read_text())["name"] == "sums-fork"
    assert done.stderr.startswith(f"'sums-fork' begins at {jobs.folder / 'savepoints'}")
    assert status(client) is JobStatus.RUNNING
    assert list_savepoints(jobs.folder / "savepoints") == []
    after = committed(out)
    assert 0 < len(after) < 30_000
    same = tidegate(jobs, "--name", "sums", "sums", script, out)
    assert same.exit_code == 2 and "a name of its own" in same.output
    other = sums(jobs, "sums-fork")
    wait_completed(other, 1)
    twice = tidegate(jobs, "sums", script, out)
    assert twice.exit_code == 2 and "There is a job 'sums-fork' that runs" in twice.output
    assert list_savepoints(jobs.folder / "savepoints") == []
    other.cancel().result(END_S)
    script.write_text(textwrap.dedent(PROGRAM.format(uid="totals")))
    lost = tidegate(jobs, "sums", script, jobs.folder / "lost")
    assert lost.exit_code == 2 and "uid 'totals', give that one uid('sums')" in lost.output
    [left] = list_savepoints(jobs.folder / "savepoints")
    assert f"{left.path} is still there" in lost.output
    client.cancel().result(END_S)
    # Each row that the fork has made, the job has made too, as far as it has come.
    made = {tuple(row) for row in committed(jobs.folder / "out")}
    reached = dict(sorted(made))
    both = [tuple(row) for row in after if row[1] <= reached[row[0]]]
    assert both and set(both) <= made


@pytest.mark.parametrize(("program", "code"), [("1 / 0", 1), ("import tidegate", 2)])
def test_a_fork_that_starts_no_job_says_what_it_leaves(jobs: Jobs, program: str, code: int) -> None:
    client = sums(jobs)
    wait_completed(client, 1)
    script = jobs.folder / "nothing.py"
    script.write_text(program)
    ended = tidegate(jobs, "sums", script)
    [left] = list_savepoints(jobs.folder / "savepoints")
    assert ended.exit_code == code and f"{left.path} is still there" in ended.output
    assert ("started no job" in ended.output) == (code == 2)
    client.cancel().result(END_S)


def check_files_of(job: JobClient, jobs: Jobs) -> None:
    """All files of its newest checkpoint lie in its own folder."""
    folder, files = jobs.checkpoints / job.get_job_id(), set[Path]()

    def read() -> bool:
        newest = view(job).checkpoints.latest_completed
        assert newest is not None and newest.pointer is not None
        with suppress(FileNotFoundError):  # a newer one has subsumed it meanwhile
            files.update(referenced(Path(newest.pointer, "_metadata")))
        return bool(files)

    until(read, "the newest checkpoint is read")
    assert all(file.is_relative_to(folder) for file in files)
