from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.clock import StepClock
from tidegate.errors import FormatError
from tidegate.ha.chain import (
    JobRecord,
    MemoryHaStore,
    Pointer,
    Seal,
    decode,
    encode,
    newest_record,
    place_path,
    seal_below,
)
from tidegate.ha.leadership import HaWorld, lead
from tidegate.model.chance import SeededChance
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch, JobId

numbers = st.integers(min_value=1, max_value=2**53)
records = st.builds(
    JobRecord,
    job=st.text("0123456789abcdef", min_size=32, max_size=32).map(JobId),
    epoch=numbers.map(Epoch),
    token=st.text(),
    completed=st.lists(st.builds(Pointer, numbers.map(CheckpointId), st.text()), max_size=3).map(
        tuple
    ),
    next_id=numbers.map(CheckpointId),
    status=st.sampled_from(JobStatus),
    former=st.lists(st.just(JobId("f" * 32)), max_size=2).map(tuple),
    name=st.text(),
)


@given(records | st.builds(Seal, numbers.map(Epoch)))
def test_a_record_comes_back_from_its_bytes(record: JobRecord | Seal) -> None:
    assert decode(encode(record), "p") == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 1}',
        b'{"version": 1, "job": 3}',
        b"null",
        b"[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(FormatError, match="cannot be read") as caught:
        decode(data, "chains/1/1")
    assert caught.value.where == "chains/1/1"


def test_a_record_of_another_version_is_told_from_a_broken_one() -> None:
    with pytest.raises(FormatError, match="version that is not known") as caught:
        decode(b'{"version": 2}', "p")
    assert (caught.value.expected, caught.value.found) == ("1", "2")


@given(st.binary(max_size=64))
def test_any_bytes_are_a_format_error_unless_they_are_a_record(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode(data, "p")


def test_the_newest_record_is_that_of_the_highest_epoch_that_led() -> None:
    store = MemoryHaStore()

    def record(epoch: int) -> bytes:
        return encode(JobRecord(JobId("j"), Epoch(epoch), "t", (), CheckpointId(epoch)))

    store.files = {
        "claims/0000000001": b"",
        "claims/0000000002": b"",
        "claims/0000000003": b"",
        "chains/0000000001/0000000001": record(1),
        "chains/0000000001/0000000002": encode(Seal(Epoch(2))),
        "chains/0000000002/0000000001": record(2),
        "chains/0000000002/0000000002": encode(Seal(Epoch(3))),
    }
    newest = asyncio.run(newest_record(store))
    assert newest is not None
    assert newest.epoch == 2
    assert asyncio.run(newest_record(MemoryHaStore())) is None


class Interrupted(MemoryHaStore):
    """A chain whose leader goes on between another's listing and its reading.

    The place that the leader has left is then taken by a belated seal of a third one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = False

    async def read(self, path: str) -> bytes | None:
        if path == place_path(1, 1) and not self.interrupted:
            self.interrupted = True
            self.files[place_path(1, 2)] = self.files[path]
            self.files[path] = encode(Seal(Epoch(2)))
        return await super().read(path)


def test_a_belated_seal_in_a_place_that_the_leader_has_left_says_nothing() -> None:
    store = Interrupted()
    led = JobRecord(JobId("j"), Epoch(1), "t", (), CheckpointId(1))
    store.files[place_path(1, 1)] = encode(led)
    assert asyncio.run(seal_below(store, Epoch(3))) == led
    assert decode(store.files[place_path(1, 3)], "p") == Seal(Epoch(3))


@pytest.mark.parametrize(("name", "told"), [("orders", ""), ("z" * 200, "z" * 200)])
def test_a_record_tells_a_name_that_its_folder_cannot_tell(name: str, told: str) -> None:
    async def script() -> None:
        store = MemoryHaStore()
        world = HaWorld(store, StepClock(), SeededChance(1), lambda ms: asyncio.sleep(ms / 1_000))
        leader = await lead(world, name, resume=False)
        await leader.close()
        record = await newest_record(store)
        assert record is not None and record.name == told

    asyncio.run(script())
