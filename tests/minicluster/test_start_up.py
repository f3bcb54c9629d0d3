"""Modules that a program loads until its first job runs: each of them makes the first row later."""

import subprocess
import sys

import pytest

LIMIT_S = 120

NAMES = "import tidegate"
JOB = """
import tidegate
env = tidegate.StreamExecutionEnvironment.local(1)
env.from_collection(["a"]).map(str.upper).key_by(str).map(str).print()
env.execute("first")
"""
SLOTS = """
from tidegate.slot.process.preload import SLOT, preload
preload(SLOT)
"""
TELL = """
import sys
print(*sys.modules)
"""
ELSEWHERE = (
    *("rich", "structlog"),
    *("pandas", "pyarrow.compute", "pyspark", "tidegate.cli", "tidegate.migration"),
    *("tidegate.operators.async_calls", "tidegate.operators.windows", "tidegate.rest.server"),
    *("tidegate.snapshots", "tidegate.spark", "tidegate.state.disk.store", "tidegate.testing"),
    *("tidegate.upgrade", "tidegate.datastream.windowed", "tidegate.connectors.kafka"),
    *("statistics", "tidegate.telemetry"),
)
"""What a first job does without."""


@pytest.mark.parametrize(
    ("program", "most", "most_in_all"),
    [(NAMES, 1, 70), (JOB, 283, 660), (SLOTS, 223, 560)],
    ids=["import", "job", "slots"],
)
def test_a_program_loads_few_modules(program: str, most: int, most_in_all: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program + TELL], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ran.returncode == 0, ran.stderr
    modules = ran.stdout.splitlines()[-1].split()
    ours = [each for each in modules if each.split(".")[0] in ("tidegate", "flinkformat")]
    assert [each for each in modules if each.startswith(ELSEWHERE)] == []
    assert len(ours) <= most, f"{len(ours)} modules of ours; import where few programs need it"
    # The rest is of other packages and of Python, of whose versions each has others.
    assert len(modules) <= most_in_all, f"{len(modules)} modules; which package has come along?"
