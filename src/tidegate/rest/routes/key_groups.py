"""State by name and key group, counted in the files of the newest checkpoint when asked for.

Counting takes a thread of the server's for as long as it lasts: one count at a time, and of a large
checkpoint only some of the key groups, by which the sizes of states are estimated.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.errors import FormatError, RestoreRefused, StorageFailed
from tidegate.rest.messages import Accepted, Triggering, read_body
from tidegate.rest.refusals import Conflict
from tidegate.rest.served import Route, path_id
from tidegate.rest.shapes.key_group_shapes import counted
from tidegate.storage.paths import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aiohttp.web import Request

    from tidegate.api.job import JobClient
    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView
    from tidegate.rest.served import ServedJob
    from tidegate.snapshots.summary import SnapshotSummary

BYTES_MAX: Final = 512 << 20
"""State that is counted beside the driver, about; more of it would slow it for long."""

ONE_IN_MAX: Final = 32
"""One key group in this many says little of the others; what is larger is refused."""

TRIES: Final = 3
"""Checkpoints that are tried, where each is deleted while it is read."""

_COUNT: Final = "state count"
_MEMORY: Final = "memory"


def routes(served: ServedJob, submit: Callable[[Callable[[], object]], Future[Any]]) -> list[Route]:
    """Routes of counts. submit: runs a call that blocks on a thread."""
    counts = Counts(served.client, submit)

    async def begin(request: Request) -> object:
        job = await served.job(request)
        body = await read_body(request, Triggering)
        _chosen(job)
        return Accepted(served.begin(_COUNT, body.trigger_id, lambda _: counts.begin()))

    async def outcome(request: Request) -> object:
        job, id = served.job_id(request), path_id(request, "triggerid")
        return served.outcome(_COUNT, id, lambda found: found, whose=f" for job {job}")

    at = "/jobs/{jobid}/state/key-groups"
    return [Route("POST", at, begin), Route("GET", f"{at}/{{triggerid}}", outcome)]


class Counts:
    """Counts one checkpoint at a time; who asks meanwhile shares the result."""

    def __init__(
        self, client: JobClient, submit: Callable[[Callable[[], object]], Future[Any]]
    ) -> None:
        self._client = client
        self._submit = submit
        self._newest: Future[Any] | None = None

    def begin(self) -> Future[Any]:
        if self._newest is None or self._newest.done():
            self._newest = self._submit(self._count)
        return self._newest

    def _count(self) -> object:
        import_module("tidegate.snapshots.summary")  # a second that a checkpoint may not live for
        for _ in range(TRIES):
            job = self._client.view()
            one, older = _chosen(job)
            one_in = _one_in(one)
            # The older one first, since it is deleted first.
            before = None if older is None else _read_if_there(older, one_in)
            try:
                now = _read(one, one_in)
            except (RestoreRefused, StorageFailed, FormatError):
                if self._is_there(one):
                    raise
                continue
            return counted(job, one, now, older, before)
        raise RestoreRefused(
            f"{TRIES} checkpoints in a row were deleted while they were read",
            where="execution.checkpointing.num-retained",
            remedy="Keep more of them, or take checkpoints less often.",
        )

    def _is_there(self, one: CheckpointStatistics) -> bool:
        known = self._client.view().checkpoints.find(one.checkpoint)
        return known is not None and not known.discarded


def _chosen(job: JobView) -> tuple[CheckpointStatistics, CheckpointStatistics | None]:
    """The newest checkpoint, and the one before it if it is still there.

    Raises Conflict for a newest one that cannot be counted.
    """
    seen = job.checkpoints
    completed = [
        one
        for one in seen.history
        if one.status is CheckpointStatus.COMPLETED and not one.properties.is_savepoint
    ]
    one = completed[0] if completed else seen.latest_completed
    if one is None:
        raise Conflict(
            "No checkpoint of this job has completed yet, so there is no state to count in files."
        )
    if not _in_files(one):
        raise Conflict(
            f"Checkpoint {one.checkpoint} is in the memory of the driver, without files to count "
            "in. With execution.checkpointing.dir checkpoints go to files."
        )
    if one.discarded:
        raise Conflict(f"Checkpoint {one.checkpoint} was deleted, and there is no newer one.")
    if _one_in(one) > ONE_IN_MAX:
        raise Conflict(
            f"Checkpoint {one.checkpoint} has {one.state_size:,} bytes of state, and beside a "
            f"running job at most {ONE_IN_MAX * BYTES_MAX:,} are estimated. From another shell: "
            f"tidegate inspect --key-groups {one.pointer}"
        )
    earlier = [each for each in completed[1:] if _in_files(each) and not each.discarded]
    return one, earlier[0] if earlier and _one_in(earlier[0]) <= ONE_IN_MAX else None


def _one_in(one: CheckpointStatistics) -> int:
    """One key group in so many is counted, so that about `BYTES_MAX` are read."""
    return max(1, -(-one.state_size // BYTES_MAX))


def _in_files(one: CheckpointStatistics) -> bool:
    return one.pointer is not None and scheme_of(one.pointer) != _MEMORY


def _read(one: CheckpointStatistics, one_in: int) -> SnapshotSummary:
    from tidegate.snapshots.summary import inspect_snapshot

    assert one.pointer is not None, "it was chosen"
    return inspect_snapshot(one.pointer, one_in=one_in)


def _read_if_there(one: CheckpointStatistics, one_in: int) -> SnapshotSummary | None:
    try:
        return _read(one, one_in)
    except (RestoreRefused, StorageFailed, FormatError):
        return None
