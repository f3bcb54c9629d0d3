"""Looks for what grows in jobs that run for long: python -m scripts.soak MINUTES [SEED].

Two jobs are left alone, one with state in memory and one with RocksDB; of a third, slots are
killed, it is rescaled, and savepoints are taken, now and then. Memory, descriptors and threads of
drivers and slots, and files and folders, are told by sixths of the time. Exit status 1 where the
last third has more than 5 % above the first, and 2 more than it. The time begins two minutes after
all jobs run, for till then they take up what they need.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import psutil

from tests.e2e.soaked import started

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence

GROWTH_MAX = 0.05
MORE_MAX = 2.0
"""One thread or descriptor more or less is none that was lost."""

SAMPLES = 240
STARTS_WITHIN_S = 600.0
WARM_UP_S = 120.0
PARTS = 6
ENDS_WITHIN_S = 180.0

Sample = dict[str, float]


def main() -> int:
    """Exit status 1 where something has grown, or a job has ended by itself."""
    minutes = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000
    root = Path(tempfile.mkdtemp(prefix="tidegate-soak-"))
    print(f"soak: {minutes:g} minutes, seed {seed}, in {root}", flush=True)
    jobs = {
        "left alone, in memory": started(root / "memory", "hashmap", None),
        "left alone, RocksDB": started(root / "rocksdb", "rocksdb", None),
        "troubled": started(root / "troubled", "hashmap", seed),
    }
    folders = dict(zip(jobs, (root / "memory", root / "rocksdb", root / "troubled"), strict=True))
    samples: dict[str, list[Sample]] = {name: [] for name in jobs}
    try:
        wait_running(jobs, folders)
        for at in moments(minutes * 60):
            time.sleep(max(0.0, at - time.monotonic()))
            for name, job in jobs.items():
                if job.poll() is not None:
                    print(f"soak: {name} has ended by itself; {folders[name] / 'log'}")
                    return 1
                samples[name].append(sample(job, folders[name]))
    finally:
        for job in jobs.values():
            end(job)
    grown = 0
    for name, found in samples.items():
        lines, more = report(name, found)
        print("\n".join(lines), flush=True)
        grown += more
    if not grown:
        shutil.rmtree(root)
    print(f"soak: {grown} of what was measured has grown")
    return 1 if grown else 0


def wait_running(jobs: Mapping[str, subprocess.Popen[bytes]], folders: Mapping[str, Path]) -> None:
    """Wait until each job has committed something."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    for name, job in jobs.items():
        while not any((folders[name] / "out").rglob("part-*")):
            waited = f"{name} has committed nothing; {folders[name] / 'log'}"
            assert job.poll() is None and time.monotonic() < deadline, waited
            time.sleep(1.0)


def moments(seconds: float) -> Iterator[float]:
    """When samples are taken, behind the warm-up, by the monotonic clock."""
    began = time.monotonic() + WARM_UP_S
    for number in range(SAMPLES):
        yield began + seconds * number / SAMPLES


def sample(job: subprocess.Popen[bytes], folder: Path) -> Sample:
    driver = psutil.Process(job.pid)
    found = {f"driver {what}": much for what, much in taken(driver).items()}
    for slot in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it was killed meanwhile
            for what, much in taken(slot).items():
                found[f"slot {what}"] = max(much, found.get(f"slot {what}", 0.0))
    for part in ("checkpoints", "temporary"):
        files, folders = counted(folder / part)
        found[f"files, {part}"], found[f"folders, {part}"] = files, folders
    return found


def counted(place: Path) -> tuple[int, int]:
    """Files and folders below a place, where the job goes on to make and delete some."""
    files = folders = 0
    for _, inner, names in os.walk(place):  # passes over a folder that has gone meanwhile
        files, folders = files + len(names), folders + len(inner)
    return files, folders


def taken(process: psutil.Process) -> Sample:
    with process.oneshot():
        return {
            "memory MB": process.memory_info().rss / 2**20,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
        }


def report(name: str, samples: Sequence[Mapping[str, float]]) -> tuple[list[str], int]:
    """A table of means by sixths of the time, and how many of its rows have grown."""
    lines = [f"{name:24}" + "".join(f"{f'{n + 1}/6':>9}" for n in range(PARTS)) + "   change"]
    grown = 0
    for what in sorted(set().union(*samples)):
        means = by_sixths([each[what] for each in samples if what in each])
        change, more = growth(means)
        grown += more
        row = "".join(f"{mean:9.1f}" for mean in means)
        lines.append(f"  {what:22}{row} {change:+8.1%}{'  GROWN' if more else ''}")
    return lines, grown


def by_sixths(values: Sequence[float]) -> list[float]:
    """The mean of each sixth."""
    marks = [len(values) * part // PARTS for part in range(PARTS + 1)]
    parts = [values[begin:end] for begin, end in itertools.pairwise(marks)]
    return [fmean(part) if part else 0.0 for part in parts]


def growth(means: Sequence[float]) -> tuple[float, bool]:
    """Change from the first third to the last, and whether it is more than there may be."""
    first, last = fmean(means[:2]), fmean(means[-2:])
    more = last > first * (1 + GROWTH_MAX) and last > first + MORE_MAX
    return (last - first) / max(first, 1.0), more


def end(job: subprocess.Popen[bytes]) -> None:
    """Let a job end; one that does not is killed, with its slots."""
    assert job.stdin is not None, "it was started with one"
    with contextlib.suppress(BrokenPipeError):
        job.stdin.close()
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(job.pid).children(recursive=True)
        _, alive = psutil.wait_procs([psutil.Process(job.pid), *family], timeout=ENDS_WITHIN_S)
        for process in alive:
            process.kill()
    job.wait()


if __name__ == "__main__":
    sys.exit(main())
