"""A task of a batch tells the driver what it does, while it does it: figures, its log, its end.

A thread of its own tells, for the task's may be in a call of a function. All that it says holds for
one attempt, so that a task which Spark runs again is not counted twice. The results of the batch do
not depend on it: where the driver is not reached, the task runs all the same, and what functions
print stays in Spark's logs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import sys
import threading
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.frozen import frozen
from tidegate.config.log import print_line, process_log
from tidegate.config.threads import thread_stacks
from tidegate.metrics import GaugeCalls
from tidegate.model.control import (
    STDERR,
    ExecutionState,
    Pulse,
    SubtaskChanged,
    SubtaskFigures,
    TaskBegan,
    TellSamples,
    TellThreads,
    Threads,
)
from tidegate.model.ids import SlotId
from tidegate.slot.driver_link import SlotLog
from tidegate.slot.process.pulse import PulseLink
from tidegate.slot.sampler import Sampler
from tidegate.transport.blocking import BlockingLink

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import structlog

    from tidegate.clock import Clock
    from tidegate.errors import TidegateError
    from tidegate.model.control import Logged, Samples, SlotInvitation
    from tidegate.model.ids import ExecutionId
    from tidegate.model.metrics import Metrics
    from tidegate.slot.subtask.subtask import Subtask

LOGGED_EACH_S: Final = 0.2
"""How often what was logged and printed is told."""

DIAL_S: Final = 2.0
"""How long each step of reaching the driver may take."""

END_S: Final = 2.0
"""How long the end of a task waits until the driver has its last words."""

UNHEARD_S: Final = 0.2
"""How long it waits where the driver was not reached."""


@frozen
class SparkTask:
    """The task of Spark that a subtask is in. attempt: no two tasks have the same.

    again: Spark has run it before. last: Spark does not run it again if it fails.
    """

    attempt: int
    stage: int
    again: bool = False
    last: bool = True

    def began(self, execution: ExecutionId) -> TaskBegan:
        host, pid = socket.gethostname(), os.getpid()
        return TaskBegan(execution, SlotId(f"{host}-{pid}-{self.attempt}"), host, pid, self.stage)


@frozen
class LastWords:
    """How a task has ended. figures: None where it has none."""

    state: ExecutionState = ExecutionState.CANCELED
    error: TidegateError | None = None
    figures: SubtaskFigures | None = None
    metrics: Metrics = field(default_factory=dict)


class Telling(Protocol):
    """Hears of a task what the driver is to hear."""

    @property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """Logger of the task, which the driver hears."""
        ...

    def begins(self, subtask: Subtask) -> None:
        """Tell figures of the subtask from now on."""
        ...

    def ends(self, last: LastWords) -> None:
        """Tell this and no more; a task that says nothing was ended by Spark."""
        ...


@contextlib.contextmanager
def telling(
    invitation: SlotInvitation | None, began: TaskBegan, name: str, clock: Clock
) -> Generator[Telling]:
    """Tells the driver of a task while this lasts. invitation: None where nobody listens."""
    if invitation is None:
        yield _Silent(name)
        return
    log = SlotLog(began.slot, invitation.settings.log, clock)
    teller = _Teller(invitation, began, log, name, clock)
    with log.gathering(invitation.logs):
        teller.start()
        try:
            yield teller
        finally:
            teller.close()


class _Silent:
    def __init__(self, name: str) -> None:
        self.log: Final = process_log().bind(subtask=name)

    def begins(self, subtask: Subtask) -> None: ...

    def ends(self, last: LastWords) -> None: ...


@frozen
class _Alone:
    """The one subtask of a task, as the sampler sees it."""

    subtasks: Mapping[ExecutionId, Subtask]

    def is_listed(self, execution: ExecutionId) -> bool:
        return False


class _Teller:
    """Sends from a thread of its own, and answers. log: gathers what the task logs and prints."""

    def __init__(
        self, invitation: SlotInvitation, began: TaskBegan, log: SlotLog, name: str, clock: Clock
    ) -> None:
        settings = invitation.settings
        self._began = began
        self._logged = log
        self._clock = clock
        self._pulse_ms = settings.pulse_ms
        self._link = PulseLink(
            partial(
                BlockingLink,
                invitation.driver,
                secret=invitation.secret,
                name=f"task:{began.slot}",
                nonce=lambda: secrets.token_bytes(16),
                timeout_s=DIAL_S,
                lease_ms=settings.lease_ms,
                keys=invitation.keys,
                sealed=invitation.sealed,
            )
        )
        self._gauges = GaugeCalls(clock.monotonic_ms)
        self._subtask: Subtask | None = None
        self._sampler: Sampler | None = None
        self._last = LastWords()
        self._streams = sys.stdout, sys.stderr
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tidegate-telling", daemon=True)
        self.log: Final = log.of(process_log().bind(subtask=name))

    def start(self) -> None:
        self._thread.start()

    def begins(self, subtask: Subtask) -> None:
        alone = _Alone({self._began.execution: subtask})
        thread = threading.get_ident()
        self._sampler = Sampler(alone, self._clock.monotonic_ms, thread=thread)
        self._subtask = subtask

    def ends(self, last: LastWords) -> None:
        self._last = last
        self._over.set()

    def close(self) -> None:
        self._over.set()
        self._thread.join(UNHEARD_S)
        if self._link.is_open:
            self._thread.join(END_S)

    def _live(self) -> None:
        self._send(self._began)
        next_ms = self._clock.monotonic_ms() + self._pulse_ms
        while not self._over.wait(LOGGED_EACH_S):
            self._tell_logged()
            for question in self._link.receive():
                self._answer(question)
            if (now_ms := self._clock.monotonic_ms()) >= next_ms:
                next_ms = now_ms + self._pulse_ms
                # A driver that has not heard the first word does not know whose pulse it is.
                if self._link.is_open or self._send(self._began):
                    self._send(self._pulse())
        if self._sampler is not None:
            self._sampler.close()
        self._tell_logged()
        if self._link.is_open:
            last, execution = self._last, self._began.execution
            self._send(
                SubtaskChanged(
                    execution, last.state, last.error, figures=last.figures, metrics=last.metrics
                )
            )
        self._link.close()

    def _answer(self, question: object) -> None:
        match question:
            case TellThreads(number):
                self._send(Threads(number, self._began.slot, thread_stacks()))
            case TellSamples(number, vertex) if self._sampler is not None:
                self._send(self._sampler.read(vertex, number, self._began.slot))
            case _:
                pass  # the subtask has not begun: whoever asks asks again

    def _pulse(self) -> Pulse:
        subtask, execution = self._subtask, self._began.execution
        if subtask is None:
            return Pulse(self._began.slot)
        self._gauges.call(subtask.metrics.gauges)
        return Pulse(
            self._began.slot,
            figures={execution: subtask.figures},
            metrics={execution: subtask.metrics.read()},
        )

    def _tell_logged(self) -> None:
        for logged in self._logged.take():
            if not (self._link.is_open and self._send(logged)):
                self._print(logged)

    def _print(self, logged: Logged) -> None:
        """Nobody hears them: let Spark's logs of the executor have the lines."""
        out, err = self._streams
        for record in logged.records:
            if record.stream:
                print_line(err if record.stream == STDERR else out, record.text)

    def _send(
        self, message: TaskBegan | Pulse | Logged | SubtaskChanged | Threads | Samples
    ) -> bool:
        return self._link.send(pickle.dumps(message, protocol=5))
