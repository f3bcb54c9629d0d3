"""Requests of other processes to a running job: one entry for all doors."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.snapshots import SavepointFormatType
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.clock import SystemClock
from tidegate.errors import ConfigError, UserError
from tidegate.jobmaster.events import CancelRequested, SuspendRequested
from tidegate.model.control import JobStatus
from tidegate.model.elements import SnapshotKind
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.api.job import CheckpointDone, JobClient, JobExecutionResult
    from tidegate.driver.inbox import Answers, Inbox
    from tidegate.jobmaster.view import JobView
    from tidegate.model.settings import JobSettings


def begin(
    client: JobClient, request: Mapping[str, Any]
) -> (
    Future[str]
    | Future[None]
    | Future[CheckpointDone]
    | Future[JobStatus]
    | Future[dict[str, object]]
):
    """Begin what a request asks for; its result comes when that is done.

    request: plain values by name; ``do`` says what. Raises UserError for what cannot be asked for.
    """
    target, trigger_id = request.get("directory"), request.get("trigger_id")
    format = SavepointFormatType[request.get("format", "CANONICAL")]
    match request["do"]:
        case "savepoint":
            return client.trigger_savepoint(target, format=format, trigger_id=trigger_id)
        case "stop":
            drain = bool(request["drain"])
            return client.stop_with_savepoint(drain, target, format=format, trigger_id=trigger_id)
        case "cancel with savepoint":
            return client.cancel_with_savepoint(target, format=format, trigger_id=trigger_id)
        case "cancel":
            return client.cancel()
        case "checkpoint":
            return client.trigger_checkpoint(full=bool(request.get("full")))
        case "status" if request.get("figures"):
            figures: Future[dict[str, object]] = Future()
            figures.set_result(_figures(client.view()))
            return figures
        case "status":
            return client.get_job_status()
        case "picture":
            from tidegate.telemetry.picture import picture  # few jobs are looked at

            seen: Future[dict[str, object]] = Future()
            seen.set_result(picture(client.view(), SystemClock().wall_ms(), since=0))
            return seen
        case other:
            raise UserError(
                f"The job's driver does not know the request {other!r}",
                remedy="Use the version of Tidegate that runs the job.",
            )


def _figures(job: JobView) -> dict[str, object]:
    """Its status, and in ms of the wall clock when it began and since when it runs."""
    running = job.status is JobStatus.RUNNING
    return {
        "status": job.status.value,
        "start_ms": job.timestamps_ms.get(JobStatus.INITIALIZING),
        "running_since_ms": job.timestamps_ms.get(JobStatus.RUNNING) if running else None,
        "parallelism": max((vertex.parallelism for vertex in job.vertices), default=1),
        "restarts": job.restarts,
    }


_UNSHARED: Final = frozenset(
    {"memory", "local", "data", "simplecache", "filecache", "blockcache", "cached", "reference"}
)
"""Schemes of files that one process has for itself, or of copies that it keeps."""

TRIGGER_IDS_MAX: Final = 1_000
"""Trigger ids that are remembered; the oldest are forgotten first."""


@frozen
class Savepoint:
    """A requested savepoint. cancels: the job is cancelled after it."""

    kind: SnapshotKind
    directory: str | None
    format: SavepointFormatType
    cancels: bool = False

    @property
    def ends_job(self) -> bool:
        return self.kind.is_synchronous or self.cancels

    def request(self, number: int) -> CheckpointRequested:
        """The event. number: to which the answer belongs."""
        return CheckpointRequested(number, self.kind, self.directory, self.format, self.cancels)


def savepoint_asked(
    kind: SnapshotKind,
    directory: str | PathLike[str] | None,
    format: object,
    *,
    default: str | None = None,
    cancels: bool = False,
) -> Savepoint:
    """The requested savepoint; a relative folder is taken from the current one.

    default: the job's own folder of savepoints. Raises ConfigError for what is no folder that
    others can read, or no format.
    """
    folder = None if directory is None else fspath(directory)
    if folder is not None and not folder.strip():
        raise ConfigError(
            "The folder for the savepoint has no name",
            where="savepoint_directory",
            remedy="Name a folder, or omit it if execution.checkpointing.savepoint-dir is set.",
        )
    if not isinstance(format, SavepointFormatType):
        raise ConfigError(
            f"{format!r} is not a format of savepoints",
            where="format",
            remedy="Write SavepointFormatType.CANONICAL or SavepointFormatType.NATIVE.",
        )
    if folder is not None:
        folder = paths.absolute(folder)
    if (target := folder or default) is not None:
        _check_shared(target)
    return Savepoint(kind, folder, format, cancels)


def _check_shared(target: str) -> None:
    """Raises ConfigError for a place that is another one, or none, in other processes."""
    scheme = paths.scheme_of(target)
    chained = "::" in target and not paths.is_local(target)
    if chained or scheme in _UNSHARED:
        what = "is a chain of URLs" if chained else f"names '{scheme}:'"
        raise ConfigError(
            f"A savepoint cannot be taken there, for nobody else could read it: {target} {what}",
            where="savepoint_directory",
            remedy="Name a folder that outlives the job, by its path or by a URL such as "
            "'s3://bucket/savepoints'.",
        )


class _Savepoint(Future[str]):
    """Path of a savepoint, or the reason why there is none. why: in words."""

    def __init__(self, why: Callable[[], str]) -> None:
        super().__init__()
        self._why = why

    def result(self, timeout: float | None = None) -> str:
        try:
            return super().result(timeout)
        except TimeoutError as error:
            if self.done():
                raise
            raise TimeoutError(f"after {timeout:g} s the savepoint {self._why()}") from error


class SavepointRequests:
    """Asks for savepoints of one job; safe to use from any thread.

    ask: begins one. result: of the job, done when it has ended. why: what the present one waits
    for, in words.
    """

    def __init__(
        self,
        ask: Callable[[Savepoint], Future[CheckpointDone]],
        result: Future[JobExecutionResult],
        why: Callable[[], str],
    ) -> None:
        self._why = why
        self._ask = ask
        self._result = result
        self._lock = threading.Lock()
        self._triggered: dict[str, Future[str]] = {}

    def ask(self, asked: Savepoint, trigger_id: str | None) -> Future[str]:
        """Ask for it, unless that was done under this id."""
        if trigger_id is None:
            return self._begin(asked)
        with self._lock:
            if trigger_id not in self._triggered:
                self._triggered[trigger_id] = self._begin(asked)
                if len(self._triggered) > TRIGGER_IDS_MAX:
                    del self._triggered[next(iter(self._triggered))]
            return self._triggered[trigger_id]

    def _begin(self, asked: Savepoint) -> Future[str]:
        path = _Savepoint(self._why)

        def saved(done: Future[CheckpointDone]) -> None:
            error = done.exception()
            if error is not None:
                path.set_exception(error)
            elif asked.ends_job:
                self._result.add_done_callback(lambda _: path.set_result(done.result().pointer))
            else:
                path.set_result(done.result().pointer)

        path.set_running_or_notify_cancel()  # nobody may cancel what others may wait for
        self._ask(asked).add_done_callback(saved)
        return path


async def suspend(inbox: Inbox, answers: Answers, settings: JobSettings, reason: str) -> None:
    """Have a last checkpoint taken, within the limit of the settings, then end the job.

    A job without checkpoints has nothing to go on from, and is cancelled.
    """
    if isinstance(ending := interruption(settings, reason), CancelRequested):
        inbox.post(ending)
        return
    done: Future[CheckpointDone] = Future()
    # Behind a periodic one that waits for a long call it would wait for the next call as well.
    number = answers.expect(done)
    inbox.post(CheckpointRequested(number, SnapshotKind.CHECKPOINT, urgent=True))
    # One that fails, or takes too long, is no reason to stay: the one before is there.
    last = asyncio.wrap_future(done)
    last.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([last], timeout=settings.last_checkpoint_ms / 1000)
    inbox.post(ending)


def interruption(settings: JobSettings, reason: str) -> SuspendRequested | CancelRequested:
    """The event that ends a job so that it goes on later, where it has checkpoints."""
    periodic = settings.checkpoints.periodic
    return SuspendRequested(reason) if periodic else CancelRequested(reason)
