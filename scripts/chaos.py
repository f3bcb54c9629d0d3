"""Kills random slots of running jobs: python -m scripts.chaos KILLS SPARK_KILLS [SEED].

Local slots first, then workers of Spark, each job in one of the ways to take exactly-once
checkpoints; then the output of each is compared with what must have come out. The last line sums
up.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.e2e.chaos import MODES, Survived, survive
from tests.e2e.runtimes import Jobs, MakeEnvironment
from tidegate import Configuration, StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

TELL_EVERY = 10


def main() -> int:
    """Exit status 1 where rows were lost or doubled, or a job did not come back."""
    local, spark = int(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
    print(f"chaos with seed {seed}: {local} kills of local slots, {spark} of Spark's workers")
    came_through = under("local", local_environment, local, seed)
    if spark:
        came_through += under("Spark", spark_environments(), spark, seed)
    rows = sum(each.rows for each in came_through)
    kills = sum(each.kills for each in came_through)
    took = sorted(one for each in came_through for one in each.recoveries_s)
    print(
        f"{kills} kills, {sum(each.restarts for each in came_through)} restarts, {rows} rows: "
        f"lost 0, doubled 0; recovery {took[len(took) // 2]:.2f} s median, {took[-1]:.2f} s longest"
    )
    return 0


def local_environment(parallelism: int, settings: Configuration) -> StreamExecutionEnvironment:
    """A job on this machine."""
    return StreamExecutionEnvironment.local(parallelism, configuration=settings)


def spark_environments() -> MakeEnvironment:
    """Jobs on one Spark session of this process."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[4]").appName("chaos")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return lambda parallelism, settings: StreamExecutionEnvironment.on_spark(
        session, parallelism, configuration=settings
    )


def under(where: str, make: MakeEnvironment, kills: int, seed: int) -> list[Survived]:
    """The kills, spread over the modes."""
    found: list[Survived] = []
    for index, mode in enumerate(MODES):
        share = kills // len(MODES) + (index < kills % len(MODES))
        if not share:
            continue
        folder = Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
        jobs = Jobs(make, folder)
        try:
            one = survive(jobs, share, Random(seed + index), mode, tell_of(where, mode, share))
        finally:
            jobs.end_all()
        shutil.rmtree(folder, ignore_errors=True)
        found.append(one)
        print(
            f"{where}, {mode}: {one.kills} kills, {one.restarts} restarts, "
            f"{one.checkpoints} checkpoints, {one.rows} rows exactly once",
            flush=True,
        )
    return found


def tell_of(where: str, mode: str, share: int) -> Callable[[int], None]:
    """Tells of every tenth kill."""

    def killed(number: int) -> None:
        if number % TELL_EVERY == 0:
            print(f"{where}, {mode}: {number} of {share} kills", flush=True)

    return killed


if __name__ == "__main__":
    sys.exit(main())
