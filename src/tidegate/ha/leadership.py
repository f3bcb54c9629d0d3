"""Leading a job: taking it over, its next checkpoint id, its completed checkpoints.

Signs of life decide only *when* somebody takes over; the chain (`tidegate.ha.chain`) decides
whether it is safe. Whatever the store does not answer is asked again with the same bytes at the
same place, which can do no harm; where that does not help either the outcome is unknown, and
stays so until a later call settles it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.frozen import frozen
from tidegate.errors import (
    ConfigError,
    FormatError,
    LeadershipLost,
    OutcomeUnknown,
    StorageFailed,
    UserError,
)
from tidegate.ha.chain import (
    JobRecord,
    Pointer,
    Seal,
    beat_path,
    claim_epoch,
    claim_path,
    decode,
    encode,
    forget_beats,
    last_beat,
    newest_record,
    place_path,
    seal_below,
    sweep,
)
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, JobId
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

    from tidegate.clock import Clock
    from tidegate.ha.chain import HaStore
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Epoch

TRIES_MAX: Final = 5
"""How often one write is tried before its outcome is called unknown."""

LEASE_MS: Final = 3_000
"""How long a leader without a new sign of life is waited for."""

FORMER_MAX: Final = 100
"""Earlier jobs of a name that a record tells of, each with 36 bytes."""

_FIRST_WAIT_MS: Final = 50


class Pause(Protocol):
    """Sleeps for a number of milliseconds."""

    def __call__(self, duration_ms: int, /) -> Awaitable[None]: ...


@frozen
class HaWorld:
    """The surroundings that leading needs.

    beat_ms: time between two signs of life. lease_ms: a leader whose sign of life has not changed
    for this long is taken for dead. records_kept: newest records of its chain that a leader
    leaves, so that no listing, however slow, misses them all.
    """

    store: HaStore
    clock: Clock
    chance: Chance
    pause: Pause
    beat_ms: int = 500
    lease_ms: int = LEASE_MS
    records_kept: int = 64


async def lead(
    world: HaWorld,
    name: str,
    *,
    resume: bool,
    recover: bool = False,
    standby: bool = False,
    start: Callable[[JobId], Awaitable[Pointer]] | None = None,
) -> Leadership:
    """Becomes the leader of a job.

    name: of the job, for messages. resume: go on with the job that was led last, its id, its
    checkpoints and their numbers; else a job of its own begins. recover: go on with it where it
    was not brought to its end; then one that had ended, but whose driver died before it had said
    so, is led as one that is over. standby: wait for a living leader to go instead of failing.
    Raises ConfigError if somebody leads the job, or where there is nothing to resume;
    StorageFailed or OutcomeUnknown if the store does not answer.
    """
    await _await_vacancy(world, name, standby=standby)
    token = f"{world.chance.bits64():016x}"
    epoch = await claim_epoch(world.store, token)
    last = await seal_below(world.store, epoch)
    over = last is not None and last.status.is_terminal
    if last is not None and over and recover and not resume and await last_beat(world.store):
        record = replace(last, epoch=epoch, token=token)
    elif last is not None and (resume or (recover and not over)):
        if over and not last.completed:
            raise _nothing_retained(name, last)
        record = replace(last, epoch=epoch, token=token, status=JobStatus.RUNNING)
    elif resume:
        # A leader of a higher epoch sealed our chain before it deleted the records we look for.
        if await world.store.read(place_path(epoch, 1)) is not None:
            raise _second_execute(name)
        raise ConfigError(
            f"There is no earlier run of job '{name}' to go on with",
            where=f"job '{name}', --from latest",
            remedy="Start it without 'latest', or name a checkpoint by its path; the job's name "
            "and checkpoint folder have to be those of the earlier run.",
        )
    else:
        job = JobId(f"{world.chance.bits64():016x}{world.chance.bits64():016x}")
        former = () if last is None else (*last.former, last.job)[-FORMER_MAX:]
        record = JobRecord(job, epoch, token, completed=(), next_id=CheckpointId(1), former=former)
    if start is not None and not record.completed and not record.released:
        # In the first record: whoever resumes the job next must not begin it from nothing.
        snapshot = await start(record.job)
        next_id = CheckpointId(max(record.next_id, snapshot.checkpoint + 1))
        claimed = (snapshot.location,) if snapshot.claimed else ()
        record = replace(record, completed=(snapshot,), next_id=next_id, claimed=claimed)
    if paths.shown_name(paths.quoted_name(name)) != name:
        record = replace(record, name=name)
    leadership = Leadership(world, name, record, previous=last)
    await leadership.begin()
    return leadership


def _nothing_retained(name: str, last: JobRecord) -> ConfigError:
    """Refuses to begin from the start, which would read and write everything again."""
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    if last.next_id == 1:
        helps = "It took no checkpoint; execution.checkpointing.interval has it take some"
    elif last.status is JobStatus.FINISHED:
        helps = "A finished job needs none; to go on after it, end it by a stop with savepoint"
    elif last.status is JobStatus.FAILED:
        helps = f"After a failure they are kept by {retention}: RETAIN_ON_CANCELLATION (the "
        helps += "default) or DELETE_ON_CANCELLATION"
    else:
        helps = f"After a cancellation they are kept by {retention}: RETAIN_ON_CANCELLATION (the "
        helps += "default), and a savepoint by 'tidegate stop' or 'tidegate cancel -s'"
    return ConfigError(
        f"No completed checkpoint available: the earlier run of job '{name}' has ended "
        f"({last.status.value}) and kept no checkpoint to go on with",
        where=f"job '{name}', --from latest",
        remedy=f"Start it without 'latest'. {helps}.",
    )


async def _await_vacancy(world: HaWorld, name: str, *, standby: bool) -> None:
    """Waits until no sign of life has come for a lease; returns at once if none is due."""
    seen, since_ms = "", world.clock.monotonic_ms()
    while True:
        record = await newest_record(world.store)
        if record is None or record.released:
            return
        beat = f"{record.epoch} {await last_beat(world.store)}"
        now_ms = world.clock.monotonic_ms()
        if seen and beat != seen and not standby:
            raise _second_execute(name)
        if beat != seen:
            seen, since_ms = beat, now_ms
        elif now_ms - since_ms >= world.lease_ms:
            return
        await world.pause(max(1, world.beat_ms // 2))


def _second_execute(name: str) -> ConfigError:
    return ConfigError(
        f"Job '{name}' is already running",
        where=f"job '{name}'",
        remedy="Stop it first, give this one another name with execute('…') or pipeline.name, or "
        "set another execution.checkpointing.dir (with ZooKeeper another "
        "high-availability.cluster-id).",
    )


class Leadership:
    """One job led in one epoch. Made by `lead`; used on one loop.

    After LeadershipLost nothing of the job may be changed or deleted any more, after
    OutcomeUnknown nothing until a later call has gone well.
    """

    def __init__(
        self, world: HaWorld, name: str, record: JobRecord, *, previous: JobRecord | None
    ) -> None:
        self._world = world
        self._name = name
        self._record = record  # The last one that stands, or the first one before it does.
        self._number = 0
        self._pending: JobRecord | None = None
        self._next_id = record.next_id
        self._turn = asyncio.Lock()
        self._lost = asyncio.Event()
        self._deleted = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._beats = 0
        self._previous = previous

    @property
    def job(self) -> JobId:
        return self._record.job

    @property
    def epoch(self) -> Epoch:
        return self._record.epoch

    @property
    def completed(self) -> tuple[Pointer, ...]:
        return self._record.completed

    @property
    def claimed(self) -> tuple[str, ...]:
        """Folders of snapshots that others made and that became the job's."""
        return self._record.claimed

    @property
    def next_id(self) -> CheckpointId:
        return CheckpointId(self._next_id)

    @property
    def status(self) -> JobStatus:
        """RUNNING, or how the job had already ended when it was taken over."""
        return self._record.status

    @property
    def previous(self) -> JobRecord | None:
        """The last record of the run before; None if there was none."""
        return self._previous

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    @property
    def in_doubt(self) -> bool:
        """True if nobody knows whether the latest record stands, with what it names."""
        return self._pending is not None

    async def lost(self) -> None:
        """Returns once another process is known to lead the job."""
        await self._lost.wait()

    async def deleted(self) -> None:
        """Returns once the claim was found deleted: somebody deletes files of the job."""
        await self._deleted.wait()

    async def begin(self) -> None:
        """Writes the first record and starts the signs of life; called by `lead`."""
        try:
            # One id is reserved with each record, so that most ids cost no record of their own.
            await self._append(replace(self._record, next_id=CheckpointId(self._next_id + 1)))
        except LeadershipLost:
            raise _second_execute(self._name) from None
        if self._record.released:
            return  # the last sign of life stays until the end was told
        self._beating = asyncio.create_task(self._beat(), name=f"beats of {self._name}")

    async def next_checkpoint_id(self, *, above: int = 0) -> CheckpointId:
        """An id that nobody has used or will use in this job, above all earlier ones.

        Raises LeadershipLost or OutcomeUnknown; then no id was given out.
        """
        async with self._turn:
            await self._settle()
            taken = CheckpointId(max(self._next_id, above + 1))
            if taken >= self._record.next_id:
                await self._append(replace(self._record, next_id=CheckpointId(taken + 1)))
            self._next_id = CheckpointId(taken + 1)
            return taken

    async def confirm(self) -> None:
        """Writes the last record once more, before what only the leader may do.

        Raises LeadershipLost or OutcomeUnknown.
        """
        async with self._turn:
            await self._settle()
            await self._append(self._record)

    async def add(
        self,
        checkpoint: CheckpointId,
        location: str,
        *,
        retained: Collection[CheckpointId] | None = None,
    ) -> None:
        """Makes a completed checkpoint exist; later ids are above its number.

        retained: the checkpoints whose pointers stand from then on, all unless told otherwise.
        Raises LeadershipLost, or OutcomeUnknown if the pointer may stand or not.
        """
        async with self._turn:
            await self._settle()
            kept = _kept(self._record.completed, retained)
            kept = tuple(pointer for pointer in kept if pointer.checkpoint != checkpoint)
            self._next_id = CheckpointId(max(self._next_id, checkpoint + 1))
            await self._append(
                replace(
                    self._record,
                    completed=(*kept, Pointer(checkpoint, location)),
                    next_id=CheckpointId(max(self._record.next_id, self._next_id + 1)),
                )
            )

    async def end(
        self, status: JobStatus, *, retained: Collection[CheckpointId] | None = None
    ) -> None:
        """Says that the job has ended, or is SUSPENDED to go on elsewhere; stops leading.

        retained: the checkpoints whose pointers stand, all unless told otherwise. `conclude` comes
        behind it. Raises LeadershipLost or OutcomeUnknown.
        """
        assert status is not JobStatus.RUNNING, "a job that ends does not run"
        async with self._turn:
            await self._settle()
            kept = _kept(self._record.completed, retained)
            await self._append(
                replace(self._record, completed=kept, next_id=self._next_id, status=status)
            )
        await self.close()

    @contextlib.asynccontextmanager
    async def starting(self) -> AsyncGenerator[None]:
        """Within this block a refused start leaves the job as it was; others can lead at once."""
        try:
            yield
        except UserError:
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        if self._record.released:
            return
        before = self._previous
        same = before is not None and before.job == self.job and before.released
        status = before.status if before is not None and same else JobStatus.SUSPENDED
        # If this record fails, others lead after the lease.
        with contextlib.suppress(LeadershipLost, OutcomeUnknown, StorageFailed):
            await self.end(status)
            await self.conclude()

    async def conclude(self) -> None:
        """Says that nothing is left to be done for the job that has ended: no sign of life stays.

        Until then the job counts as ended, and as one whose driver may have died over it.
        """
        assert self._record.released, "the job has ended"
        with contextlib.suppress(StorageFailed):
            await forget_beats(self._world.store, self.epoch)

    async def close(self) -> None:
        """Stops the signs of life without a record; others take over after the lease."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    async def _settle(self) -> None:
        if self._lost.is_set():
            raise self._deposed()
        if self._pending is not None:
            await self._append(self._pending)

    async def _append(self, record: JobRecord) -> None:
        if self._number:
            await self._look_at_claim()
        # Until the write is known to stand or not, it is pending: a cancelled call may land.
        self._pending = record
        number = self._number + 1
        await self._put(place_path(record.epoch, number), encode(record))
        self._pending = None
        self._record = record
        self._number = number
        if number % self._world.records_kept == 0:
            await self._forget_old()

    async def _look_at_claim(self) -> None:
        """Recreates a claim that was deleted, so that the next driver still finds it."""
        store, path, token = self._world.store, claim_path(self.epoch), self._record.token.encode()
        try:
            found = await store.read(path)
            if found is None and await store.create(path, token):
                self._deleted.set()
                return
            found = found or await store.read(path)
        except StorageFailed:
            return  # the next record looks again
        if found != token:
            self._lost.set()
            raise self._deposed()

    async def _put(self, path: str, data: bytes) -> None:
        wait_ms = _FIRST_WAIT_MS
        for _ in range(TRIES_MAX - 1):
            with contextlib.suppress(StorageFailed):
                return await self._put_once(path, data)
            await self._world.pause(wait_ms)
            wait_ms *= 2
        try:
            await self._put_once(path, data)
        except StorageFailed as error:
            raise OutcomeUnknown(
                f"It is unknown whether a record of job '{self._name}' was written: {error.what}",
                where=error.where or path,
                remedy=error.remedy or "Check that the checkpoint folder can be written.",
            ) from error

    async def _put_once(self, path: str, data: bytes) -> None:
        if await self._world.store.create(path, data):
            return
        if await self._world.store.read(path) != data:
            self._lost.set()
            raise self._deposed()

    def _deposed(self) -> LeadershipLost:
        return LeadershipLost(
            f"Another driver leads job '{self._name}'",
            where=f"epoch {self.epoch}",
            remedy="Do nothing: this driver stops, the other one continues.",
        )

    async def _forget_old(self) -> None:
        kept = self._world.records_kept
        old = range(max(1, self._number - 2 * kept + 1), self._number - kept + 1)
        with contextlib.suppress(StorageFailed):
            await self._world.store.delete([place_path(self.epoch, number) for number in old])

    async def _beat(self) -> None:
        """Shows signs of life until somebody seals the chain; cleans up first."""
        with contextlib.suppress(StorageFailed):
            await sweep(self._world.store, self.epoch)
        while not self._lost.is_set():
            self._beats += 1
            with contextlib.suppress(StorageFailed, FormatError):
                await self._beat_once()
            await self._world.pause(self._world.beat_ms)

    async def _beat_once(self) -> None:
        store = self._world.store
        await store.create(beat_path(self.epoch, self._beats), b"")
        await store.delete([beat_path(self.epoch, self._beats - 1)])
        path = place_path(self.epoch, self._number + 1)
        data = await store.read(path)
        if data is not None and isinstance(decode(data, path), Seal):
            self._lost.set()


def _kept(
    pointers: tuple[Pointer, ...], retained: Collection[CheckpointId] | None
) -> tuple[Pointer, ...]:
    if retained is None:
        return pointers
    return tuple(pointer for pointer in pointers if pointer.checkpoint in retained)
