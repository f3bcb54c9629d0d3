"""Reports the metrics of a running job: one thread beside the driver, for all reporters.

Reporters look at the job's view, as REST does, so that they work wherever the slots are.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

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

_END_S: Final = 30.0


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
        self._log = log
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due: list[_Due] = []
        try:
            for one in settings:
                every_ms = _LOOK_MS if _is_fetched(one) else one.interval_ms
                self._due.append(_Due(one, _made(one, clock, chance), every_ms))
        except BaseException:
            self._close()
            raise

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """Reports from now on, unless the job is over already."""
        with self._lock:
            if self._over.is_set():
                return
            self._thread = threading.Thread(
                target=self._live, args=(client,), name="tidegate-metrics", daemon=True
            )
            self._thread.start()

    def shut(self) -> None:
        """Reports a last time, and ends. Blocking."""
        with self._lock:
            self._over.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        else:
            self._close()

    def _live(self, client: JobClient) -> None:
        while not self._over.wait(min((due.every_ms for due in self._due), default=1) / 1_000):
            self._report(client, last=False)
        self._report(client, last=True)
        self._close()

    def _report(self, client: JobClient, *, last: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        # The end of a job does not wait for a receiver that has not answered before.
        due = [each for each in self._due if (not each.failed if last else each.at_ms <= now_ms)]
        if not due:
            return
        wall_ms = self._clock.wall_ms()
        try:
            metrics = list(metrics_of(client.view(), wall_ms))
        except TidegateError:  # the driver is busy, or gone: the next look will do
            return
        for each in due:
            each.at_ms = now_ms + each.every_ms
            try:
                each.reporter.report(list(chosen(metrics, each.settings)), wall_ms)
            except Exception as error:
                self._tell(each, error)
            else:
                each.failed = False

    def _tell(self, due: _Due, error: Exception) -> None:
        """Logs the first failure of several in a row."""
        if not due.failed:
            self._log.warning(
                "metrics could not be reported; the next report is tried all the same",
                reporter=due.settings.name,
                error=f"{type(error).__name__}: {error}",
            )
        due.failed = True

    def _close(self) -> None:
        for each in self._due:
            with contextlib.suppress(Exception):
                each.reporter.close()


class _Due:
    """A reporter, and when it reports next."""

    def __init__(self, settings: ReporterSettings, reporter: Reporter, every_ms: int) -> None:
        self.settings = settings
        self.reporter = reporter
        self.every_ms = every_ms
        self.at_ms = 0
        self.failed = False


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
