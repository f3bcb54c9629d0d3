"""Faults in the protocol: the simulator finds them in the runs that it draws."""

from tests.mutants.mutant import Mutant

PROTOCOL = [
    # --- the coordinator and what it knows ---
    Mutant(
        "an acknowledgement counts for another attempt",
        "checkpoint/coordinator/pending.py",
        "        if execution not in self._missing:\n            return AcknowledgeResult.UNKNOWN\n"
        "        del self._missing[execution]\n",
        "        self._missing.popitem()\n",
    ),
    Mutant(
        "complete before the last acknowledgement",
        "checkpoint/coordinator/pending.py",
        "        return not self._missing\n",
        "        return len(self._missing) <= 1\n",
    ),
    Mutant(
        "the state of one operator of a chain is dropped",
        "checkpoint/coordinator/pending.py",
        "for operator in self._topology.vertex(subtask.vertex).operators:\n",
        "for operator in self._topology.vertex(subtask.vertex).operators[:1]:\n",
    ),
    Mutant(
        "the state of the sources' coordinators is forgotten",
        "checkpoint/coordinator/pending.py",
        "coordinator_state=None if over else self._inline(operator, coordinator),",
        "coordinator_state=None,",
    ),
    Mutant(
        "a checkpoint does not expire",
        "checkpoint/coordinator/coordinator.py",
        "if pending.may_expire() and pending.deadline_ms <= self._now_ms:",
        "if False:",
    ),
    Mutant(
        "checkpoints under way survive a failover",
        "checkpoint/coordinator/coordinator.py",
        "            if pending.stage is not Stage.ADDING:\n"
        "                self._abort(pending, reason)",
        "            if False:\n                self._abort(pending, reason)",
    ),
    Mutant(
        "an older checkpoint goes on after a newer one is complete",
        "checkpoint/coordinator/coordinator.py",
        "if older.checkpoint < pending.checkpoint and not older.is_savepoint:",
        "if False:",
    ),
    Mutant(
        "nobody is told of a completed checkpoint",
        "checkpoint/coordinator/coordinator.py",
        "        self._out.extend(pending.tell_complete(executions, last))\n",
        "",
    ),
    Mutant(
        "nobody is told of an aborted checkpoint",
        "checkpoint/coordinator/coordinator.py",
        "            self._out.extend(pending.tell_aborted(self._readiness.executions, latest))\n",
        "",
    ),
    Mutant(
        "subtasks are told before the pointer stands",
        "checkpoint/coordinator/finishing.py",
        "        if pending.is_savepoint and not pending.is_synchronous:\n"
        "            return current.finished\n",
        "        return current.finished\n",
    ),
    Mutant(
        "messages of a coordinator overtake its snapshot",
        "checkpoint/coordinator/gateways.py",
        "        held[max(held)].append(message)\n        return []",
        "        return [message]",
    ),
    Mutant(
        "messages held back at an abort are lost",
        "checkpoint/coordinator/gateways.py",
        "                released.extend(messages)\n",
        "                pass\n",
    ),
    Mutant(
        "messages held back are lost at the acknowledgement",
        "checkpoint/coordinator/gateways.py",
        "                released.extend(held.pop(passed))\n",
        "                held.pop(passed)\n",
    ),
    Mutant(
        "the trigger does not wait for messages held back",
        "checkpoint/coordinator/coordinator.py",
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
        "checkpoint/coordinator/disposal.py",
        "self._retired.extend(completed for completed in subsumed if completed.ours)",
        "self._retired.extend(completed for completed in [] if completed.ours)",
    ),
    Mutant(
        "what a given-up checkpoint has written stays",
        "checkpoint/coordinator/disposal.py",
        "        self._cleaning[checkpoint] = None\n"
        "        return [DiscardCheckpoint(checkpoint, location, paths)]",
        "        return []",
    ),
    Mutant(
        "files of a late acknowledgement stay",
        "checkpoint/coordinator/disposal.py",
        "        deleted = [DeleteFiles(tuple(paths))] if paths else []",
        "        deleted = []",
    ),
    # --- barriers ---
    Mutant(
        "a channel is read on behind its barrier",
        "checkpoint/barriers/exactly_once.py",
        "        commands.append(Block(channel))\n",
        "",
    ),
    Mutant(
        "one barrier too few is waited for",
        "checkpoint/barriers/exactly_once.py",
        "if self._pending is None or len(self._blocked) < len(self._open):",
        "if self._pending is None or len(self._blocked) < len(self._open) - 1:",
    ),
    Mutant(
        "a channel that ends is waited for",
        "checkpoint/barriers/exactly_once.py",
        "        return self._complete_if_all(now_ms)\n\n    def _aborted_by_driver",
        "        return []\n\n    def _aborted_by_driver",
    ),
    Mutant(
        "blocked channels stay blocked after an abort",
        "checkpoint/barriers/exactly_once.py",
        "            return [*self._release(), Cancel(checkpoint)]\n"
        "        if checkpoint > self._newest",
        "            return [Cancel(checkpoint)]\n        if checkpoint > self._newest",
    ),
    Mutant(
        "a trigger cuts before finished producers' rows have come",
        "checkpoint/barriers/exactly_once.py",
        "return self._begin(barrier, now_ms) + self._complete_if_all(now_ms)",
        "return [*self._begin(barrier, now_ms), Snapshot(barrier, 0), *self._release()]",
    ),
    Mutant(
        "at least once: a snapshot at the first barrier",
        "checkpoint/barriers/tracker.py",
        "return self._open.keys() <= count.delivered",
        "return bool(self._open.keys() & count.delivered) or not self._open",
    ),
    # --- a subtask ---
    Mutant(
        "the barrier is sent after the snapshot's first row",
        "slot/channels/output.py",
        "        self.flush()\n        self._send(mark)\n",
        "        self._send(mark)\n",
    ),
    Mutant(
        "operators do not prepare before the barrier",
        "slot/subtask/checkpointing.py",
        "            each.operator.before_barrier(checkpoint, each.out)\n",
        "",
    ),
    Mutant(
        "a cut that waits is made though its checkpoint was given up",
        "slot/subtask/checkpointing.py",
        "        if checkpoint in self._given_up:\n",
        "        if False:\n",
    ),
    Mutant(
        "a subtask ends before its last output is committed",
        "slot/subtask/ending.py",
        "            and self._has_completed(self._final_from)\n",
        "",
    ),
    Mutant(
        "what waits for credit is lost at the end",
        "slot/subtask/ending.py",
        "        return self.released and self._outputs.has_sent",
        "        return self.released",
    ),
    Mutant(
        "a subtask that has room again gets no turn",
        "slot/channels/links.py",
        "        if has_room_again:\n",
        "        if False:\n",
    ),
    Mutant(
        "a notification is told a second time, and an older one too",
        "slot/subtask/ending.py",
        "if self._completed is not None and checkpoint <= self._completed:",
        "if self._completed is not None and checkpoint < 0:",
    ),
    Mutant(
        "an abort does not repair a lost completion",
        "slot/subtask/subtask.py",
        "            self.complete(latest_completed, None)\n",
        "            pass\n",
    ),
    Mutant(
        "messages of an older deployment reach a channel",
        "slot/channels/links.py",
        "        key = (header.channel, header.attempt, header.epoch)\n",
        "        key = next(\n"
        "            (k for k in (*self._inputs, *self._outputs) if k[0] == header.channel),\n"
        "            (header.channel, header.attempt, header.epoch),\n"
        "        )\n",
    ),
    # --- state ---
    Mutant(
        "no pre-image is kept of a frozen entry",
        "loops/tables.py",
        "        if preimages is not None and key not in preimages:\n"
        "            preimages[key] = entries.get(key, self._absent)\n",
        "",
    ),
    Mutant(
        "keys that were not there at the barrier are in the snapshot",
        "state/heap/pieces.py",
        "        yield Missing(keys[start:end])\n",
        "        pass\n",
    ),
    # --- sinks ---
    Mutant(
        "output is committed before its checkpoint is complete",
        "operators/sinks/sink.py",
        "return min((cut for cut in self._held if cut <= self._completed), default=None)",
        "return min(self._held, default=None)",
    ),
    Mutant(
        "restored committables are not committed",
        "operators/sinks/sink.py",
        "        for checkpoint, committable in sorted(restored, key=lambda element: element[0]):\n"
        "",
        "        for checkpoint, committable in ():\n",
    ),
    Mutant(
        "committables are not put into state",
        "operators/sinks/sink.py",
        "        self._committables_state.update(self._commits.elements())\n",
        "",
    ),
    Mutant(
        "what a checkpoint that was given up has not flushed is forgotten",
        "operators/sinks/sink.py",
        "        self._work = [work for work in self._work if not _succeeded(work)]\n"
        "        return [*self._work]\n",
        "        work, self._work = self._work, []\n        return [*work]\n",
        kinds=("parts",),
    ),
    Mutant(
        "a writer that is made late hears of no barrier",
        "operators/sinks/sink.py",
        "            self._passed.append(checkpoint)\n",
        "            pass\n",
        tests="tests/operators/test_sink.py",
    ),
    # --- sources ---
    Mutant(
        "a reader's position is not put into state",
        "operators/sources/source.py",
        "        splits = self._reader.snapshot(context.checkpoint)\n",
        "        splits = self._reader.snapshot(context.checkpoint)[:0]\n",
    ),
    # --- the job ---
    Mutant(
        "the job is deployed before its former subtasks have ended",
        "jobmaster/machine.py",
        "ended = all(e.state.is_terminal for e in self._graph.of(redeployment.subtasks))",
        "ended = True",
    ),
    Mutant(
        "the job is deployed before it is known which checkpoint is the newest",
        "jobmaster/machine.py",
        "ready = ended and self._checkpoints.settled",
        "ready = ended",
    ),
    Mutant(
        "subtasks begin before all are restored",
        "jobmaster/execution_graph.py",
        "if all(execution.restored for execution in restoring):",
        "if True:",
    ),
    Mutant(
        "a slot that is silent for too long is kept",
        "jobmaster/slots.py",
        "return [s for s, k in self._slots.items() if now_ms - k.seen_ms > self._lease_ms]",
        "return []",
    ),
    # --- in-flight data ---
    Mutant(
        "data in front of an overtaking barrier are not kept",
        "slot/in_flight.py",
        "            self._save(checkpoint, channel, queued)\n",
        "",
    ),
    Mutant(
        "data that come before the barrier are not kept",
        "slot/in_flight.py",
        "                self._persisting[channel] = checkpoint\n",
        "                pass\n",
    ),
    Mutant(
        "data that were to leave are not kept",
        "slot/in_flight.py",
        "            self._save(checkpoint, output.id, output.barrier(barrier))\n",
        "            output.barrier(barrier)\n",
    ),
    Mutant(
        "restored in-flight data are not kept a second time",
        "slot/in_flight.py",
        "            self._save(checkpoint, channel, self._gate.restored_in(channel))\n",
        "",
    ),
    Mutant(
        "kept input data are not put into state",
        "slot/subtask/snapshot.py",
        "        if inputs:\n",
        "        if False:\n",
    ),
    Mutant(
        "a subtask aligned by force waits for ever for its in-flight data",
        "checkpoint/barriers/exactly_once.py",
        "        if barrier.options.is_unaligned:\n            commands.append(",
        "        if False:\n            commands.append(",
    ),
    Mutant(
        "restored in-flight data are given out twice",
        "slot/channels/gate.py",
        "        self._restored.popleft()\n",
        "        len(self._restored) > 1 and self._restored.rotate() or self._restored.popleft()\n",
    ),
    # --- state ---
    Mutant(
        "keyed state is not restored",
        "state/heap/in_memory.py",
        "            self._restored.setdefault(state.header.name, []).append(state)\n",
        "            pass\n",
    ),
    Mutant(
        "a new parallelism gets the first key groups only",
        "state/heap/in_memory.py",
        "        for group in handle.key_groups.intersection(self._scope.key_groups):\n",
        "        for group in list(handle.key_groups.intersection(self._scope.key_groups))[:5]:\n",
    ),
    # --- reports and figures ---
    Mutant(
        "a declined checkpoint goes on",
        "checkpoint/coordinator/coordinator.py",
        "            self._abort(pending, message.reason, message.message, "
        "execution=message.execution)\n",
        "            pass\n",
    ),
    Mutant(
        "a failed checkpoint is counted as under way",
        "checkpoint/coordinator/statistics.py",
        "(in_progress=counts.in_progress - 1, failed=counts.failed + 1)",
        "(failed=counts.failed + 1)",
    ),
    Mutant(
        "whoever asked for a checkpoint is not told of its end",
        "checkpoint/coordinator/reports.py",
        "        return [ended, RequestDone(request.number, checkpoint, completed.pointer)]\n",
        "        return [ended]\n",
    ),
    Mutant(
        "whoever asked for a checkpoint is not told that it was given up",
        "checkpoint/coordinator/reports.py",
        "[RequestDone(request.number, error=self._error(failure))]\n\n    def _error",
        "[]\n\n    def _error",
    ),
    Mutant(
        "what is held back for an attempt that is gone is kept",
        "checkpoint/coordinator/gateways.py",
        "            del self._gateways[key]\n\n    def holds_before",
        "            pass\n\n    def holds_before",
    ),
    # --- files ---
    Mutant(
        "a checkpoint that is discarded leaves its files",
        "storage/state_files.py",
        "        try_all((partial(self.delete_files, list(files)), "
        "partial(store.delete_folder, folder)))\n",
        "",
    ),
    Mutant(
        "the first sweep deletes files in use",
        "storage/checkpoints.py",
        "            if paths.name(info.path) in names:\n",
        "            if False:\n",
    ),
    Mutant(
        "a write that fails is acknowledged",
        "slot/subtask/snapshot.py",
        "            self._in_flight.give_up()\n"
        "            await run_blocking(place.discard)\n"
        "            raise\n",
        "            pass\n",
    ),
    Mutant(
        "a failed snapshot is not declined",
        "slot/subtask/hosted.py",
        "        if is_first and not snapshot.cancelled:\n            ours",
        "        if False:\n            ours",
    ),
    Mutant(
        "a newer base takes the log from a checkpoint that is being encoded",
        "state/log/changelog.py",
        "return self._base, list(self._batches), None",
        "return self._base, [], None",
    ),
    # --- who leads ---
    Mutant(
        "a driver goes on though another one leads",
        "ha/leadership.py",
        "        if await self._world.store.read(path) != data:\n"
        "            self._lost.set()\n            raise self._deposed()\n",
        "        await self._world.store.read(path)\n",
    ),
    Mutant(
        "the record before is not sealed",
        "ha/chain.py",
        "        await seal(store, lower, by=epoch)\n",
        "",
    ),
    Mutant(
        "an id is given out again after a failure of the driver",
        "ha/leadership.py",
        "        self._next_id = record.next_id\n",
        "        self._next_id = CheckpointId(1)\n",
    ),
    Mutant(
        "a restart begins with nothing",
        "jobmaster/machine.py",
        "shares(latest, topology, self._settings.restore)",
        "{}",
    ),
    Mutant(
        "a peer that is lost is not noticed",
        "slot/slot.py",
        "            if peer in subtask.deployment.deploy.addresses:\n",
        "            if False:\n",
    ),
    Mutant(
        "a slot that has left is not noticed",
        "driver/links.py",
        "            self._post(SlotLeft(slot, error))\n",
        "            pass\n",
    ),
    # --- what the simulator has found, planted again ---
    Mutant(
        "two completions at once commit twice",
        "operators/sinks/sink.py",
        "        if self._committing:\n            return ",
        "        if False:\n            return ",
    ),
    Mutant(
        "a file of in-flight data is left when its subtasks have failed",
        "slot/channel_state.py",
        "        if file is not None and not is_wanted:\n",
        "        if file is not None and is_wanted is None:\n",
    ),
    Mutant(
        "a slot ends while in-flight data are written",
        "slot/slot.py",
        "        await self._beside.ended()\n",
        "",
    ),
    Mutant(
        "a subtask may end before its producers",
        "slot/subtask/ending.py",
        "        if self._open:\n            return False\n",
        "",
    ),
    Mutant(
        "the savepoint with which a job stops gets no pointer",
        "checkpoint/coordinator/finishing.py",
        "if pending.is_savepoint and not pending.is_synchronous:",
        "if pending.is_savepoint:",
    ),
    Mutant(
        "who has stopped for a savepoint that is given up waits for ever",
        "slot/subtask/ending.py",
        "        if checkpoint == self.stop:\n",
        "        if checkpoint < 0:\n",
    ),
    Mutant(
        "event time does not end behind a source that had ended before the restore",
        "slot/subtask/ending.py",
        "        if self._is_source:\n            # Event time ends",
        "        if self._is_source and not self._finished_on_restore:\n            # Time ends",
    ),
]
