"""A job that runs until it is told to end: ``python -m tests.e2e.soaked FOLDER BACKEND SEED``.

It ends when its standard input does. With a seed its slots are killed, it is rescaled, and
savepoints are taken, now and then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.e2e.driver import ROOT
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.runtimes import RESTART_AT_ONCE
from tests.e2e.watch import kill_slot, pids, runs, wait_for
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.connectors import FileSink
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate import JobClient

RATE = 300.0
INTERVAL_MS = 500
LEFT_ALONE_S = (5.0, 20.0)
PARALLELISMS = (2, 3)
RUNNING_S = 300.0
END_S = 120.0


def started(folder: Path, backend: str, seed: int | None) -> subprocess.Popen[bytes]:
    """The job in a process of its own, whose temporary files are below the folder."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    given = [str(folder), backend, *([] if seed is None else [str(seed)])]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.soaked", *given],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "TMPDIR": str(temporary),
            },
        )


def main() -> None:
    """Run the job, and trouble it where that is asked for."""
    folder, backend = Path(sys.argv[1]), sys.argv[2]
    settings = {
        "execution.checkpointing.interval": INTERVAL_MS,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        # RocksDB's cache fills up over hours, which is no growth: here it is full soon.
        "state.backend.rocksdb.memory.fixed-per-slot": "8 mb",
        **RESTART_AT_ONCE,
        "restart-strategy.fixed-delay.attempts": 1_000_000,
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set(key, value)
    env = StreamExecutionEnvironment.local(2, configuration=configuration)
    counts = running_counts(env, None, RATE)
    counts.sink_to(FileSink.parquet(str(folder / "out"), COUNT_SCHEMA)).uid("files")
    client = env.execute_async("soak")
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    wait_running_without(client, 0)
    chance = Random(int(sys.argv[3])) if len(sys.argv) > 3 else None
    while not over.wait(3_600 if chance is None else chance.uniform(*LEFT_ALONE_S)):
        if chance is not None:
            trouble(client, folder, chance)
    client.cancel().result(END_S)


def trouble(client: JobClient, folder: Path, chance: Random) -> None:
    """One of the things that happen to a job; then it runs again."""
    killed = 0
    try:
        match chance.choice(("kill", "kill", "rescale", "savepoint")):
            case "kill":
                killed = kill_slot(client, chance.randrange(2))
            case "rescale":
                client.rescale(chance.choice(PARALLELISMS)).result(END_S)
            case _:
                target = folder / "savepoints"
                client.trigger_savepoint(str(target)).result(END_S)
                shutil.rmtree(target)
    except TidegateError as error:
        # A savepoint that a kill has overtaken, or a rescale: told, and tried again later.
        print(type(error).__name__, error, flush=True)
    wait_running_without(client, killed)


def wait_running_without(client: JobClient, pid: int) -> None:
    """Wait until the job runs, and not in that process: one that is lost may still be listed."""
    wait_for(
        client,
        lambda seen: runs(seen) and pid not in pids(seen),
        "running again",
        timeout_s=RUNNING_S,
    )


if __name__ == "__main__":
    main()
