"""A process that serves as a slot: the entry that every runtime with processes uses."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.clock import SystemClock
from tidegate.config.log import print_line, process_log
from tidegate.errors import ConfigError, DriverUnreachable
from tidegate.model.addresses import ANNOUNCE, host_and_port, is_loopback
from tidegate.model.chance import SeededChance
from tidegate.model.control import Pulse
from tidegate.model.descriptors import make_room
from tidegate.model.ids import SlotId
from tidegate.model.versions import versions
from tidegate.pyflink.imports import put_in_place, uninstall
from tidegate.slot.driver_link import SlotLog
from tidegate.slot.loop.beside import short_switches
from tidegate.slot.process.guarded import GuardProcess
from tidegate.slot.process.pulse import PULSE_PREFIX, PulseLink
from tidegate.slot.slot import LINK_TIMEOUT_S, Slot
from tidegate.slot.world import World
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.transport.blocking import BlockingLink
from tidegate.transport.tcp import TcpNetwork, loop_factory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from tidegate.model.chance import Chance
    from tidegate.model.control import SlotInvitation

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's ``mallopt``: free memory that a heap keeps at its end, bytes from which a piece gets
pages of its own, and how many heaps a process may have."""

HEAPS_MAX: Final = 2

KEPT_BYTES: Final = 64 << 20
"""Free memory that a slot keeps at the end of a heap, for the columns of the next batch."""

OWN_PAGES_BYTES: Final = 8 << 20
"""Arrays of state give their pages back when they go; a column of 65,536 rows is far smaller."""

_LOGGED_EACH_S: Final = 0.2
_LAST_WORDS_S: Final = 0.5

DIAL_S: Final = 10.0
"""How long a slot tries to reach the driver, which a firewall may answer with silence."""

EXIT_LOST = 70
"""Exit status of a slot that ended itself because its guard or its parent was gone."""


def serve(invitation: SlotInvitation) -> str:
    """Serve as a slot until the job is over; the result says why it ended.

    Leaves nothing behind in the process but limits of its heaps: no thread, socket, handler or
    import hook. Raises DriverUnreachable, PeerLost where the driver does not answer, and
    ConfigError on a node that has no address as the settings ask for.
    """
    share_heaps()
    keep_pages()
    make_room()
    chance = SeededChance(secrets.randbits(64))
    settings = invitation.settings
    host, announced = _place(invitation)
    slot_id = SlotId(f"{host}-{os.getpid()}-{chance.bits64():016x}")
    dial = partial(
        BlockingLink,
        invitation.driver,
        secret=invitation.secret,
        name=f"{PULSE_PREFIX}{slot_id}",
        nonce=lambda: secrets.token_bytes(16),
        timeout_s=settings.pulse_ms / 1000 + 2,
        lease_ms=settings.lease_ms,
        keys=invitation.keys,
        sealed=invitation.sealed,
    )
    guard = GuardProcess(
        PulseLink(dial), invitation.driver_process, Pulse(slot_id), settings, _exit_at_once
    )
    if invitation.pyflink:
        put_in_place()
    try:
        log = SlotLog(slot_id, settings.log, SystemClock())
        with (
            log.gathering(invitation.logs),
            _called_as(invitation.argv),
            _without_interrupts(),
            short_switches(),
            _children_terminable(),
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            return runner.run(_serve(invitation, slot_id, (host, announced), chance, guard, log))
    finally:
        if invitation.pyflink:
            uninstall()
        guard.stop()


@contextlib.contextmanager
def _called_as(argv: tuple[str, ...]) -> Generator[None]:
    """Gives functions the arguments of their program, not those of the hosting process."""
    former, sys.argv = sys.argv, list(argv)
    try:
        yield
    finally:
        sys.argv = former


def share_heaps() -> None:
    """Have all threads use a few heaps, as glibc gives each thread one of its own otherwise.

    What one of RocksDB's threads or of the pool has freed there is of no use to the others, so
    that a slot that runs for hours would go on growing. Whoever sets MALLOC_ARENA_MAX knows better.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        _mallopt(_M_ARENA_MAX, HEAPS_MAX)


def keep_pages() -> None:
    """Have heaps keep the memory of a batch's columns for the next batch.

    Else the system takes the pages back at the end of each batch and clears them for the next, an
    eighth of the time that a row of an Arrow batch costs (benchmarks/pairs.py, w1-batches). Whoever
    sets MALLOC_TRIM_THRESHOLD_ knows better.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        _mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        _mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_BYTES)


def _mallopt(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(option, value)


@contextlib.contextmanager
def _without_interrupts() -> Generator[None]:
    """Ignores Ctrl-C, which reaches all processes of a terminal: the driver decides."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


@contextlib.contextmanager
def _children_terminable() -> Generator[None]:
    """Lets children of functions react to SIGTERM, which the slot ignores."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGTERM, _do_nothing)  # which a program that is executed does not inherit

    def forked() -> None:
        if signal.getsignal(signal.SIGTERM) is _do_nothing:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _let_sigterm(signal.SIG_UNBLOCK)

    os.register_at_fork(
        before=lambda: _let_sigterm(signal.SIG_BLOCK),  # one that comes at once is to wait
        after_in_parent=lambda: _let_sigterm(signal.SIG_UNBLOCK),
        after_in_child=forked,
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _let_sigterm(how: int) -> None:
    signal.pthread_sigmask(how, {signal.SIGTERM})


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM in a slot."""


async def _serve(
    invitation: SlotInvitation,
    slot_id: SlotId,
    place: tuple[str, str | None],
    chance: Chance,
    guard: GuardProcess,
    log: SlotLog,
) -> str:
    settings = invitation.settings
    pool = ThreadPoolExecutor(settings.upload_threads, thread_name_prefix="tidegate-io")
    loop = asyncio.get_running_loop()

    def run_blocking(call: Callable[[], object]) -> Awaitable[object]:
        return loop.run_in_executor(pool, call)

    network = TcpNetwork(
        secret=invitation.secret,
        host=place[0],
        announce=place[1],
        ports=settings.port_range,
        keys=invitation.keys,
        sealed=invitation.sealed,
        answer_timeout_s=LINK_TIMEOUT_S,
    )
    world = World(
        network=network,
        clock=SystemClock(),
        chance=chance,
        run_blocking=run_blocking,
        storage=CheckpointStorage,
        log=log.of(process_log().bind(slot=slot_id)),
        pause=lambda: asyncio.sleep(0),
        owns_process=True,
    )
    slot = Slot(slot_id, world, log, pid=os.getpid(), host=socket.gethostname())
    guard.watch(slot.calls, slot.pulse)
    telling = asyncio.ensure_future(_tell_logged(slot))
    try:
        known = invitation.versions or versions()
        return await slot.run(invitation.driver, versions=known, request=invitation.request)
    finally:
        telling.cancel()
        pool.shutdown(wait=True, cancel_futures=True)


async def _tell_logged(slot: Slot) -> None:
    while True:
        await asyncio.sleep(_LOGGED_EACH_S)
        slot.send_logged()


def _exit_at_once(reason: str) -> None:
    """End the process without another write: nobody would fence it any more."""
    text = f"tidegate: this slot ends: {reason}"
    # Whoever was to read it may be gone, or stand still.
    telling = threading.Thread(target=print_line, args=(sys.stderr, text), daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be started
        telling.start()
        telling.join(_LAST_WORDS_S)
    os._exit(EXIT_LOST)


def _place(invitation: SlotInvitation) -> tuple[str, str | None]:
    """Host to listen at, and the one to announce; None for the same."""
    network = invitation.settings.network
    host = invitation.host or address_towards(invitation.driver)
    if network is None and invitation.driver_process is None:
        _refuse_loopback(host, invitation.driver)
    if network is None and ANNOUNCE not in os.environ:
        return host, None
    from tidegate.transport.interfaces import address_in, announced_from

    host = host if network is None else address_in(network)
    return host, announced_from(host)


def _refuse_loopback(host: str, driver: str) -> None:
    """Raises ConfigError where slots of other nodes, which find the driver too, could not come."""
    if is_loopback(host) and not is_loopback(host_and_port(driver)[0]):
        raise ConfigError(
            f"node {socket.gethostname()} reaches the driver at {driver} through its own loopback "
            f"{host}, where slots of other nodes cannot reach this one",
            where="tidegate.net.network",
            remedy="Set tidegate.net.network to the network of the nodes, or tell of the driver by "
            "an address, not by a name that this node takes for its own: tidegate.net."
            "driver-address, or spark.driver.host. It is 127.0.0.1 where all is on one machine.",
        )


def address_towards(driver: str) -> str:
    """The local address that reaches the driver; by construction one it can reach too.

    Raises DriverUnreachable if there is no route.
    """
    try:
        with socket.create_connection(host_and_port(driver), timeout=DIAL_S) as probe:
            return str(probe.getsockname()[0])
    except OSError as error:
        raise DriverUnreachable(
            f"node {socket.gethostname()} cannot reach the driver at {driver}: {error}",
            remedy="Check if the job is over by now. On Spark, check that executors reach "
            "spark.driver.host, and the ports of tidegate.net.port-range.",
        ) from error
