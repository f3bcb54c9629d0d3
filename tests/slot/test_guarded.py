"""A slot's end of its guard, which is a real process here."""

import os
import threading
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from tidegate.model.control import Pulse
from tidegate.model.ids import SlotId
from tidegate.model.settings import SlotSettings
from tidegate.slot.loop.calls import Calls
from tidegate.slot.process.guard import INTERRUPT
from tidegate.slot.process.guarded import GuardProcess
from tidegate.slot.process.pulse import PULSE_PREFIX, PulseLink
from tidegate.transport.blocking import BlockingLink

LIMIT_S = 100.0
SLOT = SlotId("slot-1")
NEVER_MS = 3_600_000


class Reasons:
    """Why the slot was to end."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.came = threading.Event()

    def __call__(self, reason: str) -> None:
        self.given.append(reason)
        self.came.set()


@pytest.fixture
def reasons() -> Reasons:
    return Reasons()


class Pulses:
    """What the slot tells, behind errors that reading it raises. recovered: set after these."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.recovered = threading.Event()
        self._failed = False

    def __call__(self) -> Pulse:
        if self.errors:
            self._failed = True
            raise self.errors.pop()
        if self._failed:
            self.recovered.set()
        return Pulse(SLOT)


@pytest.fixture
def pulses() -> Pulses:
    return Pulses()


@pytest.fixture
def guard(reasons: Reasons, pulses: Pulses) -> Iterator[GuardProcess]:
    # A lease without end: a guard that reached no driver would kill this process.
    settings = SlotSettings(pulse_ms=10, lease_ms=NEVER_MS)
    dial = partial(
        BlockingLink,
        "127.0.0.1:1",
        secret=b"s" * 32,
        name=f"{PULSE_PREFIX}{SLOT}",
        nonce=lambda: b"n" * 16,
        timeout_s=1,
        lease_ms=NEVER_MS,
    )
    made = GuardProcess(PulseLink(dial), None, Pulse(SLOT), settings, reasons)
    made.watch(Calls(), pulses)
    yield made
    made.stop()


def test_a_slot_whose_parent_is_gone_ends(
    guard: GuardProcess, reasons: Reasons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert reasons.came.wait(LIMIT_S)
    assert reasons.given == ["the process that started this slot is gone"]


def test_a_slot_without_its_guard_ends_for_nobody_would_fence_it(
    guard: GuardProcess, reasons: Reasons
) -> None:
    psutil.Process(guard.pid).kill()
    assert reasons.came.wait(LIMIT_S)
    assert "guard does not answer" in reasons.given[0]


def test_figures_that_cannot_be_read_are_told_once_and_read_again(
    guard: GuardProcess, pulses: Pulses, capfd: pytest.CaptureFixture[str]
) -> None:
    pulses.errors = [ValueError("odd"), RuntimeError("changed"), ValueError("odd")]
    assert pulses.recovered.wait(LIMIT_S)
    assert capfd.readouterr().err == "tidegate: figures of a slot cannot be read: ValueError: odd\n"


def test_a_signal_that_comes_while_nothing_is_cancelled_changes_nothing(
    guard: GuardProcess, reasons: Reasons
) -> None:
    os.kill(os.getpid(), INTERRUPT)
    assert reasons.given == []
