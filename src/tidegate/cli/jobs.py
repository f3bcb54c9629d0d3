"""The jobs of a checkpoint folder, as the command line knows them: by their records and doors."""

from __future__ import annotations

import asyncio
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TypeVar

import click

from flinkformat.frozen import frozen
from tidegate.config import checkpointing
from tidegate.config.history import ARCHIVE_DIRECTORY
from tidegate.config.load import load_configuration
from tidegate.driver.client.door import ANSWER_SOON_S, DoorSign, ask_at, read_sign_at
from tidegate.errors import (
    ConfigError,
    DriverSilent,
    FileMissing,
    FormatError,
    TidegateError,
    UserError,
)
from tidegate.ha.chain import newest_record
from tidegate.ha.filesystem import FileSystemHaStore
from tidegate.model.control import JobStatus
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tidegate.ha.chain import JobRecord
    from tidegate.storage.store import Store

T = TypeVar("T")

DRIVER_GONE: Final = "driver gone"
"""What is told of a job whose driver was killed."""

NOT_ANSWERING: Final = "not answering"
"""What is told of a job whose driver is stopped, or too busy."""

UNREADABLE: Final = "records damaged"
"""What is told of a job without a driver that takes requests or a record that can be read."""

ENDED: Final = frozenset(status.value for status in JobStatus if status.is_terminal)
"""What is told of jobs that are over."""

GONE: Final = ENDED | {DRIVER_GONE}
"""What is told of jobs that no driver runs."""


def folder_of(dynamic: tuple[str, ...], config: Path | None, checkpoints: str | None) -> JobFolder:
    """The checkpoint folder to use. Raises ConfigError if none is known."""
    configured = load_configuration(config, dynamic)
    directory = checkpoints or configured.get(checkpointing.CHECKPOINT_DIRECTORY)
    if directory is None:
        raise ConfigError(
            "No checkpoint folder with the job's records is given",
            where="command line",
            remedy="Name it with --checkpoints, or set "
            f"{checkpointing.CHECKPOINT_DIRECTORY.key} by -D or --config. "
            "A job without one can be reached from its own program alone.",
        )
    history = configured.get(ARCHIVE_DIRECTORY)
    return JobFolder(
        paths.absolute(os.fspath(directory)), None if history is None else paths.absolute(history)
    )


@frozen
class KnownJob:
    """A job that has left records, or the sign of a driver, or both.

    record: None where the records are in ZooKeeper. sign: says how to reach its driver, if there is
    one. quoted: its name as its files have it. damage: of the newest record or the sign, which is
    None then.
    """

    name: str
    record: JobRecord | None
    sign: DoorSign | None
    quoted: str = ""
    damage: FormatError | None = None

    def is_called(self, name: str) -> bool:
        return name == self.name or paths.quoted_name(name) == self.quoted

    @property
    def id(self) -> str:
        """The id of the job; "" where nothing tells it."""
        if self.record is not None:
            return self.record.job
        return "" if self.sign is None else self.sign.job

    @property
    def status(self) -> JobStatus:
        """RUNNING while a driver leads the job; after that how it ended."""
        return JobStatus.RUNNING if self.record is None else self.record.status

    @property
    def newest_checkpoint(self) -> str | None:
        completed = () if self.record is None else self.record.completed
        return completed[-1].location if completed else None


@frozen
class ReachableJob:
    """A job whose driver takes requests."""

    name: str
    sign: DoorSign


class JobFolder:
    """The jobs of one checkpoint folder. history: of their archives, if that is elsewhere."""

    def __init__(self, directory: str, history: str | None = None) -> None:
        self.directory: Final = directory
        self.history: Final = history or paths.join(directory, paths.history_folder())

    def jobs(self) -> list[KnownJob]:
        """All jobs, by name, damaged ones too. Raises UserError if the folder does not exist."""
        store = Stores().open(self.directory)
        if not store.is_folder(""):
            raise UserError(
                f"There is no folder {self.directory}",
                where="jobs of a checkpoint folder",
                remedy="Name the job's execution.checkpointing.dir.",
            )
        files = [info.path for info in store.list(paths.jobs_folder())]
        signs = paths.signs_by_job(files)
        found = (_known(store, each, signs.get(each)) for each in paths.quoted_job_names(files))
        return sorted((job for job in found if job is not None), key=lambda job: job.name)

    def job(self, name: str) -> KnownJob:
        """The job of that name or id.

        Raises UserError if there is none, FormatError where damage hides if it runs.
        """
        jobs = self.jobs()
        for job in jobs:
            if name == job.id or job.is_called(name):
                return _readable(job)
        known = ", ".join(f"'{job.name}'" for job in jobs)
        raise UserError(
            f"There is no job '{name}'",
            where=self.directory,
            remedy=f"It has {known}."
            if known
            else "No job has kept records in this folder, or its records are in ZooKeeper.",
        )

    def lives(self, name: str) -> bool:
        """True if a job of that name runs, as far as this machine can know.

        Raises FormatError where damage hides that.
        """
        called = [_readable(job) for job in self.jobs() if job.is_called(name)]
        statuses = [state_of(job).status for job in called]
        return any(status not in GONE for status in statuses)

    def ask(self, name: str, request: Mapping[str, object]) -> object:
        """Sends a request to a running job.

        Raises UserError if it does not run, and what it answers. Meanwhile the reasons for a long
        wait are printed to standard error.
        """
        job = self.running(name)
        target = request.get("directory")
        if isinstance(target, str) and target.strip():
            # The driver has a current folder of its own.
            request = {**request, "directory": paths.absolute(target)}
        return ask_at(job.sign, job.name, request, tell=lambda text: click.echo(text, err=True))

    def running(self, name: str) -> ReachableJob:
        """The running job of that name or id. Raises UserError if it cannot be asked."""
        job = self.job(name)
        if job.status is not JobStatus.RUNNING:
            raise UserError(
                f"The job has ended: {job.status.value}",
                where=f"job '{job.name}'",
                remedy="'tidegate list' shows which jobs run.",
            )
        if job.sign is None:
            raise UserError(
                "The job cannot be reached: its driver takes no requests of other processes, is "
                "just starting, or was killed",
                where=f"job '{job.name}'",
                remedy="See the log of its driver; 'tidegate run --from latest' goes on with a job "
                "whose driver was killed.",
            )
        return ReachableJob(job.name, job.sign)


@frozen
class JobState:
    """State of a job, as far as this machine can know. start_ms, running_since_ms: wall clock.

    None of the figures is known unless the driver answers.
    """

    status: str
    start_ms: int | None = None
    running_since_ms: int | None = None
    parallelism: int | None = None
    restarts: int | None = None


def state_of(job: KnownJob) -> JobState:
    """Asks the driver of a job that has not ended."""
    if job.status is not JobStatus.RUNNING:
        return JobState(job.status.value)
    if job.sign is None:
        return JobState("not reachable" if job.record else UNREADABLE)
    try:
        request = {"do": "status", "figures": True}
        answered = ask_at(job.sign, job.name, request, within_s=ANSWER_SOON_S)
    except UserError:
        return JobState(f"on {job.sign.host}")
    except DriverSilent:
        return JobState(NOT_ANSWERING)
    except TidegateError:
        return JobState(DRIVER_GONE)
    if not isinstance(answered, dict):
        return JobState(str(answered))  # a driver of version 0.1 knows no figures
    known = {field.name for field in fields(JobState)}
    return JobState(**{name: value for name, value in answered.items() if name in known})


def _readable(job: KnownJob) -> KnownJob:
    if job.damage is not None and job.sign is None and job.status is JobStatus.RUNNING:
        raise job.damage
    return job


def _known(store: Store, quoted: str, door: str | None) -> KnownJob | None:
    """A job whose name is quoted so. door: the newest file that says how to reach its driver."""

    async def at_once(call: Callable[[], T]) -> T:
        return call()

    chain = Stores().open(paths.join(store.root, paths.chain_folder_of(quoted)))
    record, sign, damage = None, None, None
    try:
        record = asyncio.run(newest_record(FileSystemHaStore(chain, at_once)))
    except FormatError as error:
        error.where = paths.join(chain.root, error.where)
        damage = error
    if door is not None:
        try:
            sign = read_sign_at(store, door)
        except FileMissing:  # its driver has just ended
            pass
        except FormatError as error:
            damage = damage or error
    if record is not None and record.released and sign is not None:
        # A driver whose records are elsewhere, as in ZooKeeper, leads another job of that name.
        record = record if sign.job in ("", record.job) else None
    if record is None and sign is None and damage is None:
        return None
    name = record.name if record is not None and record.name else paths.shown_name(quoted)
    return KnownJob(name, record, sign, quoted, damage)
