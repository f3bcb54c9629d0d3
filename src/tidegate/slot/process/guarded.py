"""A slot's end of its guard: it forks it, feeds it, and lets it break off calls."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Final, cast

from tidegate.clock import SystemClock
from tidegate.slot.process.guard import (
    INTERRUPT,
    TELL_STACK,
    TOLD_EACH_MS,
    DriverProcess,
    Guard,
    Heart,
    Lease,
    ParentProcess,
    SubtaskOver,
)
from tidegate.transport.blocking import READ_BYTES, Frames, framed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tidegate.model.control import Pulse
    from tidegate.model.ids import ExecutionId
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.loop.calls import Calls
    from tidegate.slot.process.pulse import PulseLink

SEND_TIMEOUT_S: Final = 5.0


class GuardProcess:
    """Forks the guard; the slot has no thread and no loop yet.

    driver: its process, where that is on this machine. give_up: called, from any thread, when the
    slot must end at once: its guard is gone, so that nobody fences it, or the process that started
    it.
    """

    def __init__(
        self,
        link: PulseLink,
        driver: int | None,
        first: Pulse,
        settings: SlotSettings,
        give_up: Callable[[str], None],
    ) -> None:
        self._every_s = min(settings.pulse_ms, TOLD_EACH_MS) / 1000
        self._give_up = give_up
        self._frames = Frames()
        self._stopped = threading.Event()
        self._sending = threading.Lock()
        self._channel, guards = socket.socketpair()
        stacks, self._stack = os.pipe()
        # On another thread Python takes no signals: a call there can only be ended with its slot.
        self._interrupts = threading.current_thread() is threading.main_thread()
        slot = ParentProcess(os.getpid(), interrupts=self._interrupts)
        self._parent = os.getppid()
        self._former = signal.getsignal(INTERRUPT)
        self.pid = fork()
        if self.pid == 0:
            _guard(guards, stacks, link, slot, driver, first, settings)
        guards.close()
        os.close(stacks)
        faulthandler.register(TELL_STACK, file=self._stack, all_threads=False)
        # Two objects, as one that waits to send must not make the signal's handler wait.
        self._reader = self._channel.dup()
        self._channel.settimeout(SEND_TIMEOUT_S)
        self._thread: threading.Thread | None = None

    def watch(self, calls: Calls, pulse: Callable[[], Pulse]) -> None:
        """Feed the guard from now on, and break off calls as it says. pulse: of the slot."""
        calls.watched_by(lambda execution, over: self._send(SubtaskOver(execution, over)))
        if self._interrupts:
            signal.signal(INTERRUPT, lambda number, frame: self._interrupted(calls, frame))
        self._thread = threading.Thread(
            target=self._feed, args=(pulse,), name="tidegate-pulse", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(SEND_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the program may have its own ways to reap
            os.waitpid(self.pid, 0)
        if self._interrupts:
            signal.signal(INTERRUPT, self._former)
        faulthandler.unregister(TELL_STACK)
        os.close(self._stack)
        self._channel.close()
        self._reader.close()

    def _feed(self, pulse: Callable[[], Pulse]) -> None:
        is_told = False
        while not self._stopped.wait(self._every_s):
            if os.getppid() != self._parent:
                self._give_up("the process that started this slot is gone")
                return
            # Without a new pulse the guard repeats what it knows.
            try:
                self._send(pulse())
            except RuntimeError:
                pass  # the loop has changed what is being read
            except Exception as error:
                if not is_told:
                    _say(f"figures of a slot cannot be read: {type(error).__name__}: {error}")
                is_told = True

    def _send(self, message: Pulse | SubtaskOver) -> None:
        frame = framed(pickle.dumps(message, protocol=5))
        try:
            with self._sending:
                self._channel.sendall(frame)
        except OSError as error:
            if not self._stopped.is_set():
                self._give_up(f"its guard does not answer: {error}")

    def _interrupted(self, calls: Calls, frame: FrameType | None) -> None:
        try:
            data = self._reader.recv(READ_BYTES)
        except OSError:
            data = b""
        cancelled = [cast("ExecutionId", pickle.loads(each)) for each in self._frames.feed(data)]
        calls.interrupt(cancelled, frame)


def fork() -> int:
    """Fork, though libraries may have threads; those that do see to it themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _guard(
    channel: socket.socket,
    stacks: int,
    link: PulseLink,
    slot: ParentProcess,
    driver: int | None,
    first: Pulse,
    settings: SlotSettings,
) -> None:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (INTERRUPT, TELL_STACK, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:  # as where the driver is near
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # What the slot has open is to be closed when the slot is gone, such as Spark's link to it.
        first_kept, last_kept = sorted((channel.fileno(), stacks))
        os.closerange(3, first_kept)
        os.closerange(first_kept + 1, last_kept)
        os.closerange(last_kept + 1, os.sysconf("SC_OPEN_MAX"))
        channel.setblocking(False)
        os.set_blocking(stacks, False)
        near = None if driver is None else DriverProcess(driver)
        clock = SystemClock()
        heart = Heart(first, clock.monotonic_ms(), slot, stacks, settings.pulse_ms)
        lease = Lease(settings.lease_ms, near)
        Guard(channel, link, slot, heart, lease, settings, clock, _say).run()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)
    os._exit(0)


def _say(text: str) -> None:
    sys.stderr.write(f"tidegate: {text}\n")
    sys.stderr.flush()
