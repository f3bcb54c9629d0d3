"""The heartbeat on its thread: against a real driver's socket, and without one."""

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from tidegate.clock import SystemClock
from tidegate.errors import PeerLost
from tidegate.model.chance import SeededChance
from tidegate.model.control import Pulse
from tidegate.model.ids import SlotId
from tidegate.slot.pulse import PulseThread
from tidegate.transport.tcp import TcpNetwork
from tidegate.transport.wire import Listener, Wire

SECRET = b"s" * 32
LIMIT_S = 5.0


class Driver:
    """A loop on a thread of its own that takes pulses. hears: let links in at all."""

    def __init__(self) -> None:
        self.beats: list[Pulse] = []
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
        network = TcpNetwork(secret=SECRET, host="127.0.0.1", draw=SeededChance(1).bits64)
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
            self.beats.append(pickle.loads(frame))
            self.changed.notify_all()

    def on_closed(self, error: PeerLost | None) -> None:
        self._open -= 1
        if not self._open:
            self._all_closed.set()

    def wait_for(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, LIMIT_S)

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


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def pulse_of(reasons: list[str]) -> Iterator[Callable[..., PulseThread]]:
    made: list[PulseThread] = []

    def make(address: str, *, secret: bytes = SECRET, lease_ms: int = 10_000) -> PulseThread:
        ended = threading.Event()

        def give_up(reason: str) -> None:
            reasons.append(reason)
            ended.set()

        thread = PulseThread(
            driver=address,
            secret=secret,
            name="slot-1",
            nonce=lambda: b"n" * 16,
            read=lambda: Pulse(SlotId("slot-1"), batch_age_ms=7),
            clock=SystemClock(),
            every_ms=10,
            lease_ms=lease_ms,
            give_up=give_up,
        )
        thread.gave_up = ended  # type: ignore[attr-defined]
        made.append(thread)
        thread.start()
        return thread

    yield make
    for thread in made:
        thread.stop()


def test_it_beats_again_and_again_under_the_slots_name(
    driver: Driver, pulse_of: Callable[..., PulseThread], reasons: list[str]
) -> None:
    pulse_of(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 3)
    assert set(driver.names) == {"pulse:slot-1"}
    assert driver.beats[0] == Pulse(SlotId("slot-1"), batch_age_ms=7)
    assert reasons == []


def test_it_dials_again_when_the_link_breaks(
    driver: Driver, pulse_of: Callable[..., PulseThread], reasons: list[str]
) -> None:
    pulse_of(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.cut()
    driver.wait_for(lambda: len(driver.names) >= 2)
    before = len(driver.beats)
    driver.wait_for(lambda: len(driver.beats) > before)
    assert reasons == []


def test_it_gives_up_when_the_driver_is_out_of_reach_for_the_lease(
    driver: Driver, pulse_of: Callable[..., PulseThread], reasons: list[str]
) -> None:
    thread = pulse_of(driver.address, lease_ms=100)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    driver.stop()
    assert thread.gave_up.wait(LIMIT_S)  # type: ignore[attr-defined]
    assert reasons == ["the driver was not reached for 100 ms"]


def test_a_driver_of_another_job_is_no_driver(
    driver: Driver, pulse_of: Callable[..., PulseThread], reasons: list[str]
) -> None:
    thread = pulse_of(driver.address, secret=b"x" * 32, lease_ms=50)
    assert thread.gave_up.wait(LIMIT_S)  # type: ignore[attr-defined]
    assert driver.beats == [] and len(reasons) == 1


def test_a_slot_whose_parent_is_gone_ends(
    driver: Driver,
    pulse_of: Callable[..., PulseThread],
    reasons: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = pulse_of(driver.address)
    driver.wait_for(lambda: len(driver.beats) >= 1)
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert thread.gave_up.wait(LIMIT_S)  # type: ignore[attr-defined]
    assert reasons == ["the process that started this slot is gone"]


def test_a_beat_that_cannot_be_read_off_does_not_end_the_beating(
    driver: Driver, pulse_of: Callable[..., PulseThread]
) -> None:
    faults = [RuntimeError("dictionary changed size during iteration")]

    def read() -> Pulse:
        if faults:
            raise faults.pop()
        return Pulse(SlotId("slot-1"))

    thread = pulse_of(driver.address)
    thread._read = read  # as if the loop had changed under its eyes
    driver.wait_for(lambda: driver.beats and driver.beats[-1].batch_age_ms == 0)
    assert faults == []
