"""Which request runs next: each line of checkpoint coordination §3."""

from __future__ import annotations

import pytest

from flinkformat.snapshots import (
    PostCheckpointAction,
    RetentionPolicy,
    SavepointFormatType,
    SavepointType,
)
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.checkpoint.coordinator.requests import Request, periodic_request
from tidegate.checkpoint.coordinator.triggers import QUEUE_MAX, TooSoon, Triggers, asked_request
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import CheckpointSettings

SETTINGS = CheckpointSettings(interval_ms=1_000, min_pause_ms=500, max_concurrent=1)
UNALIGNED = CheckpointSettings(interval_ms=1_000, unaligned=True)
IDLE = (0, 0)
"""No checkpoint is under way, none is being deleted."""

FULL = (1, 0)


def asked(
    number: int,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    *,
    settings: CheckpointSettings = SETTINGS,
    now_ms: int = 0,
) -> Request:
    return asked_request(CheckpointRequested(number, kind, "/sp"), settings, now_ms)


def periodic(now_ms: int = 0) -> Request:
    return periodic_request(SETTINGS, now_ms)


def queue(*requests: Request) -> Triggers:
    made = Triggers(SETTINGS, CheckpointId(0))
    for request in requests:
        assert made.submit(request) is None
    return made


@pytest.mark.feature("F051")
def test_nothing_runs_while_a_trigger_is_under_way() -> None:
    waiting = queue(periodic())
    waiting.begin(asked(1))
    assert waiting.choose(*IDLE, 0) is None


@pytest.mark.feature("F051")
def test_nothing_runs_where_nothing_waits() -> None:
    assert queue().choose(*IDLE, 0) is None


@pytest.mark.feature("F051")
def test_nothing_runs_while_too_much_is_being_deleted_not_even_what_is_forced() -> None:
    savepoint = asked(1, SnapshotKind.SAVEPOINT)
    waiting = queue(savepoint)
    assert waiting.choose(0, 2, 0) is None
    assert waiting.choose(0, 1, 0) == savepoint


@pytest.mark.feature("F051", "F059")
def test_where_enough_are_pending_only_a_forced_request_runs() -> None:
    checkpoint, savepoint = asked(1), asked(2, SnapshotKind.SAVEPOINT)
    waiting = queue(checkpoint)
    assert waiting.choose(*FULL, 0) is None
    assert waiting.submit(savepoint) is None
    assert waiting.choose(*FULL, 0) == savepoint
    unforced = asked(3, SnapshotKind.SAVEPOINT, settings=UNALIGNED)
    assert queue(unforced).choose(*FULL, 0) is None


def test_an_urgent_checkpoint_waits_for_no_other_where_none_may_be_unaligned() -> None:
    last = CheckpointRequested(1, urgent=True)
    forced = asked_request(last, SETTINGS, 0)
    assert queue(forced).choose(*FULL, 0) == forced
    assert queue(asked_request(last, UNALIGNED, 0)).choose(*FULL, 0) is None


@pytest.mark.feature("F051", "F060")
def test_a_periodic_request_within_the_pause_is_refused_until_its_end() -> None:
    request = periodic(900)
    waiting = queue(request)
    waiting.completed(800)
    assert waiting.choose(*IDLE, 900) == TooSoon(request, 1_300)
    assert waiting.waiting == 0


@pytest.mark.feature("F051")
def test_after_the_pause_a_periodic_request_runs() -> None:
    request = periodic(900)
    waiting = queue(request)
    waiting.completed(800)
    assert waiting.choose(*IDLE, 1_300) == request


@pytest.mark.feature("F051")
def test_what_was_asked_for_does_not_mind_the_pause() -> None:
    request = asked(1)
    waiting = queue(request)
    waiting.completed(800)
    assert waiting.choose(*IDLE, 900) == request


@pytest.mark.feature("F063")
def test_savepoints_come_first_then_forced_then_asked_for_then_older_ones() -> None:
    requests = [
        periodic(0),
        asked(1, now_ms=3),
        asked(2, now_ms=2),
        asked(3, SnapshotKind.SAVEPOINT, settings=UNALIGNED, now_ms=4),
        asked(4, SnapshotKind.SAVEPOINT, now_ms=5),
    ]
    waiting = queue(*requests)
    order = [waiting.choose(*IDLE, 10) for _ in requests]
    assert order == [requests[i] for i in (4, 3, 2, 1, 0)]


def test_equal_requests_keep_the_order_in_which_they_came() -> None:
    requests = [asked(number) for number in range(5)]
    waiting = queue(*requests)
    assert waiting.drain() == requests
    assert waiting.drain() == []


def test_a_full_queue_gives_up_a_periodic_request_for_one_that_was_asked_for() -> None:
    waiting = queue(*(asked(number) for number in range(QUEUE_MAX - 1)), periodic(7))
    assert waiting.submit(asked(-1)) == periodic(7)
    assert waiting.waiting == QUEUE_MAX


def test_one_periodic_request_waits_at_most() -> None:
    waiting = queue(periodic(7), asked(1), periodic(8), asked(2), periodic(9))
    assert waiting.drain() == [asked(1), asked(2), periodic(7)]
    assert queue(periodic(10)).drain() == [periodic(10)]


def test_a_queue_full_of_what_was_asked_for_refuses_whatever_comes() -> None:
    waiting = queue(*(asked(number) for number in range(QUEUE_MAX)))
    savepoint = asked(-1, SnapshotKind.SAVEPOINT)
    assert waiting.submit(savepoint) == savepoint


@pytest.mark.feature("F062")
def test_a_request_says_what_where_and_for_whom() -> None:
    request = asked(7, SnapshotKind.SUSPEND)
    assert (request.number, request.target, request.periodic) == (7, "/sp", False)
    assert request.properties.snapshot_type == SavepointType.suspend(SavepointFormatType.CANONICAL)
    assert request.holds
    assert periodic().periodic
    assert periodic().number is None


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (SnapshotKind.SAVEPOINT, PostCheckpointAction.NONE),
        (SnapshotKind.SUSPEND, PostCheckpointAction.SUSPEND),
        (SnapshotKind.TERMINATE, PostCheckpointAction.TERMINATE),
    ],
)
@pytest.mark.parametrize("format", list(SavepointFormatType))
def test_a_savepoint_has_its_format_and_its_consequence(
    kind: SnapshotKind, action: PostCheckpointAction, format: SavepointFormatType
) -> None:
    request = asked_request(CheckpointRequested(1, kind, "/sp", format), SETTINGS, 0)
    kept = request.properties
    assert isinstance(kept.snapshot_type, SavepointType)
    assert (kept.snapshot_type.format, kept.snapshot_type.action) == (format, action)
    assert kept.forced
    assert not asked(1, kind, settings=UNALIGNED).properties.forced
    assert not any(
        (
            kept.discard_subsumed,
            kept.discard_finished,
            kept.discard_cancelled,
            kept.discard_failed,
            kept.discard_suspended,
        )
    )


def test_a_request_that_cancels_the_job_holds_everything_else_back() -> None:
    wish = CheckpointRequested(1, SnapshotKind.SAVEPOINT, "/sp", cancels=True)
    assert asked_request(wish, SETTINGS, 0).holds


@pytest.mark.feature("F050")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, ()),
        (RetentionPolicy.DELETE_ON_CANCELLATION, ("failed",)),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, ("cancelled", "failed", "suspended")),
    ],
)
def test_the_policy_says_when_a_checkpoint_is_kept(
    policy: RetentionPolicy, kept: tuple[str, ...]
) -> None:
    settings = CheckpointSettings(interval_ms=1_000, retention=policy)
    properties = periodic_request(settings, 0).properties
    for ending in ("finished", "cancelled", "failed", "suspended"):
        assert getattr(properties, f"discard_{ending}") == (ending not in kept)
    assert properties.discard_subsumed
    assert not properties.forced
