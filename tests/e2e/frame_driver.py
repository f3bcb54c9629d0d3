"""A driver that reads a DataFrame, to be killed: ``python -m tests.e2e.frame_driver JSON``."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.e2e.driver import ROOT
from tests.e2e.runtimes import RESTART_AT_ONCE
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.connectors import FileSink

ROWS = 3_000
PARTITIONS = 100


@dataclass(frozen=True)
class FrameOrders:
    """What the driver is to do, in which folder."""

    folder: str
    resume: bool = False


def started(orders: FrameOrders, log: Path) -> subprocess.Popen[bytes]:
    """A driver with these orders."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.frame_driver", json.dumps(asdict(orders))],
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


def paused(row: dict[str, Any]) -> dict[str, Any]:
    """Long enough for the driver to be killed in the middle."""
    time.sleep(0.004)
    return row


def main() -> None:
    """Obey."""
    from pyspark.sql import SparkSession

    orders = FrameOrders(**json.loads(sys.argv[1]))
    folder = Path(orders.folder)
    settings = {
        "parallelism.default": 2,
        "execution.checkpointing.interval": 200,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        **RESTART_AT_ONCE,
        **({"execution.state-recovery.path": "latest"} if orders.resume else {}),
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    env = StreamExecutionEnvironment.on_spark(spark, configuration=configuration)
    frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("id", "rand() as chance")
    rows = env.from_spark(frame, source_name="by chance").uid("by chance")
    rows.map(paused).uid("paused").sink_to(FileSink.parquet(str(folder / "out"))).uid("out")
    env.execute("a frame by chance")
    spark.stop()


if __name__ == "__main__":
    main()
