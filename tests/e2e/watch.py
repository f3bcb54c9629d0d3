"""Looking at a job from outside while it runs, and killing its slots."""

import os
import signal
import time
from collections.abc import Callable
from typing import cast

from tidegate import JobClient
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, CheckpointStatus
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState, JobStatus

PATIENCE_S = 100.0
"""How long anything that must happen is waited for; on a loaded machine much takes its time."""

LOOK_S = 0.01


def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until it holds; fails, naming what was waited for, where it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(LOOK_S)


def view(client: JobClient) -> JobView:
    """What the job is doing."""
    return cast("JobView", client.view())


def wait_for(
    client: JobClient, holds: Callable[[JobView], object], what: str, timeout_s: float = PATIENCE_S
) -> JobView:
    """Wait until the job's view shows something; raises the job's failure where it ends before."""
    seen: list[JobView] = []

    def shown() -> bool:
        seen.append(view(client))
        if holds(seen[-1]):
            return True
        if (result := client.get_job_execution_result()).done():
            result.result()
            seen.append(view(client))
            assert holds(seen[-1]), f"the job finished without: {what}"
            return True
        return False

    until(shown, what, timeout_s)
    return seen[-1]


def runs(seen: JobView) -> bool:
    """Whether all subtasks run."""
    states = [subtask.state for vertex in seen.vertices for subtask in vertex.subtasks]
    return seen.status is JobStatus.RUNNING and set(states) == {ExecutionState.RUNNING}


def wait_running(client: JobClient) -> JobView:
    """Wait until all subtasks run."""
    return wait_for(client, runs, "all subtasks run")


def wait_completed(client: JobClient, count: int) -> JobView:
    """Wait until so many checkpoints are complete in this run."""
    return wait_for(
        client,
        lambda seen: seen.checkpoints.counts.completed >= count,
        f"{count} completed checkpoints",
    )


def completed(seen: JobView) -> list[CheckpointStatistics]:
    """The completed checkpoints of the history, oldest first."""
    found = (c for c in seen.checkpoints.history if c.status is CheckpointStatus.COMPLETED)
    return sorted(found, key=lambda checkpoint: checkpoint.checkpoint)


def pids(seen: JobView) -> set[int]:
    """Processes of the slots."""
    return {slot.pid for slot in seen.slots}


def attempts(seen: JobView, name: str) -> set[int]:
    """The attempts of the subtasks of a pipeline: of all vertices with that in their name."""
    vertices = [vertex for vertex in seen.vertices if name in vertex.name]
    assert len(vertices) >= 2, f"source and counts of {name}: {[v.name for v in seen.vertices]}"
    return {subtask.attempt for vertex in vertices for subtask in vertex.subtasks}


def kill_slot(client: JobClient, index: int) -> int:
    """SIGKILL the process of one slot that runs subtasks; its pid."""
    slots = sorted(view(client).slots, key=lambda slot: slot.pid)
    pid = slots[index % len(slots)].pid
    assert pid != os.getpid(), "the slot is in the process of the test"
    os.kill(pid, signal.SIGKILL)
    return pid


def wait_recovered(client: JobClient, restarts: int) -> JobView:
    """Wait until the job runs again after so many restarts."""
    return wait_for(
        client,
        lambda seen: seen.restarts >= restarts and runs(seen),
        f"running again after restart {restarts}",
    )
