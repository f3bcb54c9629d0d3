"""A driver in a process of its own, so that it can be killed: ``python -m tests.e2e.driver JSON``.

It counts numbers into Parquet files, resumes where that was asked for, and ends with the job.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.deadly import signal_at
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.runtimes import RESTART_AT_ONCE
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.connectors import FileSink

ROOT = Path(__file__).resolve().parents[2]
NAME = "counts of a driver"


@dataclass(frozen=True)
class Orders:
    """What a driver is to do.

    spark: on a session of its own, else on this machine. settings: beside the usual ones. place:
    of `tests.e2e.deadly`, where it sends itself the signal.
    """

    folder: str
    rows: int
    rate: float
    spark: bool = False
    resume: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    place: str = ""
    signal: int = signal.SIGKILL


def started(orders: Any, log: Path) -> subprocess.Popen[bytes]:
    """A driver with these orders, of their module, in a process group of its own."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", type(orders).__module__, json.dumps(asdict(orders))],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "TIDEGATE_LOG_LEVEL": "info",
            },
            start_new_session=True,
        )


def configured(folder: Path, settings: Mapping[str, str], *, resume: bool) -> Configuration:
    """The settings of a job with checkpoints in its folder."""
    configuration = Configuration()
    for key, value in {
        "parallelism.default": 2,
        "execution.checkpointing.interval": 200,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        **RESTART_AT_ONCE,
        **({"execution.state-recovery.path": "latest"} if resume else {}),
        **settings,
    }.items():
        configuration.set(key, value)
    return configuration


def main() -> None:
    """Obey."""
    orders = Orders(**json.loads(sys.argv[1]))
    folder = Path(orders.folder)
    configuration = configured(folder, orders.settings, resume=orders.resume)
    if orders.spark:
        env = StreamExecutionEnvironment.on_spark(configuration=configuration)
    else:
        env = StreamExecutionEnvironment.local(configuration=configuration)
    counts = running_counts(env, orders.rows, orders.rate)
    counts.sink_to(FileSink.parquet(str(folder / "out"), COUNT_SCHEMA)).uid("files")
    if orders.place:
        signal_at(orders.place, orders.signal)
    env.execute(NAME)


if __name__ == "__main__":
    main()
