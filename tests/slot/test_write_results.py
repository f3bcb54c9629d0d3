"""What becomes of a subtask's in-flight data of one checkpoint: done, failed, given up."""

import asyncio
from collections.abc import Callable

import pytest

from tidegate.errors import StorageFailed
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.ids import CheckpointId
from tidegate.slot.channel_state import EMPTY, ChannelStateResult

Step = Callable[["Watched"], None]


class Watched(ChannelStateResult):
    """Counts how often its file is deleted."""

    def __init__(self) -> None:
        super().__init__(Barrier(CheckpointId(7), 0, CheckpointOptions()))
        self.deleted = 0

    def delete_file(self) -> None:
        self.deleted += 1


def complete(result: Watched) -> None:
    result.complete((), (), {}, result.delete_file)


def fail(result: Watched) -> None:
    result.fail(StorageFailed("the disk is full"))


def fail_again(result: Watched) -> None:
    result.fail(StorageFailed("another reason"))


def give_up(result: Watched) -> None:
    result.give_up()


@pytest.mark.feature("F157")
@pytest.mark.parametrize(
    ("steps", "is_done", "error", "deleted"),
    [
        ([], False, None, 0),
        ([complete], True, None, 0),
        ([complete, fail], True, None, 0),
        ([complete, complete], True, None, 0),
        ([fail], True, "the disk is full", 0),
        ([fail, fail_again], True, "the disk is full", 0),
        ([fail, complete], True, "the disk is full", 0),
        ([give_up], True, "checkpoint 7 was given up", 0),
        ([complete, give_up], True, None, 1),
        ([complete, give_up, give_up], True, None, 1),
        ([fail, give_up], True, "the disk is full", 0),
    ],
    ids=lambda given: (
        " then ".join(step.__name__ for step in given) or "nothing"
        if isinstance(given, list)
        else None
    ),
)
def test_the_first_word_counts(
    steps: list[Step], is_done: bool, error: str | None, deleted: int
) -> None:
    result = Watched()
    for step in steps:
        step(result)
    assert result.is_done is is_done and result.deleted == deleted
    if error is not None:
        with pytest.raises(StorageFailed, match=error):
            asyncio.run(result.ready())
    elif is_done:
        asyncio.run(result.ready())


@pytest.mark.feature("F157")
def test_whoever_waits_hears_of_the_end_when_it_comes() -> None:
    async def wait() -> list[bool]:
        result = Watched()
        waiting = asyncio.ensure_future(result.ready())
        await asyncio.sleep(0)
        seen = [waiting.done()]
        complete(result)
        await waiting
        return [*seen, waiting.done()]

    assert asyncio.run(wait()) == [False, True]


@pytest.mark.feature("F157")
def test_the_empty_result_is_done_and_holds_nothing() -> None:
    assert EMPTY.is_done
    asyncio.run(EMPTY.ready())
    assert (EMPTY.inputs, EMPTY.outputs, EMPTY.checksums, EMPTY.bytes_persisted) == ((), (), {}, 0)
    EMPTY.fail(StorageFailed("too late"))
    EMPTY.give_up()
    asyncio.run(EMPTY.ready())
    assert EMPTY.is_done
