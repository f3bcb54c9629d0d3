"""Replay bundles of small jobs whose slots are in this process."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.replayed import STEPS
from tests.e2e.watch import until
from tidegate import Configuration, JobFailed, StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidegate import DataStream


def run_to_failure(
    folder: Path,
    program: Callable[[StreamExecutionEnvironment], DataStream[Any]],
    **settings: str,
) -> None:
    """Runs a program that fails, and is to leave a bundle in the folder.

    settings: options of the job beside its own.
    """
    options = {
        "tidegate.local.in-process": "true",
        "tidegate.replay.dir": str(folder),
        "restart-strategy.type": "none",
        # The program knows of the failure before the driver says so, wherever that goes by then.
        "tidegate.job.summary": "false",
        **settings,
    }
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(options))
    with pytest.raises(JobFailed), program(env).execute_and_collect() as rows:
        list(rows)


def failed_step(
    folder: Path,
    program: Callable[[StreamExecutionEnvironment], DataStream[Any]],
    **settings: str,
) -> Path:
    """The bundle that a program leaves whose step fails."""
    run_to_failure(folder, program, **settings)
    until(lambda: any(map(zipfile.is_zipfile, folder.glob("*.replay"))), "there is a bundle")
    [path] = folder.glob("*.replay")
    return path


def failed_as(name: str, folder: Path) -> Path:
    """The bundle of one of the kinds of steps, which is called step."""

    def program(env: StreamExecutionEnvironment) -> DataStream[Any]:
        timer = "timer" in name
        numbers = env.generate(int, None, 1_000) if timer else env.from_sequence(1, 9)
        return STEPS[name](numbers).name("step").uid("step")

    return failed_step(folder, program)
