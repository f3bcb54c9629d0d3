"""A subtask's share of one checkpoint: cut on the loop, encoded in slices, uploaded off it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import EMPTY
from tidegate.errors import StorageFailed
from tidegate.model.control import CheckpointFigures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from flinkformat.snapshots import SubtaskState
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.slot.channel_state import ChannelStateResult
    from tidegate.state.pending import PendingSnapshot
    from tidegate.storage.places import Place

    RunBlocking = Callable[[Callable[[], object]], Awaitable[object]]


_PARTS_MAX: Final = 4
"""Parts of encoded state that may wait to be written; as long as there are more, none is made."""


@dataclass(slots=True)
class SnapshotTimes:
    """When the parts of a snapshot began; seconds of the precise clock.

    processed_bytes: read while it was aligning.
    """

    began_s: float
    cut_s: float
    alignment_ms: int
    start_delay_ms: int
    processed_bytes: int


class SubtaskSnapshot:
    """One subtask's share of a checkpoint from its cut to its acknowledgement.

    pieces: per operator, tail to head. durable: what operators wait for besides. in_flight: what
    becomes of the data that its barriers overtook. ends: the operators at which these come in and
    leave. part_bytes: so much encoded state is written before there is more. after_finish: whether
    the operators had finished when it was cut.
    """

    def __init__(
        self,
        barrier: Barrier,
        pieces: Sequence[tuple[OperatorId, PendingSnapshot]],
        durable: Sequence[Awaitable[None]],
        in_flight: ChannelStateResult,
        ends: tuple[OperatorId, OperatorId],
        times: SnapshotTimes,
        *,
        part_bytes: int,
        after_finish: bool,
    ) -> None:
        self.barrier = barrier
        self.after_finish = after_finish
        self.cancelled = False
        self._pieces = pieces
        self._durable = durable
        self._in_flight = in_flight
        self._ends = ends
        self._part_bytes = part_bytes
        self._times = times
        self._encoding = 0
        self._moved = asyncio.Event()
        self._sealed = asyncio.Event()
        if not durable:
            self._sealed.set()
        self._failure: Exception | None = None
        self._place: Place | None = None
        self._written: asyncio.Future[object] | None = None

    @property
    def checkpoint(self) -> CheckpointId:
        return self.barrier.checkpoint

    def aligned_in(self, alignment_ms: int, processed_bytes: int) -> None:
        """The last barrier came this long after the first; the cut did not wait for it."""
        self._times.alignment_ms = alignment_ms
        self._times.processed_bytes = processed_bytes

    @property
    def is_held_up(self) -> bool:
        """True if encoded state has to be written before more is encoded."""
        return self._waiting > _PARTS_MAX * self._part_bytes

    def encode(self, budget_ms: float) -> bool:
        """Encode for about that long; True once there is nothing more to encode."""
        if self._is_over:
            return True
        try:
            while self._encoding < len(self._pieces):
                if not self._pieces[self._encoding][1].encode(budget_ms):
                    if self._waiting > self._part_bytes:
                        self._moved.set()
                    return False
                self._encoding += 1
        except Exception as error:
            self._failure = error
        self._moved.set()
        return True

    @property
    def _is_over(self) -> bool:
        encoded = self._failure is not None or self._encoding == len(self._pieces)
        return self.cancelled or encoded

    @property
    def _waiting(self) -> int:
        if self._is_over:
            return 0
        return self._pieces[self._encoding][1].waiting

    def cancel(self) -> None:
        """Give it up; what was written goes once the writing has ended."""
        if not self.cancelled:
            self.cancelled = True
            self._moved.set()
            self._sealed.set()
            self._in_flight.give_up()
            if self._place is not None:
                self._place.give_up(self.checkpoint)
            for _, piece in self._pieces:
                piece.cancel()

    async def ready(
        self, place: Place, run_blocking: RunBlocking, written: Callable[[], None]
    ) -> None:
        """Wait for the encoding and for in-flight data.

        Much state is written meanwhile; ``written`` is told each time. Raises what the encoding of
        a value or writing raised, and what kept in-flight data from being written; `discard` is to
        follow then, and where it is cancelled.
        """
        self._place = place
        try:
            while not self._is_over:
                await self._moved.wait()
                self._moved.clear()
                if self._waiting:
                    _, piece = self._pieces[self._encoding]
                    self._written = asyncio.ensure_future(run_blocking(partial(piece.write, place)))
                    await asyncio.shield(self._written)
                    written()
            if self._failure is not None:
                raise self._failure
            await self._in_flight.ready()
        except Exception:
            self._in_flight.give_up()
            raise

    async def durable(self) -> None:
        """Wait for what operators make durable beside their state. Raises what they raised."""
        for durable in self._durable:
            await durable
        self._sealed.set()

    async def discard(self, run_blocking: RunBlocking) -> None:
        """Give it up, and delete what was written; for what was not `ready`."""
        self.cancel()
        if self._written is not None and self._place is not None:
            await asyncio.gather(self._written, return_exceptions=True)
            with suppress(StorageFailed):  # what can't be deleted is left to the sweep of orphans
                await run_blocking(self._place.discard)

    async def write(
        self, place: Place, run_blocking: RunBlocking
    ) -> Mapping[OperatorId, SubtaskState] | None:
        """Write the state, and wait until it is `durable` or given up.

        The result is None if it was given up, and then nothing is left of it. Raises StorageFailed,
        and then leaves nothing either. Not to be cancelled: the pool's thread would go on writing,
        and nobody would delete what it wrote.
        """
        states: dict[OperatorId, SubtaskState] = {}

        def write() -> None:
            for operator, piece in self._pieces:
                if self.cancelled:
                    return
                state = piece.upload(place)
                if not state.is_empty:
                    states[operator] = state
            self._add_in_flight(states)
            place.close()

        try:
            await run_blocking(write)
        except Exception:
            self._in_flight.give_up()
            await run_blocking(place.discard)
            raise
        await self._sealed.wait()
        if self.cancelled:
            await run_blocking(place.discard)
            return None
        for _, piece in self._pieces:
            piece.acknowledged()
        return states

    def _add_in_flight(self, states: dict[OperatorId, SubtaskState]) -> None:
        """Data that had come belong to the head, data that were to leave to the sender."""
        head, sender = self._ends
        inputs, outputs = self._in_flight.inputs, self._in_flight.outputs
        if inputs:
            states[head] = replace(states.get(head, EMPTY), input_channel=inputs)
        if outputs:
            states[sender] = replace(states.get(sender, EMPTY), result_subpartition=outputs)

    def figures(self, now_s: float, place: Place) -> CheckpointFigures:
        times = self._times
        return CheckpointFigures(
            sync_ms=round((times.cut_s - times.began_s) * 1000),
            async_ms=round((now_s - times.cut_s) * 1000),
            alignment_ms=times.alignment_ms,
            start_delay_ms=times.start_delay_ms,
            bytes_written=place.bytes_written + self._in_flight.bytes_persisted,
            processed_bytes=times.processed_bytes,
            persisted_bytes=self._in_flight.bytes_persisted,
            unaligned=self.barrier.options.is_unaligned,
            checksums={**place.checksums, **self._in_flight.checksums},
        )
