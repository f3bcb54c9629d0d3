"""A driver that reads a DataFrame, to be killed: ``python -m tests.e2e.frame_driver JSON``."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.driver import configured
from tidegate import StreamExecutionEnvironment
from tidegate.connectors import FileSink

ROWS = 3_000
PARTITIONS = 20


@dataclass(frozen=True)
class FrameOrders:
    """What the driver is to do, in which folder."""

    folder: str
    resume: bool = False


def paused(row: dict[str, Any]) -> dict[str, Any]:
    """Long enough for the driver to be killed in the middle."""
    time.sleep(0.004)
    return row


def main() -> None:
    """Obey."""
    from pyspark.sql import SparkSession

    orders = FrameOrders(**json.loads(sys.argv[1]))
    folder = Path(orders.folder)
    configuration = configured(folder, {}, resume=orders.resume)
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
