"""Checks state that a restore gives to the driver: operators' coordinators and hooks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tidegate.checkpoint.provenance import hook_states
from tidegate.checkpoint.restore.fitting import check_hooks
from tidegate.config.log import process_log
from tidegate.driver.user_code.callbacks import RESTORE_TIMEOUT_S, MasterHooks
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.operators.sources.source_coordinator import SourceCoordinator
from tidegate.upgrade.opening import ended_within
from tidegate.upgrade.operators import finding_of
from tidegate.upgrade.report import UpgradeFault, UpgradeFinding, UpgradeSeverity

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from tidegate.api.results import ResultBuffer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.topology import OperatorInfo, Vertex

T = TypeVar("T")


def coordinator_findings(
    graph: JobGraph, vertex: Vertex, info: OperatorInfo, state: OperatorState, *, limit_s: float
) -> list[UpgradeFinding]:
    """Checks that an operator's coordinator, such as a source's enumerator, accepts its state.

    It is made, and not started, on a thread of its own; limit_s: how long that may take.
    """
    label = info.uid or info.name
    if state.coordinator_state is None:
        return []
    if not info.has_coordinator:
        return [
            UpgradeFinding(
                UpgradeFault.COORDINATOR,
                UpgradeSeverity.WARNING,
                f"'{label}' had a coordinator, such as a source has, and has none now: its state "
                "would be dropped",
                where=f"operator '{info.name}'",
                remedy="Give the replacement of the operator another uid.",
                operator=label,
            )
        ]
    data = state.coordinator_state.data
    failures: list[TidegateError] = []

    def make() -> None:
        try:
            made = graph.coordinated(info.id).coordinator(_Inert(vertex.parallelism))
            if isinstance(made, SourceCoordinator):
                made.enumerator(data).close()
        except Exception as error:
            known = error if isinstance(error, TidegateError) else None
            failures.append(known or UserCodeFailed(f"{type(error).__name__}: {error}"))

    where = f"the coordinator of operator '{info.name}'"
    if not ended_within(limit_s, f"check {where}", make):
        late = UserCodeFailed(
            f"The coordinator was not made within {limit_s:g} s, so its state is not judged",
            where=where,
            remedy="Find out what it waits for, such as a server that does not answer; a starting "
            "job makes it too.",
        )
        severity = UpgradeSeverity.WARNING
        return [finding_of(UpgradeFault.COORDINATOR, late, operator=label, severity=severity)]
    for failed in failures:
        failed.where = where
        failed.remedy = failed.remedy or "Make it read what its earlier version wrote."
    return [finding_of(UpgradeFault.COORDINATOR, failed, operator=label) for failed in failures]


def hook_findings(graph: JobGraph, metadata: CheckpointMetadata) -> list[UpgradeFinding]:
    """Checks that each hook with state exists and reads it."""
    findings: list[UpgradeFinding] = []

    async def run_here(call: Callable[[], T]) -> T:
        return call()

    async def judge() -> None:
        hooks = MasterHooks(graph.hooks, run_here, process_log())
        names = {hook.get_identifier() for hook in graph.hooks}
        for state in hook_states(metadata):
            try:
                check_hooks(replace(metadata, master_states=(state,)), names)
                await hooks.deserialized(metadata.checkpoint_id, [state], allow_unmatched=False)
            except TidegateError as error:
                error.remedy = error.remedy or "Make it read what its earlier version wrote."
                findings.append(finding_of(UpgradeFault.HOOK, error, state=state.name))

    # Use a separate thread also because the caller may be running in an event loop.
    if not ended_within(RESTORE_TIMEOUT_S, "check hooks", lambda: asyncio.run(judge())):
        late = UserCodeFailed(
            f"The states of the master hooks were not read within {RESTORE_TIMEOUT_S:g} s",
            remedy="Find out what the deserialize of their serializers waits for.",
        )
        return [*findings, finding_of(UpgradeFault.HOOK, late)]
    return findings


class _Inert:
    """The ``CoordinatorContext`` of a driver in which nothing ever happens."""

    staged = ""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism

    def send(self, subtask: int, event: OperatorEvent) -> None: ...

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None: ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None: ...

    def shared(self, name: str, make: Callable[[], T]) -> T:
        return make()

    def fail(self, error: TidegateError) -> None:
        raise error

    def report_backlog(self, backlog: bool) -> None: ...

    def results(self, name: str) -> ResultBuffer:
        from tidegate.api.results import ResultBuffer

        return ResultBuffer()
