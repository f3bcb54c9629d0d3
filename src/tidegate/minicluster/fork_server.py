"""The fork server: a process that has loaded Tidegate once, and forks slots from there.

A forked slot runs within milliseconds, where a new interpreter needs half a second of processor
time; 64 of them start on two cores in seconds. The server has no threads and runs no code of
users, so that a fork copies nothing that is half done. There is one for each program. It ends with
the program, however that ends: its channel to the program closes then, and its parent is gone.
Slots get a moment to tidy up, and are killed after that. If the server itself dies, Linux ends its
slots, and elsewhere they miss their parent (see `slot.process.guarded`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final

from tidegate.clock import SystemClock
from tidegate.minicluster.messages import (
    CHANNEL_TIMEOUT_S,
    JobStart,
    KillSlot,
    SlotEnded,
    StartSlot,
    receive,
    send,
)
from tidegate.slot.process.guarded import fork
from tidegate.slot.process.preload import preload_known, reseed

if TYPE_CHECKING:
    from tidegate.model.control import SlotInvitation

GRACE_MS: Final = 5_000
"""How long slots may tidy up once their program is gone."""

LOOK_S: Final = 1.0
"""How often the server looks for its parent."""

_DESCRIPTORS: Final = 3
"""A program hands over the channel of a job, and its own standard output and error."""

_PR_SET_PDEATHSIG: Final = 1


@dataclass(slots=True)
class _Job:
    """A channel to the program. outputs: its standard output and error.

    slots: request of each living process. kill_at_ms: when these are killed; None for not at all.
    """

    channel: socket.socket
    outputs: tuple[int, ...]
    start: JobStart | None = None
    slots: dict[int, str] = field(default_factory=dict[int, str])
    kill_at_ms: int | None = None


class ForkServer:
    """Serves one program until that is gone. program: where it hands over channels of jobs."""

    def __init__(self, program: socket.socket) -> None:
        self._program = program
        self._parent = os.getppid()
        self._pid = os.getpid()
        self._clock = SystemClock()
        self._jobs: list[_Job] = []
        self._alone = False
        self._later: tuple[str, ...] = ()
        # Not epoll: a forked slot would share the kernel's object with the server.
        self._selector = selectors.PollSelector()
        self._selector.register(program, selectors.EVENT_READ)
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)

    def run(self) -> SlotInvitation | None:
        """Serves until the program is gone: None. In a forked slot returns its invitation."""
        while not (self._alone and not any(job.slots for job in self._jobs)):
            heard = self._selector.select(LOOK_S)
            if not heard and self._later:
                self._load_later()
            for key, _ in heard:
                if key.fileobj is self._program:
                    self._take_job()
                elif key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                else:
                    invitation = self._hear(key.data)
                    if invitation is not None:
                        return invitation
            self._reap()
            if os.getppid() != self._parent:
                self._abandon()
            self._kill_overdue()
        return None

    def _take_job(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._program, 1, _DESCRIPTORS)
        if not data:
            self._selector.unregister(self._program)
            self._abandon()
            return
        if len(descriptors) < _DESCRIPTORS:  # there is room for no more: its program is told so
            for each in descriptors:
                os.close(each)
            return
        channel = socket.socket(fileno=descriptors[0])
        channel.settimeout(CHANNEL_TIMEOUT_S)
        job = _Job(channel, tuple(descriptors[1:]))
        self._jobs.append(job)
        self._selector.register(channel, selectors.EVENT_READ, job)

    def _load_later(self) -> None:
        """Loads, while there is nothing else to do, what slots of later attempts may need."""
        modules, self._later = self._later, ()
        preload_known(modules)

    def _abandon(self) -> None:
        self._alone = True
        for job in self._jobs:
            self._end(job)

    def _end(self, job: _Job) -> None:
        if job.kill_at_ms is None:
            job.kill_at_ms = self._clock.monotonic_ms() + GRACE_MS

    def _hear(self, job: _Job) -> SlotInvitation | None:
        """Handles a message of a job; returns the invitation in a slot that was forked for it."""
        match receive(job.channel):
            case JobStart() as start:
                job.start = start
                preload_known(start.modules)
                self._later += start.later
            case StartSlot(invitation):
                return self._fork(job, invitation)
            case KillSlot(request):
                for pid, slot in job.slots.items():
                    if slot == request:
                        os.kill(pid, signal.SIGKILL)
            case _:
                self._selector.unregister(job.channel)
                self._end(job)
        return None

    def _fork(self, job: _Job, invitation: SlotInvitation) -> SlotInvitation | None:
        request = invitation.request
        assert job.start is not None, "a job is told before its slots"
        try:
            pid = fork()
        except OSError as error:
            self._tell(job, SlotEnded(request, f"cannot be forked: {error}"))
            return None
        if pid == 0:
            self._become_slot(job, job.start)
            return invitation
        job.slots[pid] = request
        return None

    def _reap(self) -> None:
        for job in self._jobs:
            for pid in list(job.slots):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    self._tell(job, SlotEnded(job.slots.pop(pid), _how_ended(pid, code)))
        for job in [job for job in self._jobs if job.kill_at_ms is not None and not job.slots]:
            self._jobs.remove(job)
            self._close(job)

    def _kill_overdue(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for job in self._jobs:
            if job.kill_at_ms is not None and now_ms >= job.kill_at_ms:
                for pid in job.slots:
                    os.kill(pid, signal.SIGKILL)

    def _tell(self, job: _Job, message: SlotEnded) -> None:
        with contextlib.suppress(OSError):  # a program that is gone needs no news
            send(job.channel, message)

    @staticmethod
    def _close(job: _Job) -> None:
        job.channel.close()
        for descriptor in job.outputs:
            os.close(descriptor)

    # --- in the slot ---

    def _become_slot(self, mine: _Job, start: JobStart) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent(self._pid)
        for descriptor, output in zip((1, 2), mine.outputs, strict=True):
            os.dup2(output, descriptor)
        for job in self._jobs:
            self._close(job)
        for each in (self._program, self._woken, self._wakes, self._selector):
            each.close()
        if isinstance(sys.stdout, TextIOWrapper):
            # What functions print is seen at once, and in order with what the program prints.
            sys.stdout.reconfigure(line_buffering=True)
        os.environ.clear()
        os.environ.update(start.environment)
        with contextlib.suppress(OSError):  # a folder that is gone is missed where it is used
            os.chdir(start.folder)
        sys.path[:] = start.path
        reseed()


def _how_ended(pid: int, code: int) -> str:
    if code == -signal.SIGKILL:
        return f"process {pid} was ended by signal 9 (SIGKILL), often as no memory was left"
    if code < 0:
        return f"process {pid} was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"process {pid} ended with status {code}"


def _die_with_parent(parent: int) -> None:
    """Makes Linux end this process together with its parent, even during a call without the GIL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
