"""The face of a reporter, and what stands in for a client that is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.telemetry.metrics import Metric


class Reporter(Protocol):
    """Reports metrics. It is made before its job starts, or ConfigError says why it cannot be."""

    def report(self, metrics: Sequence[Metric], now_ms: int) -> None:
        """Reports all metrics of a moment. Blocking, for a few seconds at most; may raise."""
        ...

    def close(self) -> None:
        """Ends the reports. Blocking, for a few seconds at most; may raise."""
        ...


def not_installed(
    name: str, extra: str, error: ModuleNotFoundError, *, subject: str = "metrics"
) -> ConfigError:
    """Error for a reporter whose client is missing. name: of the reporter. subject: of its keys."""
    return ConfigError(
        f"The client that reporter '{name}' reports with is not installed where the driver runs",
        where=f"{subject}.reporter.{name}.factory.class",
        remedy=f"Install it: pip install 'tidegate[{extra}]'. {error}",
    )
