"""A checkpoint meets a program that was changed since."""

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from tests.e2e import edited
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import END_S, RETAIN, Jobs
from tests.e2e.watch import completed, view, wait_completed, wait_for, wait_running
from tidegate import JobClient, RestoreRefused, StreamExecutionEnvironment
from tidegate.errors import MaxParallelismChanged, OperatorMissing
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState

pytestmark = pytest.mark.slow

IGNORE = "execution.state-recovery.ignore-unclaimed-state"


def start(
    jobs: Jobs, *, between: bool = True, max_parallelism: int = 128, **settings: object
) -> JobClient:
    env = jobs.checkpointed(1, 50, **RETAIN, **settings)
    edited.with_a_step_between(env, between=between, max_parallelism=max_parallelism)
    return jobs.start(env, "edited")


def left_by(client: JobClient) -> str:
    """The checkpoint that a job has left when it was canceled after some."""
    wait_completed(client, 2)
    client.cancel().result(timeout=END_S)
    return str(completed(view(client))[-1].pointer)


@pytest.mark.feature("F191", "F207")
def test_state_of_an_operator_that_was_dropped_is_refused_unless_it_may_be_lost(
    jobs: Jobs,
) -> None:
    named = {RESTORE_PATH: left_by(start(jobs))}
    with pytest.raises(OperatorMissing, match="Cannot map checkpoint/savepoint state") as refused:
        start(jobs, between=False, **named)
    assert "second" in refused.value.what
    assert "--allow-non-restored-state" in refused.value.remedy
    with structlog.testing.capture_logs() as logs:
        client = start(jobs, between=False, **named, **{IGNORE: True})
        wait_running(client)
        wait_completed(client, 1)
    [told] = [log for log in logs if "is skipped" in log["event"]]
    assert (told["log_level"], told["name"]) == ("info", "KeyedProcess")
    assert told["size_bytes"] > 0
    restored = view(client).checkpoints.latest_restored
    assert restored is not None and restored.pointer == named[RESTORE_PATH]


@pytest.mark.feature("F194")
def test_another_max_parallelism_that_was_set_is_refused(jobs: Jobs) -> None:
    named = {RESTORE_PATH: left_by(start(jobs, max_parallelism=64))}
    with pytest.raises(MaxParallelismChanged, match="Max parallelism mismatch") as refused:
        start(jobs, max_parallelism=128, **named)
    assert "max parallelism 64 to new program with max parallelism 128" in refused.value.what
    wait_completed(start(jobs, max_parallelism=64, **named), 1)


def has_come_that_far(seen: JobView) -> bool:
    """One step has ended, one has in one of its subtasks, and so have checkpoints."""
    states = [[subtask.state for subtask in vertex.subtasks] for vertex in seen.vertices]
    ended = ExecutionState.FINISHED
    return any(set(of) == {ended} for of in states) and any(
        set(of) == {ended, ExecutionState.RUNNING} for of in states
    )


@pytest.mark.feature("F230")
@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (edited.finished_behind_running, "fully finished vertices predeceased with all running"),
        (
            edited.partly_finished_all_to_all,
            "partially finished vertices predeceased with partially finished",
        ),
        (edited.mixed_chain, "which contain mixed operator finished state"),
    ],
)
def test_data_is_not_sent_to_what_had_ended(
    jobs: Jobs,
    tmp_path: Path,
    edit: Callable[[StreamExecutionEnvironment, Path], None],
    text: str,
) -> None:
    folder = tmp_path / "in"
    edited.write_uneven(folder)
    env = jobs.checkpointed(2, 50, **RETAIN)
    edited.of_three_kinds(env, folder)
    client = jobs.start(env, "three kinds")
    seen = wait_for(client, has_come_that_far, "one step has ended, one partly")
    wait_completed(client, seen.checkpoints.counts.completed + 2)
    client.cancel().result(timeout=END_S)
    pointer = str(completed(view(client))[-1].pointer)
    changed = jobs.checkpointed(2, 50, **{RESTORE_PATH: pointer, IGNORE: True})
    edit(changed, folder)
    with pytest.raises(RestoreRefused, match=text) as refused:
        jobs.start(changed, "changed")
    assert refused.value.where
    same = jobs.checkpointed(2, 50, **{RESTORE_PATH: pointer})
    edited.of_three_kinds(same, folder)
    wait_completed(jobs.start(same, "unchanged"), 1)
