"""All that lives beside a job and knows it by its client: door, REST, archive, metric reporters."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.driver.client.door import Door
from tidegate.driver.telling.job_log import JobLog
from tidegate.model.chance import SeededChance

if TYPE_CHECKING:
    from tidegate.api.job import JobClient
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import Epoch
    from tidegate.telemetry.reporting import MetricReporting


class Onlooker(Protocol):
    """Lives beside the driver of a job, and knows the job by its client."""

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """Begin, unless it is shut already. Blocking."""
        ...

    def shut(self) -> None:
        """The job has ended, and its result is about to be given out. Blocking.

        Once the result is out, nothing of the job is left. Called even if it was never opened.
        """
        ...


class WayIn(Onlooker, Protocol):
    """Lets others ask the job from outside of its process, as the door does."""

    @property
    def url(self) -> str: ...

    @property
    def job_log(self) -> JobLog:
        """Log of the job, for the driver to write to."""
        ...


class Onlookers:
    """The onlookers of one job, from before its start until its result is out.

    rest: a way in beside the door. archive: keeps what the job shows. Raises ConfigError for
    reporters of metrics that cannot be made, with ``rest`` shut.
    """

    def __init__(self, graph: JobGraph, rest: WayIn | None, archive: Onlooker | None) -> None:
        self._name = graph.name
        self.url: Final = None if rest is None else rest.url
        self.job_log: Final = _job_log(graph) if rest is None else rest.job_log
        directory = graph.settings.checkpoints.directory
        self._door = Door(graph.name, directory, process_log(), rest=self.url or "")
        # The archive first: with its sign down, a job is known by that alone.
        self._all = [*filter(None, (archive, self._door, rest)), *_reporting(graph, rest)]

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """The job is led. Blocking."""
        for each in self._all:
            each.open(client, epoch)

    def shut(self) -> None:
        """The job has ended, and its result is about to be given out. Blocking; raises nothing."""
        for each in self._all:
            try:
                each.shut()
            except Exception:  # whoever waits for the job's result gets it nevertheless
                what = type(each).__name__
                process_log().exception(
                    "the end of a job has met a fault", job=self._name, what=what
                )

    def close(self) -> None:
        """The result is out: wait until all who asked at the door are answered. Blocking."""
        self._door.close()


def _job_log(graph: JobGraph) -> JobLog:
    return JobLog(SystemClock(), process_log().bind(job=graph.name))


def _reporting(graph: JobGraph, rest: WayIn | None) -> list[MetricReporting]:
    """The reporting of a job's metrics; empty where nobody reports.

    Raises ConfigError, with ``rest`` shut.
    """
    reporters = graph.settings.reporters
    if not reporters:
        return []
    from tidegate.telemetry.reporting import MetricReporting

    chance, log = SeededChance(secrets.randbits(64)), process_log().bind(job=graph.name)
    try:
        return [MetricReporting(reporters, SystemClock(), chance, log)]
    except BaseException:
        if rest is not None:
            rest.shut()
        raise
