"""What is loaded in the processes that slots are forked from."""

import subprocess
import sys

LIMIT_S = 120

LEAVES_ONE_THREAD = """
import os
import sys

import psutil

from tidegate.slot.process.preload import (
    SLOT, WITH_ARROW, modules_of_any_job, preload, preload_known
)

preload(SLOT)
preload_known(modules_of_any_job())
without_arrow = set(sys.modules)
preload_known(WITH_ARROW)
assert "JE_ARROW_MALLOC_CONF" not in os.environ, "slots would find it in their environment"
if os.fork() == 0:
    os._exit(0)
os.wait()
print(psutil.Process().num_threads())
print(*without_arrow)
print(*sys.modules)
"""

JOB = """
import tidegate
from tidegate.windows import TumblingEventTimeWindows
from tidegate.slot.process.preload import modules_of_job, modules_of_program

env = tidegate.StreamExecutionEnvironment.local(1)
keyed = env.from_collection([1]).key_by(str)
keyed.window(TumblingEventTimeWindows.of(tidegate.Time.seconds(1))).reduce(max)
print(*modules_of_job())
print(*modules_of_program())
"""

MISSING = """
import sys

from tidegate.slot.process.preload import preload_known

preload_known(["tidegate.api.no_such_module", "tidegate.api.pieces"])
print("tidegate.api.pieces" in sys.modules)
"""


def output_of(program: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_no_thread_is_there_after_a_fork_whatever_is_loaded() -> None:
    threads, *modules = output_of(LEAVES_ONE_THREAD)
    loaded, with_arrow = (set(line.split()) for line in modules)
    assert threads == "1"
    assert loaded >= {"numpy", "tidegate.operators.windows.general"}
    assert loaded.isdisjoint({"pandas", "polars", "pyspark", "structlog", "tidegate.driver"})
    assert with_arrow >= {"pandas", "pyarrow.pandas_compat", "tidegate.state.columns.columnar"}


def test_a_job_asks_for_modules_of_ours_that_its_program_has_loaded() -> None:
    needed, programs = (line.split() for line in output_of(JOB))
    rooms = {module.split(".")[1] for module in needed}
    assert rooms <= {"api", "connectors", "operators", "state", "typeinfo"}
    assert "tidegate.operators.windows.general" in needed
    assert "tidegate.datastream.environment" in programs


def test_a_module_that_cannot_be_loaded_is_left_to_the_slot_that_needs_it() -> None:
    assert output_of(MISSING) == ["True"]
