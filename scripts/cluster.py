"""Kills on a standalone Spark cluster: python -m scripts.cluster KILLS [SEED] [KIND…].

A job on three workers; of each kind so many are killed: slots, executors, workers with their
executors, drivers, masters; and executors of batches, with what their tasks have shuffled. Where
each host may have a network namespace of its own, links are cut as well, in one direction and in
both, and the network in half, for 30 s each. The output is held against what must have come out. A
table sums up.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.cluster.job import ClusterJob
from tests.cluster.kills import CUTS, KINDS, check_files, check_nothing_lost, kill_executors
from tests.cluster.standalone import CORES, WORKERS, StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS_A_KILL: Final = 45_000
"""What a job reads in the two and a half minutes that one may take at worst, and is not over."""

KILLS_A_JOB: Final = 10
"""So often a job is hit before it may come to its end, and its output is looked at."""

REST_S: Final = 600.0
"""How long it may then take for the rest of its rows."""

ROWS_OF_A_BATCH: Final = 1_500
KILLS_A_BATCH: Final = 3
"""Spark gives a task up after so many tries and one."""

BATCH: Final = "batch"
SETTINGS: Final = {"heartbeat.timeout": "5 s"}
"""Who is cut off is given up as soon by the job as by Spark, see tests/cluster/standalone.py."""

SPARE: Final = {"spark.cores.max": str(CORES * len(WORKERS))}
"""For cut links: Spark starts executors on hosts that it does not know yet to be cut off."""


@dataclass(frozen=True)
class Line:
    """One line of the table: a kind, and what its kills took."""

    kind: str
    took_s: list[float]
    rows: int

    def __str__(self) -> str:
        median, most = statistics.median(self.took_s), max(self.took_s)
        return (
            f"{self.kind:22} {len(self.took_s):5} {median:8.1f} s {most:8.1f} s"
            f" {self.rows:9} {0:5} {0:8}"
        )


def main() -> int:
    """Raises where rows were lost or doubled, or a job did not come back."""
    kills = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    folder = Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
    cluster = StandaloneCluster(folder / "cluster")
    try:
        cluster.start()
        kinds = {**KINDS, **(CUTS if cluster.network.named else {})}
        chosen = sys.argv[3:] or [*kinds, BATCH]
        print(f"cluster of {cluster.network.kind}, seed {seed}: {kills} times {', '.join(chosen)}")
        chance = Random(seed)
        lines = [
            of_batches(cluster, folder, kills, chance)
            if kind == BATCH
            else of_kind(cluster, folder, kind, kinds[kind], kills, chance)
            for kind in chosen
        ]
    finally:
        cluster.close()
    shutil.rmtree(folder)
    print(f"\n{'kind':22} {'times':>5} {'median':>10} {'longest':>10} {'rows':>9}  lost  doubled")
    print(*lines, sep="\n")
    return 0


def of_kind(
    cluster: StandaloneCluster,
    folder: Path,
    kind: str,
    kill: Callable[[ClusterJob, Random], float],
    kills: int,
    chance: Random,
) -> Line:
    """The kills of one kind, on as many jobs as it takes."""
    took_s: list[float] = []
    rows = 0
    spark = SPARE if kind in CUTS else {}
    for share in shares(kills):
        at = Path(tempfile.mkdtemp(dir=folder))
        job = ClusterJob(
            cluster, at, rows=ROWS_A_KILL * (share + 1), spark=spark, settings=SETTINGS
        )
        try:
            job.start()
            job.wait_rows()
            for _ in range(share):
                took_s.append(kill(job, chance))
                load = os.getloadavg()[0]
                print(
                    f"{kind}: recovered in {took_s[-1]:.1f} s at a load of {load:.1f}", flush=True
                )
            rows += check_nothing_lost(job, REST_S)
        except BaseException:
            print(f"{kind}: see {at}; the driver's log ends with\n{job.log()[-4_000:]}")
            raise
        finally:
            job.close()
        cluster.wait_idle()
        shutil.rmtree(at)
    return Line(kind, took_s, rows)


def of_batches(cluster: StandaloneCluster, folder: Path, kills: int, chance: Random) -> Line:
    """Executors of batches; each batch comes to its end all the same. took_s: a batch's."""
    took_s: list[float] = []
    rows = done = 0
    while done < kills:
        at = Path(tempfile.mkdtemp(dir=folder))
        job = ClusterJob(cluster, at, rows=ROWS_OF_A_BATCH, batch=True)
        began = time.monotonic()
        try:
            job.start()
            hit = kill_executors(job, chance, min(KILLS_A_BATCH, kills - done))
            rows += check_nothing_lost(job)
            check_files(job)
        except BaseException:
            print(f"batch: see {at}; the driver's log ends with\n{job.log()[-4_000:]}")
            raise
        finally:
            job.close()
        done += hit
        took_s.append(time.monotonic() - began)
        print(f"batch: {hit} executors killed, over after {took_s[-1]:.1f} s", flush=True)
        cluster.wait_idle()
        shutil.rmtree(at)
    return Line(BATCH, took_s, rows)


def shares(kills: int) -> Iterator[int]:
    """How often each of the jobs is hit."""
    for done in range(0, kills, KILLS_A_JOB):
        yield min(KILLS_A_JOB, kills - done)


if __name__ == "__main__":
    sys.exit(main())
