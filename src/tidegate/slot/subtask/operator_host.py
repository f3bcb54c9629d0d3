"""The place where operators run, as open operators see it.

A slot is one such place (`slot.subtask.hosted`). A harness, a dry run and tests are others: they
make operators, or whole subtasks, as a slot does, and play the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidegate.api.operator import Threads
    from tidegate.clock import Clock
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import OperatorId


class Waiting(Protocol):
    """An operator whose steps wait for something."""

    def awaited_done(self) -> None: ...


class OperatorHost(Protocol):
    """Everything that open operators ask for."""

    @property
    def clock(self) -> Clock: ...

    @property
    def takes_input(self) -> bool:
        """False while an operator of the subtask holds its input back."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]: ...

    def threads(self, limit: int) -> Threads: ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine beside the turns; what it raises is the subtask's failure."""
        ...

    def wake(self) -> None:
        """Ask for a turn in which operators are told that they are ready."""
        ...

    def wake_at(self, at_ms: int) -> None: ...

    def skipped(self, rows: int) -> None: ...

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None: ...

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None: ...
