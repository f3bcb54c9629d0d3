"""What a dry run says is what a restore does: each edit of the catalogue, really started."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.watch import wait_for
from tests.upgrade.catalogue import BREAKING, HARMLESS, LEFT, LOST, Told
from tests.upgrade.conftest import END_S, Check, all_have_rows, environment
from tests.upgrade.programs import STATES, Plan, build
from tidegate import JobFailed, JobSuspended, TidegateError

pytestmark = pytest.mark.slow


def started(edit: Callable[[Plan], None], savepoint: str, folder: Path) -> TidegateError | None:
    """Why the program does not run from the savepoint; None where it does."""
    env = environment(
        folder,
        **{"execution.state-recovery.path": savepoint, "restart-strategy.type": "none"},
    )
    plan = Plan(folder=str(folder))
    edit(plan)
    build(env, plan)
    try:
        client = env.execute_async("after")
    except TidegateError as error:
        return error
    result = client.get_job_execution_result()
    wait_for(client, lambda seen: result.done() or all_have_rows(seen), "it runs, or has failed")
    client.cancel().exception(timeout=END_S)
    ended = result.exception(timeout=END_S)
    return ended if isinstance(ended, JobFailed | JobSuspended) else None


@pytest.mark.parametrize(("edit", "told"), BREAKING.values(), ids=BREAKING)
def test_what_is_refused_does_not_start(
    check: Check,
    edit: Callable[[Plan], None],
    told: set[Told],
    savepoint: str,
    tmp_path: Path,
) -> None:
    error = started(edit, savepoint, tmp_path)
    if {kind for kind, _, _ in told} == {LEFT}:
        assert error is None, str(error)
        return
    text, findings = str(error), check(edit).findings
    lost = {f"uid '{each.operator}'" for each in findings if each.kind is LOST}
    if (LOST, "keeper", None) in told:
        assert all(repr(name) in text for name in STATES)
    assert any(said in text for said in lost | {each.what for each in findings}), text


IN_ONE_PROCESS = {name: edit for name, edit in HARMLESS.items() if "parallelism" not in name}


@pytest.mark.parametrize("edit", IN_ONE_PROCESS.values(), ids=IN_ONE_PROCESS)
def test_what_is_not_flagged_runs(
    edit: Callable[[Plan], None], savepoint: str, tmp_path: Path
) -> None:
    assert started(edit, savepoint, tmp_path) is None
