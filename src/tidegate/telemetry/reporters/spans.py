"""Reporters of spans: lines of JSON in a file, and OpenTelemetry's own messages over HTTP."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidegate.model.settings import JsonLinesSettings
from tidegate.telemetry.reporters.reporter import not_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.model.chance import Chance
    from tidegate.model.metrics import Span
    from tidegate.model.settings import JobSettings


class SpanReporter(Protocol):
    """Reports spans. It is made before its job starts, or ConfigError says why it cannot be."""

    def report(self, span: Span) -> None:
        """Reports a span. Blocking, for a few seconds at most; may raise."""
        ...

    def close(self) -> None:
        """Ends the reports. Blocking; may raise."""
        ...


def made(settings: JobSettings, chance: Chance) -> Iterator[SpanReporter]:
    """The reporters of a job's spans. Raises ConfigError."""
    for target in settings.span_reporters:
        if isinstance(target, JsonLinesSettings):
            yield SpanFile(Path(target.path))
            continue
        try:
            from tidegate.telemetry.reporters.opentelemetry import OpenTelemetrySpans
        except ModuleNotFoundError as error:
            raise not_installed("<name>", "opentelemetry", error, subject="traces") from error
        yield OpenTelemetrySpans(target, chance)


class SpanFile:
    """Appends each span to a file, as a line of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report(self, span: Span) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that several drivers may append to one file and no line is torn.
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{json.dumps(asdict(span))}\n".encode())

    def close(self) -> None:
        """Nothing is kept open."""
