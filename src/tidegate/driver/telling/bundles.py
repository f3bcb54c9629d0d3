"""Replay bundles on the driver's disk: what is kept of steps that failed."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import structlog

    from tidegate.model.control import FailedStep
    from tidegate.model.settings import ReplaySettings

BUNDLES_MAX: Final = 10
"""Of one run of a job, which may fail again and again."""

SUFFIX: Final = ".replay"
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


def keep(
    failed: FailedStep,
    job_name: str,
    settings: ReplaySettings,
    number: int,
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Write a bundle that its user alone may read. Blocking. number: of the run's bundles."""
    if number > BUNDLES_MAX:
        if number == BUNDLES_MAX + 1:
            log.warning("this run has written its replay bundles; later failures get none")
        return
    execution = failed.execution
    run = f"{execution.epoch}-{execution.attempt}-{execution.subtask.index}"
    name = _ODD.sub("_", f"{job_name}-{failed.operator}")[:120]
    folder = Path(settings.directory)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = _written(folder, f"{name}-{run}", failed.bundle)
    except OSError as error:
        log.warning("a replay bundle cannot be written", where=str(folder), error=str(error))
        return
    command = f"tidegate replay {path}"
    log.warning("a step has failed; it can be run again", operator=failed.operator, by=command)


def _written(folder: Path, name: str, content: bytes) -> Path:
    """Write to a new file, whose name has a number where the first one is taken.

    It has its name once it is whole, so that who sees it can read it. Raises OSError, and leaves
    nothing then.
    """
    descriptor, begun = tempfile.mkstemp(".begun", f".{name}-", folder)  # with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        for count in itertools.count(1):
            path = folder / f"{name}{'' if count == 1 else f'-{count}'}{SUFFIX}"
            with contextlib.suppress(FileExistsError):
                _named(Path(begun), path)
                return path
    finally:
        Path(begun).unlink(missing_ok=True)
    raise AssertionError("there is always another number")


def _named(begun: Path, path: Path) -> None:
    """Give a file that is whole its name. Raises FileExistsError if that is taken."""
    try:
        path.hardlink_to(begun)
    except FileExistsError:
        raise
    except OSError:  # there are no links here, or it is the one that the next call raises
        path.touch(mode=0o600, exist_ok=False)
        begun.replace(path)
