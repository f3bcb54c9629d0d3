"""Splits and checkpoints: what an enumerator gives away is in just one of the two states."""

import time

import pytest

from tests.e2e.journal import Journal
from tests.e2e.late_splits import LateSplitsSource
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import completed, wait_completed
from tidegate import MasterTriggerRestoreHook
from tidegate.model.ids import CheckpointId

pytestmark = pytest.mark.slow


class Delay(MasterTriggerRestoreHook[None]):
    """Comes between the enumerators' snapshots and the readers' triggers, and takes its time."""

    def get_identifier(self) -> str:
        return "delay"

    def trigger_checkpoint(self, checkpoint_id: CheckpointId, timestamp_ms: int) -> None:
        time.sleep(0.05)

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: None) -> None:
        pass


@pytest.mark.feature("F281")
def test_a_split_given_after_the_enumerators_snapshot_comes_after_the_readers(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(1, 20)
    env.add_master_hook(Delay())
    env.from_source(LateSplitsSource(journal), source_name="late").print()
    client = jobs.start(env, "late splits")
    taken = {found.checkpoint for found in completed(wait_completed(client, 5))}
    client.cancel().result(timeout=100)
    order = [(note["event"], note.get("split")) for note in journal.notes()]
    late = [note["split"] for note in journal.notes("given") if note["after"] in taken]
    assert len(late) >= 5
    for split in late:
        given, got = order.index(("given", split)), order.index(("got", split))
        assert ("cut", None) in order[given:got], f"split {split} came before its reader's snapshot"
