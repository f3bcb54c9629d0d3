"""Event time over several channels, against a model that looks at all of them each time."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, Watermark, WatermarkStatus
from tidegate.model.ids import ChannelId
from tidegate.slot.channels.valve import WatermarkValve

CHANNELS = [ChannelId(0, n, 0) for n in range(3)]


@dataclass
class Channel:
    """What is known of one channel. aligned: it counts, for it is not behind the others."""

    ms: int = MIN_TIMESTAMP_MS
    active: bool = True
    aligned: bool = True


@dataclass
class Model:
    """Flink's rules, told the long way. said: what was passed on so far."""

    channels: list[Channel] = field(default_factory=lambda: [Channel() for _ in CHANNELS])
    reached: int = MIN_TIMESTAMP_MS
    idle: bool = False

    def watermark(self, n: int, ms: int) -> list[object]:
        channel = self.channels[n]
        if not channel.active or ms <= channel.ms:
            return []
        channel.ms = ms
        channel.aligned = channel.aligned or ms >= self.reached
        return self.least()

    def becomes_idle(self, n: int) -> list[object]:
        channel = self.channels[n]
        if not channel.active:
            return []
        held_back = channel.ms == self.reached
        channel.active = channel.aligned = False
        if any(c.active for c in self.channels):
            return self.least() if held_back else []
        self.idle = True
        highest = max(c.ms for c in self.channels)
        said: list[object] = []
        if held_back and highest > self.reached:
            self.reached = highest
            said.append(Watermark(highest))
        return [*said, WatermarkStatus(idle=True)]

    def becomes_active(self, n: int) -> list[object]:
        channel = self.channels[n]
        if channel.active:
            return []
        channel.active = True
        channel.aligned = channel.ms >= self.reached
        if not self.idle:
            return []
        self.idle = False
        return [WatermarkStatus(idle=False)]

    def least(self) -> list[object]:
        counted = [c.ms for c in self.channels if c.aligned]
        if not counted or min(counted) <= self.reached:
            return []
        self.reached = min(counted)
        return [Watermark(self.reached)]


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.sampled_from(["idle", "active"]), st.integers(0, 9))),
    max_size=40,
)


@given(events=EVENTS)
def test_event_time_is_what_flinks_rules_make_of_it(events: list[tuple[int, str | int]]) -> None:
    valve, model = WatermarkValve(CHANNELS), Model()
    for n, event in events:
        if event == "idle":
            assert valve.status(CHANNELS[n], True) == model.becomes_idle(n)
        elif event == "active":
            assert valve.status(CHANNELS[n], False) == model.becomes_active(n)
        else:
            assert isinstance(event, int)
            advanced = valve.watermark(CHANNELS[n], event)
            assert ([] if advanced is None else [advanced]) == model.watermark(n, event)
        assert valve.current_ms == model.reached


@given(events=EVENTS)
def test_event_time_never_goes_back(events: list[tuple[int, str | int]]) -> None:
    valve = WatermarkValve(CHANNELS)
    reached = [valve.current_ms]
    for n, event in events:
        if isinstance(event, int):
            valve.watermark(CHANNELS[n], event)
        else:
            valve.status(CHANNELS[n], event == "idle")
        reached.append(valve.current_ms)
    assert reached == sorted(reached)


def test_an_idle_channel_does_not_hold_event_time_back() -> None:
    valve = WatermarkValve(CHANNELS[:2])
    assert valve.watermark(CHANNELS[0], 5) is None
    assert valve.status(CHANNELS[1], True) == [Watermark(5)]
    assert valve.watermark(CHANNELS[0], 7) == Watermark(7)


def test_a_channel_that_is_active_again_holds_it_back_once_it_has_caught_up() -> None:
    valve = WatermarkValve(CHANNELS[:2])
    valve.status(CHANNELS[1], True)
    valve.watermark(CHANNELS[0], 10)
    assert valve.status(CHANNELS[1], False) == []
    assert valve.watermark(CHANNELS[0], 12) == Watermark(12)  # the other one is still behind
    assert valve.watermark(CHANNELS[1], 12) is None
    assert valve.watermark(CHANNELS[0], 20) is None
    assert valve.watermark(CHANNELS[1], 15) == Watermark(15)


def test_the_channels_that_others_are_ahead_of_are_named() -> None:
    valve = WatermarkValve(CHANNELS[:3])
    assert valve.held_by == ()
    valve.watermark(CHANNELS[0], 5)
    assert (valve.held_by, valve.furthest_ms) == ((CHANNELS[1], CHANNELS[2]), 5)
    valve.watermark(CHANNELS[1], 3)
    assert valve.held_by == (CHANNELS[2],)
    valve.status(CHANNELS[2], True)
    assert valve.held_by == (CHANNELS[1],)


def test_an_input_that_has_ended_is_ahead_of_nobody() -> None:
    valve = WatermarkValve(CHANNELS[:2])
    valve.watermark(CHANNELS[0], MAX_WATERMARK_MS)
    valve.watermark(CHANNELS[1], 3)
    assert (valve.held_by, valve.furthest_ms) == ((), 3)
