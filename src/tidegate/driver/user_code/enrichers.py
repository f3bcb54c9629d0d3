"""Calls the job's failure enrichers on the driver's pool, beside each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from tidegate.api.job import FailureContext, FailureKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import structlog

    from tidegate.api.job import FailureEnricher
    from tidegate.errors import TidegateError
    from tidegate.model.ids import JobId, SlotId

LABEL_TIMEOUT_S: Final = 10.0
"""How long labels of one failure are waited for."""


class FailureEnrichers:
    """The enrichers of one job. job: its id and name. One that fails only loses its labels."""

    def __init__(
        self,
        enrichers: Sequence[FailureEnricher],
        job: tuple[JobId, str],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._enrichers = enrichers
        self._job = job
        self._run_blocking = run_blocking
        self._log = log

    def __len__(self) -> int:
        return len(self._enrichers)

    async def labels(self, error: TidegateError, task: str, slot: SlotId | None) -> dict[str, str]:
        """Labels of all enrichers for a failure."""
        kind = FailureKind.TASK if task else FailureKind.SLOT if slot else FailureKind.GLOBAL
        context = FailureContext(kind, *self._job, task, slot)
        given = await asyncio.gather(*(self._ask(e, error, context) for e in self._enrichers))
        return {key: value for labels in given for key, value in labels.items()}

    async def _ask(
        self, enricher: FailureEnricher, error: TidegateError, context: FailureContext
    ) -> Mapping[str, str]:
        def ask() -> Mapping[str, str]:
            keys, labels = enricher.get_output_keys(), enricher.process_failure(error, context)
            if odd := {key: value for key, value in labels.items() if key not in keys}:
                raise ValueError(f"labels {odd} have keys that get_output_keys does not name")
            return {key: str(value) for key, value in labels.items()}

        try:
            async with asyncio.timeout(LABEL_TIMEOUT_S):
                return cast("Mapping[str, str]", await self._run_blocking(ask))
        except TimeoutError:
            problem = f"no labels within {LABEL_TIMEOUT_S:g} s"
        except Exception as raised:
            problem = f"{type(raised).__name__}: {raised}"
        name = type(enricher).__qualname__
        self._log.warning("a failure enricher failed", enricher=name, error=problem)
        return {}
