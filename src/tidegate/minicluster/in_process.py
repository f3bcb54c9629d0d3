"""Slots in the driver's own loop, for debugging: a breakpoint in a function stops the whole job."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.errors import PeerLost
from tidegate.model.chance import SeededChance
from tidegate.model.ids import SlotId
from tidegate.model.settings import LogSettings
from tidegate.model.versions import versions
from tidegate.slot.driver_link import SlotLog
from tidegate.slot.slot import Slot
from tidegate.slot.world import World
from tidegate.storage.checkpoints import CheckpointStorage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.errors import TidegateError
    from tidegate.model.control import SlotInvitation
    from tidegate.transport.wire import Network

CLOSE_TIMEOUT_S = 10.0


class LoopProvider:
    """The `SlotProvider` whose slots share the driver's loop."""

    tells_ends = False

    def __init__(self, network: Network) -> None:
        self._network = network
        self._invitation: SlotInvitation | None = None
        self._failed: Callable[[str, TidegateError, bool], None] | None = None
        self._slots: list[asyncio.Task[None]] = []
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="tidegate-io")

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        self._invitation = invitation
        self._failed = failed

    def request(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            self._slots.append(loop.create_task(self._serve(f"loop-{len(self._slots)}")))

    def release(self) -> None: ...  # The driver tells the slots.

    async def close(self) -> None:
        if self._slots:
            _, left = await asyncio.wait(self._slots, timeout=CLOSE_TIMEOUT_S)
            for slot in left:
                slot.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def hint(self) -> str:
        return ""

    async def _serve(self, request: str) -> None:
        invitation = self._invitation
        assert invitation is not None, "started before anything is requested"
        chance = SeededChance(secrets.randbits(64))
        id = SlotId(f"local-{os.getpid()}-{chance.bits64():016x}")
        slot = Slot(
            id,
            self._world(chance),
            SlotLog(id, LogSettings(), SystemClock()),  # what is logged here is the program's own
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        beats = asyncio.get_running_loop().create_task(_beat(slot, invitation.settings.pulse_ms))
        try:
            await slot.run(invitation.driver, versions=versions(), request=request)
        except PeerLost as error:
            if self._failed is not None:
                self._failed(request, error, False)
        except Exception:  # the driver has heard of it from the slot
            process_log().exception("a slot failed", slot=slot.id)
        finally:
            beats.cancel()

    def _world(self, chance: SeededChance) -> World:
        loop = asyncio.get_running_loop()

        def run_blocking(call: Callable[[], object]) -> Awaitable[object]:
            return loop.run_in_executor(self._pool, call)

        return World(
            network=self._network,
            clock=SystemClock(),
            chance=chance,
            run_blocking=run_blocking,
            storage=CheckpointStorage,
            log=process_log(),
            pause=lambda: asyncio.sleep(0),
            owns_process=False,
        )


async def _beat(slot: Slot, every_ms: int) -> None:
    while True:
        await asyncio.sleep(every_ms / 1000)
        slot.send_pulse()
