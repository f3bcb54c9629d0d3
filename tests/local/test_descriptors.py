"""A process that may open few files: a job uses what it may, and a shortage ends no driver."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

END_S = 240.0

LIMITS = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1_000))
from tidegate import StreamExecutionEnvironment

def limit(n):
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

env = StreamExecutionEnvironment.local(1)
slot = env.from_collection([1]).map(limit).execute_and_collect(limit=1)
print(json.dumps([limit(0), *slot]))
"""

WITHOUT_OUTPUTS = """
import pathlib, sys
from tidegate import StreamExecutionEnvironment

def doubled(n):
    print("in a slot", n)
    return 2 * n

env = StreamExecutionEnvironment.local(2)
rows = env.from_collection([1, 2, 3]).map(doubled).execute_and_collect(limit=10)
pathlib.Path(sys.argv[1]).write_text(str(sorted(rows)))
"""

SHORTAGE = """
import json, os, resource, signal, sys, time
from tidegate import Configuration, JobStatus, StreamExecutionEnvironment

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
settings = {
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.dir": sys.argv[1],
    "execution.checkpointing.data-inline-threshold": "0 b",
    "execution.checkpointing.tolerable-failed-checkpoints": sys.argv[2],
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100000",
    "restart-strategy.fixed-delay.delay": "50 ms",
}
env = StreamExecutionEnvironment.local(2, configuration=Configuration.from_dict(settings))
numbers = env.generate(lambda n: n, rate=100).uid("numbers")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).uid("sums").filter(
    lambda total: False
).uid("none").print()
client = env.execute_async("hungry")
result = client.get_job_execution_result()

def until(holds):
    while not holds(client.view()):
        assert not result.done(), result.exception()
        time.sleep(0.05)

def take_all():
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return

taken = []
until(lambda view: view.checkpoints.counts.completed >= 2)
take_all()
before = client.view()
if sys.argv[3] == "kill":
    os.kill(before.slots[0].pid, signal.SIGKILL)

def hit(view):
    take_all()  # and what the job has let go meanwhile
    if sys.argv[3] == "kill":  # the new slot cannot even be let in
        return view.restarts > before.restarts
    failed = view.checkpoints.counts.failed - before.checkpoints.counts.failed
    return failed >= 3 and (sys.argv[2] != "0" or view.restarts > before.restarts)

until(hit)
for descriptor in taken:
    os.close(descriptor)
count = client.view().checkpoints.counts.completed
until(lambda view: view.checkpoints.counts.completed >= count + 2)
client.cancel().result(60)
print(json.dumps(client.get_job_status().result().value))
"""


def output_of(program: str, *args: str) -> tuple[object, str]:
    """What a program prints as JSON, and what it tells."""
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        env={"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_driver_and_slots_open_as_many_files_as_they_may() -> None:
    assert output_of(LIMITS)[0] == [1_000, 1_000]


@pytest.mark.parametrize(("tolerated", "more"), [("1000000", ""), ("0", ""), ("1000000", "kill")])
def test_a_driver_without_descriptors_goes_on_and_says_what_to_do(
    tmp_path: Path, tolerated: str, more: str
) -> None:
    status, told = output_of(SHORTAGE, str(tmp_path / "checkpoints"), tolerated, more)
    assert status == "CANCELED"
    assert more == "kill" or ("Too many open files" in told and "ulimit" in told)


@pytest.mark.parametrize("closed", ["", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_program_runs_without_standard_input_and_outputs(closed: str, tmp_path: Path) -> None:
    """A daemon has none: what is opened next must not take their place."""
    program, found = tmp_path / "program.py", tmp_path / "found"
    program.write_text(WITHOUT_OUTPUTS)
    ran = subprocess.run(
        ["bash", "-c", f'exec "$0" "$@" {closed}', sys.executable, str(program), str(found)],
        timeout=END_S,
        capture_output=True,
    )
    assert (ran.returncode, found.read_text()) == (0, "[2, 4, 6]"), ran.stderr.decode()
