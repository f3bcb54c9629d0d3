"""Who says what in which order: the coordinator's transcripts in ``scripts/``.

A line that begins with ``>`` is what happens, the lines below it are what the coordinator wants
done. ``set`` lines before the first event name settings, ``job`` the vertices with their
parallelism, a star marking those with a coordinator. ``REWRITE_TRANSCRIPTS=1`` writes what is said
now; the difference is for a review.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.checkpoint.world import BY_HAND, World, chain, render, vertex
from tidegate.checkpoint.coordinator import commands, events
from tidegate.errors import StorageFailed
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.elements import OperatorEvent, SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, OperatorId, SubtaskId

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.checkpoint.coordinator.commands import CheckpointCommand

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Script:
    """Plays one transcript; each verb is a method."""

    def __init__(self) -> None:
        self.settings: dict[str, int] = {}
        self.job = "source:2 map:1 sink:1"
        self._world: World | None = None

    @property
    def world(self) -> World:
        if self._world is None:
            vertices = [part.rstrip("*").split(":") for part in self.job.split()]
            stars = [part.endswith("*") for part in self.job.split()]
            topology = chain(
                *(
                    vertex(name, int(parallelism), coordinator=star)
                    for (name, parallelism), star in zip(vertices, stars, strict=True)
                )
            )
            self._world = World(replace(BY_HAND, **self.settings), topology)  # type: ignore[arg-type]
        return self._world

    def play(self, line: str) -> list[CheckpointCommand]:
        verb, *words = line.split()
        method: Callable[..., list[CheckpointCommand]] = getattr(self, f"do_{verb}")
        return method(*words)

    def subtask(self, name: str) -> SubtaskId:
        vertex_name, _, index = name.partition("/")
        return self.world.subtask(vertex_name, int(index))

    def do_start(self) -> list[CheckpointCommand]:
        return self.world.start()

    def do_time(self, ms: str) -> list[CheckpointCommand]:
        return self.world.advance(int(ms))

    def do_ack(self, checkpoint: str, *subtasks: str) -> list[CheckpointCommand]:
        return self.world.acknowledge(int(checkpoint), *map(self.subtask, subtasks))

    def do_decline(self, checkpoint: str, subtask: str, reason: str) -> list[CheckpointCommand]:
        return self.world.decline(int(checkpoint), self.subtask(subtask), FailureReason[reason])

    def do_state(self, subtask: str, state: str) -> list[CheckpointCommand]:
        return self.world.change(self.subtask(subtask), ExecutionState[state])

    def do_status(self, status: str) -> list[CheckpointCommand]:
        return self.world.send(events.JobStatusChanged(JobStatus[status]))

    def do_request(self, number: str, kind: str) -> list[CheckpointCommand]:
        return self.world.request(int(number), SnapshotKind[kind])

    def do_failover(self) -> list[CheckpointCommand]:
        return self.world.send(events.FailoverStarted())

    def do_redeploy(self) -> list[CheckpointCommand]:
        self.world.redeploy()
        return []

    def do_end(self, status: str) -> list[CheckpointCommand]:
        return self.world.send(events.JobEnded(JobStatus[status]))

    def do_hold(self, kind: str) -> list[CheckpointCommand]:
        self.world.holds = (*self.world.holds, getattr(commands, kind))
        return []

    def do_release(self, kind: str) -> list[CheckpointCommand]:
        held = getattr(commands, kind)
        self.world.holds = tuple(other for other in self.world.holds if other is not held)
        return self.world.release(held)

    def do_fail(self, kind: str, failure: str, checkpoint: str) -> list[CheckpointCommand]:
        event = getattr(events, failure)(CheckpointId(int(checkpoint)), StorageFailed("disk full"))
        return self.world.release(getattr(commands, kind), error=event)

    def do_coordinator(self, subtask: str, payload: str) -> list[CheckpointCommand]:
        execution = self.world.execution(self.subtask(subtask))
        operator = OperatorId(bytes(execution.subtask.vertex))
        sent = events.OperatorEventSent(execution, operator, OperatorEvent(payload))
        return self.world.send(sent)


def replay(text: str) -> str:
    """The transcript as it is said now."""
    script = Script()
    said: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        said.append(line)
        if line.startswith("set "):
            _, name, value = line.split()
            script.settings[name] = int(value)
        elif line.startswith("job "):
            script.job = line.removeprefix("job ")
        elif line.startswith("> "):
            said.extend("    " + render(c) for c in script.play(line.removeprefix("> ")))
    return "\n".join(said) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_coordinator_says_what_its_transcript_says(path: Path) -> None:
    text = path.read_text()
    said = replay(text)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(said)
    assert said == text, "REWRITE_TRANSCRIPTS=1 writes it anew; then see the difference"
