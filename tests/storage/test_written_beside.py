"""What is written on a thread of its own is what the caller gave, or the caller is told."""

import threading

import pytest

from tidegate.errors import StorageFailed
from tidegate.storage.streams import written_beside

PIECES = [bytes([number]) * (3 << 20) for number in range(12)]
"""Several parts: together more than may wait."""


def test_all_pieces_are_written_in_order_by_one_other_thread() -> None:
    written: list[bytes] = []
    threads: set[int] = set()

    def write(part: bytes) -> None:
        written.append(part)
        threads.add(threading.get_ident())

    with written_beside(write) as take:
        for piece in (b"opening", *PIECES, memoryview(b"end")):
            take(piece)
    assert b"".join(written) == b"".join([b"opening", *PIECES, b"end"])
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("failing", [1, 2, 5])
def test_a_write_that_fails_is_the_last_one_and_the_block_raises_it(failing: int) -> None:
    writes = 0

    def write(part: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == failing:
            raise StorageFailed("The disk is full")

    with pytest.raises(StorageFailed, match="is full"), written_beside(write) as take:
        for piece in PIECES:
            take(piece)
    assert writes == failing


def test_behind_a_block_that_fails_nothing_is_written_any_more() -> None:
    begun, go_on = threading.Event(), threading.Event()
    writes = 0

    def write(part: bytes) -> None:
        nonlocal writes
        begun.set()
        assert go_on.wait(10)
        writes += 1

    with pytest.raises(KeyError), written_beside(write) as take:
        for piece in PIECES[:8]:
            take(piece)
        assert begun.wait(10)
        go_on.set()
        raise KeyError
    assert writes <= 2  # whole parts, at most; never what was left
    assert not [each for each in threading.enumerate() if each.name.startswith("tidegate-stream")]
