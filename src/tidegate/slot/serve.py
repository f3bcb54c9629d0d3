"""A process that serves as a slot: the entry that every runtime with processes uses."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.errors import PeerLost
from tidegate.model.chance import SeededChance
from tidegate.model.ids import SlotId
from tidegate.model.versions import versions
from tidegate.slot.pulse import PulseThread
from tidegate.slot.slot import Slot, World
from tidegate.storage.checkpoints import checkpoint_storage
from tidegate.transport.tcp import TcpNetwork, loop_factory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.model.control import SlotInvitation

EXIT_LOST = 70
"""Exit status of a slot that ended itself because its driver was gone."""


def serve(invitation: SlotInvitation) -> str:
    """Serve as a slot until the job is over; the result says why it ended.

    Leaves nothing behind in the process: no thread, socket or handler. Raises PeerLost where the
    driver cannot be reached.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(invitation))


async def _serve(invitation: SlotInvitation) -> str:
    clock = SystemClock()
    chance = SeededChance(secrets.randbits(64))
    host = invitation.host or address_towards(invitation.driver)
    settings = invitation.settings
    slot_id = SlotId(f"{host}-{os.getpid()}-{chance.bits64():016x}")
    pool = ThreadPoolExecutor(settings.upload_threads, thread_name_prefix="tidegate-io")
    loop = asyncio.get_running_loop()

    def run_blocking(call: Callable[[], object]) -> Awaitable[object]:
        return loop.run_in_executor(pool, call)

    network = TcpNetwork(
        secret=invitation.secret, host=host, draw=chance.bits64, ports=settings.port_range
    )
    world = World(
        network=network,
        clock=clock,
        chance=chance,
        run_blocking=run_blocking,
        storage=checkpoint_storage,
        log=process_log().bind(slot=slot_id),
        pause=lambda: asyncio.sleep(0),
        owns_process=True,
    )
    slot = Slot(slot_id, world, pid=os.getpid(), host=socket.gethostname())
    pulse = PulseThread(
        driver=invitation.driver,
        secret=invitation.secret,
        name=slot_id,
        nonce=lambda: secrets.token_bytes(16),
        read=lambda: slot.pulse,
        clock=clock,
        every_ms=settings.pulse_ms,
        lease_ms=settings.lease_ms,
        give_up=_exit_at_once,
    )
    pulse.start()
    try:
        return await slot.run(invitation.driver, versions=versions(), request=invitation.request)
    finally:
        pulse.stop()
        pool.shutdown(wait=True, cancel_futures=True)


def _exit_at_once(reason: str) -> None:
    """End the process without another write: a slot without its driver is a zombie."""
    sys.stderr.write(f"tidegate: this slot ends: {reason}\n")
    sys.stderr.flush()
    os._exit(EXIT_LOST)


def address_towards(driver: str) -> str:
    """The local address that reaches the driver; by construction one it can reach too.

    Raises PeerLost where there is no route.
    """
    host, _, port = driver.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as probe:
            return str(probe.getsockname()[0])
    except OSError as error:
        raise PeerLost(
            f"the driver at {driver} cannot be reached: {error}",
            remedy="Set tidegate.net.driver-host to an address that the executors can reach.",
        ) from error
