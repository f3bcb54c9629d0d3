"""The guard of a slot: a process beside it, which does what must not wait for a user's function.

It beats, so that a call that holds the interpreter is not taken for a dead slot. It hears of a
cancel as soon as the driver decides it, has the call that is under way broken off, and kills a slot
that does not come to an end. It fences: a slot whose driver has not answered for the lease is
killed, for whatever it would still write counts for nothing. A slot that is stopped or gone has no
heartbeat.

The guard is forked from the slot before that has threads, loop or state. It is a process and no
thread, since a thread needs the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.errors import SlotLost
from tidegate.model.control import Cancel, LongCall, Pulse, PulseHeard, Refused, SlotLeaving
from tidegate.transport.blocking import READ_BYTES, Frames, framed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from tidegate.clock import Clock
    from tidegate.model.ids import ExecutionId, SlotId, SubtaskId
    from tidegate.model.metrics import Metrics
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.process.pulse import PulseLink

INTERRUPT: Final = signal.SIGUSR1
"""Breaks off the call that the slot is in; see `slot.loop.calls`."""

TELL_STACK: Final = signal.SIGUSR2
"""Has Python's fault handler write the stack of the slot's loop, also without its lock."""

LONG_CALL_MS: Final = 10_000
"""A call that lasts longer is told of, with its stack."""

CLOSE_LIMIT_MS: Final = 10_000
"""How long the operators of a cancelled subtask may take to close, at least."""

LOOK_MS: Final = 200
"""How often the guard looks after its slot, at least."""

TOLD_EACH_MS: Final = 1_000
"""How often a slot tells its guard of its state, at least."""

SILENCE_MS: Final = 2 * TOLD_EACH_MS
"""A slot that has told nothing for so long is in a call that holds its interpreter."""

_LINE: Final = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_OURS: Final = re.compile(r"[/\\\\]tidegate[/\\\\][^/\\\\]+[/\\\\]")


@frozen
class SubtaskOver:
    """A subtask is over. closed: its operators are closed too."""

    execution: ExecutionId
    closed: bool


@dataclass(slots=True)
class Cancelling:
    """A subtask that is to end. since_ms: since when no call of another one keeps it from that.

    limit_ms: how long it may take from then on before the slot is killed; 0 for ever.
    interrupt_ms: when the call under way is broken off next; None for no more.
    """

    since_ms: int
    limit_ms: int
    interrupt_ms: int | None


class Heart:
    """Makes the heartbeats of a slot from the last one that the slot has given.

    stacks: the pipe, not blocking, to which the slot's process writes its stack when it is asked.
    """

    def __init__(
        self, first: Pulse, now_ms: int, process: ParentProcess, stacks: int, pulse_ms: int
    ) -> None:
        self._pulse, self._pulsed_ms = first, now_ms
        self._process = process
        self._stacks = stacks
        self._silence_ms = 2 * min(pulse_ms, TOLD_EACH_MS)
        self._asked = False
        self._long_call: LongCall | None = None
        self._told: Mapping[ExecutionId, Metrics] = {}

    @property
    def slot(self) -> SlotId:
        return self._pulse.slot

    def heard(self, pulse: Pulse, now_ms: int) -> None:
        self._pulse, self._pulsed_ms = pulse, now_ms

    def beat(self, now_ms: int, *, is_first: bool) -> Pulse:
        """The next heartbeat; a call that was running when the slot fell silent has continued.

        is_first: the driver may not have got those before, so that it is told all metrics.
        """
        silent_ms = now_ms - self._pulsed_ms
        age_ms = self._pulse.batch_age_ms
        if silent_ms > self._silence_ms:
            age_ms += silent_ms
        self._look_at_stack(age_ms)
        metrics = _changed({} if is_first else self._told, self._pulse.metrics)
        self._told = self._pulse.metrics
        return replace(self._pulse, batch_age_ms=age_ms, long_call=self._long_call, metrics=metrics)

    def _look_at_stack(self, age_ms: int) -> None:
        if age_ms < LONG_CALL_MS:
            self._asked, self._long_call = False, None
        elif not self._asked:
            self._asked = True
            self._process.signal(TELL_STACK)
        elif self._long_call is None:
            with contextlib.suppress(BlockingIOError):
                dump = os.read(self._stacks, READ_BYTES)
                self._long_call = long_call(dump.decode(errors="replace"))


def _changed(
    told: Mapping[ExecutionId, Metrics], now: Mapping[ExecutionId, Metrics]
) -> dict[ExecutionId, Metrics]:
    changed: dict[ExecutionId, Metrics] = {}
    for execution, metrics in now.items():
        known = told.get(execution, {})
        # An integer and the float beside it are equal, and the same to who reads them.
        new = {key: value for key, value in metrics.items() if known.get(key) != value}
        if new:
            changed[execution] = new
    return changed


def long_call(dump: str) -> LongCall | None:
    """The user's part of a stack; None if the slot was in our own code, or no stack came."""
    users: list[str] = []
    function = ""
    for text in dump.splitlines():
        line = _LINE.match(text)
        if line is None:
            continue
        if _OURS.search(line["file"]):
            break
        users.append(text.strip())
        function = f"{line['name']} ({line['file']}:{line['line']})"
    return LongCall(function, "\n".join(users)) if users else None


class Lease:
    """Knows for how long the driver has given no sign of life.

    driver: its process, where that is on this machine. While it runs the driver lives, though a
    call in C may keep it from an answer.
    """

    def __init__(self, lease_ms: int, driver: DriverProcess | None) -> None:
        self._lease_ms = lease_ms
        self._driver = driver
        self._silent_ms = 0

    def passed(self, ms: int) -> None:
        """Counts time in which the guard could have heard from the driver."""
        self._silent_ms += ms

    def heard(self) -> None:
        self._silent_ms = 0

    def verdict(self, *, sent: bool) -> str | None:
        """The reason to end the slot, if the lease is over. sent: the last beat has left."""
        if sent and self._driver is not None and not self._driver.stopped:
            self._silent_ms = 0
        elif self._silent_ms > self._lease_ms:
            return (
                f"its driver has not answered for {self._lease_ms} ms; it is stopped, cut "
                "off, or a call in C holds its interpreter"
            )
        return None


class Pressing:
    """Breaks off calls of subtasks that were cancelled, and knows when that is of no use.

    The subtasks of a slot share its loop: while that is in a call of one that goes on, another one
    that was cancelled can't end. The slot tells now and then whose call it is in, so it is killed
    only once it has told that behind the limit, or tells nothing any more.
    """

    def __init__(self, process: ParentProcess, settings: SlotSettings) -> None:
        self._process = process
        self._settings = settings
        self._cancelling: dict[ExecutionId, Cancelling] = {}
        self._closed: dict[SubtaskId, ExecutionId] = {}
        self._given_up: tuple[str, int] | None = None
        self._calling: ExecutionId | None = None
        self._told_ms = 0

    def cancel(self, execution: ExecutionId, now_ms: int) -> bool:
        """A subtask is to end; False if it has ended already."""
        if self._closed.get(execution.subtask) == execution:
            return False
        limit_ms = self._settings.cancel_timeout_ms
        self._cancelling[execution] = Cancelling(now_ms, limit_ms, now_ms)
        return True

    def give_up(self, reason: str, now_ms: int) -> None:
        """The whole slot is to end; it may take its time to close what is open."""
        if self._given_up is None:
            self._given_up = (reason, now_ms + CLOSE_LIMIT_MS)

    def told(self, calling: ExecutionId | None, now_ms: int) -> None:
        """The slot is in a call of this subtask, or in none."""
        self._calling, self._told_ms = calling, now_ms

    def subtask_over(self, over: SubtaskOver, now_ms: int) -> None:
        """A subtask is over: its operators are being closed, or are closed."""
        if over.closed:
            self._closed[over.execution.subtask] = over.execution
            self._cancelling.pop(over.execution, None)
        elif (cancelling := self._cancelling.get(over.execution)) is not None:
            cancelling.interrupt_ms = None
            if cancelling.limit_ms:
                cancelling.since_ms = now_ms
                cancelling.limit_ms = max(CLOSE_LIMIT_MS, cancelling.limit_ms)

    def press(self, now_ms: int) -> str | None:
        """Break off calls that are due; the reason to end the slot where that is of no use."""
        due = [each for each in self._cancelling.values() if _passed(each.interrupt_ms, now_ms)]
        if due:
            self._process.signal(INTERRUPT)
        for each in due:
            interval_ms = self._settings.cancel_interval_ms
            each.interrupt_ms = now_ms + interval_ms if interval_ms else None
        if self._given_up is not None and now_ms >= self._given_up[1]:
            return self._given_up[0]
        known_ms = now_ms if now_ms - self._told_ms > SILENCE_MS else self._told_ms
        for execution, each in self._cancelling.items():
            if self._calling not in (None, execution):
                each.since_ms = now_ms
            elif each.limit_ms and known_ms - each.since_ms >= each.limit_ms:
                return "a function did not return when its subtask was cancelled"
        return None


class Guard:
    """The guard's loop: listens to the slot and the driver, beats, presses, and ends the slot.

    slot: the channel to it, not blocking. say: writes a line for people.
    """

    def __init__(
        self,
        slot: socket.socket,
        link: PulseLink,
        process: ParentProcess,
        heart: Heart,
        lease: Lease,
        settings: SlotSettings,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._slot = slot
        self._link = link
        self._process = process
        self._heart = heart
        self._lease = lease
        self._pressing = Pressing(process, settings)
        self._pulse_ms = settings.pulse_ms
        self._clock = clock
        self._say = say
        self._frames = Frames()
        self._looked_ms = clock.monotonic_ms()
        self._awake_ms = 0
        self._beat_ms = self._looked_ms - settings.pulse_ms
        self._over = False

    def run(self) -> None:
        """Guard until the slot has gone, or has to."""
        while not self._over and not self._process.gone:
            self._wait()
            now_ms = self._clock.monotonic_ms()
            # A machine with too much to do wakes this process late too: nobody's fault.
            passed_ms = min(now_ms - self._looked_ms, 2 * LOOK_MS)
            self._looked_ms = now_ms
            self._awake_ms += passed_ms
            self._lease.passed(passed_ms)
            self._hear_slot(now_ms)
            for message in self._link.receive():
                self._hear_driver(message)
            if not self._over:
                self._beat(now_ms)
            if not self._over:
                self._kill_for(self._pressing.press(self._awake_ms))
        self._link.close()

    def _wait(self) -> None:
        poll = select.poll()
        for each in filter(None, (self._slot, self._link.waits_on)):
            poll.register(each, select.POLLIN)
        poll.poll(min(LOOK_MS, self._pulse_ms))

    def _hear_slot(self, now_ms: int) -> None:
        try:
            data = self._slot.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._over = not data
        for frame in self._frames.feed(data):
            match pickle.loads(frame):
                case Pulse() as pulse:
                    self._heart.heard(pulse, now_ms)
                    self._pressing.told(pulse.calling, self._awake_ms)
                case SubtaskOver() as over:
                    self._pressing.subtask_over(over, self._awake_ms)
                case other:
                    raise AssertionError(f"no word of a slot: {other!r}")

    def _hear_driver(self, message: object) -> None:
        self._lease.heard()
        match message:
            case PulseHeard():
                pass
            case Cancel(execution):
                if self._pressing.cancel(execution, self._awake_ms):
                    with contextlib.suppress(OSError):  # full, or gone: it has heard, or need not
                        self._slot.send(framed(pickle.dumps(execution)))
            case Refused(reason):
                self._pressing.give_up(reason, self._awake_ms)
            case other:
                raise AssertionError(f"no word for a guard: {other!r}")

    def _beat(self, now_ms: int) -> None:
        if now_ms - self._beat_ms < self._pulse_ms:
            return
        self._beat_ms = now_ms
        pulse = self._heart.beat(now_ms, is_first=not self._link.is_open)
        sent = not self._process.stopped and self._link.send(pickle.dumps(pulse))
        if not sent:
            # A dial that nobody answers takes its whole time, of which a look counts a part.
            self._looked_ms = self._clock.monotonic_ms()
            self._lease.passed(self._looked_ms - now_ms)
        self._kill_for(self._lease.verdict(sent=sent))

    def _kill_for(self, why: str | None) -> None:
        if why is None:
            return
        self._over = True
        error = SlotLost(f"slot {self._heart.slot} was ended: {why}")
        self._process.signal(signal.SIGKILL)
        self._say(f"this slot is ended: {why}")
        self._link.send(pickle.dumps(SlotLeaving(self._heart.slot, error)))


def _passed(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and now_ms >= at_ms


def _is_stopped(pid: int) -> bool:
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        # The state follows the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return True


class DriverProcess:
    """The driver's process, on this machine."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def stopped(self) -> bool:
        return _is_stopped(self._pid)


class ParentProcess:
    """The process that this one was forked from. interrupts: whether it handles `INTERRUPT`."""

    def __init__(self, pid: int, *, interrupts: bool) -> None:
        self._pid = pid
        self._interrupts = interrupts

    @property
    def gone(self) -> bool:
        return os.getppid() != self._pid

    @property
    def stopped(self) -> bool:
        """True if the system does not let it run, as after SIGSTOP."""
        return _is_stopped(self._pid)

    def signal(self, number: int) -> None:
        if not self.gone and (self._interrupts or number != INTERRUPT):
            os.kill(self._pid, number)
