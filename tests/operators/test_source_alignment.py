"""Watermark alignment: readers that are too far ahead of their group rest until it follows."""

from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.world import FakeCoordinatorContext, Hosted, World
from tests.properties import examples
from tidegate import Duration, WatermarkStrategy
from tidegate.api.operator import Polled
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    OperatorEvent,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.operators.sources.source_coordinator import WatermarkAllowed, WatermarkReached

UPDATE_MS = 1_000


@dataclass
class Script:
    """A source whose reader gives what the test put there; one timestamp a batch."""

    waiting: list[int] = field(default_factory=list)
    finished: bool = False
    wants_splits = False
    bounded = True
    produced_type = None

    def enumerator(self, context: object, restored: bytes | None) -> "Script":
        return self

    def reader(self, context: object) -> "Script":
        return self

    def poll(self) -> RowBatch | None:
        return RowBatch([(ms := self.waiting.pop(0))], [ms]) if self.waiting else None

    def start(self) -> None:
        pass

    def reader_ready(self, subtask: int) -> None:
        pass

    def add_back(self, subtask: int, splits: list[object]) -> None:
        pass

    def snapshot(self, checkpoint: object = None) -> object:
        return b"" if checkpoint is not None else ()

    def close(self) -> None:
        pass


class Member:
    """One source of a group at parallelism 1: reader and coordinator."""

    def __init__(self, group: "Group", strategy: WatermarkStrategy) -> None:
        self.group = group
        self.script = Script()
        self.heard = False
        operator = SourceReaderOperator(self.script, strategy, "source")
        self.context = FakeCoordinatorContext(group.world, 1)
        self.context.common = group.common
        self.coordinator = operator.coordinator(self.context)
        self.coordinator.start(None, None)
        self.begin(operator)

    def begin(self, operator: SourceReaderOperator) -> None:
        self.reader = Hosted(
            operator,
            self.group.world,
            settings=SlotSettings(watermark_ms=200),
            send=lambda event: self.coordinator.on_event(0, event),
        )
        self.coordinator.subtask_ready(0)

    def reset(self, strategy: WatermarkStrategy) -> None:
        self.coordinator.subtask_reset(0, None)
        self.begin(SourceReaderOperator(self.script, strategy, "source"))

    def reads(self, *stamps: int) -> list[int]:
        """What the reader makes of these and of what is still there."""
        self.script.waiting += stamps
        before = len(self.reader.out.values)
        while self.poll() is Polled.MORE:
            pass
        return self.reader.out.values[before:]

    def poll(self) -> Polled:
        return self.reader.poll()


class Group:
    """Sources with a drift of 10 ms."""

    def __init__(self, world: World, idle_ms: int | None = None) -> None:
        self.world = world
        self.common: dict[str, object] = {}
        self.members: list[Member] = []
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
            "g", Duration.of_millis(10), Duration.of_millis(UPDATE_MS)
        )
        self.strategy = (
            strategy if idle_ms is None else strategy.with_idleness(Duration.of_millis(idle_ms))
        )

    def member(self) -> Member:
        self.members.append(Member(self, self.strategy))
        return self.members[-1]

    def rounds(self, count: int = 2) -> None:
        """Let each reader tell its place, and each coordinator the bound."""
        for _ in range(count * 5):
            self.world.pass_time(UPDATE_MS // 5)
            for member in self.members:
                member.poll()
                deliver(member)


@pytest.fixture
def pair(world: World) -> tuple[Group, Member, Member]:
    group = Group(world)
    return group, group.member(), group.member()


def test_a_reader_that_is_ahead_rests_until_the_others_follow(
    pair: tuple[Group, Member, Member],
) -> None:
    group, fast, slow = pair
    assert fast.reads(100) == [100]
    assert slow.reads(50) == [50]
    group.rounds()
    assert fast.reads(101, 102) == []
    assert slow.reads(60, 70, 80) == [60, 70]  # its own bound is 10 ms beyond 49
    group.rounds()
    assert slow.reader.out.values == [50, 60, 70, 80]
    assert fast.reads() == []
    slow.reads(95)
    group.rounds()
    assert fast.reader.out.values == [100, 101, 102]


def test_a_resting_reader_tells_its_watermark_to_those_below(
    pair: tuple[Group, Member, Member],
) -> None:
    group, fast, slow = pair
    fast.reads(100)
    slow.reads(50)
    group.rounds()
    assert fast.reads(101) == []
    assert fast.reader.out.watermarks == [Watermark(99)]


def test_a_checkpoint_passes_a_resting_reader(pair: tuple[Group, Member, Member]) -> None:
    group, fast, slow = pair
    fast.reads(100)
    slow.reads(50)
    group.rounds()
    assert fast.reads(101) == []
    taken = fast.reader.snapshot(1)
    assert taken.lists and fast.script.waiting == [101]


def test_rest_is_no_idleness(world: World) -> None:
    group = Group(world, idle_ms=600)
    fast, slow = group.member(), group.member()
    for _ in range(30):
        slow.reads(50)  # it lives, and stays where it is
        fast.reads(100)
        world.pass_time(100)
        deliver(fast)
    waiting = list(fast.script.waiting)
    for _ in range(30):
        slow.reads(50)
        fast.poll()
        world.pass_time(100)
    assert waiting and fast.script.waiting == waiting
    assert WatermarkStatus(idle=True) not in fast.reader.out.watermarks


def test_the_rest_goes_on_when_the_others_have_ended(pair: tuple[Group, Member, Member]) -> None:
    group, fast, slow = pair
    fast.reads(100)
    slow.reads(50)
    group.rounds()
    assert fast.reads(1_000, 100_000) == []
    slow.script.finished = True
    assert slow.poll() is Polled.END
    group.members.remove(slow)
    group.world.pass_time(UPDATE_MS)
    deliver(fast)
    assert fast.reads() == [1_000, 100_000]


def test_the_rest_goes_on_when_the_others_are_idle(world: World) -> None:
    group = Group(world, idle_ms=600)
    fast, slow = group.member(), group.member()
    fast.reads(100)
    slow.reads(50)
    world.pass_time(UPDATE_MS)
    for member in (fast, slow):
        member.poll()
    world.pass_time(UPDATE_MS)
    deliver(fast)
    assert fast.reads(1_000) == []
    for _ in range(20):
        world.pass_time(100)
        slow.poll()
        deliver(fast)
        deliver(slow)
    assert WatermarkStatus(idle=True) in slow.reader.out.watermarks
    assert fast.reads() == [1_000]


def test_a_reader_without_a_watermark_holds_nobody_back(pair: tuple[Group, Member, Member]) -> None:
    group, fast, _ = pair
    fast.reads(100)
    group.rounds()
    assert fast.reads(100_000) == [100_000]


def test_an_ended_reader_ends_though_it_is_ahead(pair: tuple[Group, Member, Member]) -> None:
    group, fast, slow = pair
    fast.reads(100)
    slow.reads(50)
    group.rounds()
    fast.script.finished = True
    assert fast.poll() is Polled.END


def test_a_reader_that_is_reset_begins_anew(pair: tuple[Group, Member, Member]) -> None:
    group, fast, slow = pair
    fast.reads(100)
    slow.reads(50)
    group.rounds()
    fast.reset(group.strategy)
    assert fast.reads(101) == [101]
    group.rounds()
    assert fast.reads(102) == []
    slow.reset(group.strategy)  # what it had told does not count any more
    group.world.pass_time(UPDATE_MS)
    deliver(fast)
    assert fast.reads() == [102]


def test_groups_of_other_names_have_nothing_to_do_with_one_another(world: World) -> None:
    group, other = Group(world), Group(world)
    other.common = group.common
    other.strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "other", Duration.of_millis(10)
    )
    fast, slow = group.member(), other.member()
    slow.reads(50)
    other.rounds()
    fast.reads(100)
    group.rounds()
    assert fast.reads(100_000) == [100_000]


def test_the_bound_does_not_overflow(pair: tuple[Group, Member, Member]) -> None:
    group, first, second = pair
    first.reads(MAX_WATERMARK_MS)
    second.reads(MAX_WATERMARK_MS - 3)
    group.world.pass_time(UPDATE_MS)
    first.poll()
    second.poll()
    group.world.pass_time(UPDATE_MS)
    assert not first.context.sent, "there is nothing to say: no bound, as before"


def test_an_event_that_nobody_knows_is_a_fault_of_ours(pair: tuple[Group, Member, Member]) -> None:
    _, member, _ = pair
    with pytest.raises(AssertionError):
        member.coordinator.on_event(0, OperatorEvent(WatermarkAllowed(1)))
    with pytest.raises(AssertionError):
        member.reader.operator.on_event(OperatorEvent(WatermarkReached(1)))


@examples(50)
@given(
    steps=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=20), min_size=2, max_size=4)
)
def test_nobody_reads_far_ahead_and_nobody_rests_for_ever(steps: list[list[int]]) -> None:
    with World() as world:
        group = Group(world)
        members = [group.member() for _ in steps]
        for member, step in zip(members, steps, strict=True):
            member.script.waiting = list(accumulate(step, initial=1))
            member.poll()
        live = list(members)
        for _ in range(20 * len(steps) * 2 + 10):
            world.pass_time(UPDATE_MS)
            for member in members:
                deliver(member)
            for member in list(live):
                one_read(member, live)
        assert not live, "somebody rests for ever"


def one_read(member: Member, live: list[Member]) -> None:
    """A reader reads where it may; the last of what it has is its end."""
    member.script.finished = not member.script.waiting
    reached = member.reader.out.values[-1]
    found = member.poll()
    if found is Polled.END:
        live.remove(member)
    elif found is Polled.MORE and member.heard:
        assert reached - min(each.reader.out.values[-1] for each in live) <= 10


def deliver(member: Member) -> None:
    """Let a reader hear what its coordinator has said."""
    while member.context.sent:
        member.heard = True
        member.reader.operator.on_event(member.context.sent.popleft()[1])
