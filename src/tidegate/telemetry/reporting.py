"""Reports the metrics of a running job: a thread beside the driver for each reporter.

Reporters look at the job's view, as REST does, so that they work wherever the slots are. None waits
for the receiver of another one.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.errors import TidegateError
from tidegate.model.settings import (
    JsonLinesSettings,
    OpenTelemetrySettings,
    PrometheusPushSettings,
    PrometheusSettings,
)
from tidegate.telemetry.metrics import metrics_of
from tidegate.telemetry.names import chosen
from tidegate.telemetry.reporters.reporter import not_installed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import structlog

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Epoch
    from tidegate.model.settings import ReporterSettings
    from tidegate.telemetry.reporters.reporter import Reporter

_LOOK_MS: Final = 1_000
"""A port of Prometheus shows values no older than this; slots tell none that are newer."""

_END_S: Final = 10.0
"""How long the end of a job waits for the last reports."""

_FAILED_END_S: Final = 0.5
"""How long it waits for a reporter whose receiver has not answered before."""


class MetricReporting:
    """The reporters of one job; made before it starts.

    Raises ConfigError for a reporter that cannot be made, with none left open.
    """

    def __init__(
        self,
        settings: Sequence[ReporterSettings],
        clock: Clock,
        chance: Chance,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._clock = clock
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._all: list[_MetricThread] = []
        try:
            for one in settings:
                reporter = _made(one, clock, chance)
                self._all.append(_MetricThread(one, reporter, self._over, clock, log))
        except BaseException:
            self._close()
            raise

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """Reports from now on, unless the job is over already."""
        with self._lock:
            if not self._over.is_set():
                for each in self._all:
                    each.begin(client)

    def shut(self) -> None:
        """Reports a last time, and ends. Blocking."""
        with self._lock:
            self._over.set()
        end_all(self._all, self._clock)

    def _close(self) -> None:
        for each in self._all:
            each.end(0.0)


class Ending(Protocol):
    """A reporter with its thread. failed: its receiver has not taken what came last."""

    failed: bool

    def end(self, wait_s: float) -> None:
        """Waits for its end, so long at most."""
        ...


def end_all(reporting: Sequence[Ending], clock: Clock) -> None:
    """Waits for the last reports, for all together as long as the end of a job may. Blocking."""
    until_s = clock.precise_s() + _END_S
    for each in reporting:
        left_s = max(until_s - clock.precise_s(), 0.0)
        each.end(min(left_s, _FAILED_END_S) if each.failed else left_s)


class _MetricThread:
    """A reporter with its thread. over: set once the job is."""

    def __init__(
        self,
        settings: ReporterSettings,
        reporter: Reporter,
        over: threading.Event,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.failed = False
        self._settings = settings
        self._reporter = reporter
        self._over = over
        self._clock = clock
        self._log = log
        self._thread: threading.Thread | None = None

    def begin(self, client: JobClient) -> None:
        name = f"tidegate-metrics-{self._settings.name}"
        self._thread = threading.Thread(target=self._live, args=(client,), name=name, daemon=True)
        self._thread.start()

    def end(self, wait_s: float) -> None:
        """Waits until the thread has ended, or closes what never began."""
        if self._thread is None:
            self._close()
        else:
            self._thread.join(wait_s)

    def _live(self, client: JobClient) -> None:
        every_ms = _LOOK_MS if _is_fetched(self._settings) else self._settings.interval_ms
        while not self._over.wait(every_ms / 1_000):
            self._report(client)
        if not self.failed:
            self._report(client)
        self._close()

    def _report(self, client: JobClient) -> None:
        wall_ms = self._clock.wall_ms()
        try:
            view = client.view()
            metrics = list(chosen(metrics_of(view, wall_ms), self._settings))
        except TidegateError:  # the driver is busy, or gone: the next look will do
            return
        except Exception as error:
            self._tell(error)
            return
        try:
            self._reporter.report(metrics, wall_ms)
        except Exception as error:
            self._tell(error)
        else:
            self.failed = False

    def _tell(self, error: Exception) -> None:
        """Logs the first failure of several in a row."""
        if not self.failed:
            self._log.warning(
                "metrics could not be reported; the next report is tried all the same",
                reporter=self._settings.name,
                error=f"{type(error).__name__}: {error}",
            )
        self.failed = True

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            self._reporter.close()


def _is_fetched(settings: ReporterSettings) -> bool:
    return isinstance(settings.target, PrometheusSettings)


def _made(settings: ReporterSettings, clock: Clock, chance: Chance) -> Reporter:
    """Raises ConfigError. Clients are imported here, so that no other job needs them."""
    name, target = settings.name, settings.target
    try:
        match target:
            case PrometheusSettings():
                from tidegate.telemetry.reporters.prometheus import PrometheusPort

                return PrometheusPort(name, target)
            case PrometheusPushSettings():
                from tidegate.telemetry.reporters.prometheus import PrometheusPush

                return PrometheusPush(target, f"{chance.bits64():016x}")
            case OpenTelemetrySettings():
                from tidegate.telemetry.reporters.opentelemetry import OpenTelemetryReporter

                return OpenTelemetryReporter(target, clock.wall_ms())
            case JsonLinesSettings():
                from tidegate.telemetry.reporters.json_lines import JsonLines

                return JsonLines(name, target)
    except ModuleNotFoundError as error:
        extra = "opentelemetry" if isinstance(target, OpenTelemetrySettings) else "prometheus"
        raise not_installed(name, extra, error) from error
