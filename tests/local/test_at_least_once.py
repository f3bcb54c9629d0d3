"""What at-least-once checkpoints may double, and exactly-once ones may not."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.jobs import counted, same
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.rest import DAY_MS
from tests.e2e.runtimes import END_S, Jobs, finish_by_checkpoints
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, view, wait_for, wait_recovered, wait_running
from tidegate import CheckpointingMode, MapFunction, RuntimeContext, Types
from tidegate.jobmaster.view import JobView

pytestmark = pytest.mark.slow

TOTAL = 6_000
RUNS = 3
MODE = "execution.checkpointing.mode"


@dataclass
class HeldInOne(MapFunction[int, int]):
    """Passes numbers on; its subtask 1, and with it a slot, stands still while a latch is set.

    standing: set as soon as it does.
    """

    held: Latch
    standing: Latch

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> int:
        if self._subtask == 1 and self.held.is_set:
            self.standing.set()
            self.held.wait()
        return value


@pytest.mark.feature("F130", "F132")
@pytest.mark.parametrize("mode", CheckpointingMode)
def test_rows_ahead_of_a_late_barrier_are_doubled_by_a_kill_only_at_least_once(
    jobs: Jobs, mode: CheckpointingMode
) -> None:
    for run in range(RUNS):
        out = jobs.folder / f"out {run}"
        killed_behind_a_late_barrier(jobs, mode, out)
        rows = ledger_rows(out)
        if mode is CheckpointingMode.EXACTLY_ONCE:
            check_each_counted_once(rows, TOTAL)
        else:
            counts: dict[int, int] = {}
            for row in rows:
                counts[row["key"]] = max(counts.get(row["key"], 0), row["count"])
            assert {row["number"] for row in rows} == set(range(TOTAL))
            assert sum(counts.values()) > TOTAL


def killed_behind_a_late_barrier(jobs: Jobs, mode: CheckpointingMode, out: Path) -> None:
    """One source stands still, the other one sends its barrier and goes on; then a slot dies."""
    held, standing = Latch(jobs.folder / "held"), Latch(out.with_suffix(".standing"))
    env = jobs.checkpointed(2, DAY_MS, **{MODE: mode.value, "heartbeat.interval": "20 ms"})
    numbers = (
        env.generate(same, TOTAL, 2_000, Types.LONG()).uid("numbers").map(HeldInOne(held, standing))
    )
    # One subtask counts, in the slot that goes on.
    counted(numbers).set_parallelism(1).sink_to(LedgerSink(out)).set_parallelism(1)
    client = jobs.start(env, f"to {out.name}")

    def taken() -> int:
        return view(client).vertices[-1].subtasks[0].figures.rows_in

    def sent() -> list[int]:
        return [each.figures.rows_out for each in view(client).vertices[0].subtasks]

    wait_running(client)
    until(lambda: taken() > 0, "rows are counted")
    held.set()
    # Before, it might send its barrier with the first one.
    until(lambda: standing.is_set, "the second source stands still")
    asked = client.trigger_checkpoint()
    if mode is CheckpointingMode.AT_LEAST_ONCE:
        wait_for(client, has_begun, "the first barrier is under way")
        # Behind its barrier the first source has gone on to its end, and all of that is counted.
        until(lambda: sent()[0] == TOTAL // 2, "the first source has sent all of its rows")
        until(lambda: taken() >= TOTAL // 2, "rows are counted ahead of the second barrier")
    held.release()
    asked.result(timeout=END_S)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    finish_by_checkpoints(client)


def has_begun(seen: JobView) -> bool:
    """Whether a source has acknowledged the checkpoint, which it does behind its barrier."""
    return bool(seen.checkpoints.history) and seen.checkpoints.history[0].acknowledged > 0
