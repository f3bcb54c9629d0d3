"""What must hold when the driver is killed; asked of every runtime."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from tests.e2e.driver import Orders, started
from tests.e2e.files import committed_rows, hidden_files
from tests.e2e.leftovers import check_left_over
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until

START_S = 150.0
ORPHANS_S = 30.0


def check_killed_driver(folder: Path, *, spark: bool) -> None:
    """The next driver goes on from the newest checkpoint of the first: same job, nothing lost."""
    orders = Orders(str(folder), rows=3_000, rate=1_000, spark=spark)
    log = folder / "driver.log"
    with driver(orders, log) as first:
        until(lambda: committed_beside(folder, first), "committed rows", START_S)
        family = psutil.Process(first.pid).children(recursive=True)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        _, alive = psutil.wait_procs(family, timeout=ORPHANS_S)
        assert not alive, f"processes that outlive their driver: {alive}"
    before = committed_rows(folder / "out")
    assert 0 < len(before) < orders.rows
    with driver(replace(orders, resume=True), log) as second:
        assert second.wait(START_S) == 0, log.read_text()
    rows = committed_rows(folder / "out")
    check_each_counted_once(rows, orders.rows)
    assert {row["number"] for row in before} <= {row["number"] for row in rows}
    assert not hidden_files(folder / "out")
    check_one_job(folder / "checkpoints")


def committed_beside(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether there is something committed; fails where the driver has ended."""
    assert process.poll() is None, (folder / "driver.log").read_text()
    return len(committed_rows(folder / "out")) > 200


def check_one_job(checkpoints: Path) -> None:
    """Both drivers led the same job, and left nothing of it: it has finished."""
    jobs = [path.name for path in checkpoints.iterdir() if not path.name.startswith(".")]
    assert len(jobs) == 1
    check_left_over(checkpoints, jobs[0])


@contextmanager
def driver(orders: Orders, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that is gone afterwards, with all that it started."""
    process = started(orders, log)
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()
