"""The guard of a slot: against a real driver's socket, and without one; the slot is played."""

import asyncio
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from tidegate.clock import SystemClock
from tidegate.errors import PeerLost
from tidegate.model.control import Cancel, LongCall, Pulse, PulseHeard, Refused, SlotLeaving
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SlotId, SubtaskId, VertexId
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.model.settings import SlotSettings
from tidegate.slot.process import guard as guards
from tidegate.slot.process.guard import (
    INTERRUPT,
    TELL_STACK,
    Guard,
    Heart,
    Lease,
    SubtaskOver,
)
from tidegate.slot.process.pulse import PULSE_PREFIX, PulseLink
from tidegate.transport.authority import Authority
from tidegate.transport.blocking import BlockingLink, framed
from tidegate.transport.tcp import TcpNetwork
from tidegate.transport.wire import Listener, Wire

SECRET = b"s" * 32
LIMIT_S = 100.0
SLOT = SlotId("slot-1")
EXECUTION = ExecutionId(SubtaskId(VertexId(b"v"), 0), Attempt(1), Epoch(1))
ANOTHER = ExecutionId(SubtaskId(VertexId(b"w"), 0), Attempt(1), Epoch(1))
CALL_OF_ANOTHER = Pulse(SLOT, calling=ANOTHER)
SIZE = MetricKey("size", MetricKind.GAUGE)
ROWS = MetricKey("rows", MetricKind.COUNTER)


class Driver:
    """A loop on a thread of its own that takes pulses, and answers them where it is told to."""

    def __init__(self, *, answers: bool = True, **protection: Any) -> None:
        self._answers = answers
        self._protection = protection
        self.beats: list[Pulse] = []
        self.leaving: list[SlotLeaving] = []
        self.names: list[str] = []
        self.wires: list[Wire] = []
        self._open = 0
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self.changed = threading.Condition()
        self._ready: Future[Listener] = Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.address = self._ready.result(LIMIT_S).address

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        network = TcpNetwork(secret=SECRET, host="127.0.0.1", **self._protection)
        listener = await network.listen(self._accept)
        self._ready.set_result(listener)
        await self._end.wait()
        await listener.close()
        for wire in self.wires:
            wire.close()
        async with asyncio.timeout(LIMIT_S):
            await self._all_closed.wait()

    def _accept(self, wire: Wire) -> "Driver":
        self.wires.append(wire)
        self._open += 1
        self._all_closed.clear()
        with self.changed:
            self.names.append(wire.peer)
        return self

    def on_frame(self, frame: memoryview) -> None:
        with self.changed:
            message = pickle.loads(frame)
            if isinstance(message, Pulse):
                self.beats.append(message)
            else:
                self.leaving.append(message)
            if self._answers:
                self.wires[-1].send([pickle.dumps(PulseHeard())])
            self.changed.notify_all()

    def on_closed(self, error: PeerLost | None) -> None:
        self._open -= 1
        if not self._open:
            self._all_closed.set()

    def wait_for(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, LIMIT_S)

    def say(self, message: object) -> None:
        """Say it to the guard that has beaten."""
        frame = pickle.dumps(message)
        self._loop.call_soon_threadsafe(lambda: [wire.send([frame]) for wire in self.wires])

    def cut(self) -> None:
        """End all links, not the listener."""
        self._loop.call_soon_threadsafe(lambda: [wire.close() for wire in self.wires])

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.stop()


class Process:
    """The slot's process, as far as its guard sees it."""

    def __init__(self) -> None:
        self.gone = False
        self.stopped = False
        self.signals: list[int] = []
        self.changed = threading.Condition()

    def signal(self, number: int) -> None:
        with self.changed:
            self.signals.append(number)
            self.changed.notify_all()

    def wait_for(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, LIMIT_S), self.signals


class Guarded:
    """A guard on a thread, with the slot's end of its channel."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        settings: SlotSettings,
        protection: dict[str, Any],
        driver: Process | None,
    ) -> None:
        self.process = Process()
        self.said: list[str] = []
        self.channel, theirs = socket.socketpair()
        theirs.setblocking(False)
        dial = partial(
            BlockingLink,
            address,
            secret=secret,
            name=f"{PULSE_PREFIX}{SLOT}",
            nonce=lambda: b"n" * 16,
            timeout_s=5,
            lease_ms=settings.lease_ms,
            **protection,
        )
        link = PulseLink(dial)
        clock = SystemClock()
        stacks, self.stacks = os.pipe()
        os.set_blocking(stacks, False)
        now_ms = clock.monotonic_ms()
        heart = Heart(Pulse(SLOT), now_ms, self.process, stacks, settings.pulse_ms)
        lease, say = Lease(settings.lease_ms, driver), self.said.append
        guard = Guard(theirs, link, self.process, heart, lease, settings, clock, say)

        def run() -> None:
            with theirs:
                guard.run()
            os.close(stacks)

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def say(self, message: object) -> None:
        self.channel.sendall(framed(pickle.dumps(message)))

    def told(self) -> object:
        self.channel.settimeout(LIMIT_S)
        return pickle.loads(self.channel.recv(4096)[4:])

    def end(self) -> None:
        self.channel.close()
        os.close(self.stacks)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()


@pytest.fixture
def guarded() -> Iterator[Callable[..., Guarded]]:
    made: list[Guarded] = []

    def make(
        address: str,
        *,
        secret: bytes = SECRET,
        protection: dict[str, Any] | None = None,
        near: Process | None = None,
        **settings: int,
    ) -> Guarded:
        given = SlotSettings(**{"pulse_ms": 10, **settings})  # type: ignore[arg-type]
        made.append(Guarded(address, secret, given, protection or {}, near))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_it_beats_again_and_again_under_the_slots_name(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 3)
    assert set(driver.names) == {"pulse:slot-1"}
    slot.say(Pulse(SLOT, process={SIZE: 7}))
    driver.wait_for(lambda: driver.beats[-1].process == {SIZE: 7})
    assert slot.said == []


def test_the_driver_is_told_the_metrics_that_have_changed_and_all_on_a_new_link(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address)
    slot.say(Pulse(SLOT, metrics={EXECUTION: {SIZE: 1, ROWS: 5}}))
    driver.wait_for(lambda: told(driver, {SIZE: 1, ROWS: 5}) == 1)
    driver.wait_for(lambda: driver.beats[-1].metrics == {})
    slot.say(Pulse(SLOT, metrics={EXECUTION: {SIZE: 1, ROWS: 6}}))
    driver.wait_for(lambda: told(driver, {ROWS: 6}) == 1)
    driver.wait_for(lambda: driver.beats[-1].metrics == {})
    driver.cut()
    driver.wait_for(lambda: told(driver, {SIZE: 1, ROWS: 6}) == 1)
    assert told(driver, {SIZE: 1, ROWS: 5}) == 1


def told(driver: Driver, metrics: dict[MetricKey, int]) -> int:
    """How often the driver was told just these of the subtask."""
    return sum(beat.metrics == {EXECUTION: metrics} for beat in driver.beats)


@pytest.mark.parametrize("how", ["encrypted", "sealed"])
def test_beats_and_cancels_pass_over_a_protected_link(
    how: str, guarded: Callable[..., Guarded]
) -> None:
    authority = Authority()
    ours, theirs = {"sealed": True}, {"sealed": True}
    if how == "encrypted":
        ours, theirs = ({"keys": authority.issue(name)} for name in ("slot", "driver"))  # type: ignore[misc]
    driver = Driver(**theirs)
    slot = guarded(driver.address, protection=ours)
    driver.wait_for(lambda: len(driver.beats) >= 3)
    driver.say(Cancel(EXECUTION))
    slot.process.wait_for(lambda: INTERRUPT in slot.process.signals)
    assert slot.told() == EXECUTION
    driver.stop()


def test_a_slot_that_says_nothing_while_in_a_call_has_a_heartbeat_and_the_call_grows_older(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address)
    slot.say(Pulse(SLOT, batch_age_ms=5_000))
    driver.wait_for(lambda: driver.beats[-1:] != [] and driver.beats[-1].batch_age_ms > 5_100)
    assert slot.process.signals == []


def test_it_dials_again_when_the_link_breaks(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.cut()
    driver.wait_for(lambda: len(driver.names) >= 2)
    before = len(driver.beats)
    driver.wait_for(lambda: len(driver.beats) > before)
    assert slot.said == []


def test_it_kills_the_slot_when_the_driver_is_out_of_reach_for_the_lease(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, lease_ms=100)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.stop()
    slot.process.wait_for(lambda: slot.process.signals != [])
    assert slot.process.signals == [signal.SIGKILL]
    slot.thread.join(LIMIT_S)
    (told,) = slot.said
    assert told.startswith("this slot is ended: its driver has not answered for 100 ms")


def test_a_slot_whose_driver_takes_pulses_and_does_not_answer_is_killed_after_the_lease(
    guarded: Callable[..., Guarded],
) -> None:
    """As one that is stopped: its system takes what is sent until the buffers are full."""
    driver = Driver(answers=False)
    slot = guarded(driver.address, lease_ms=300)
    slot.process.wait_for(lambda: slot.process.signals != [])
    assert slot.process.signals == [signal.SIGKILL]
    assert driver.beats
    driver.stop()


def test_a_driver_on_this_machine_need_not_answer_while_it_runs(
    guarded: Callable[..., Guarded],
) -> None:
    """A call in C may hold its interpreter; only if it is stopped its slots end."""
    driver, process = Driver(answers=False), Process()
    slot = guarded(driver.address, lease_ms=60, near=process)
    driver.wait_for(lambda: len(driver.beats) > 20)
    assert slot.process.signals == []
    process.stopped = True
    slot.process.wait_for(lambda: slot.process.signals != [])
    driver.stop()


def test_a_driver_of_another_job_is_no_driver(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, secret=b"x" * 32, lease_ms=50)
    slot.process.wait_for(lambda: slot.process.signals != [])
    assert slot.process.signals == [signal.SIGKILL]
    assert driver.beats == []


def test_a_slot_that_the_system_has_stopped_has_no_heartbeat_and_is_killed_after_the_lease(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, lease_ms=300)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    slot.process.stopped = True
    slot.process.wait_for(lambda: slot.process.signals != [])
    assert slot.process.signals == [signal.SIGKILL]


def test_a_guard_whose_slot_is_gone_ends(driver: Driver, guarded: Callable[..., Guarded]) -> None:
    slot = guarded(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    slot.process.gone = True
    slot.thread.join(LIMIT_S)
    assert not slot.thread.is_alive() and slot.process.signals == []


def test_a_cancelled_call_is_broken_off_again_and_again_then_its_slot_is_killed(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, cancel_interval_ms=10, cancel_timeout_ms=500)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.say(Cancel(EXECUTION))
    assert slot.told() == EXECUTION
    slot.process.wait_for(lambda: signal.SIGKILL in slot.process.signals)
    assert slot.process.signals[:2] == [INTERRUPT, INTERRUPT]
    driver.wait_for(lambda: len(driver.leaving) == 1)
    assert "did not return" in str(driver.leaving[0].error)


def test_a_subtask_that_ends_in_time_costs_its_slot_nothing(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, cancel_timeout_ms=100)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    slot.say(SubtaskOver(EXECUTION, closed=True))
    slot.say(Pulse(SLOT, process={SIZE: 1}))
    driver.wait_for(lambda: driver.beats[-1].process == {SIZE: 1})
    driver.say(Cancel(EXECUTION))  # crossed with the news of the end
    before = len(driver.beats)
    driver.wait_for(lambda: len(driver.beats) > before + 20)
    assert slot.process.signals == []


@pytest.mark.slow
def test_operators_that_are_closing_are_not_interrupted_and_have_a_limit_of_their_own(
    driver: Driver, guarded: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "CLOSE_LIMIT_MS", 1_500)
    slot = guarded(driver.address, cancel_interval_ms=10, cancel_timeout_ms=1_000)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.say(Cancel(EXECUTION))
    assert slot.told() == EXECUTION
    slot.say(SubtaskOver(EXECUTION, closed=False))
    slot.say(Pulse(SLOT, process={SIZE: 1}))
    driver.wait_for(lambda: driver.beats[-1].process == {SIZE: 1})
    interrupted = len(slot.process.signals)
    slot.process.wait_for(lambda: signal.SIGKILL in slot.process.signals)
    assert slot.process.signals[interrupted:] == [signal.SIGKILL]


def test_with_a_timeout_of_zero_a_call_is_waited_for(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address, cancel_interval_ms=0, cancel_timeout_ms=0)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.say(Cancel(EXECUTION))
    assert slot.told() == EXECUTION
    before = len(driver.beats)
    driver.wait_for(lambda: len(driver.beats) > before + 50)
    assert slot.process.signals == [INTERRUPT]


def test_a_long_call_is_named_with_the_stack_that_is_asked_for_once(
    driver: Driver, guarded: Callable[..., Guarded]
) -> None:
    slot = guarded(driver.address)
    slot.say(Pulse(SLOT, batch_age_ms=11_000))
    slot.process.wait_for(lambda: slot.process.signals == [TELL_STACK])
    os.write(slot.stacks, DUMP.encode())
    driver.wait_for(lambda: driver.beats != [] and driver.beats[-1].long_call is not None)
    assert driver.beats[-1].long_call == LongCall(
        "ask (/srv/orders.py:12)",
        'File "/usr/lib/python3.11/socket.py", line 706 in readinto\n'
        'File "/srv/orders.py", line 12 in ask',
    )
    slot.say(Pulse(SLOT))
    driver.wait_for(lambda: driver.beats[-1].long_call is None)
    assert slot.process.signals == [TELL_STACK]


DUMP = """Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 706 in readinto
  File "/srv/orders.py", line 12 in ask
  File "/opt/site-packages/tidegate/operators/map.py", line 33 in process
  File "/opt/site-packages/tidegate/slot/subtask/chain.py", line 99 in process
"""


def test_a_slot_that_was_given_up_is_killed_where_it_does_not_go(
    driver: Driver, guarded: Callable[..., Guarded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "CLOSE_LIMIT_MS", 50)
    slot = guarded(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.say(Refused("the driver goes on without it"))
    slot.process.wait_for(lambda: slot.process.signals != [])
    assert slot.process.signals == [signal.SIGKILL]


class Played(Process):
    """A slot and its driver, as a guard sees them whose clock shows these times, one a look.

    words: what is said at each look, by the driver, or by the slot where it tells of a subtask or
    of its call; None for nothing. The process is gone once the times are used up.
    """

    is_open = reached = True

    def __init__(self, times_ms: Sequence[int], *words: object) -> None:
        super().__init__()
        self._times_ms = list(times_ms)
        self._words = list(words)
        self.now_ms = 0
        self.killed_ms: int | None = None
        self.channel, self.guards_channel = socket.socketpair()
        self.guards_channel.setblocking(False)
        self.stacks, self._stack = os.pipe()
        os.set_blocking(self.stacks, False)
        self.waits_on, ready = os.pipe()  # readable, so that no look waits
        os.close(ready)

    @property
    def gone(self) -> bool:
        return not self._times_ms

    @gone.setter
    def gone(self, gone: bool) -> None:
        assert not gone

    def monotonic_ms(self) -> int:
        self.now_ms = self._times_ms.pop(0)
        if self._words and isinstance(self._words[0], SubtaskOver | Pulse | None):
            word = self._words.pop(0)
            self.channel.sendall(b"" if word is None else framed(pickle.dumps(word)))
        return self.now_ms

    def send(self, frame: bytes) -> bool:
        return self.reached

    def receive(self) -> list[object]:
        if not self._words or isinstance(self._words[0], SubtaskOver | Pulse | None):
            return []
        return [self._words.pop(0)]

    def signal(self, number: int) -> None:
        super().signal(number)
        if number == signal.SIGKILL:
            self.killed_ms = self.now_ms

    def close(self) -> None:
        self.channel.close()
        self.guards_channel.close()
        os.close(self.stacks)
        os.close(self._stack)
        os.close(self.waits_on)

    def guarded(self, **settings: int) -> "Played":
        """To the end of the times, or of the slot."""
        given = SlotSettings(**{"pulse_ms": 1, **settings})  # type: ignore[arg-type]
        played: Any = self
        heart = Heart(Pulse(SLOT), 0, self, self.stacks, given.pulse_ms)
        lease, channel = Lease(given.lease_ms, None), self.guards_channel
        Guard(channel, played, self, heart, lease, given, played, lambda _: None).run()
        return self


def test_closing_operators_have_ten_seconds_though_calls_have_one() -> None:
    played = Played(
        range(0, 13_000, 400), Cancel(EXECUTION), SubtaskOver(EXECUTION, closed=False)
    ).guarded(cancel_timeout_ms=1_000)
    assert played.killed_ms is not None and 10_000 <= played.killed_ms <= 11_000


@pytest.mark.parametrize("told", [CALL_OF_ANOTHER, Pulse(SLOT)], ids=["that call", "no call"])
def test_a_call_of_a_subtask_that_goes_on_costs_its_slot_nothing(told: Pulse) -> None:
    """It may have begun behind the last that the slot has told."""
    words = [told, Cancel(EXECUTION), None, None, None, None, *[CALL_OF_ANOTHER] * 20]
    words += [Pulse(SLOT), SubtaskOver(EXECUTION, closed=True)]
    played = Played(range(0, 9_000, 200), *words).guarded(pulse_ms=1_000, cancel_timeout_ms=1_000)
    assert INTERRUPT in played.signals and played.killed_ms is None


@pytest.mark.parametrize("call", [Pulse(SLOT, calling=EXECUTION), Pulse(SLOT), None])
def test_behind_a_call_of_another_subtask_a_cancelled_one_has_its_own_second(
    call: Pulse | None,
) -> None:
    """None: the slot tells nothing, as in a call that holds its interpreter."""
    words = [Cancel(EXECUTION), *[CALL_OF_ANOTHER] * 20, Pulse(SLOT), *[call] * 20]
    played = Played(range(0, 9_000, 200), *words).guarded(pulse_ms=1_000, cancel_timeout_ms=1_000)
    assert played.killed_ms is not None and 5_000 <= played.killed_ms <= 6_600


def test_a_guard_that_is_woken_late_does_not_take_the_driver_for_silent() -> None:
    assert Played([0, 60_000, 120_000, 180_000]).guarded(lease_ms=10_000).killed_ms is None
    killed_ms = Played(range(0, 12_000, 400)).guarded(lease_ms=10_000).killed_ms
    assert killed_ms is not None and killed_ms > 10_000


def test_dials_that_nobody_answers_do_not_make_the_lease_longer() -> None:
    """As where a firewall drops them: each takes three seconds, and a look follows."""
    looks = [0, *(each for ms in range(200, 100_000, 3_200) for each in (ms, ms + 3_000))]
    played = Played(looks)
    played.reached = False
    killed_ms = played.guarded(lease_ms=10_000).killed_ms
    assert killed_ms is not None and 10_000 < killed_ms <= 13_000
