"""Faults in how a slot shares its time, how jobs end and go on, and in guards of slots."""

from tests.mutants.mutant import Mutant

SLOT = [
    # --- calls that take their time ---
    Mutant(
        "two long calls follow one another without a gap",
        "slot/loop/rounds.py",
        "            if clock.precise_s() >= until_s:\n                break\n",
        "",
        kinds=("calls",),
    ),
    Mutant(
        "the slot hears nobody between two rounds",
        "slot/slot.py",
        "                if rounds.has_work:\n                    await",
        "                if rounds.has_work:\n"
        "                    rounds.work(self._job.settings.slot)\n"
        "                    await",
        kinds=("calls",),
    ),
    Mutant(
        "a barrier waits until its source has nothing to give",
        "slot/subtask/subtask.py",
        "        if (urgent := self._checkpointing.next()) is not None:\n",
        "        urgent = self._checkpointing.next()\n"
        "        if urgent is not None and not self.input._source_ready:\n",
        kinds=("calls",),
    ),
    Mutant(
        "a cancelled subtask goes on",
        "slot/slot.py",
        "        if subtask is not None:\n            subtask.end(ExecutionState.CANCELED)\n",
        "        if subtask is not None:\n            pass\n",
        kinds=("calls", "ends"),
    ),
    # --- how a job ends, and goes on ---
    Mutant(
        "a suspended job deletes what its policy does not keep",
        "checkpoint/completed.py",
        "                return False\n            case _:\n",
        "                return self.properties.discard_suspended\n            case _:\n",
        kinds=("ends",),
    ),
    Mutant(
        "a job falls back to an older checkpoint though nobody has chosen it",
        "driver/starting/restore.py",
        "            if not (found and self._settings.restore.fall_back):\n",
        "            if not found:\n",
        kinds=("ends",),
    ),
    Mutant(
        "a snapshot that is its owner's is deleted",
        "driver/starting/restore.py",
        "return replace(read, properties=CheckpointProperties.for_unclaimed_snapshot())\n",
        "pass\n",
        kinds=("ends",),
    ),
    Mutant(
        "a changed byte is not noticed",
        "storage/reading.py",
        "        if known is not None and known != found.file:\n",
        "        if False:\n",
        tests="tests/storage",
    ),
    Mutant(
        "a stop is not answered whose savepoint is durable late",
        "jobmaster/stopping.py",
        "        self._status = status\n",
        "",
        tests="tests/jobmaster",
    ),
    Mutant(
        "one slot hosts the subtasks of all that are lost",
        "jobmaster/survivors.py",
        "return (self._pool.needed + 1) // 2",
        "return 1",
        tests="tests/jobmaster",
    ),
    Mutant(
        "guests return before a checkpoint is complete",
        "jobmaster/survivors.py",
        "if not (self._due and settled):",
        "if not settled:",
        tests="tests/jobmaster",
    ),
    Mutant(
        "guests return while the job ends with a savepoint",
        "jobmaster/machine.py",
        "settled = self._checkpoints.settled and not self._stopper.under_way",
        "settled = self._checkpoints.settled",
        tests="tests/jobmaster",
    ),
    Mutant(
        "what a suspended job's last checkpoint ended with is looked at by nobody",
        "driver/client/requests.py",
        "    last.add_done_callback(lambda done: done.cancelled() or done.exception())\n",
        "",
        kinds=("ends",),
    ),
    # --- a slot ---
    Mutant(
        "a subtask that is over keeps its channels",
        "slot/subtask/hosted.py",
        "        self._links.remove(self.execution, channels)\n",
        "",
    ),
    Mutant(
        "a slot that ends leaves its subtasks open",
        "slot/slot.py",
        "        for subtask in list(self._rounds.subtasks.values()):\n"
        "            subtask.end(ExecutionState.CANCELED)\n",
        "",
    ),
    Mutant(
        "the newer one of two links is forgotten with the older one",
        "slot/channels/links.py",
        "        if wire is not None and self._wires.get(peer) is wire:\n",
        "        if wire is not None and self._wires.get(peer) is not None:\n",
        tests="tests/slot",
    ),
    Mutant(
        "a call is broken off inside of our own code",
        "slot/loop/calls.py",
        "call.execution in self._cancelled and not _is_ours(frame):",
        "call.execution in self._cancelled:",
        tests="tests/slot",
    ),
    Mutant(
        "a call is broken off though its subtask is not cancelled",
        "slot/loop/calls.py",
        "call.execution in self._cancelled and not _is_ours(frame):",
        "not _is_ours(frame):",
        tests="tests/slot",
    ),
    Mutant(
        "a subtask that is closed already is pressed to end",
        "slot/process/guard.py",
        "        if self._closed.get(execution.subtask) == execution:\n            return False\n",
        "",
        tests="tests/slot",
    ),
    Mutant(
        "closing operators get no time",
        "slot/process/guard.py",
        "cancelling.limit_ms = max(CLOSE_LIMIT_MS, cancelling.limit_ms)\n",
        "pass\n",
        tests="tests/slot",
    ),
    Mutant(
        "a call of another subtask is taken for that of a cancelled one",
        "slot/process/guard.py",
        "            if self._calling not in (None, execution):\n",
        "            if False:\n",
        tests="tests/slot",
    ),
    Mutant(
        "a guard on a busy machine takes the driver for silent",
        "slot/process/guard.py",
        "            passed_ms = min(now_ms - self._looked_ms, 2 * LOOK_MS)\n",
        "            passed_ms = now_ms - self._looked_ms\n",
        tests="tests/slot",
    ),
    Mutant(
        "slow calls wait for a checkpoint for ever",
        "slot/loop/courtesy.py",
        "        if now_s < waiting.until_s:\n",
        "        if True:\n",
        tests="tests/slot",
    ),
    Mutant(
        "slow calls wait for no checkpoint",
        "slot/loop/courtesy.py",
        "        if now_s < waiting.until_s:\n",
        "        if False:\n",
        tests="tests/slot",
    ),
    Mutant(
        "idle time counts when batches are sized",
        "slot/channels/batch_size.py",
        "            self._busy_from_s = None\n            self.size.emptied()\n",
        "            self.size.emptied()\n",
        tests="tests/slot",
    ),
]
