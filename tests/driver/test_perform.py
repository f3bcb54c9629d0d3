"""Each command that wants an answer gets just one, whatever the store does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    RetentionPolicy,
    SavepointFormatType,
    SavepointType,
)
from tidegate.api.job import (
    CheckpointDone,
    FailureContext,
    FailureEnricher,
    FailureKind,
    MasterTriggerRestoreHook,
)
from tidegate.checkpoint.coordinator.commands import (
    AddPointer,
    CheckpointEnded,
    DeleteFiles,
    DiscardCheckpoint,
    ForgetPointers,
    PrepareLocation,
    RequestDone,
    SnapshotCoordinator,
    TakeNextId,
    TriggerHooks,
    WriteMetadata,
)
from tidegate.checkpoint.coordinator.events import (
    Cleaned,
    HookFailed,
    HooksTriggered,
    LocationFailed,
    LocationReady,
    MetadataFailed,
    MetadataWritten,
    NextIdFailed,
    NextIdTaken,
    PointerAdded,
    PointerFailed,
    PointersForgotten,
    PointersNotForgotten,
)
from tidegate.driver.checkpoint_files import CheckpointFiles
from tidegate.driver.inbox import Inbox
from tidegate.driver.perform import Performer
from tidegate.errors import LeadershipLost, OutcomeUnknown, StorageFailed, TidegateError
from tidegate.jobmaster.commands import (
    CloseCoordinators,
    Deployed,
    DropSlot,
    GuestsDeployed,
    GuestsReturn,
    GuestsStay,
    JobOver,
    LabelFailure,
    ReleaseSlots,
    RequestSlots,
    ResetSubtasks,
    Restarting,
    RestoreHooks,
    SendToSlot,
    SlotsAwaited,
    StartCoordinators,
    StatusChanged,
    SubtaskReady,
)
from tidegate.jobmaster.events import FailureLabelled, HooksNotRestored, HooksRestored
from tidegate.model.control import JobStatus, Start
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SlotId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings, JobSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.jobmaster.commands import JobCommand

ONE = CheckpointId(1)
JOB = JobId("j" * 32)
METADATA = CheckpointMetadata(
    checkpoint_id=ONE,
    operators=(),
    properties=CheckpointProperties.for_checkpoint(RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS),
)


class Recorder:
    """Stands for all that a performer acts upon: writes calls down, fails where it is told to."""

    def __init__(self, **fails: Exception) -> None:
        self.fails = fails
        self.calls: list[tuple[Any, ...]] = []
        self.posted: list[object] = []
        self.ended: object = None
        self.settings = JobSettings()
        self.job = JOB
        self.settled, self.wake_at_ms = False, None
        self.key_file = None

    async def hint(self) -> str:
        return "look at the cores"

    def _act(self, name: str, *what: object, result: Any = None) -> Any:
        self.calls.append((name, *what))
        if name in self.fails:
            raise self.fails[name]
        return result

    # the machine
    def handle(self, event: object, now_ms: int) -> list[JobCommand]:
        self.posted.append(event)
        return []

    # the world
    def monotonic_ms(self) -> int:
        return 7

    async def run_blocking(self, call: Callable[[], object]) -> object:
        return call()

    def wall_ms(self) -> int:
        return 77

    def bits64(self) -> int:
        return 5

    # the storage
    def initialize_location(self, checkpoint: CheckpointId) -> str:
        return self._act("location", checkpoint, result="/chk-1")

    def initialize_savepoint_location(self, target: str, bits64: int) -> str:
        return self._act("savepoint location", target, result=f"{target}/savepoint-1")

    @property
    def files(self) -> Recorder:
        return self

    def write_metadata(self, location: str, data: bytes) -> str:
        return self._act("metadata", location, result=location)

    def discard(self, location: str, files: tuple[str, ...]) -> None:
        self._act("discard", location, files)

    def delete_files(self, files: tuple[str, ...]) -> None:
        self._act("delete", files)

    # the leadership
    async def next_checkpoint_id(self, *, above: int) -> CheckpointId:
        return self._act("next id", above, result=CheckpointId(above + 1))

    async def add(self, checkpoint: CheckpointId, pointer: str, *, retained: object) -> None:
        self._act("add", checkpoint)

    async def end(self, status: JobStatus, *, retained: object) -> None:
        self._act("end", status)

    def check_snapshot(self, *what: object) -> None:
        self._act("check here")

    # hosts, links, provider
    @property
    def read_backs(self) -> Recorder:
        return self

    async def check(self, *what: object, timeout_ms: int) -> None:
        self._act("check by slots")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *what: self._act(name, *what)


class World:
    """What a performer takes from outside."""

    def __init__(self, recorder: Recorder) -> None:
        self.clock = self.chance = recorder
        self.run_blocking = self.call_user = recorder.run_blocking
        self.log = structlog.get_logger()


def performed(
    command: JobCommand,
    recorder: Recorder,
    *hooks: MasterTriggerRestoreHook[Any],
    labelling: Sequence[FailureEnricher] = (),
) -> list[dict[str, object]]:
    """Perform one command to its end; the result is what was logged."""
    each: Any = recorder
    graph: Any = SimpleNamespace(name="flights", hooks=hooks, enrichers=labelling)
    graph.listeners, graph.settings = (), recorder.settings

    async def act() -> None:
        world: Any = World(recorder)
        inbox = Inbox(each, each, lambda _: None, world.log)
        parts = (world.chance, world.run_blocking, world.log)
        files = CheckpointFiles(each, recorder.settings.checkpoints, Epoch(1), *parts)
        Performer(graph, world, each, files, inbox, each, each, each).perform(command)
        inbox.settled.set()
        await inbox.settle()
        recorder.ended = inbox.ended

    with structlog.testing.capture_logs() as logs:
        asyncio.run(act())
    return list(logs)


BROKEN = StorageFailed("the disk is full")
ODD = RuntimeError("never seen before")
ANSWERED = [
    (TakeNextId(4, 9), "next id", NextIdTaken(4, CheckpointId(10), 77), NextIdFailed),
    (
        PrepareLocation(ONE, savepoint=False, target=None),
        "location",
        LocationReady(ONE, "/chk-1"),
        LocationFailed,
    ),
    (
        PrepareLocation(ONE, savepoint=True, target="/sp"),
        "savepoint location",
        LocationReady(ONE, "/sp/savepoint-1"),
        LocationFailed,
    ),
    (WriteMetadata(ONE, METADATA, "/chk-1"), "metadata", MetadataWritten, MetadataFailed),
    (AddPointer(ONE, "/chk-1", (ONE,)), "add", PointerAdded(ONE), PointerFailed),
    (
        ForgetPointers(JobStatus.FINISHED, ()),
        "end",
        PointersForgotten(),
        PointersNotForgotten,
    ),
    (DiscardCheckpoint(ONE, "/chk-1", ("a",)), "discard", Cleaned(ONE), Cleaned),
    (DiscardCheckpoint(ONE, None, ("a",)), "delete", Cleaned(ONE), Cleaned),
]


@pytest.mark.parametrize(("command", "call", "good", "bad"), ANSWERED, ids=lambda v: str(v)[:24])
@pytest.mark.parametrize("failure", [None, BROKEN, ODD], ids=["good", "failing", "odd"])
def test_a_command_is_answered_once_whether_it_went_well_or_not(
    command: JobCommand, call: str, good: object, bad: type, failure: Exception | None
) -> None:
    recorder = Recorder(**({} if failure is None else {call: failure}))
    performed(command, recorder)
    assert recorder.calls[0][0] == call
    (answer,) = recorder.posted
    if failure is not None:
        assert isinstance(answer, bad)
        error = getattr(answer, "error", failure)
        assert str(failure) in str(error)
    elif isinstance(good, type):
        assert isinstance(answer, good)
    else:
        assert answer == good


@pytest.mark.parametrize(
    ("failure", "unknown"),
    [
        (LeadershipLost("another one leads"), False),
        (OutcomeUnknown("no answer"), True),
        (RuntimeError("?"), True),
    ],
)
def test_only_a_refusal_that_is_certain_says_that_no_pointer_stands(
    failure: Exception, unknown: bool
) -> None:
    recorder = Recorder(add=failure)
    performed(AddPointer(ONE, "/chk-1", (ONE,)), recorder)
    (answer,) = recorder.posted
    assert isinstance(answer, PointerFailed) and answer.outcome_unknown is unknown


SAVED = CheckpointMetadata(
    checkpoint_id=ONE,
    operators=(),
    properties=CheckpointProperties.for_savepoint(
        SavepointType.savepoint(SavepointFormatType.CANONICAL), forced=False
    ),
)


@pytest.mark.parametrize("failing", [None, "check here", "check by slots"])
def test_a_savepoint_is_written_only_when_other_processes_have_read_it_too(
    failing: str | None,
) -> None:
    recorder = Recorder(**({} if failing is None else {failing: BROKEN}))
    performed(WriteMetadata(ONE, SAVED, "/savepoint-1"), recorder)
    checks = ["check here"] if failing == "check here" else ["check here", "check by slots"]
    assert [call[0] for call in recorder.calls] == ["metadata", *checks]
    (answer,) = recorder.posted
    assert isinstance(answer, MetadataWritten if failing is None else MetadataFailed)


def test_a_checkpoint_is_not_read_back() -> None:
    recorder = Recorder()
    performed(WriteMetadata(ONE, METADATA, "/chk-1"), recorder)
    assert [call[0] for call in recorder.calls] == ["metadata"]


def test_a_savepoint_without_a_folder_fails_with_the_option_to_set() -> None:
    recorder = Recorder()
    performed(PrepareLocation(ONE, savepoint=True, target=None), recorder)
    (answer,) = recorder.posted
    assert isinstance(answer, LocationFailed)
    assert "execution.checkpointing.savepoint-dir" in str(answer.error)
    recorder = Recorder()
    there = CheckpointSettings(savepoint_directory="/all-savepoints")
    recorder.settings = JobSettings(checkpoints=there)
    performed(PrepareLocation(ONE, savepoint=True, target=None), recorder)
    assert recorder.posted == [LocationReady(ONE, "/all-savepoints/savepoint-1")]


def test_a_job_without_hooks_answers_for_them() -> None:
    recorder = Recorder()
    performed(TriggerHooks(ONE, 77), recorder)
    assert recorder.posted == [HooksTriggered(ONE)]


class Remote(MasterTriggerRestoreHook[int]):
    """A hook without state. failing: what each call raises."""

    def __init__(self, failing: Exception | None = None) -> None:
        self.failing = failing
        self.calls: list[tuple[object, ...]] = []

    def get_identifier(self) -> str:
        return "remote"

    def trigger_checkpoint(self, checkpoint_id: CheckpointId, timestamp_ms: int) -> None:
        self._called("trigger", checkpoint_id, timestamp_ms)

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: int | None) -> None:
        self._called("restore", checkpoint_id, state)

    def _called(self, *call: object) -> None:
        self.calls.append(call)
        if self.failing is not None:
            raise self.failing


def test_hooks_are_called_on_the_pool_and_answered_once() -> None:
    recorder, remote = Recorder(), Remote()
    performed(TriggerHooks(ONE, 77), recorder, remote)
    performed(RestoreHooks(ONE, (), allow_unmatched=False), recorder, remote)
    assert recorder.posted == [HooksTriggered(ONE), HooksRestored()]
    assert remote.calls == [("trigger", 1, 77), ("restore", 1, None)]


@pytest.mark.parametrize("failure", [BROKEN, ODD])
def test_a_hook_that_raises_is_answered_with_what_it_raised(failure: Exception) -> None:
    recorder, remote = Recorder(), Remote(failure)
    performed(TriggerHooks(ONE, 77), recorder, remote)
    performed(RestoreHooks(ONE, (), allow_unmatched=False), recorder, remote)
    triggered, restored = recorder.posted
    assert isinstance(triggered, HookFailed) and isinstance(restored, HooksNotRestored)
    assert str(failure) in str(triggered.error) and str(failure) in str(restored.error)


class Labelling(FailureEnricher):
    """Labels each failure with its kind, or does what it is told instead."""

    def __init__(self, key: str, says: Mapping[str, str] | Exception | None = None) -> None:
        self._key, self._says = key, says
        self.seen: list[FailureContext] = []

    def get_output_keys(self) -> set[str]:
        return {self._key}

    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        self.seen.append(context)
        if isinstance(self._says, Exception):
            raise self._says
        return {self._key: context.kind.value} if self._says is None else self._says


@pytest.mark.parametrize(
    ("task", "slot", "kind"),
    [("map", "s", FailureKind.TASK), ("", "s", FailureKind.SLOT), ("", None, FailureKind.GLOBAL)],
)
def test_enrichers_label_a_failure_on_the_pool(
    task: str, slot: str | None, kind: FailureKind
) -> None:
    recorder, enrichers = Recorder(), [Labelling("a"), Labelling("b", {})]
    where = None if slot is None else SlotId(slot)
    performed(LabelFailure(3, BROKEN, task, where), recorder, labelling=enrichers)
    assert recorder.posted == [FailureLabelled(3, {"a": kind.value})]
    assert enrichers[1].seen == [FailureContext(kind, JOB, "flights", task, where)]


@pytest.mark.parametrize("says", [ODD, {"other": "x"}])
def test_an_enricher_that_fails_loses_its_own_labels_and_is_named(says: Any) -> None:
    recorder, odd = Recorder(), Labelling("odd", says)
    enrichers = [odd, Labelling("a", {"a": "1"})]
    (log,) = performed(LabelFailure(3, BROKEN, "map", None), recorder, labelling=enrichers)
    assert recorder.posted == [FailureLabelled(3, {"a": "1"})]
    assert log["log_level"] == "warning" and log["enricher"] == "Labelling"
    assert str(says) in log["error"]


def test_files_that_cannot_be_deleted_are_logged_with_their_place() -> None:
    failure = StorageFailed("no permission", where="/chk-1/a")
    logs = performed(DeleteFiles(("/chk-1/a",)), Recorder(delete=failure))
    assert [(log["event"], log["where"]) for log in logs] == [
        ("files could not be deleted", "/chk-1/a")
    ]


EXECUTION = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
OPERATOR = OperatorId(b"o" * 16)
SLOT = SlotId("slot-1")
GUESTS = {SLOT: ("count (2/2)",)}


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        (SendToSlot(SLOT, Start(EXECUTION)), [("send", SLOT, Start(EXECUTION))]),
        (RequestSlots(2), [("request", 2)]),
        (ReleaseSlots("over"), [("release", "over")]),
        (DropSlot(SLOT, "silent"), [("drop", SLOT)]),
        (StartCoordinators(ONE, {}, {}), [("start", ONE, {}, {})]),
        (ResetSubtasks(ONE, {}), [("reset", ONE, {})]),
        (LabelFailure(1, BROKEN, "map", SLOT), []),
        (SubtaskReady(EXECUTION, (OPERATOR,)), [("ready", EXECUTION, (OPERATOR,))]),
        (CloseCoordinators(), [("close",)]),
        (SnapshotCoordinator(ONE, OPERATOR), [("snapshot", OPERATOR, ONE)]),
        (RequestDone(3, ONE, "/chk-1", None), [("give", 3, CheckpointDone(1, "/chk-1"))]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_other_commands_reach_whom_they_concern(
    command: JobCommand, calls: list[tuple[object, ...]]
) -> None:
    recorder = Recorder()
    performed(command, recorder)
    assert recorder.calls == calls and recorder.posted == []


def test_the_end_of_the_job_is_kept_for_whoever_waits_for_it() -> None:
    recorder, over = Recorder(), JobOver(JobStatus.FINISHED)
    performed(over, recorder)
    assert recorder.ended == over and recorder.calls == recorder.posted == []


@pytest.mark.parametrize(
    ("command", "level", "event"),
    [
        (StatusChanged(JobStatus.CREATED, JobStatus.RUNNING, 77), "info", "job status"),
        (SlotsAwaited(1, 3, 5_000), "warning", "waiting for slots"),
        (Restarting(1, 1_000, BROKEN), "warning", "job restarts"),
        (Deployed(0, None, 6), "info", "subtasks deployed"),
        (GuestsDeployed(GUESTS), "info", "subtasks without a slot of their own run in others"),
        (GuestsReturn((), GUESTS), "info", "subtasks return to slots of their own"),
        (
            GuestsStay(GUESTS, BROKEN),
            "warning",
            "no further slot will come: subtasks stay in the slots of others, which work for both. "
            "Rescale the job to the slots that it has, or mend what the error names",
        ),
        (CheckpointEnded(ONE, SnapshotKind.CHECKPOINT, 5), "info", "checkpoint completed"),
        (
            CheckpointEnded(
                ONE, SnapshotKind.CHECKPOINT, 5, reason=FailureReason.CHECKPOINT_EXPIRED
            ),
            "warning",
            "checkpoint failed",
        ),
        (
            CheckpointEnded(ONE, SnapshotKind.CHECKPOINT, 5, reason=FailureReason.TASK_FAILURE),
            "info",
            "checkpoint failed",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_operator_of_the_job_would_tell_is_logged(
    command: JobCommand, level: str, event: str
) -> None:
    (log,) = performed(command, Recorder())
    assert (log["log_level"], log["event"]) == (level, event)


def test_a_shortage_of_slots_is_told_with_the_runtimes_hint() -> None:
    (log,) = performed(SlotsAwaited(1, 3, 5_000), Recorder())
    assert log["hint"] == "look at the cores" and (log["have"], log["want"]) == (1, 3)


class Asked(Recorder):
    """Writes down, too, when the hint is asked for: Spark's takes several calls of its JVM."""

    async def hint(self) -> str:
        return str(self._act("hint", result="look at the cores"))


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        (SlotsAwaited(1, 3, 5_000), [("hint",)]),
        (StatusChanged(JobStatus.CREATED, JobStatus.RUNNING, 77), []),
        (Deployed(0, None, 6), []),
        (CheckpointEnded(ONE, SnapshotKind.CHECKPOINT, 5), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_runtime_is_asked_for_its_hint_only_where_slots_are_awaited(
    command: JobCommand, calls: list[tuple[str]]
) -> None:
    recorder = Asked()
    performed(command, recorder)
    assert recorder.calls == calls
