"""The record chain of a job: who leads, and what is known of it, over create-if-absent alone.

Each run of a job has an epoch, made by creating its claim. An epoch's leader appends numbered
records, each with the whole state, by creating the next place. A new leader takes the next epoch,
*seals* every lower chain by creating its next place, reads the newest state, and leads once its own
first record stands. A deposed leader finds its next place taken.

Why that is safe:

- Claims are never deleted while a job can go on, so epochs are handed out once, in order and
  without a gap. A leader that finds its own deleted by somebody puts it up again.
- A leader's newest record stays, so a listing shows it. A seal counts only where it stands last:
  old records go, and a seal that was created in such a place says nothing.
- Behind a seal that stands last nothing follows: the leader's next place is that of this seal, or
  of one before it.
- A chain's first record is created after all lower chains were sealed, so sealing goes down to
  the first chain that has a record, and that one has the newest state.

Bytes: docs/formats/record-chain.md.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from flinkformat.frozen import frozen
from tidegate.errors import FormatError
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch, JobId

if TYPE_CHECKING:
    from collections.abc import Iterable


VERSION: Final = 1

_CLAIMS: Final = "claims/"
_CHAINS: Final = "chains/"
_BEATS: Final = "beats/"


class HaStore(Protocol):
    """All that a store of record chains implements. Paths are relative to one job's place.

    A call that raises StorageFailed may have happened, or may happen yet; ``list`` shows at
    least every file that stood before the call and still stands after it.
    """

    async def create(self, path: str, data: bytes) -> bool:
        """Creates a whole file; returns False if there is one."""
        ...

    async def read(self, path: str) -> bytes | None: ...

    async def list(self, prefix: str) -> list[str]:
        """The paths below a prefix that ends with a slash, in order."""
        ...

    async def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; missing ones are not an error."""
        ...


@frozen
class Pointer:
    """A completed checkpoint, the savepoint of a stop, or the snapshot that the job started from.

    location: its external pointer. claimed: it is the job's now, though another has made it.
    """

    checkpoint: CheckpointId
    location: str
    claimed: bool = False


@frozen
class JobRecord:
    """All that is known of a job at one moment of one epoch.

    completed: oldest first. next_id: no id from here on has been used. token: of the leader who
    wrote the record, so that it knows its own again. status: RUNNING while somebody leads; after
    that how it ended, SUSPENDED where it can go on. claimed: the folders of snapshots that others
    had made and that became the job's, also once they are subsumed. former: ids of jobs of that
    name that were led here before, the newest last; a job that is begun anew ends the one before.
    name: of the job, if it is too long for its folder to tell; else empty.
    """

    job: JobId
    epoch: Epoch
    token: str
    completed: tuple[Pointer, ...]
    next_id: CheckpointId
    status: JobStatus = JobStatus.RUNNING
    claimed: tuple[str, ...] = ()
    former: tuple[JobId, ...] = ()
    name: str = ""

    @property
    def released(self) -> bool:
        return self.status is not JobStatus.RUNNING


@frozen
class Seal:
    """Ends a chain. by: the epoch that did it."""

    by: Epoch


def claim_path(epoch: int) -> str:
    return f"{_CLAIMS}{epoch:010d}"


def place_path(epoch: int, number: int) -> str:
    """Path of a numbered record of an epoch; numbers count from 1."""
    return f"{_CHAINS}{epoch:010d}/{number:010d}"


def beat_path(epoch: int, number: int) -> str:
    return f"{_BEATS}{epoch:010d}-{number:010d}"


def encode(record: JobRecord | Seal) -> bytes:
    match record:
        case Seal(by):
            fields: dict[str, object] = {"seal": by}
        case JobRecord():
            fields = {
                "job": record.job,
                "epoch": record.epoch,
                "token": record.token,
                "completed": [_fields_of(pointer) for pointer in record.completed],
                "next_id": record.next_id,
                "status": record.status.value,
            }
            if record.claimed:
                fields["claimed"] = list(record.claimed)
            if record.former:
                fields["former"] = list(record.former)
            if record.name:
                fields["name"] = record.name
    return json.dumps({"version": VERSION, **fields}).encode()


def _fields_of(pointer: Pointer) -> list[object]:
    fields: list[object] = [pointer.checkpoint, pointer.location]
    return [*fields, True] if pointer.claimed else fields


def decode(data: bytes, path: str) -> JobRecord | Seal:
    """Decodes a record. Raises FormatError that names the path."""
    try:
        fields = cast("dict[str, object]", json.loads(data))
        if fields["version"] != VERSION:
            raise FormatError(
                "A record of the job's chain has a version that is not known",
                where=path,
                remedy="Use the version of Tidegate that wrote it, or a newer one.",
                expected=str(VERSION),
                found=str(fields["version"]),
            )
        if "seal" in fields:
            return Seal(Epoch(cast("int", fields["seal"])))
        completed = cast("list[list[Any]]", fields["completed"])
        return JobRecord(
            job=JobId(cast("str", fields["job"])),
            epoch=Epoch(cast("int", fields["epoch"])),
            token=cast("str", fields["token"]),
            completed=tuple(
                Pointer(CheckpointId(id_), place, bool(claimed))
                for id_, place, *claimed in completed
            ),
            next_id=CheckpointId(cast("int", fields["next_id"])),
            status=JobStatus(fields["status"]),
            claimed=tuple(cast("list[str]", fields.get("claimed", []))),
            former=tuple(map(JobId, cast("list[str]", fields.get("former", [])))),
            name=cast("str", fields.get("name", "")),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            f"A record of the job's chain cannot be read: {type(error).__name__} {error}",
            where=path,
            remedy="Delete nothing; start from a checkpoint by its path instead.",
        ) from error


async def claim_epoch(store: HaStore, token: str) -> Epoch:
    """Takes the next epoch. If the claim fails, nobody gets that epoch."""
    epoch = await highest_epoch(store) + 1
    while not await store.create(claim_path(epoch), token.encode()):
        epoch += 1
    return Epoch(epoch)


async def highest_epoch(store: HaStore) -> int:
    claims = await store.list(_CLAIMS)
    return int(claims[-1].removeprefix(_CLAIMS)) if claims else 0


async def seal_below(store: HaStore, epoch: Epoch) -> JobRecord | None:
    """Ends every chain below an epoch; returns the newest state, which is final now."""
    # Downwards: a chain's first record came after all lower chains were sealed, so it is newest.
    for lower in range(epoch - 1, 0, -1):
        await seal(store, lower, by=epoch)
        record = await _newest_of(store, lower)
        if record is not None:
            return record
    return None


async def seal(store: HaStore, epoch: int, *, by: Epoch) -> None:
    while True:
        last = await last_number(store, epoch)
        if not last or not isinstance(await _read(store, place_path(epoch, last)), Seal):
            # Whether or not this one is created, only a look afterwards tells what stands last.
            await store.create(place_path(epoch, last + 1), encode(Seal(by)))
        elif await last_number(store, epoch) == last:
            # Looked at again once it was known for a seal: between a listing and a reading the
            # leader may go on, and a belated seal may take the place that it has left.
            return


async def newest_record(store: HaStore) -> JobRecord | None:
    """The newest state, read without leading; None if nobody has led.

    While somebody leads it may be passed by the time it is returned.
    """
    for epoch in range(await highest_epoch(store), 0, -1):
        record = await _newest_of(store, epoch)
        if record is not None:
            return record
    return None


async def last_beat(store: HaStore) -> str:
    """The newest sign of life; empty if there is none."""
    beats = await store.list(_BEATS)
    return beats[-1] if beats else ""


async def forget_beats(store: HaStore, epoch: Epoch) -> None:
    await store.delete(
        [beat for beat in await store.list(_BEATS) if beat < beat_path(epoch + 1, 0)]
    )


async def sweep(store: HaStore, epoch: Epoch) -> None:
    """Deletes records of lower epochs that a leader no longer needs; called once it leads.

    Claims and the last place of each chain stay: they are what holds off the leaders of then.
    """
    doomed: list[str] = []
    own = f"{_CHAINS}{epoch:010d}/"
    places = [place for place in await store.list(_CHAINS) if place < own]
    # Only a place with a successor in its chain may go: the last one holds off its leader.
    for place, next_place in pairwise(places):
        if place.rpartition("/")[0] == next_place.rpartition("/")[0]:
            doomed.append(place)
    await store.delete(doomed)
    await forget_beats(store, Epoch(epoch - 1))


async def _newest_of(store: HaStore, epoch: int) -> JobRecord | None:
    numbers = await _numbers(store, epoch)
    while numbers:
        record = await _read(store, place_path(epoch, numbers[-1]))
        if isinstance(record, JobRecord):
            return record
        # A seal has no state. A place that is gone was passed: its leader went on meanwhile.
        numbers = numbers[:-1] if record is not None else await _numbers(store, epoch)
    return None


async def last_number(store: HaStore, epoch: int) -> int:
    numbers = await _numbers(store, epoch)
    return numbers[-1] if numbers else 0


async def _numbers(store: HaStore, epoch: int) -> list[int]:
    places = await store.list(f"{_CHAINS}{epoch:010d}/")
    return [int(place.rpartition("/")[2]) for place in places]


async def _read(store: HaStore, path: str) -> JobRecord | Seal | None:
    data = await store.read(path)
    return None if data is None else decode(data, path)


class MemoryHaStore:
    """A store of one job's chain that lives as long as its process."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def create(self, path: str, data: bytes) -> bool:
        if path in self.files:
            return False
        self.files[path] = data
        return True

    async def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    async def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.files if path.startswith(prefix))

    async def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
