"""Kills slots and drivers of running jobs: python -m scripts.chaos KILLS SPARK DRIVERS [SEED].

Local slots first, then workers of Spark, each job in one of the ways to take checkpoints and to
keep state, or in another shape; then whole drivers, each followed by one that goes on from the
latest checkpoint. The output of each job is compared with what must have come out. The last line
sums up.
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

from tests.e2e.chaos import MODES, Survived, survive, survive_driver_kills
from tests.e2e.runtimes import Jobs, MakeEnvironment
from tidegate import Configuration, StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

TELL_EVERY = 10


def main() -> int:
    """Exit status 1 where rows were lost or doubled, or a job did not come back."""
    local, spark, drivers = map(int, sys.argv[1:4])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else int(time.time())
    print(
        f"chaos with seed {seed}: {local} kills of local slots, {spark} of Spark's workers, "
        f"{drivers} of drivers"
    )
    came_through = under("local", local_environment, local, seed)
    if spark:
        came_through += under("Spark", spark_environments(), spark, seed)
    if drivers:
        came_through.append(of_drivers(drivers, seed))
    rows = sum(each.rows for each in came_through)
    kills = sum(each.kills for each in came_through)
    took = sorted(one for each in came_through for one in each.recoveries_s)
    print(
        f"{kills} kills, {sum(each.restarts for each in came_through)} restarts, {rows} rows: "
        f"lost {sum(each.lost for each in came_through)}, "
        f"doubled {sum(each.doubled for each in came_through)}, all of those at least once; "
        f"recovery {took[len(took) // 2]:.2f} s median, {took[-1]:.2f} s longest"
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
            f"{one.checkpoints} checkpoints, {one.rows} rows, lost {one.lost}, "
            f"doubled {one.doubled}",
            flush=True,
        )
    return found


def of_drivers(kills: int, seed: int) -> Survived:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    one = survive_driver_kills(folder, kills, Random(seed), tell_of("local", "drivers", kills))
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"drivers: {kills} kills, {one.rows} rows, lost {one.lost}, doubled {one.doubled}",
        flush=True,
    )
    return one


def tell_of(where: str, mode: str, share: int) -> Callable[[int], None]:
    """Tells of every tenth kill."""

    def killed(number: int) -> None:
        if number % TELL_EVERY == 0:
            print(f"{where}, {mode}: {number} of {share} kills", flush=True)

    return killed


if __name__ == "__main__":
    sys.exit(main())
