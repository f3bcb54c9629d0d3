"""Calls the job's master hooks on the driver's pool, all of them beside each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.snapshots import MasterState
from tidegate.errors import RestoreRefused, TidegateError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import structlog

    from tidegate.api.job import MasterTriggerRestoreHook
    from tidegate.model.ids import CheckpointId

RESTORE_TIMEOUT_S: Final = 60.0
"""How long a deployment waits for the hooks; a checkpoint waits no longer than its own limit."""

CLOSE_TIMEOUT_S: Final = 10.0
"""How long a job that is over waits for each of its hooks."""


class MasterHooks:
    """The hooks of one job. Source: checkpoint coordination §5 step 7, §17.3 steps 4 and 10."""

    def __init__(
        self,
        hooks: Sequence[MasterTriggerRestoreHook[Any]],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
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
