"""Jobs as they are known now: what each that runs has just told, and what the others have left.

Nobody looks while nobody asks. A job that does not answer is waited for once, for all who ask.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from tidegate.model.control import JobStatus
from tidegate.rest.cluster.asking import NoAnswer, is_dead
from tidegate.rest.cluster.reading import checked_overview
from tidegate.rest.refusals import NotFound
from tidegate.rest.shapes.job_shapes import overview_of_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import structlog

    from tidegate.clock import Clock
    from tidegate.driver.client.door import DoorSign
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.rest.cluster.asking import Asking
    from tidegate.rest.cluster.folders import FoundJob, JobFolders

LOOK_S: Final = 5.0
"""How long whoever asks waits for a look through the folders; then an older one has to do."""

_SUSPENDED: Final = JobStatus.SUSPENDED.value


@frozen
class SeenJob:
    """A job, and how it was seen. overview: as in ``/jobs/overview``.

    live: its driver has answered. trouble: why not, where it should have; "" if nothing is wrong.
    """

    found: FoundJob
    overview: Mapping[str, Any]
    live: bool
    trouble: str = ""

    @property
    def state(self) -> str:
        return self.overview["state"]

    @property
    def runs(self) -> bool:
        """True if its driver answers, and not only for results that somebody waits for."""
        return self.live and not JobStatus(self.state).is_terminal_state()

    def shown(self) -> Mapping[str, Any]:
        """Its overview, with the trouble in it."""
        return {**self.overview, "trouble": self.trouble} if self.trouble else self.overview


class KnownJobs:
    """The jobs of some folders. refresh_ms: they are looked for again after so long."""

    def __init__(
        self,
        folders: JobFolders,
        asking: Asking,
        clock: Clock,
        run_blocking: RunBlocking,
        refresh_ms: int,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.folders: Final = folders
        self.asking: Final = asking
        self._clock = clock
        self._run_blocking = run_blocking
        self._refresh_ms = refresh_ms
        self._log = log
        self._jobs: dict[str, SeenJob] = {}
        self.troubles: tuple[str, ...] = ()
        """What stood in the way of finding more jobs."""
        self._looked_ms: int | None = None
        self._looking: asyncio.Task[None] | None = None

    async def all(self) -> list[SeenJob]:
        """All jobs, those that began last first."""
        await self._refreshed()
        return sorted(self._jobs.values(), key=lambda job: -job.overview["start-time"])

    async def one(self, id: str) -> SeenJob:
        """The job of this id. Raises NotFound."""
        known = self._jobs.get(id)
        if known is None or not known.live:
            await self._refreshed()
            known = self._jobs.get(id)
        if known is None:
            raise NotFound(f"Could not find Flink job ({id})")
        return known

    async def after(self, job: SeenJob) -> SeenJob:
        """The job after it has not answered, looked at again. Raises NotFound."""
        if self._jobs.get(job.found.id) is job:
            self._looked_ms = None
            await self._refreshed()
        return await self.one(job.found.id)

    async def archived(self, job: SeenJob) -> Mapping[str, str]:
        """Answers of its archive as JSON, by path; none if it has no archive."""
        archived = job.found.archived
        if archived is None:
            return {}
        return await self._run_blocking(lambda: self.folders.answers(archived))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _refreshed(self) -> None:
        fresh_ms = self._clock.monotonic_ms() - self._refresh_ms
        if self._looking is None:
            if self._looked_ms is not None and self._looked_ms > fresh_ms:
                return
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        # The look goes on if it takes longer, and whoever asks next gets its result.
        await asyncio.wait([self._looking], timeout=LOOK_S)

    def _looked(self, look: asyncio.Task[None]) -> None:
        self._looking = None
        self._looked_ms = self._clock.monotonic_ms()
        if not look.cancelled() and (error := look.exception()) is not None:
            self._log.error("jobs could not be looked for", exc_info=error)

    async def _look(self) -> None:
        found, troubles = await self._run_blocking(self.folders.look)
        for trouble in set(troubles) - set(self.troubles):
            self._log.warning("some jobs may be missing", trouble=trouble)
        self.troubles = tuple(troubles)
        jobs = {one.id: one for one in found}
        ending = {
            id: job.found
            for id, job in self._jobs.items()
            if job.live and (id not in jobs or jobs[id].sign is None)
        }
        seen = await asyncio.gather(
            *(self._seen(one) for id, one in jobs.items() if id not in ending),
            *(self._last_seen(former, jobs.get(id)) for id, former in ending.items()),
        )
        self._jobs = {job.found.id: job for job in seen if job is not None}

    async def _seen(self, found: FoundJob) -> SeenJob:
        sign = found.sign
        if sign is None:
            return self._without_driver(found)
        try:
            return SeenJob(found, await self._told(sign, found.id), live=True)
        except NoAnswer as error:
            return self._unanswered(found, sign, error)

    async def _last_seen(self, former: FoundJob, found: FoundJob | None) -> SeenJob | None:
        """A job whose driver has taken its sign down: it answers until its results are read."""
        assert former.sign is not None, "a job that has answered has a sign"
        try:
            told = await self._told(former.sign, former.id)
        except NoAnswer:
            return None if found is None else await self._seen(found)
        return SeenJob(replace(found or former, sign=former.sign), told, live=True)

    async def _told(self, sign: DoorSign, id: str) -> Mapping[str, Any]:
        """Asks a job for its overview. Raises NoAnswer."""
        told = await self.asking.json(sign, "/jobs/overview")
        try:
            for each in told["jobs"]:
                if each["jid"] == id:
                    return checked_overview(each)
        except (KeyError, TypeError, ValueError) as error:
            raise NoAnswer(f"{sign.rest} has not answered as a job does") from error
        raise NoAnswer(f"Another job answers at {sign.rest}", gone=True)

    def _without_driver(self, found: FoundJob) -> SeenJob:
        overview = _overview(found)
        if JobStatus(overview["state"]).is_terminal_state():
            return SeenJob(found, overview, live=False)
        trouble = "The driver has ended without saying how the job did. These are its last figures."
        return SeenJob(found, {**overview, "state": _SUSPENDED}, live=False, trouble=trouble)

    def _unanswered(self, found: FoundJob, sign: DoorSign, error: NoAnswer) -> SeenJob:
        overview = _overview(found)
        if error.gone or is_dead(sign):
            if found.archived is not None and found.archived.over:
                return SeenJob(found, overview, live=False)
            trouble = (
                f"The driver (process {sign.pid} on {sign.host}) is gone: it was killed, or its "
                "machine was. These are the last figures; 'tidegate run --from latest' goes on "
                "with the job."
            )
            return SeenJob(found, {**overview, "state": _SUSPENDED}, live=False, trouble=trouble)
        trouble = f"{error}. These are the figures that it has left last."
        return SeenJob(found, overview, live=False, trouble=trouble)


def _overview(found: FoundJob) -> Mapping[str, Any]:
    if found.archived is not None:
        return found.archived.overview
    return overview_of_unknown(found.id, found.name)
