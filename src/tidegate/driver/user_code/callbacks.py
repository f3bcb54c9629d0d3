"""The user's callbacks in the driver: master hooks, failure enrichers, status listeners.

Each is called on the driver's pool and has a time in which to return, for the loop must not wait
for the user's code. A hook that fails fails its checkpoint or start; the others are only told of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.snapshots import MasterState
from tidegate.api.job import FailureContext, FailureKind, JobExecutionStatusEvent
from tidegate.errors import RestoreRefused, TidegateError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    import structlog

    from tidegate.api.job import FailureEnricher, JobStatusChangedListener, MasterTriggerRestoreHook
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.jobmaster.commands import StatusChanged
    from tidegate.model.ids import CheckpointId, JobId, SlotId

RESTORE_TIMEOUT_S: Final = 60.0
"""How long a deployment waits for the hooks; a checkpoint waits no longer than its own limit."""

CLOSE_TIMEOUT_S: Final = 10.0
"""How long a job that is over waits for each of its hooks."""

LABEL_TIMEOUT_S: Final = 10.0
"""How long labels of one failure are waited for."""

CALL_TIMEOUT_S: Final = 10.0
"""How long one call of a listener is waited for; then it is told nothing more."""


class MasterHooks:
    """The hooks of one job. Source: checkpoint coordination §5 step 7, §17.3 steps 4 and 10."""

    def __init__(
        self,
        hooks: Sequence[MasterTriggerRestoreHook[Any]],
        run_blocking: RunBlocking,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._hooks = {hook.get_identifier(): hook for hook in hooks}
        self._run_blocking = run_blocking
        self._log = log

    def __len__(self) -> int:
        return len(self._hooks)

    async def trigger(self, checkpoint: CheckpointId, wall_ms: int) -> tuple[MasterState, ...]:
        """The states of those that have some. Raises what the first that failed raised."""
        states = await asyncio.gather(
            *(self._trigger_one(name, checkpoint, wall_ms) for name in self._hooks)
        )
        return tuple(state for state in states if state is not None)

    async def _trigger_one(
        self, name: str, checkpoint: CheckpointId, wall_ms: int
    ) -> MasterState | None:
        hook = self._hooks[name]
        state = await self._call(name, lambda: hook.trigger_checkpoint(checkpoint, wall_ms))
        if isinstance(state, Future):
            future = cast("Future[object]", state)
            state = await self._guarded(name, asyncio.wrap_future(future))
        if state is None:
            return None
        serializer = await self._call(name, hook.create_checkpoint_data_serializer)
        if serializer is None:
            raise UserCodeFailed(
                f"master hook '{name}' has state, and no serializer for it",
                where=f"checkpoint {checkpoint}",
                remedy="Give it a create_checkpoint_data_serializer, or return None.",
            )
        made = cast("Any", serializer)
        payload = await self._call(name, lambda: made.serialize(state))
        return MasterState(name, made.version, cast("bytes", payload))

    async def restore(
        self,
        checkpoint: CheckpointId | None,
        states: Sequence[MasterState],
        *,
        allow_unmatched: bool,
    ) -> None:
        """Give each hook its state, or None; reset all where there is no checkpoint.

        Raises RestoreRefused for the state of a hook that is not there, else what a hook raised.
        """
        try:
            async with asyncio.timeout(RESTORE_TIMEOUT_S):
                if checkpoint is None:
                    for name, hook in self._hooks.items():
                        await self._call(name, hook.reset)
                else:
                    await self._restore(checkpoint, states, allow_unmatched=allow_unmatched)
        except TimeoutError as error:
            raise UserCodeFailed(
                f"the master hooks were not restored within {RESTORE_TIMEOUT_S:g} s",
                where=f"master hooks {', '.join(self._hooks)}",
                remedy="Find out what their reset or restore_checkpoint waits for.",
            ) from error

    async def _restore(
        self, checkpoint: CheckpointId, states: Sequence[MasterState], *, allow_unmatched: bool
    ) -> None:
        found = await self.deserialized(checkpoint, states, allow_unmatched=allow_unmatched)
        for name, hook in sorted(self._hooks.items(), key=lambda item: item[0] not in found):
            state = found.get(name)
            await self._call(
                name, lambda hook=hook, state=state: hook.restore_checkpoint(checkpoint, state)
            )

    async def deserialized(
        self, checkpoint: CheckpointId, states: Sequence[MasterState], *, allow_unmatched: bool
    ) -> dict[str, object]:
        """State that each hook would get back. Raises as ``restore``."""
        found: dict[str, object] = {}
        for state in states:
            hook = self._hooks.get(state.name)
            if hook is None and not allow_unmatched:
                raise RestoreRefused(
                    f"the checkpoint has state of master hook '{state.name}', which the job has "
                    "not",
                    where=f"checkpoint {checkpoint}",
                    remedy="Register that hook, or drop its state with "
                    "execution.state-recovery.ignore-unclaimed-state.",
                )
            if hook is None:
                self._log.warning("state of a missing master hook is dropped", hook=state.name)
                continue
            serializer = await self._call(state.name, hook.create_checkpoint_data_serializer)
            made = cast("Any", serializer)
            found[state.name] = await self._call(
                state.name,
                lambda made=made, state=state: made.deserialize(state.version, state.payload),
            )
        return found

    async def close(self) -> None:
        """The job is over: what a hook raises now, or that it does not end, is only told."""
        await asyncio.gather(*(self._close_one(name) for name in self._hooks))

    async def _close_one(self, name: str) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._call(name, self._hooks[name].close)
        except TimeoutError:
            problem = f"it did not end within {CLOSE_TIMEOUT_S:g} s; see what its close waits for"
        except TidegateError as error:
            problem = error.what
        else:
            return
        self._log.warning("closing a master hook failed", hook=name, error=problem)

    async def _call(self, name: str, call: Callable[[], object]) -> object:
        return await self._guarded(name, self._run_blocking(call))

    async def _guarded(self, name: str, waiting: Awaitable[object]) -> object:
        try:
            return await waiting
        except TidegateError:
            raise
        except Exception as error:
            raise UserCodeFailed(
                f"master hook '{name}' raised {type(error).__name__}: {error}",
                where=f"master hook '{name}'",
            ) from error


class FailureEnrichers:
    """The enrichers of one job. job: its id and name. One that fails only loses its labels."""

    def __init__(
        self,
        enrichers: Sequence[FailureEnricher],
        job: tuple[JobId, str],
        run_blocking: RunBlocking,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._enrichers = enrichers
        self._job = job
        self._run_blocking = run_blocking
        self._log = log

    def __len__(self) -> int:
        return len(self._enrichers)

    async def labels(self, error: TidegateError, task: str, slot: SlotId | None) -> dict[str, str]:
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
                return await self._run_blocking(ask)
        except TimeoutError:
            problem = f"no labels within {LABEL_TIMEOUT_S:g} s"
        except Exception as raised:
            problem = f"{type(raised).__name__}: {raised}"
        name = type(enricher).__qualname__
        self._log.warning("a failure enricher failed", enricher=name, error=problem)
        return {}


class StatusListeners:
    """The listeners of one job. job: its id and name. spawn: runs something beside the inbox."""

    def __init__(
        self,
        listeners: Sequence[JobStatusChangedListener],
        job: tuple[JobId, str],
        run_blocking: RunBlocking,
        spawn: Callable[[Coroutine[object, object, None]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._listeners = listeners
        self._job = job
        self._run_blocking = run_blocking
        self._spawn = spawn
        self._log = log
        self._untold: dict[int, deque[JobExecutionStatusEvent]]
        self._untold = {number: deque() for number in range(len(listeners))}

    def tell(self, change: StatusChanged) -> None:
        event = JobExecutionStatusEvent(
            *self._job, change.former, change.status, change.wall_ms, change.error
        )
        for number, untold in self._untold.items():
            untold.append(event)
            # An event leaves when it was told, so that one before it is being told now.
            if len(untold) == 1:
                self._spawn(self._drain(number))

    async def _drain(self, number: int) -> None:
        untold = self._untold[number]
        while untold and await self._call(self._listeners[number], untold[0]):
            untold.popleft()
        if untold:
            del self._untold[number]

    async def _call(
        self, listener: JobStatusChangedListener, event: JobExecutionStatusEvent
    ) -> bool:
        """Tells it one event; False if it does not return, and is to be told nothing more."""
        log = self._log.bind(listener=type(listener).__qualname__, status=event.new_status.value)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._run_blocking(lambda: listener.on_event(event))
        except TimeoutError:
            log.warning(
                "a job status listener does not return, and is told nothing more",
                limit_s=CALL_TIMEOUT_S,
            )
            return False
        except Exception as error:
            log.warning("a job status listener failed", error=f"{type(error).__name__}: {error}")
        return True
