"""What windows are, record by record: the slowest form, after the reference, for comparison."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

NEVER = 2**63 - 1
BEGINNING = -(2**63)

Span = tuple[int, int]
"""Start and end of a window; of one without end its number, twice."""
Kept = list[tuple[object, int]]


@dataclass(frozen=True)
class Firing:
    key: object
    window: Span
    values: tuple[object, ...]
    stamp: int


@dataclass
class Held:
    """One window of a key."""

    kept: Kept = field(default_factory=list)
    timers: set[int] = field(default_factory=set)
    count: int = 0
    next_fire: int | None = None
    ends: bool = True


@dataclass(frozen=True)
class Rules:
    """What the program says. windows: of an event time; None where `gap` says it, or `size`.

    trigger: "end", ("count", n), ("continuous", interval) or "never". evict: from the list of value
    and time to what is left. size, slide: of count windows. in_panes: windows that were dropped are
    over after a restore as well.
    """

    windows: Callable[[int], list[Span]] | None = None
    gap: Callable[[object], int] | None = None
    size: int = 0
    slide: int = 0
    by_clock: bool = False
    in_panes: bool = False
    trigger: str | tuple[str, int] = "end"
    purging: bool = False
    lateness: int = 0
    evict_before: Callable[[Kept], Kept] | None = None
    evict_after: Callable[[Kept], Kept] | None = None


class WindowModel:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.time = self._dropped_until = BEGINNING
        self._windows: defaultdict[object, dict[Span, Held]] = defaultdict(dict)
        self._numbers: defaultdict[object, int] = defaultdict(int)
        self.late: list[object] = []
        self.fired: list[Firing] = []

    # --- records ---

    def record(self, key: object, value: object, time: int) -> None:
        """time: event time; by the clock, what it shows."""
        windows = self._spans(key, value, time)
        live = False
        for span in windows:
            joined = self._joined(key, span) if self._rules.gap else span
            if self._is_over(joined):
                continue
            live = True
            held = self._windows[key].setdefault(joined, Held(ends=self._ends))
            held.kept.append((value, time))
            self._on_element(key, joined, held, time)
            if held.ends:
                held.timers.add(self._cleanup(joined))
            if self._rules.size and held.count == 0:
                del self._windows[key][joined]
        late_alone = self._by_event_time and time + self._rules.lateness <= self.time
        if not live and (windows or late_alone):
            self.late.append(value)

    @property
    def _by_event_time(self) -> bool:
        return self._ends and not self._rules.by_clock

    @property
    def _ends(self) -> bool:
        return self._rules.windows is not None or self._rules.gap is not None

    def _spans(self, key: object, value: object, time: int) -> list[Span]:
        rules = self._rules
        if rules.windows is not None:
            return rules.windows(time)
        if rules.gap is not None:
            return [(time, time + rules.gap(value))]
        if not rules.size:
            return [(0, 0)]
        number = self._numbers[key]
        self._numbers[key] += 1
        covering = range(number // rules.slide + 1)
        return [
            (k, k) for k in covering if k * rules.slide <= number < k * rules.slide + rules.size
        ]

    def _joined(self, key: object, span: Span) -> Span:
        """Merge with what overlaps or touches, again and again."""
        start, end = span
        held = self._windows[key]
        while True:
            more = [each for each in held if each[0] <= end and each[1] >= start]
            if not more:
                break
            for each in more:
                start, end = min(start, each[0]), max(end, each[1])
            merged, old = Held(), Held()
            for each in more:
                old = held.pop(each)
                merged.kept += old.kept
                merged.count += old.count
                fires = [t for t in (merged.next_fire, old.next_fire) if t is not None]
                merged.next_fire = min(fires, default=None)
            held[start, end] = merged
            if len(more) == 1 and more[0] == (start, end):
                merged.timers = old.timers
                break
            self._on_merge((start, end), merged)
        return start, end

    def _on_merge(self, span: Span, held: Held) -> None:
        match self._rules.trigger:
            case "end" if span[1] - 1 > self.time:
                held.timers.add(span[1] - 1)
            case ("continuous", _):
                held.timers.add(span[1] - 1)
                if held.next_fire is not None:
                    held.timers.add(held.next_fire)
            case _:
                pass

    def _is_over(self, span: Span) -> bool:
        over = max(self.time, self._dropped_until) if self._rules.in_panes else self.time
        return self._by_event_time and self._cleanup(span) <= over

    def _cleanup(self, span: Span) -> int:
        return span[1] - 1 + (0 if self._rules.by_clock else self._rules.lateness)

    # --- triggers ---

    def _on_element(self, key: object, span: Span, held: Held, time: int) -> None:
        match self._rules.trigger:
            case "end" if span[1] - 1 <= self.time and not self._rules.by_clock:
                self._fire(key, span, held)
            case "end":
                held.timers.add(span[1] - 1)
            case ("count", n):
                held.count += 1
                if held.count >= n:
                    held.count = 0
                    self._fire(key, span, held)
            case ("continuous", _) if held.ends and span[1] - 1 <= self.time:
                self._fire(key, span, held)
            case ("continuous", interval):
                if held.ends:
                    held.timers.add(span[1] - 1)
                if held.next_fire is None:
                    self._wait(span, held, time - time % interval)
            case _:
                pass

    def _wait(self, span: Span, held: Held, after: int) -> None:
        _, interval = self._rules.trigger
        last = span[1] - 1 if held.ends else NEVER
        held.next_fire = min(after + interval, last)
        held.timers.add(held.next_fire)

    def advance(self, time: int) -> None:
        """The watermark; by the clock, the last millisecond that is over."""
        self.time = time
        while True:
            due = [
                (timer, key, span)
                for key, windows in self._windows.items()
                for span, held in windows.items()
                for timer in held.timers
                if timer <= time
            ]
            if not due:
                return
            timer, key, span = min(due, key=lambda each: each[0])
            self._on_time(timer, key, span)

    def _on_time(self, timer: int, key: object, span: Span) -> None:
        held = self._windows[key][span]
        held.timers.remove(timer)
        at_end = held.ends and timer == span[1] - 1
        match self._rules.trigger:
            case "end" if at_end:
                self._fire(key, span, held)
            case ("continuous", _) if at_end:
                self._fire(key, span, held)
            case ("continuous", _) if timer == held.next_fire:
                self._wait(span, held, timer)
                self._fire(key, span, held)
            case _:
                pass
        if held.ends and timer == self._cleanup(span):
            del self._windows[key][span]

    def _fire(self, key: object, span: Span, held: Held) -> None:
        if not held.kept:
            return
        before, after = self._rules.evict_before, self._rules.evict_after
        if before is not None:
            held.kept = before(held.kept)
        values = tuple(value for value, _ in held.kept)
        self.fired.append(Firing(key, span, values, span[1] - 1 if held.ends else NEVER))
        if after is not None:
            held.kept = after(held.kept)
        if self._rules.purging:
            held.kept = []

    # --- failures ---

    def restart(self) -> None:
        """All is kept but how far event time has come."""
        if not self._rules.by_clock:
            self._dropped_until = max(self._dropped_until, self.time)
            self.time = BEGINNING

    def taken(self) -> list[Firing]:
        fired, self.fired = self.fired, []
        return fired

    def taken_late(self) -> list[object]:
        late, self.late = self.late, []
        return late

    @property
    def open_windows(self) -> int:
        return sum(map(len, self._windows.values()))


def aligned(size: int, slide: int, offset: int) -> Callable[[int], list[Span]]:
    """All windows that start at offset + n * slide and hold a time, by trying."""

    def windows(time: int) -> list[Span]:
        tried: Iterable[int] = range(time - size - slide, time + slide + 1)
        starts = [start for start in tried if (start - offset) % slide == 0]
        return [(start, start + size) for start in starts if start <= time < start + size]

    return windows
