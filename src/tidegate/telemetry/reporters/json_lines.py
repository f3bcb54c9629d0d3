"""A file with a line of JSON for each metric and report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError
from tidegate.model.metrics import Metered, Spread
from tidegate.telemetry.names import logical_scope, variables_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.model.settings import JsonLinesSettings
    from tidegate.telemetry.metrics import Metric


class JsonLines:
    """Adds to the file, which may be there already. Raises ConfigError if it cannot be written."""

    def __init__(self, name: str, settings: JsonLinesSettings) -> None:
        self._path = Path(settings.path)
        try:
            self._add(())
        except OSError as error:
            raise ConfigError(
                f"Reporter '{name}' cannot write its file: {error}",
                where=f"metrics.reporter.{name}.path",
                remedy="Set the path of a file in a folder that exists.",
            ) from error

    def report(self, metrics: Sequence[Metric], now_ms: int) -> None:
        self._add(f"{line(metric, now_ms)}\n" for metric in metrics)

    def close(self) -> None: ...

    def _add(self, lines: Iterable[str]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(lines)


def line(metric: Metric, now_ms: int) -> str:
    """One metric as JSON. Not a number, and the infinities, are null."""
    match metric.value:
        case Metered(count, rate):
            value: object = {"count": count, "rate": _finite(rate)}
        case Spread() as spread:
            value = {name: _finite(number) for name, number in spread.parts().items()}
        case float() as number:
            value = _finite(number)
        case other:
            value = other
    told = {
        "time_ms": now_ms,
        "scope": logical_scope(metric),
        "name": metric.name,
        "kind": metric.kind.value,
        "value": value,
        "variables": variables_of(metric),
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
