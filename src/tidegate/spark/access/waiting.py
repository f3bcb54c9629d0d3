"""Why slots do not come, in a sentence of what Spark knows."""

from __future__ import annotations

from typing import Final

from flinkformat.frozen import frozen

SETTINGS: Final = (
    "See spark.cores.max, spark.executor.instances, spark.executor.cores, "
    "spark.dynamicAllocation.maxExecutors and spark.dynamicAllocation.executorAllocationRatio"
)
_STARTING: Final = (
    "each slot has its core: Python workers are starting and importing what the job needs; "
    "the machines may be busy"
)


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
