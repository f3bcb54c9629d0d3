"""Judges one operator of the program, or of the snapshot alone, and the hooks.

That is what slots would restore, its states, and what the driver would, its coordinator.
"""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tidegate.checkpoint.provenance import hook_states
from tidegate.checkpoint.restore.fitting import check_hooks
from tidegate.config.log import process_log
from tidegate.driver.user_code.callbacks import RESTORE_TIMEOUT_S, MasterHooks
from tidegate.errors import ConfigError, TidegateError, UserCodeFailed, UserError
from tidegate.operators.sinks.sink import COMMITTABLES_STATE
from tidegate.operators.sources.source_coordinator import SourceCoordinator
from tidegate.state.user import ttl
from tidegate.state.user.timers import TIMERS
from tidegate.typeinfo.serializers import SerializerSnapshot
from tidegate.upgrade.opening import ended_within
from tidegate.upgrade.recording import COLUMNS, shown_type, timers_text
from tidegate.upgrade.report import (
    OperatorFit,
    OperatorMatch,
    StateFit,
    StateVerdict,
    UpgradeFault,
    UpgradeFinding,
    UpgradeSeverity,
    finding_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from tidegate.api.results import ResultBuffer
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.topology import OperatorInfo, Vertex
    from tidegate.upgrade.opening import Opened
    from tidegate.upgrade.recording import Asked
    from tidegate.upgrade.sample import OperatorSample


def lost_operator(
    state: OperatorState, sample: OperatorSample, likely: OperatorInfo | None, remedy: str
) -> tuple[OperatorFit, list[UpgradeFinding]]:
    """Verdict on an operator that the program lacks. likely: its probable new identity."""
    label = state.uid or state.name or state.operator_id.hex()
    names = [name for name in held_names(sample) if not sample.has_none(name)]
    told = f", with its states {', '.join(map(repr, names))}" if names else ""
    findings = [
        UpgradeFinding(
            UpgradeFault.OPERATOR_LOST,
            UpgradeSeverity.REFUSED,
            f"The program has no operator '{label}'{told} ({state.state_size} bytes)",
            where=f"operator '{state.name or label}', id {state.operator_id.hex()}",
            remedy=remedy,
            operator=label,
        )
    ]
    committables = sample.elements.get(COMMITTABLES_STATE, 0)
    if committables:
        findings.append(
            UpgradeFinding(
                UpgradeFault.COMMITTABLES_LOST,
                UpgradeSeverity.REFUSED,
                f"The sink '{label}' has prepared {committables} committables that nobody would "
                "commit: their output would be missing",
                where=f"operator '{state.name or label}'",
                remedy="Keep the sink under its uid until they are committed; a job that is "
                "stopped with a savepoint commits what is in it.",
                operator=label,
                state=COMMITTABLES_STATE,
            )
        )
    fit = OperatorFit(
        state.name or label,
        state.uid,
        state.operator_id.hex(),
        OperatorMatch.LOST,
        was=(state.parallelism, state.max_parallelism),
        likely=None if likely is None else likely.uid or likely.name,
        key=sample.key,
        size_bytes=state.state_size,
        committables=committables,
        states=tuple(_left(sample, name, StateVerdict.LEFT) for name in held_names(sample)),
    )
    return fit, findings


def judged_operator(
    info: OperatorInfo,
    vertex: Vertex,
    state: OperatorState | None,
    sample: OperatorSample,
    opened: Opened,
    *,
    asks_later: bool,
) -> tuple[OperatorFit, list[UpgradeFinding]]:
    """Verdict on an operator of the program. state: from the snapshot; None if it is new."""
    label = info.uid or info.name
    findings = list(_wholesale(label, sample, opened))
    states: list[StateFit] = []
    for asked in opened.asked:
        if asked.kind == "timers" and asked.verdict is StateVerdict.NEW:
            continue
        states.append(_asked(sample, asked))
        if asked.error is not None:
            kind = _kind_of(asked)
            findings.append(finding_of(kind, asked.error, operator=label, state=asked.name))
    known = opened.failure is None and not asks_later
    names = {asked.name for asked in opened.asked}
    for name in held_names(sample):
        if name in names:
            continue
        left = known and not (name in (sample.columns or ()) and COLUMNS in names)
        states.append(_left(sample, name, StateVerdict.LEFT if left else StateVerdict.LATER))
        if left and not sample.has_none(name):
            findings.append(_state_left(label, info, sample, name, opened))
    fit = OperatorFit(
        info.name,
        info.uid,
        info.id.hex(),
        OperatorMatch.NEW if state is None else OperatorMatch.MATCHED,
        was=None if state is None else (state.parallelism, state.max_parallelism),
        becomes=(vertex.parallelism, vertex.max_parallelism),
        key=sample.key,
        size_bytes=0 if state is None else state.state_size,
        committables=sample.elements.get(COMMITTABLES_STATE, 0),
        states=tuple(states),
    )
    return fit, findings


def ended_operator(info: OperatorInfo, vertex: Vertex, state: OperatorState) -> OperatorFit:
    """Verdict on an operator that had ended: it starts as one that has."""
    return OperatorFit(
        info.name,
        info.uid,
        info.id.hex(),
        OperatorMatch.FINISHED,
        was=(state.parallelism, state.max_parallelism),
        becomes=(vertex.parallelism, vertex.max_parallelism),
    )


def held_names(sample: OperatorSample) -> list[str]:
    return [*sample.keyed, *sample.operator, *(sample.columns or ())]


def _wholesale(label: str, sample: OperatorSample, opened: Opened) -> Iterator[UpgradeFinding]:
    if opened.key_error is not None:
        yield finding_of(UpgradeFault.KEY_CHANGED, opened.key_error, operator=label)
    # Subtasks, and the backend that is restored from them, fail for the same reason.
    errors = {error.what: error for error in (*opened.errors, *sample.errors)}
    for error in errors.values():
        yield finding_of(UpgradeFault.STATE_FORM, error, operator=label)
    failure = opened.failure
    if failure is not None:
        # What a user's function needs may be missing here alone, such as a database.
        refused = isinstance(failure, UserError)
        yield finding_of(
            UpgradeFault.OPEN_FAILED,
            failure,
            operator=label,
            severity=UpgradeSeverity.REFUSED if refused else UpgradeSeverity.WARNING,
        )


def _kind_of(asked: Asked) -> UpgradeFault:
    if asked.name == COLUMNS:
        return UpgradeFault.KEY_CHANGED
    if isinstance(asked.error, ConfigError):
        return UpgradeFault.STATE_TWICE
    return UpgradeFault.STATE_CHANGED


def _asked(sample: OperatorSample, asked: Asked) -> StateFit:
    return StateFit(
        asked.name,
        asked.kind,
        asked.verdict,
        _was(sample, asked.name),
        asked.becomes,
        sample.sampled.rows[asked.name],
    )


def _left(sample: OperatorSample, name: str, verdict: StateVerdict) -> StateFit:
    headers = sample.keyed.get(name) or sample.operator.get(name)
    kind = "timers" if name.startswith(TIMERS) else headers[0].kind if headers else "column"
    return StateFit(name, kind, verdict, _was(sample, name), sampled=sample.sampled.rows[name])


def _was(sample: OperatorSample, name: str) -> str | None:
    headers = sample.keyed.get(name) or sample.operator.get(name)
    if headers and name.startswith(TIMERS) and headers[0].namespace is not None:
        namespace = SerializerSnapshot.from_bytes(headers[0].namespace).type_info
        return timers_text(sample.key, namespace)
    if headers:
        written = SerializerSnapshot.from_bytes(headers[0].serializer).type_info
        expires = headers[0].ttl
        return shown_type(ttl.without_times(written) if expires else written, expires=expires)
    return sample.key if name == COLUMNS else (sample.columns or {}).get(name)


def _state_left(
    label: str, info: OperatorInfo, sample: OperatorSample, name: str, opened: Opened
) -> UpgradeFinding:
    kind = _left(sample, name, StateVerdict.LEFT).kind
    new = [
        asked.name
        for asked in opened.asked
        if asked.verdict is StateVerdict.NEW and asked.kind == kind
    ]
    likely = _likely_name(name, new)
    renamed = f"If it is '{likely}' now, call it '{name}' again. " if likely else ""
    return UpgradeFinding(
        UpgradeFault.STATE_LEFT,
        UpgradeSeverity.WARNING,
        f"The operator does not ask for the state '{name}' in open: its content stays in each "
        "snapshot unread, and is checked if it is requested later",
        where=f"operator '{info.name}', state '{name}'",
        remedy=f"{renamed}Where it is not needed any more there is nothing to do.",
        operator=label,
        state=name,
    )


def _likely_name(name: str, new: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(name, new, n=1)
    if close:
        return close[0]
    return new[0] if len(new) == 1 else None


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
    goes_on = False

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
