"""A program laid over a snapshot: what a report says, and of which snapshots."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkformat import metadata
from flinkformat.handles import ByteStreamStateHandle, InputChannelStateHandle
from flinkformat.snapshots import FINISHED, CheckpointMetadata, OperatorState
from tests.upgrade import programs
from tests.upgrade.conftest import Check, checkpointed, environment, taken
from tests.upgrade.programs import STATES, Hook, Plan, build
from tidegate import (
    ListStateDescriptor,
    MapFunction,
    OperatorMatch,
    ProcessingTimeTrigger,
    PurgingTrigger,
    RestoreRefused,
    RuntimeContext,
    SavepointFormatType,
    StateTtlConfig,
    StateVerdict,
    Time,
    TumblingProcessingTimeWindows,
    Types,
    UpgradeFault,
    UpgradeReport,
    UpgradeSeverity,
    ValueStateDescriptor,
    check_upgrade,
)
from tidegate.checkpoint.provenance import provenance_of, sealed, to_master_state
from tidegate.connectors import DataGeneratorSource
from tidegate.errors import FormatError

DAY = StateTtlConfig.new_builder(Time.days(1)).build()
FILE = ByteStreamStateHandle("in flight", b"rows")


def nothing(plan: Plan) -> None:
    """No change."""


def kinds(report: UpgradeReport) -> set[tuple[UpgradeFault, str | None]]:
    return {(each.kind, each.operator) for each in report.findings}


def amended(
    savepoint: str, folder: Path, amend: Callable[[CheckpointMetadata], CheckpointMetadata]
) -> str:
    """A copy of a savepoint whose metadata says something else."""
    copy = folder / "amended"
    shutil.copytree(savepoint, copy)
    file = copy / "_metadata"
    numbers = iter(range(1_000_000))
    decoded = metadata.decode(file.read_bytes(), lambda: str(next(numbers)))
    provenance = provenance_of(decoded)
    assert provenance is not None
    own = replace(amend(decoded), master_states=(to_master_state(provenance),))
    file.write_bytes(sealed(metadata.encode(own), own))
    return str(copy)


def of_operator(
    uid: str, amend: Callable[[OperatorState], OperatorState]
) -> Callable[[CheckpointMetadata], CheckpointMetadata]:
    def amended(read: CheckpointMetadata) -> CheckpointMetadata:
        operators = tuple(amend(each) if each.uid == uid else each for each in read.operators)
        return replace(read, operators=operators)

    return amended


def test_a_report_tells_each_operator_and_state(check: Check, savepoint: str) -> None:
    def edit(plan: Plan) -> None:
        plan.with_state("price", ValueStateDescriptor("price", Types.DOUBLE()))
        plan.with_state("label", ValueStateDescriptor("label", Types.LONG()))
        plan.with_state("more", ValueStateDescriptor("more", Types.LONG()))
        plan.with_state("seen", None)
        plan.with_state("recent", ListStateDescriptor("recent", Types.LONG(), ttl=DAY))
        plan.between = True

    report = check(edit)
    assert (report.snapshot, report.checkpoint, report.job_name) == (savepoint, 1, "before")
    assert report.kind == "Savepoint" and not report.fits
    operators = {each.label: each for each in report.operators}
    keeper = operators["keeper"]
    assert (keeper.match, keeper.was, keeper.becomes) == (OperatorMatch.MATCHED, (1, 128), (1, 128))
    assert keeper.key == "Long" and keeper.size_bytes > 0
    verdicts = {each.name: each.verdict for each in keeper.states}
    assert verdicts["count"] is StateVerdict.AS_IS
    assert verdicts["price"] is StateVerdict.MIGRATED
    assert verdicts["label"] is StateVerdict.REFUSED
    assert verdicts["more"] is StateVerdict.NEW
    assert verdicts["seen"] is StateVerdict.LEFT
    label = next(each for each in keeper.states if each.name == "label")
    assert (label.kind, label.was, label.becomes) == ("value", "String", "Long")
    assert label.sampled >= 7  # of as many keys
    recent = next(each for each in keeper.states if each.name == "recent")
    assert recent.verdict is StateVerdict.MIGRATED
    assert (recent.was, recent.becomes) == ("ListTypeInfo<Long>", "ListTypeInfo<Long>, expires")
    assert operators["files"].committables > 0
    assert operators["Map"].match is OperatorMatch.NEW
    [label_told] = [each for each in report.findings if each.state == "label"]
    assert "was String and is now Long" in label_told.what and label_told.operator == "keeper"


def triggered(env: Any, offsets: Any, keyed: Any) -> None:
    """Windows with a trigger of their own, which have timers beside each key and window."""
    trigger = PurgingTrigger.of(ProcessingTimeTrigger())
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.hours(1))).trigger(trigger)
    programs.end(windows.reduce(programs.add).uid("triggered"), "5")


def test_timers_are_told_with_their_keys_and_windows(tmp_path: Path) -> None:
    snapshot = taken(tmp_path / "before", extra=triggered)
    shown: list[tuple[str, str, str | None, str | None]] = []
    for plan in (
        Plan(folder=str(tmp_path), extra=triggered),
        Plan(folder=str(tmp_path), keeper=None),
    ):
        env = environment(tmp_path)
        build(env, plan)
        report = check_upgrade(env, snapshot)
        shown += [
            (each.label, state.kind, state.was, state.becomes)
            for each in report.operators
            for state in each.states
            if state.name.startswith("_timer_state/event_user")
            or state.name.startswith("_timer_state/processing_window")
        ]
    window = "by Long and TupleTypeInfo(Long, Long)"
    assert shown == [
        ("keeper", "timers", "by Long", "by Long"),
        ("triggered", "timers", window, window),
        ("keeper", "timers", "by Long", None),
        ("triggered", "timers", window, None),
    ]


def test_a_report_is_text_and_json(check: Check) -> None:
    report = check(lambda plan: setattr(plan, "keeper", "keepers"))
    text = str(report)
    assert "lost, now 'keepers'?" in text and "The program does not fit." in text
    assert "give that one uid('keeper')" in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["fits"] is False and plain["checkpoint"] == 1
    [lost] = [each for each in plain["operators"] if each["match"] == "lost"]
    assert (lost["uid"], lost["likely"]) == ("keeper", "keepers")
    [told] = plain["findings"]
    assert (told["kind"], told["severity"]) == ("operator lost", "refused")
    assert all(repr(name) in told["what"] for name in STATES)


def test_the_likely_operator_is_known_by_its_states_too(check: Check) -> None:
    def edit(plan: Plan) -> None:
        plan.keeper = "by sensor"
        plan.extra = lambda env, offsets, keyed: offsets.map(programs.same).print().uid("more")

    [told] = check(edit).findings
    assert "now uid 'by sensor'" in told.remedy


@pytest.mark.parametrize("allow", [True, None])
def test_state_that_may_be_lost_is_a_warning(check: Check, allow: bool | None) -> None:
    def edit(plan: Plan) -> None:
        plan.sink_uid, plan.hook = None, None

    settings = {} if allow else {"execution.state-recovery.ignore-unclaimed-state": True}
    report = check(edit, allow=allow, **settings)
    assert report.fits
    assert {each.kind for each in report.findings} == {
        UpgradeFault.OPERATOR_LOST,
        UpgradeFault.COMMITTABLES_LOST,
        UpgradeFault.HOOK,
    }
    assert {each.severity for each in report.findings} == {UpgradeSeverity.WARNING}


def test_a_class_that_has_gone_is_found_in_the_values(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(programs, "Note")
    [told] = check(nothing).findings
    assert (told.kind, told.operator, told.state) == (
        UpgradeFault.STATE_CHANGED,
        "keeper",
        "note",
    )
    assert "Note" in told.what


def test_in_flight_data_of_what_is_one_chain_now_are_refused(
    check: Check, savepoint: str, tmp_path: Path
) -> None:
    in_flight = InputChannelStateHandle(0, 0, 0, (4,), 9, FILE)

    def amend(state: OperatorState) -> OperatorState:
        subtask = state.subtasks[0]
        assert subtask is not FINISHED
        return replace(state, subtasks={0: replace(subtask, input_channel=(in_flight,))})

    snapshot = amended(savepoint, tmp_path, of_operator("files", amend))
    report = check(nothing, snapshot)
    assert kinds(report) == {(UpgradeFault.IN_FLIGHT, None)}
    given_up = {"execution.state-recovery.without-channel-state.checkpoint-id": 1}
    assert check(nothing, snapshot, **given_up).fits


def test_what_has_ended_stands_in_front_of_nothing_that_runs(
    check: Check, savepoint: str, tmp_path: Path
) -> None:
    def amend(state: OperatorState) -> OperatorState:
        return replace(state, subtasks={}, coordinator_state=None, fully_finished=True)

    snapshot = amended(savepoint, tmp_path, of_operator("sums", amend))
    assert {kind for kind, _ in kinds(check(nothing, snapshot))} == {UpgradeFault.FINISHED}


def test_a_file_that_is_gone_is_named(check: Check, savepoint: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(savepoint, copy)
    gone = next(file for file in copy.iterdir() if file.name != "_metadata")
    gone.unlink()
    report = check(nothing, str(copy))
    assert (UpgradeFault.FILE_MISSING, None) in kinds(report) and not report.fits
    assert gone.name in str(report)


def test_what_is_no_snapshot_is_refused(check: Check, savepoint: str, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="Cannot find checkpoint or savepoint"):
        check(nothing, str(tmp_path / "nowhere"))
    with pytest.raises(RestoreRefused, match="Cannot find meta data file"):
        check(nothing, str(tmp_path))
    cut = tmp_path / "cut"
    shutil.copytree(savepoint, cut)
    data = (cut / "_metadata").read_bytes()
    (cut / "_metadata").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError):
        check(nothing, str(cut))


class Slow(MapFunction[Any, Any]):
    """Waits in its open."""

    def open(self, runtime_context: RuntimeContext) -> None:
        time.sleep(1)

    def map(self, value: Any) -> Any:
        return value


class Broken(Slow):
    """Raises in its open."""

    def open(self, runtime_context: RuntimeContext) -> None:
        raise OSError("no database here")


@pytest.mark.parametrize(
    ("function", "timeout_s", "text"),
    [(Slow(), 0.05, "was not open after 0.05 s"), (Broken(), 60, "no database here")],
)
def test_an_open_that_cannot_be_judged_is_a_warning(
    savepoint: str, tmp_path: Path, function: MapFunction[Any, Any], timeout_s: float, text: str
) -> None:
    env = environment(tmp_path)
    plan = Plan(folder=str(tmp_path))
    plan.extra = lambda env, offsets, keyed: offsets.map(function).uid("new").print().uid("end 4")
    build(env, plan)
    report = check_upgrade(env, savepoint, open_timeout_s=timeout_s)
    # A busy machine may be too slow for the other functions as well.
    [told] = [one for one in report.findings if one.operator == "new"]
    assert told.kind is UpgradeFault.OPEN_FAILED
    assert text in told.what and report.fits


ANSWER = threading.Event()
"""What the server of `Silent` never gives while it is tested."""


class Silent(DataGeneratorSource):
    """Asks a server that does not answer."""

    def enumerator(self, context: Any, restored: bytes | None) -> Any:
        ANSWER.wait()
        return super().enumerator(context, restored)


@pytest.mark.slow
def test_a_coordinator_that_is_never_made_is_a_warning(savepoint: str, tmp_path: Path) -> None:
    env = environment(tmp_path)
    source = Silent(programs.same, None, 1_000, Types.LONG())
    build(env, Plan(folder=str(tmp_path), source=source))
    try:
        report = check_upgrade(env, savepoint, open_timeout_s=2)
    finally:
        ANSWER.set()
    [told] = report.findings
    assert (told.kind, told.operator) == (UpgradeFault.COORDINATOR, "numbers")
    assert told.severity is UpgradeSeverity.WARNING and report.fits
    assert "not made within 2 s" in told.what and "numbers" in told.where
    assert len(report.operators) > 5  # the others are judged all the same


def test_nothing_is_opened_written_or_started(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hook = Hook()
    assert check(lambda plan: setattr(plan, "hook", hook)).fits
    assert list(tmp_path.iterdir()) == [] and not hook.restored


def test_it_can_be_asked_within_a_loop(check: Check) -> None:
    async def ask() -> UpgradeReport:
        return check(nothing)

    assert asyncio.run(ask()).fits


ON_DISK = {"state.backend.type": "rocksdb"}
KEYED = ("keeper", "sums", "windows")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint in the form of the backend on disk."""
    return taken(tmp_path_factory.mktemp("native"), SavepointFormatType.NATIVE, **ON_DISK)


def label_as_number(plan: Plan) -> None:
    plan.with_state("label", ValueStateDescriptor("label", Types.LONG()))


@pytest.mark.slow
def test_the_form_of_one_backend_is_refused_by_another(check: Check, tmp_path: Path) -> None:
    form = SavepointFormatType.NATIVE
    report = check(nothing, taken(tmp_path / "native", form, parallelism=2, **ON_DISK))
    assert {each.kind for each in report.findings} == {UpgradeFault.STATE_FORM}
    assert sorted(str(each.operator) for each in report.findings) == sorted(KEYED)
    assert all("state.backend.type: rocksdb" in each.remedy for each in report.findings)


@pytest.mark.slow
def test_state_on_disk_is_sampled(check: Check, native: str) -> None:
    report = check(nothing, native, **ON_DISK)
    assert report.findings == ()
    keeper = next(each for each in report.operators if each.label == "keeper")
    counted = {each.name: each.sampled for each in keeper.states}
    assert set(STATES) <= set(counted) and all(counted[name] >= 7 for name in STATES)
    assert kinds(check(label_as_number, native, **ON_DISK)) == {
        (UpgradeFault.STATE_CHANGED, "keeper")
    }


@pytest.mark.slow
def test_a_class_that_has_gone_is_found_in_values_on_disk(
    check: Check, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(programs, "Note")
    [told] = check(nothing, native, **ON_DISK).findings
    assert told.state == "note"


@pytest.mark.slow
def test_a_canonical_savepoint_fits_the_other_backend(check: Check) -> None:
    assert check(nothing, **ON_DISK).findings == ()
    assert kinds(check(label_as_number, **ON_DISK)) == {(UpgradeFault.STATE_CHANGED, "keeper")}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("changelog", [False, True], ids=["incremental", "changelog"])
def test_a_checkpoint_is_read_in_each_form(
    check: Check, tmp_path: Path, backend: str, changelog: bool
) -> None:
    settings = {
        "state.backend.type": backend,
        "execution.checkpointing.incremental": True,
        "state.changelog.enabled": changelog,
    }
    snapshot = checkpointed(tmp_path / "before", **settings)
    report = check(nothing, snapshot, **settings)
    assert report.findings == () and report.kind == "Checkpoint"
    told = check(label_as_number, snapshot, **settings).findings
    assert [(each.kind, each.state) for each in told] == [(UpgradeFault.STATE_CHANGED, "label")]
    [lost] = check(lambda plan: setattr(plan, "keeper", "keepers"), snapshot, **settings).findings
    assert all(repr(name) in lost.what for name in STATES)
