"""Flags with which Spark's JVMs start in half the time: an archive of its classes, made once.

``python -m tests.cluster.archive FILE`` makes one. A JVM whose jars are others passes over it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.e2e.zookeeper import java

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Nothing of a slot happens in its JVM, which needs neither many threads nor good code."""

MADE_S: Final = 240.0


def quick_flags(folder: Path) -> tuple[str, ...]:
    """Flags for any JVM of Spark. folder: where the archive stays from run to run."""
    import pyspark

    archive = folder / f"spark-{pyspark.__version__}.jsa"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = archive.with_name(f".{archive.name}-{os.getpid()}")
        subprocess.run(  # returns once its output is closed, which its JVM has as well
            [sys.executable, "-m", "tests.cluster.archive", str(made)],
            check=True,
            capture_output=True,
            timeout=MADE_S,
            env={
                "PATH": os.environ["PATH"],
                "PYSPARK_PYTHON": sys.executable,
                "JAVA_HOME": str(Path(java()).resolve().parents[1]),
            },
            cwd=Path(__file__).resolve().parents[2],
        )
        made.rename(archive)
    return (*QUICK, f"-XX:SharedArchiveFile={archive}")


def main() -> None:
    """Runs what a driver and an executor run, in a JVM that writes down its classes."""
    from pyspark.sql import SparkSession

    flags = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={sys.argv[1]}"))
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", flags)
        .getOrCreate()
    )
    spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").collect()
    spark.stop()


if __name__ == "__main__":
    main()
