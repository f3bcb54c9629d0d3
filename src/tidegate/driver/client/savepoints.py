"""Savepoints that were asked for: each once, whoever asks again, and answered by its path."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import SavepointFormatType
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.errors import ConfigError
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.job import CheckpointDone, JobExecutionResult
    from tidegate.model.elements import SnapshotKind

_UNSHARED: Final = frozenset(
    {"memory", "local", "data", "simplecache", "filecache", "blockcache", "cached", "reference"}
)
"""Schemes of files that one process has for itself, or of copies that it keeps."""

TRIGGER_IDS_MAX: Final = 1_000
"""Trigger ids that are remembered; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
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
