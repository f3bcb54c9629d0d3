"""Stops a job, changes its program, and goes on where it was, with three subtasks instead of one.

The first version sums numbers by key into files. It is stopped with a savepoint: its source stops,
and what it has read is summed, written and committed. The second version has a step more, and
starts from that savepoint. Sources, sums and files are found again by their uids. On Spark it takes
three cores.
"""

import json
import tempfile
import time
from pathlib import Path

from tidegate import Configuration, StreamExecutionEnvironment, Types
from tidegate.connectors import FileSink

NUMBERS = 300
KEYS = 11
NEVER_MS = 24 * 3_600_000


def below(folder):
    """Where checkpoints and savepoints go."""
    return Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        }
    )


def from_savepoint(path):
    return Configuration.from_dict({"execution.state-recovery.path": path})


def sums(env, rate):
    """A row for each number from 1 on: it, and the sum of its key so far."""
    pairs = env.generate(lambda n: (n + 1, n + 1), NUMBERS, rate).set_parallelism(1).uid("numbers")
    return (
        pairs.key_by(lambda pair: pair[0] % KEYS, Types.LONG())
        .reduce(lambda sum_before, pair: (pair[0], sum_before[1] + pair[1]))
        .uid("sums")
    )


def first_version(env, folder, rate=50.0):
    sums(env, rate).sink_to(FileSink.json(str(folder))).uid("files")


def second_version(env, folder, rate=100.0):
    signed = sums(env, rate).map(lambda row: (*row, "second version"))
    signed.sink_to(FileSink.json(str(folder))).uid("files")


def committed(folder):
    """The rows of all files that are not hidden."""
    files = sorted(folder.glob("[!.]*"))
    return [tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()]


def rows_read(job):
    """How many numbers a job's source has given so far."""
    sources = [vertex for vertex in job.view().vertices if vertex.name.startswith("Source")]
    return sum(subtask.figures.rows_out for each in sources for subtask in each.subtasks)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder, settings = Path(name) / "out", below(Path(name))

        env = StreamExecutionEnvironment.get_execution_environment(settings)
        # Nothing is committed but by the savepoint with which the job stops.
        env.set_parallelism(1).enable_checkpointing(NEVER_MS)
        first_version(env, folder)
        job = env.execute_async("first version")
        while rows_read(job) < 100:
            time.sleep(0.05)
        savepoint = job.stop_with_savepoint(False).result()
        print(f"first version: {len(committed(folder))} rows")

        env = StreamExecutionEnvironment.get_execution_environment(settings)
        env.configure(from_savepoint(savepoint))
        env.set_parallelism(3).enable_checkpointing(500)
        second_version(env, folder)
        env.execute("second version")

        rows = committed(folder)
        print(f"both versions: {len(rows)} rows, {len({row[0] for row in rows})} of them different")
        print("the last one:", max(rows))


if __name__ == "__main__":
    main()
