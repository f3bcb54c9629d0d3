"""A job's metrics, under Flink's names."""

from functools import partial
from typing import Any

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import BreakingOnce
from tests.e2e.rest import DAY_MS, SERVED, Rest
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import until, view, wait_completed, wait_recovered, wait_running

pytestmark = pytest.mark.slow

CHECKPOINTS = {
    "totalNumberOfCheckpoints": "0",
    "numberOfInProgressCheckpoints": "0",
    "numberOfCompletedCheckpoints": "0",
    "numberOfFailedCheckpoints": "0",
    "lastCheckpointRestoreTimestamp": "-1",
    "lastCheckpointSize": "-1",
    "lastCheckpointFullSize": "-1",
    "lastCheckpointMetadataSize": "-1",
    "lastCheckpointDuration": "-1",
    "lastCheckpointProcessedData": "-1",
    "lastCheckpointPersistedData": "-1",
    "lastCheckpointExternalPath": "n/a",
    "lastCompletedCheckpointId": "-1",
    "lastCheckpointCompletedTimestamp": "-1",
}
"""All there are, each with its value before the first checkpoint."""


def values(rest: Rest, path: str) -> dict[str, str]:
    """The values of all metrics that a page names."""
    names = [each["id"] for each in rest.get(path)]
    assert len(set(names)) == len(names)
    found: list[Any] = rest.get(f"{path}?get={','.join(names)},nonsense")
    assert [each["id"] for each in found] == names
    return {each["id"]: each["value"] for each in found}


@pytest.mark.feature("F293")
def test_metrics_have_flinks_names_and_say_what_is(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    # Else a checkpoint would follow the restart at once.
    pause = {"execution.checkpointing.min-pause": DAY_MS}
    env = jobs.checkpointed(2, DAY_MS, **SERVED, **pause)
    counts = running_counts(env, None, 500).map(BreakingOnce(broken))
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "measured")
    wait_running(client)
    rest = Rest.of(client)
    of_job = f"{rest.job}/metrics"
    before = values(rest, of_job)
    assert {name: before[name] for name in CHECKPOINTS} == CHECKPOINTS
    assert before["numRestarts"] == before["numRescales"] == "0" and int(before["uptime"]) >= 0
    client.trigger_savepoint(jobs.folder / "savepoints").result(100)
    done = client.trigger_checkpoint().result(100)
    wait_completed(client, 2)
    broken.set()
    wait_recovered(client, 1)
    seen, last = values(rest, of_job), view(client).checkpoints.latest_completed
    assert last is not None and last.checkpoint == done.checkpoint
    assert seen["lastCompletedCheckpointId"] == str(done.checkpoint)
    assert seen["lastCheckpointExternalPath"] == done.pointer == last.pointer
    assert seen["lastCheckpointFullSize"] == str(last.state_size)
    assert seen["lastCheckpointSize"] == str(last.checkpointed_size)
    assert int(seen["lastCheckpointMetadataSize"]) == last.metadata_size > 0
    assert int(seen["lastCheckpointDuration"]) == last.duration_ms
    assert int(seen["lastCheckpointCompletedTimestamp"]) >= last.trigger_ms
    assert int(seen["lastCheckpointRestoreTimestamp"]) > last.trigger_ms
    assert (seen["numRestarts"], seen["numberOfCompletedCheckpoints"]) == ("1", "2")
    check_subtasks(rest)


def named(rest: Rest, page: str) -> set[str]:
    """Names of a page's metrics."""
    return {each["id"] for each in rest.get(page)}


def tells_counts(rest: Rest, page: str) -> bool:
    """Whether a page has metrics of the slot."""
    return {"numRecordsIn", "numRecordsOut", "accumulateBusyTimeMs"} <= named(rest, page)


def check_subtasks(rest: Rest) -> None:
    """Metrics of subtasks stand at their vertex with their index in front."""
    for vertex in rest.get(rest.job)["vertices"]:
        at = f"{rest.job}/vertices/{vertex['id']}"
        of_vertex = values(rest, f"{at}/metrics")
        for index in ("0", "1"):
            page = f"{at}/subtasks/{index}/metrics"
            assert {"checkpointAlignmentTime", "checkpointStartDelayNanos"} <= named(rest, page)
            until(partial(tells_counts, rest, page), "the slot has told its metrics")
            delay = int(of_vertex[f"{index}.checkpointStartDelayNanos"])
            assert delay >= 0 and delay % 1_000_000 == 0
