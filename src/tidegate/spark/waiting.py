"""Describes slots that were requested and have not come, as far as Spark knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidegate.spark.session import cores_of, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = (
    "See spark.cores.max, spark.executor.instances, spark.executor.cores and "
    "spark.dynamicAllocation.maxExecutors"
)


@dataclass(frozen=True, slots=True)
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
                f"cannot reach the driver. {_SETTINGS}"
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
                f"and runs {self.others} task(s) of other jobs. {_SETTINGS}"
            )
        return (
            "each slot has its core: Python workers are starting and importing what the job needs; "
            "the machines may be busy"
        )


def look(spark: SparkSession, tag: str, asked: int) -> Waiting:
    """Asks Spark. tag: of the Spark jobs that host slots; asked: how many of them there are.

    Raises Py4JError if the JVM does not answer, AttributeError if the session is stopped.
    """
    context: Any = spark.sparkContext
    tracker = context.statusTracker()
    executors = tracker.getExecutorInfos()
    given = 0
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
        given += sum(stage.numActiveTasks for stage in stages if stage)
    running = sum(each.numRunningTasks for each in executors)
    # The driver is listed among executors; elsewhere than on one machine it runs no tasks.
    registered = None if is_local(spark) else len(executors) - 1
    return Waiting(asked, given, registered, max(0, running - given), cores_of(spark))
