"""Savepoints are read back by slots, other processes on each machine, before they are complete.

A savepoint that only its writer can read is useless: a folder of one machine that others have under
the same name, a mount that is missing somewhere. A job that stops with it would lose its state.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from tidegate.errors import StorageFailed, TidegateError
from tidegate.model.control import ReadBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidegate.model.control import HasRead, ToSlot
    from tidegate.model.ids import SlotId

ASKED_MAX: Final = 3
"""So many slots of a machine are asked, as some may be in calls that last; the first answers."""

_Answer = asyncio.Future[TidegateError | None]


class ReadBacks:
    """Asks slots whether they can read a savepoint. send: brings a message to a slot."""

    def __init__(self, send: Callable[[SlotId, ToSlot], None]) -> None:
        self._send = send
        self._hosts: dict[SlotId, str] = {}
        self._numbers = count(1)
        self._asked: dict[tuple[int, SlotId], _Answer] = {}

    def came(self, slot: SlotId, host: str) -> None:
        self._hosts[slot] = host

    def left(self, slot: SlotId) -> None:
        """A slot cannot be asked any more, and will not answer."""
        self._hosts.pop(slot, None)
        for (_, asked), answer in self._asked.items():
            if asked == slot and not answer.done():
                answer.cancel()

    def heard(self, message: HasRead) -> None:
        """A slot answers; too late, perhaps."""
        answer = self._asked.get((message.number, message.slot))
        if answer is not None and not answer.done():
            answer.set_result(message.error)

    async def check(
        self,
        pointer: str,
        metadata: tuple[int, int],
        files: Mapping[str, int],
        *,
        timeout_ms: int,
    ) -> None:
        """Have a slot of each machine read a savepoint. metadata, files: as in `ReadBack`.

        Raises StorageFailed that names who cannot, or has not within the time.
        """
        message = ReadBack(next(self._numbers), pointer, metadata, files)
        answers: dict[str, dict[_Answer, SlotId]] = {}
        try:
            for slot, host in self._hosts.items():
                asked = answers.setdefault(host, {})
                if len(asked) < ASKED_MAX:
                    answer = asyncio.get_running_loop().create_future()
                    asked[answer] = slot
                    self._asked[message.number, slot] = answer
            for asked in answers.values():
                for slot in asked.values():
                    self._send(slot, message)
            async with asyncio.timeout(timeout_ms / 1000):
                for host, asked in answers.items():
                    await _first(host, asked, pointer)
        except TimeoutError as error:
            raise StorageFailed(
                f"No slot has read the savepoint back within {timeout_ms} ms; each is in a call",
                where=pointer,
            ) from error
        finally:
            for asked in answers.values():
                for answer, slot in asked.items():
                    answer.cancel()
                    self._asked.pop((message.number, slot), None)


async def _first(host: str, asked: Mapping[_Answer, SlotId], pointer: str) -> None:
    """Wait for the first answer of a machine; for none where all of its slots are gone."""
    waiting: Iterable[_Answer] = asked
    while waiting := [each for each in waiting if not each.cancelled()]:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for answer in done:
            if answer.cancelled():
                continue
            if (error := answer.result()) is not None:
                raise StorageFailed(
                    f"The savepoint cannot be read by slot {asked[answer]} on {host}, another "
                    f"process than its writers: {error.what}",
                    where=error.where or pointer,
                    remedy="Name a folder that all machines of the job share, and see whether each "
                    "of them has it mounted.",
                ) from error
            return
