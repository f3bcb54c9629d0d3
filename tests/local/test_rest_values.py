"""What the pages say is what the job is, not only of the right type."""

import json
from collections.abc import Callable

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.rest import DAY_MS, SERVED, Rest
from tests.e2e.runtimes import END_S, Jobs
from tests.e2e.watch import view, wait_completed, wait_running
from tidegate import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    JobManagerCheckpointStorage,
    SavepointFormatType,
)
from tidegate.rest.shapes.checkpoint_shapes import checkpoint

pytestmark = pytest.mark.slow

KEPT = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
DROPPED = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
Setters = list[tuple[Callable[[CheckpointConfig], CheckpointConfig], str | None, object]]

STARTING = ("SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")


@pytest.mark.feature("F002", "F004", "F005", "F009", "F080", "F081", "F083")
def test_the_pages_of_a_job_tell_its_plan_its_start_and_its_checkpoints(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 100, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out")).set_parallelism(1)
    plan = json.loads(env.get_execution_plan())
    client = jobs.start(env, "counts")
    rest = Rest.of(client)
    wait_completed(client, 3)

    assert [one["id"] for one in rest.get("/jobs")["jobs"]] == [client.get_job_id()]
    cluster = rest.get("/overview")
    assert (cluster["slots-total"], cluster["slots-available"]) == (2, 0)
    assert (cluster["jobs-running"], cluster["jobs-finished"]) == (1, 0)
    details = rest.get(rest.job)
    stamps = [details["timestamps"][name] for name in ("INITIALIZING", "CREATED", "RUNNING")]
    assert 0 < stamps[0] <= stamps[1] <= stamps[2]
    assert {one["id"]: one["parallelism"] for one in details["vertices"]} == {
        one["id"]: one["parallelism"] for one in plan["vertices"]
    }
    shown = rest.get(f"{rest.job}/plan")["plan"]["nodes"]
    assert {one["id"]: one["description"] for one in shown} == {
        one["id"]: one["description"] for one in plan["vertices"]
    }
    for vertex in details["vertices"]:
        times = rest.get(f"{rest.job}/vertices/{vertex['id']}/subtasktimes")["subtasks"]
        assert len(times) == vertex["parallelism"]
        for subtask in times:
            began = [subtask["timestamps"][state] for state in STARTING]
            assert began[0] > 0 and began == sorted(began)
    completed = [
        one["id"]
        for one in rest.get(f"{rest.job}/checkpoints")["history"]
        if one["status"] == "COMPLETED"
    ]
    assert {1, 2, 3} <= set(completed)


@pytest.mark.feature("F061")
def test_a_checkpoint_that_was_asked_for_is_in_the_history_under_its_id_and_kind(
    jobs: Jobs,
) -> None:
    settings = {"execution.checkpointing.dir": str(jobs.checkpoints)}
    env = jobs.env(1, **settings, **SERVED)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    rest = Rest.of(client)
    wait_running(client)
    at = f"{rest.job}/checkpoints"
    asked = rest.begin(at, {"checkpointType": "FULL"})
    taken = rest.outcome(f"{at}/{asked}")["checkpointId"]
    savepoint = rest.begin(
        f"{rest.job}/savepoints", {"target-directory": str(jobs.folder / "savepoints")}
    )
    rest.outcome(f"{rest.job}/savepoints/{savepoint}")
    kinds = {one["id"]: one["checkpoint_type"] for one in rest.get(at)["history"]}
    assert kinds == {taken: "CHECKPOINT", taken + 1: "SAVEPOINT"}


@pytest.mark.feature("F076", "F231")
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
def test_each_snapshot_is_in_the_history_under_its_type_and_its_format(
    jobs: Jobs, unaligned: bool
) -> None:
    settings = {
        "execution.checkpointing.min-pause": DAY_MS,
        "execution.checkpointing.unaligned.enabled": unaligned,
    }
    env = jobs.checkpointed(1, DAY_MS, **settings, **SERVED)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    rest, savepoints = Rest.of(client), str(jobs.folder / "savepoints")
    wait_running(client)
    at = f"{rest.job}/checkpoints"
    for kind in ("CONFIGURED", "FULL"):
        rest.outcome(f"{at}/{rest.begin(at, {'checkpointType': kind})}")
    for form in ("CANONICAL", "NATIVE"):
        asked = {"target-directory": savepoints, "formatType": form}
        begun = rest.begin(f"{rest.job}/savepoints", asked)
        rest.outcome(f"{rest.job}/savepoints/{begun}")
    shown = rest.get(at)["history"]
    client.stop_with_savepoint(False, savepoints, format=SavepointFormatType.NATIVE).result(END_S)
    # Nobody serves a job that is over, so its last entry is made here.
    shown.insert(0, checkpoint(view(client).checkpoints.history[0]))
    checkpoints = "UNALIGNED_CHECKPOINT" if unaligned else "CHECKPOINT"
    assert [(one["checkpoint_type"], one["savepointFormat"]) for one in reversed(shown)] == [
        (checkpoints, None),
        (checkpoints, None),
        ("SAVEPOINT", "CANONICAL"),
        ("SAVEPOINT", "NATIVE"),
        ("SYNC_SAVEPOINT", "NATIVE"),
    ]


ALIGNED: Setters = [
    (lambda c: c.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE), "mode", "at_least_once"),
    (lambda c: c.set_checkpoint_interval(701), "interval", 701),
    (lambda c: c.set_checkpoint_timeout(9_001), "timeout", 9_001),
    (lambda c: c.set_min_pause_between_checkpoints(51), "min_pause", 51),
    (lambda c: c.set_max_concurrent_checkpoints(2), "max_concurrent", 2),
    (lambda c: c.set_fail_on_checkpointing_errors(True), "tolerable_failed_checkpoints", 0),
    (lambda c: c.set_tolerable_checkpoint_failure_number(3), "tolerable_failed_checkpoints", 3),
    (
        lambda c: c.set_externalized_checkpoint_retention(KEPT),
        "externalization",
        {"enabled": True, "delete_on_cancellation": False},
    ),
    (lambda c: c.enable_unaligned_checkpoints(), "unaligned_checkpoints", True),
    (lambda c: c.disable_unaligned_checkpoints(), "unaligned_checkpoints", False),
    (lambda c: c.set_force_unaligned_checkpoints(True), None, None),
    (lambda c: c.set_alignment_timeout(249), "aligned_checkpoint_timeout", 249),
    (lambda c: c.set_aligned_checkpoint_timeout(250), "aligned_checkpoint_timeout", 250),
]
UNALIGNED: Setters = [
    (lambda c: c.set_checkpoint_interval(702), "interval", 702),
    (lambda c: c.enable_unaligned_checkpoints(), "unaligned_checkpoints", True),
    (lambda c: c.set_fail_on_checkpointing_errors(True), "tolerable_failed_checkpoints", 0),
    (
        lambda c: c.set_externalized_checkpoint_retention(DROPPED),
        "externalization",
        {"enabled": False, "delete_on_cancellation": True},
    ),
    (
        lambda c: c.set_checkpoint_storage(JobManagerCheckpointStorage()),
        "checkpoint_storage",
        "JobManagerCheckpointStorage",
    ),
]


@pytest.mark.feature("F003")
@pytest.mark.parametrize("setters", [ALIGNED, UNALIGNED], ids=["aligned", "unaligned"])
def test_each_setter_of_the_checkpoint_config_is_seen_in_the_job(
    jobs: Jobs, setters: Setters
) -> None:
    """A later setter of one field wins over an earlier one."""
    env = jobs.env(1, **SERVED)
    config = env.get_checkpoint_config()
    folder = jobs.checkpoints.as_uri()
    if setters is ALIGNED:
        config.set_checkpoint_storage_dir(folder)
    for call, _, _ in setters:
        assert call(config) is config, "setters can be chained"
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "configured")
    wait_running(client)
    rest = Rest.of(client)
    page = rest.get(f"{rest.job}/checkpoints/config")
    expected = {field: value for _, field, value in setters if field is not None}
    assert {field: page[field] for field in expected} == expected
    assert read_back(config) == {field: page[field] for field in read_back(config)}
    # It only lets the job be made; no page has it.
    assert config.is_force_unaligned_checkpoints() is (setters is ALIGNED)
    if setters is ALIGNED:
        assert page["checkpoint_storage"] == "FileSystemCheckpointStorage"
        assert view(client).settings.checkpoints.directory == folder


def test_every_setter_is_among_them() -> None:
    tried = {name for call, _, _ in (*ALIGNED, *UNALIGNED) for name in call.__code__.co_names}
    tried |= {"set_checkpoint_storage_dir"}  # by the test itself
    prefixes = ("set_", "enable_", "disable_")
    setters = {name for name in dir(CheckpointConfig) if name.startswith(prefixes)}
    assert setters == tried & setters


def read_back(config: CheckpointConfig) -> dict[str, object]:
    """What the getters give, under the names of the page."""
    retention = config.get_externalized_checkpoint_retention()
    enabled = config.is_externalized_checkpoints_enabled()
    return {
        "mode": config.get_checkpointing_mode().value.lower(),
        "interval": config.get_checkpoint_interval(),
        "timeout": config.get_checkpoint_timeout(),
        "min_pause": config.get_min_pause_between_checkpoints(),
        "max_concurrent": config.get_max_concurrent_checkpoints(),
        "tolerable_failed_checkpoints": config.get_tolerable_checkpoint_failure_number(),
        "externalization": {
            "enabled": enabled,
            "delete_on_cancellation": retention is not KEPT,
        },
        "unaligned_checkpoints": config.is_unaligned_checkpoints_enabled(),
        "aligned_checkpoint_timeout": config.get_alignment_timeout().to_millis(),
    }
