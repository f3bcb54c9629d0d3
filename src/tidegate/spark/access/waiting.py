"""Why slots do not come, in a sentence of what Spark knows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: Final = (
    "See spark.cores.max, spark.executor.instances, spark.executor.cores and "
    "spark.dynamicAllocation.maxExecutors"
)
_STARTING: Final = (
    "each slot has its core: Python workers are starting and importing what the job needs; "
    "the machines may be busy"
)

ANSWERED_WITHIN_S: Final = 5.0


@frozen
class Waiting:
    """asked: slots asked for and not ended. given: those that Spark has given a core.

    executors: that have registered; None if driver and executors are one process. others: tasks
    of other jobs of this application. cores: of Spark, where that is known.
    """

    asked: int
    given: int
    executors: int | None
    others: int
    cores: int | None

    def __str__(self) -> str:
        if self.executors == 0:
            return (
                "no executor has registered with Spark yet: its cluster has no room, or they "
                f"cannot reach the driver. {SETTINGS}"
            )
        missing = self.asked - self.given
        free = (self.cores or 0) - self.given - self.others
        if 0 < missing <= free:
            return (
                f"Spark has {free} free cores, and has not started the tasks of {missing} of "
                f"{self.asked} slots yet; its machine may be busy"
            )
        if missing > 0:
            room = f"has {self.cores} cores" if self.cores else f"has {self.executors} executor(s)"
            return (
                f"{missing} of {self.asked} slots wait for a core: Spark {room}, "
                f"and runs {self.others} task(s) of other jobs. {SETTINGS}"
            )
        return _STARTING


@frozen
class WaitingAfar:
    """Says as much as a server of Spark Connect tells: nothing of executors and other jobs.

    given: slots whose task runs, as the server has reported.
    """

    asked: int
    given: int
    cores: int | None

    def __str__(self) -> str:
        missing = self.asked - self.given
        if missing <= 0:
            return _STARTING
        room = f" of {self.cores}" if self.cores else ""
        return (
            f"Spark Connect's server has not said that the tasks of {missing} of {self.asked} "
            f"slots run: they wait for a core{room}, or for the server, whose page tells. "
            f"{SETTINGS}"
        )


class Question:
    """A question that Spark may not answer, asked on a thread. answer: the latest, empty before."""

    def __init__(self, within_s: float = ANSWERED_WITHIN_S) -> None:
        self.answer = ""
        self._within_s = within_s
        self._asking: threading.Thread | None = None

    async def asked(self, ask: Callable[[], str]) -> str:
        """Ask, and wait for a few seconds; until Spark has answered it is not asked again.

        ask: raises OSError or AttributeError where Spark is gone, which is no answer.
        """
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(
                target=self._ask, args=(ask,), name="tidegate-question", daemon=True
            )
            self._asking.start()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._asking.join, self._within_s)
        return self.answer

    def _ask(self, ask: Callable[[], str]) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self.answer = ask()
