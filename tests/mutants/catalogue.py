"""Faults to plant in the protocol, one at a time: the simulator has to find them.

Each replaces one piece of a source file by another. A piece that is not there exactly once is a
mistake of this list, and told as such.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted fault. file: below src/tidegate."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    # --- the coordinator and what it knows ---
    Mutant(
        "an acknowledgement counts for another attempt",
        "checkpoint/pending.py",
        "        if execution not in self._missing:\n            return AcknowledgeResult.UNKNOWN\n"
        "        del self._missing[execution]\n",
        "        self._missing.popitem()\n",
    ),
    Mutant(
        "complete before the last acknowledgement",
        "checkpoint/pending.py",
        "return self.stage is Stage.ACKNOWLEDGING and not self._missing",
        "return self.stage is Stage.ACKNOWLEDGING and len(self._missing) <= 1",
    ),
    Mutant(
        "the state of one operator of a chain is dropped",
        "checkpoint/pending.py",
        "            for operator in self.topology.vertex(vertex).operators:\n"
        "                subtasks = self._states",
        "            for operator in self.topology.vertex(vertex).operators[:1]:\n"
        "                subtasks = self._states",
    ),
    Mutant(
        "a finished subtask is not marked as finished",
        "checkpoint/pending.py",
        "            subtasks.update(dict.fromkeys(finished, FINISHED))\n",
        "",
    ),
    Mutant(
        "the state of the sources' coordinators is forgotten",
        "checkpoint/pending.py",
        "coordinator_state=None if over or data is None else self._inline(operator, data),",
        "coordinator_state=None,",
    ),
    Mutant(
        "a checkpoint does not expire",
        "checkpoint/coordinator.py",
        "if pending.may_expire() and pending.deadline_ms <= self._now_ms:",
        "if False:",
    ),
    Mutant(
        "checkpoints under way survive a failover",
        "checkpoint/coordinator.py",
        "            if pending.stage is not Stage.ADDING:\n"
        "                self._abort(pending, reason)",
        "            if False:\n                self._abort(pending, reason)",
    ),
    Mutant(
        "checkpoints are triggered while the job restarts",
        "checkpoint/coordinator.py",
        "            and not self._failing_over\n            and self._held_by is None",
        "            and self._held_by is None",
    ),
    Mutant(
        "an older checkpoint goes on after a newer one is complete",
        "checkpoint/coordinator.py",
        "if older.checkpoint < pending.checkpoint and not older.is_savepoint:",
        "if False:",
    ),
    Mutant(
        "nobody is told of a completed checkpoint",
        "checkpoint/coordinator.py",
        "        self._out.extend(pending.tell_complete(self._executions, last))\n",
        "",
    ),
    Mutant(
        "nobody is told of an aborted checkpoint",
        "checkpoint/coordinator.py",
        "            self._out.extend(pending.tell_aborted(self._executions, latest))\n",
        "",
    ),
    Mutant(
        "subtasks are told before the pointer stands",
        "checkpoint/finishing.py",
        "        if pending.is_savepoint and not pending.is_synchronous:\n"
        "            return current.finished\n",
        "        return current.finished\n",
    ),
    Mutant(
        "messages of a coordinator overtake its snapshot",
        "checkpoint/gateways.py",
        "        held[max(held)].append(message)\n        return []",
        "        return [message]",
    ),
    Mutant(
        "messages held back at an abort are lost",
        "checkpoint/gateways.py",
        "                released.extend(messages)\n",
        "                pass\n",
    ),
    Mutant(
        "messages held back are lost at the acknowledgement",
        "checkpoint/gateways.py",
        "                released.extend(held.pop(passed))\n",
        "                held.pop(passed)\n",
    ),
    Mutant(
        "the trigger does not wait for messages held back",
        "checkpoint/coordinator.py",
        "if pending.stage is not Stage.READY or self._gateways.holds_before(pending.checkpoint):",
        "if pending.stage is not Stage.READY:",
    ),
    # --- what is kept and what is deleted ---
    Mutant(
        "the newest checkpoint is deleted instead of the oldest",
        "checkpoint/completed.py",
        "return candidates[-self._retained_max :], candidates[: -self._retained_max]",
        "return candidates[: self._retained_max], candidates[self._retained_max :]",
    ),
    Mutant(
        "a subsumed checkpoint is never deleted",
        "checkpoint/disposal.py",
        "self._retired.extend(completed for completed in subsumed if completed.ours)",
        "self._retired.extend(completed for completed in [] if completed.ours)",
    ),
    Mutant(
        "files in use by a newer checkpoint are deleted",
        "checkpoint/disposal.py",
        "for completed in [one for one in self._retired if one.checkpoint not in in_use]:",
        "for completed in list(self._retired):",
    ),
    Mutant(
        "what a given-up checkpoint has written stays",
        "checkpoint/disposal.py",
        "        self._cleaning[checkpoint] = None\n"
        "        return [DiscardCheckpoint(checkpoint, location, paths)]",
        "        return []",
    ),
    Mutant(
        "files of a late acknowledgement stay",
        "checkpoint/disposal.py",
        "        deleted = [DeleteFiles(tuple(paths))] if paths else []",
        "        deleted = []",
    ),
    # --- barriers ---
    Mutant(
        "a channel is read on behind its barrier",
        "checkpoint/barriers.py",
        "        commands.append(Block(channel))\n",
        "",
    ),
    Mutant(
        "channels are read again before the snapshot",
        "checkpoint/barriers.py",
        "        return [snapshot, *self._release()]",
        "        return [*self._release(), snapshot]",
    ),
    Mutant(
        "one barrier too few is waited for",
        "checkpoint/barriers.py",
        "if self._pending is None or len(self._blocked) < len(self._open):",
        "if self._pending is None or len(self._blocked) < len(self._open) - 1:",
    ),
    Mutant(
        "a channel that ends is waited for",
        "checkpoint/barriers.py",
        "        return self._complete_if_all(now_ms)\n\n    def _aborted_by_driver",
        "        return []\n\n    def _aborted_by_driver",
    ),
    Mutant(
        "blocked channels stay blocked after an abort",
        "checkpoint/barriers.py",
        "            return [*self._release(), Cancel(checkpoint)]\n"
        "        if checkpoint > self._newest",
        "            return [Cancel(checkpoint)]\n        if checkpoint > self._newest",
    ),
    Mutant(
        "a trigger cuts before finished producers' rows have come",
        "checkpoint/barriers.py",
        "return self._begin(barrier, now_ms) + self._complete_if_all(now_ms)",
        "return [*self._begin(barrier, now_ms), Snapshot(barrier, 0), *self._release()]",
    ),
    Mutant(
        "at least once: a snapshot at the first barrier",
        "checkpoint/barrier_tracker.py",
        "return self._open.keys() <= count.delivered",
        "return bool(self._open.keys() & count.delivered) or not self._open",
    ),
    # --- a subtask ---
    Mutant(
        "the barrier is sent after the snapshot's first row",
        "slot/output.py",
        '        """Send a mark, behind the rows gathered so far."""\n        self.flush()\n',
        '        """Send a mark, behind the rows gathered so far."""\n',
    ),
    Mutant(
        "operators do not prepare before the barrier",
        "slot/subtask.py",
        "            operator.operator.before_barrier(barrier.checkpoint, operator.out)\n",
        "",
    ),
    Mutant(
        "a subtask ends before its last output is committed",
        "slot/subtask.py",
        "            if final is None or completed is None or completed < final:\n"
        "                return",
        "            if final is None:\n                return",
    ),
    Mutant(
        "what waits for credit is lost at the end",
        "slot/subtask.py",
        "        if self._has_room:\n            self._change(ExecutionState.FINISHED)",
        "        self._change(ExecutionState.FINISHED)",
    ),
    Mutant(
        "a notification is told a second time, and an older one too",
        "slot/subtask.py",
        "        known = self._completed is not None and checkpoint <= self._completed\n",
        "        known = False\n",
    ),
    Mutant(
        "an abort does not repair a lost completion",
        "slot/subtask.py",
        "            self.complete(latest_completed, None)\n",
        "            pass\n",
    ),
    Mutant(
        "a failed write is acknowledged",
        "slot/snapshot.py",
        "        except Exception:\n"
        "            await run_blocking(place.discard)\n            raise\n",
        "        except Exception:\n            pass\n",
    ),
    Mutant(
        "a snapshot that was given up is acknowledged",
        "slot/snapshot.py",
        "        if self.cancelled:\n"
        "            await run_blocking(place.discard)\n            return None\n",
        "",
    ),
    Mutant(
        "a failed snapshot is not declined",
        "slot/slot.py",
        "            self._send(CheckpointDeclined(execution, snapshot.checkpoint, reason, why))\n",
        "            pass\n",
    ),
    Mutant(
        "messages of an older deployment reach a channel",
        "slot/links.py",
        "        key = (header.channel, header.attempt, header.epoch)\n",
        "        key = next(\n"
        "            (k for k in (*self._inputs, *self._outputs) if k[0] == header.channel),\n"
        "            (header.channel, header.attempt, header.epoch),\n"
        "        )\n",
    ),
    # --- state ---
    Mutant(
        "no pre-image is kept of a frozen entry",
        "state/hashmap.py",
        "            if preimages is not None and cell.key not in preimages:\n"
        "                preimages[cell.key] = maps[group].get(cell.key, absent)\n",
        "",
    ),
    Mutant(
        "keys that were not there at the barrier are in the snapshot",
        "state/hashmap.py",
        "        yield Missing(missing[start:end])\n",
        "        pass\n",
    ),
    # --- sinks ---
    Mutant(
        "output is committed before its checkpoint is complete",
        "operators/sink.py",
        "return min((cut for cut in self._held if cut <= self._completed), default=None)",
        "return min(self._held, default=None)",
    ),
    Mutant(
        "restored committables are not committed",
        "operators/sink.py",
        "        for checkpoint, committable in sorted(restored, key=lambda element: element[0]):\n"
        "",
        "        for checkpoint, committable in ():\n",
    ),
    Mutant(
        "committables are not put into state",
        "operators/sink.py",
        "        self._committables_state.update(self._pending.elements())\n",
        "",
    ),
    # --- sources ---
    Mutant(
        "a reader's position is not put into state",
        "operators/source.py",
        "        splits = self._reader.snapshot()\n",
        "        splits = self._reader.snapshot()[:0]\n",
    ),
    # --- the job ---
    Mutant(
        "a failure of an older attempt restarts the job",
        "jobmaster/machine.py",
        "        if execution is None or execution.state.is_terminal:\n            return\n"
        "        execution.figures = change",
        "        execution = execution or next(iter(self._graph))\n"
        "        execution.figures = change",
    ),
    Mutant(
        "the job is deployed before its former subtasks have ended",
        "jobmaster/machine.py",
        "if not (self._waited and self._slots.enough and self._graph.all_ended):",
        "if not (self._waited and self._slots.enough):",
    ),
    Mutant(
        "the job is deployed before it is known which checkpoint is the newest",
        "jobmaster/machine.py",
        "        if not self._checkpoints.settled:\n            return\n        if self._has_hooks",
        "        if self._has_hooks",
    ),
    Mutant(
        "subtasks begin before all are restored",
        "jobmaster/machine.py",
        "if self._graph.all_restored and self._status is JobStatus.RUNNING:",
        "if self._status is JobStatus.RUNNING:",
    ),
    Mutant(
        "a slot that is silent for too long is kept",
        "jobmaster/slots.py",
        "return [s for s, k in self._slots.items() if now_ms - k.seen_ms > self._lease_ms]",
        "return []",
    ),
    Mutant(
        "a restart begins with nothing",
        "jobmaster/machine.py",
        "assigned = assign(latest.metadata, topology) if latest else {}",
        "assigned = {}",
    ),
]
