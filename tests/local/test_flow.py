"""How a checkpoint walks through a job: who does what, where, and what goes on meanwhile."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from flinkformat.handles import ByteStreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from tests.e2e.faulty_store import faulty_files
from tests.e2e.jobs import KEYS, key_of, running_counts, same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_files
from tests.e2e.leftovers import decoded
from tests.e2e.noted_source import NotedSource, now_ms
from tests.e2e.probes import CountWithTotal, Probe
from tests.e2e.runtimes import RETAIN, Jobs
from tests.e2e.watch import completed, until, view, wait_completed, wait_for, wait_running
from tidegate import JobClient, OperatorStateDescriptor, Types
from tidegate.api import ship
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.clock import SystemClock
from tidegate.connectors.generator import NumberSplit
from tidegate.loops.cells import KeyCell
from tidegate.model.control import JobStatus
from tidegate.model.ids import OperatorId
from tidegate.operators.sources.source import STATE_NAME
from tidegate.state.scope import StateScope
from tidegate.state.user.operator_state import OperatorStates
from tidegate.storage.reading import InlineReader

pytestmark = pytest.mark.slow

CLOCKS_MS = 30
"""The figures' clock and the notes' may be so far apart."""


@pytest.fixture
def held(jobs: Jobs) -> Iterator[Latch]:
    """Holds back every file of state."""
    with faulty_files():
        latch = Latch(jobs.folder / "held")
        latch.set()
        yield latch
        latch.release()


def start_held(jobs: Jobs, journal: Journal, rate: float) -> JobClient:
    """Counts in this process, on storage that a latch holds."""
    settings = {
        "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
        "execution.checkpointing.data-inline-threshold": "0 b",
        "heartbeat.interval": "20 ms",
    }
    env = jobs.checkpointed(1, 50, **settings)
    numbers = env.generate(same, None, rate, Types.LONG()).map(Probe(journal, "source"))
    keyed = numbers.key_by(lambda number: number % KEYS, key_type=Types.LONG())
    counted = keyed.reduce(max).map(Probe(journal, "sink"))
    counted.map(lambda number: {"number": number}).sink_to(LedgerSink(jobs.folder / "out"))
    return jobs.start(env, "held")


@pytest.mark.feature("F080")
def test_a_running_job_shows_its_slots(jobs: Jobs) -> None:
    env = jobs.env(2)
    running_counts(env, None, 500).print()
    client = jobs.start(env, "shown")
    seen = wait_running(client)
    assert seen.status is JobStatus.RUNNING
    assert seen.slots_wanted == len(seen.slots) == 2
    assert len({slot.pid for slot in seen.slots}) == 2


@pytest.mark.feature("F134", "F144", "F215")
def test_the_six_steps_of_a_checkpoint_come_in_their_order(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 100, **{"web.checkpoints.history": 1_000})
    source = env.from_source(NotedSource(journal, None, 1_000), source_name="noted")
    keyed = source.key_by(lambda number: number % KEYS, key_type=Types.LONG()).reduce(max)
    keyed.map(Probe(journal, "aligned")).map(lambda number: {"number": number}).sink_to(
        LedgerSink(jobs.folder / "out")
    )
    client = jobs.start(env, "six steps")
    seen = wait_completed(client, 4)
    client.cancel().result(timeout=100)
    done = completed(seen)[:3]
    notes = journal.notes()
    for number, checkpoint in enumerate(done):
        key = {"checkpoint": checkpoint.checkpoint}
        trigger, complete = journal.notes("trigger", **key)[0], journal.notes("completed", **key)[0]
        sources = [journal.notes("source", subtask=subtask)[number] for subtask in (0, 1)]
        aligned = journal.notes("snapshot", name="aligned", **key)
        assert len(aligned) == 2
        places = [notes.index(note) for note in (trigger, *sources)]
        assert places[0] < min(places[1:]), "the sources are triggered after the coordinators"
        # A source's barrier goes ahead of its snapshot: those behind may be noted before it.
        taken = [*places[1:], *map(notes.index, aligned)]
        assert places[0] < min(taken) and max(taken) < notes.index(complete)
        assert trigger["thread"] == complete["thread"] == "tidegate-driver"
        first, last = checkpoint.vertices[0], checkpoint.vertices[-1]
        for share, note in zip(first.acknowledged, sources, strict=True):
            assert note["ms"] - CLOCKS_MS <= share.ack_ms <= complete["ms"] + CLOCKS_MS
        assert last.latest_ack_ms <= complete["ms"] + CLOCKS_MS


@pytest.mark.feature("F093", "F107", "F111")
def test_the_barrier_goes_on_before_the_state_is_written_on_another_thread(
    jobs: Jobs, held: Latch
) -> None:
    journal = Journal(jobs.folder / "journal")
    client = start_held(jobs, journal, 1_000)
    until(lambda: journal.notes("snapshot", name="sink"), "the barrier has come to the sink")
    pending = view(client).checkpoints.history[-1]
    assert pending.status is CheckpointStatus.IN_PROGRESS and pending.acknowledged == 0
    held.release()
    wait_completed(client, 1)
    loops = {note["thread"] for note in journal.notes("snapshot")}
    writers = {note["thread"] for note in Journal(jobs.folder / "writes").notes("write")}
    assert len(loops) == 1 and writers and not loops & writers


@pytest.mark.feature("F106")
def test_as_many_records_flow_while_state_is_written(jobs: Jobs) -> None:
    """The rate of a source without a limit, alone and beside a file that takes long, by turns.

    On a busy machine single turns say little: there are more of them, until the median is clear.
    """
    with faulty_files():
        held = Latch(jobs.folder / "held")
        settings = {
            "execution.checkpointing.dir": f"faulty://{jobs.checkpoints}",
            "execution.checkpointing.data-inline-threshold": "0 b",
            "heartbeat.interval": "20 ms",
        }
        env = jobs.env(1, **settings)
        keyed = env.generate(same, None, None, Types.LONG()).key_by(key_of, key_type=Types.LONG())
        keyed.reduce(max).filter(lambda _: False).print()
        client = jobs.start(env, "at full rate")
        wait_running(client)
        shares: list[float] = []
        while len(shares) < 7 or (median(shares) < 0.8 and len(shares) < 60):
            alone = rate(client)
            held.set()
            asked = client.trigger_checkpoint()
            wait_for(client, lambda seen: seen.checkpoints.counts.in_progress, "a checkpoint")
            shares.append(rate(client) / alone)
            assert view(client).checkpoints.counts.in_progress == 1
            held.release()
            asked.result(timeout=100)
        assert median(shares) >= 0.8, shares


def rate(client: JobClient) -> float:
    """Rows a second at the last step, over about half a second; nothing of before counts."""

    def rows() -> int:
        return view(client).vertices[-1].subtasks[0].figures.rows_in

    before, began_ms = rows(), now_ms()
    until(lambda: now_ms() - began_ms > 500 and rows() > before, "half a second")
    return (rows() - before) / (now_ms() - began_ms) * 1_000


@pytest.mark.feature("F087")
def test_the_source_is_not_stuck_while_a_checkpoint_is_triggered(jobs: Jobs) -> None:
    """Half of the longest gaps around each trigger are short, as gaps go on this machine now."""
    env = jobs.checkpointed(1, 200, **{"web.checkpoints.history": 1_000})
    out = jobs.folder / "emitted"
    env.generate(lambda _: now_ms(), None, 1_000, Types.LONG()).map(Stamps(out)).print()
    client = jobs.start(env, "gaps")
    seen = wait_completed(client, 8)
    client.cancel().result(timeout=100)
    stamps = [int(line) for line in out.read_text().splitlines()]
    triggers = [checkpoint.trigger_ms for checkpoint in completed(seen)[1:7]]
    gaps = [longest_gap(stamps, trigger) for trigger in triggers]
    between = [longest_gap(stamps, (a + b) // 2) for a, b in pairwise(triggers)]
    assert median(gaps) < 50 + 2 * median(between), (gaps, between)


class Stamps:
    """Writes each value to a file, and keeps none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, value: int) -> str:
        with self._path.open("a") as file:
            file.write(f"{value}\n")
        return ""


def longest_gap(stamps: list[int], around_ms: int) -> int:
    """The longest gap between neighbours within a tenth of a second of a moment."""
    near = [stamp for stamp in stamps if abs(stamp - around_ms) <= 100]
    return max(b - a for a, b in pairwise(near))


@pytest.mark.feature("F101")
def test_keyed_and_operator_state_of_one_function_are_both_in_the_checkpoint(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 100, **RETAIN)
    out = jobs.folder / "out"
    running_counts(env, None, 1_000, CountWithTotal()).sink_to(LedgerSink(out))
    client = jobs.start(env, "both")
    wait_for(client, lambda _: ledger_files(out), "a checkpoint with rows")
    client.cancel().result(timeout=100)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None and newest.pointer is not None
    operators = {each.uid: each for each in decoded(Path(newest.pointer) / "_metadata").operators}
    state = operators["counts"].subtasks[0]
    assert state.managed_keyed is not None and state.managed_keyed.state_size > 0
    assert state.managed_operator is not None and state.managed_operator.state_size > 0


@pytest.mark.feature("F088")
def test_a_sources_position_is_what_it_had_emitted_before_the_barrier(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(1, 100, **RETAIN)
    numbers = env.generate(same, None, 1_000, Types.LONG()).uid("numbers")
    numbers.map(Probe(journal, "emitted")).print()
    client = jobs.start(env, "positions")
    wait_completed(client, 3)
    client.cancel().result(timeout=100)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None and newest.pointer is not None
    emitted = journal.notes("snapshot", checkpoint=newest.checkpoint)[0]["rows"]
    splits = splits_in(Path(newest.pointer) / "_metadata", "numbers")
    assert (
        emitted
        == sum(len(range(split.next % split.step, split.next, split.step)) for split in splits)
        > 0
    )


def splits_in(file: Path, uid: str) -> list[NumberSplit]:
    """The splits of a source's only reader, as a checkpoint holds them."""
    operator = next(each for each in decoded(file).operators if each.uid == uid)
    handle = operator.subtasks[0].managed_operator
    assert handle is not None and isinstance(handle.delegate, ByteStreamStateHandle)
    groups = KeyGroupRange(0, 0)
    scope = StateScope(OperatorId(bytes(16)), groups, 1, SystemClock(), KeyCell(), uid=uid)
    states = OperatorStates(scope)
    states.restore(handle, InlineReader("the newest checkpoint"))
    found = states.list_state(OperatorStateDescriptor(STATE_NAME)).get()
    return [ship.loads(split, name=uid) for split in found]
