"""Where the time of a slot's subtasks goes, while somebody asks: Python frames of its loop.

A thread looks at the loop's frames some eighty times a second. What it finds belongs to the subtask
that has its turn, and to the operator of the chain that works; every other subtask waits. Where
that operator works on a key, the key is counted too, so that the hottest ones are known by their
time. A minute after the last question the thread ends and all is forgotten.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from tidegate.model.control import FrameCount, KeyCount, Samples
from tidegate.slot.driver_link import operator_of
from tidegate.slot.loop import rounds as the_rounds
from tidegate.slot.loop.calls import OURS
from tidegate.slot.subtask import subtask as the_subtask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from tidegate.loops.cells import KeyCell
    from tidegate.model.ids import ExecutionId, SlotId, VertexId
    from tidegate.slot.subtask.subtask import Subtask

PERIOD_S: Final = 0.0125
ON_MS: Final = 60_000
"""How long frames are looked at after a question."""

WINDOW_MS: Final = 30_000
"""An answer covers this window and the one before it."""

FRAMES_MAX: Final = 100
KEYS_MAX: Final = 2_000
"""Keys that are counted; where there are more, those go that were seen once."""
KEYS_TOLD: Final = 20
KEY_LETTERS: Final = 80
_PLAIN: Final = (str, bytes, int, float, bool, type(None))
"""Their texts are made without a function of the user's."""

WAITS_FOR_INPUT: Final = "waits for input"
WAITS_FOR_ROOM: Final = "waits for room in what reads from it"
WAITS_FOR_TURN: Final = "waits for its turn in the slot"

BETWEEN: Final = "between operators"
"""Stands for the operator where the subtask reads channels, begins a checkpoint, or flushes."""

T = TypeVar("T")

_Counted = tuple["ExecutionId", bool, tuple[str, ...]]
_Keyed = tuple["ExecutionId", str, str]


class Line(NamedTuple):
    """A line that a frame is at. ours: of the engine."""

    function: str
    file: str
    number: int
    ours: bool

    @property
    def name(self) -> str:
        return sys.intern(f"{self.function} ({self.file.rpartition(os.sep)[2]}:{self.number})")


def folded(operator: str | None, lines: Sequence[Line]) -> tuple[str, ...]:
    """Names of frames below one frame for the operator, outermost first.

    operator: None where none works. lines: below its call, innermost first. Those of the engine
    above the first one of somebody else are left out; where all are the engine's, the innermost
    stands for them.
    """
    outer_first = list(reversed(lines))
    first = next((i for i, line in enumerate(outer_first) if not line.ours), len(lines) - 1)
    shown = outer_first[max(first, 0) :][:FRAMES_MAX]
    return (operator or BETWEEN, *(line.name for line in shown))


class Sampled(Protocol):
    """Whoever gives subtasks their turns. subtasks: those that are not over."""

    @property
    def subtasks(self) -> Mapping[ExecutionId, Subtask]: ...

    def is_listed(self, execution: ExecutionId) -> bool:
        """True if a subtask waits for its turn."""
        ...


class Sampler:
    """Samples a slot's loop. rounds: of that loop. now_ms: a clock that never goes back.

    thread: of the loop; by default the one that asks.
    """

    def __init__(
        self, rounds: Sampled, now_ms: Callable[[], int], *, thread: int | None = None
    ) -> None:
        self._rounds = rounds
        self._now_ms = now_ms
        self._thread = thread
        self._lock = threading.Lock()
        self._until_ms = 0
        self._sampling: _Sampling | None = None

    def read(self, vertex: VertexId, number: int, slot: SlotId) -> Samples:
        """Samples of a vertex's subtasks here; none at first.

        Sampling goes on for a minute from now. number, slot: of the question and of this slot.
        """
        with self._lock:
            self._until_ms = self._now_ms() + ON_MS
            if self._sampling is None:
                thread = self._thread or threading.get_ident()
                self._sampling = _Sampling(self._rounds, thread, self._now_ms())
                threading.Thread(
                    target=self._run, args=(self._sampling,), name="tidegate-sampler", daemon=True
                ).start()
            frames, keys = self._sampling.frames.all(), self._sampling.keys.all()
        live = {each for each in self._rounds.subtasks if each.subtask.vertex == vertex}
        counts = tuple(
            FrameCount(execution.subtask.index, on_cpu, names, samples)
            for (execution, on_cpu, names), samples in frames.items()
            if execution in live
        )
        found = Counter({each: samples for each, samples in keys.items() if each[0] in live})
        hottest = tuple(
            KeyCount(execution.subtask.index, operator, key, samples)
            for (execution, operator, key), samples in found.most_common(KEYS_TOLD)
        )
        return Samples(number, slot, counts, hottest, found.total())

    def close(self) -> None:
        with self._lock:
            if self._sampling is not None:
                self._sampling.over.set()

    def _run(self, sampling: _Sampling) -> None:
        while not sampling.over.wait(PERIOD_S):
            with self._lock:
                now_ms = self._now_ms()
                if now_ms >= self._until_ms:
                    self._sampling = None
                    return
                sampling.sample(now_ms)


class _Windows(Generic[T]):
    """Counts of the window under way, and of the one before it."""

    def __init__(self) -> None:
        self._former: Counter[T] = Counter()
        self.present: Counter[T] = Counter()

    def turn(self) -> None:
        self._former, self.present = self.present, Counter()

    def all(self) -> Counter[T]:
        return self._former + self.present


class _Sampling:
    """Samples since the first question. thread: the loop's. over: set to end it."""

    def __init__(self, rounds: Sampled, thread: int, now_ms: int) -> None:
        self._rounds = rounds
        self._thread = thread
        self._began_ms = now_ms
        self.frames: _Windows[_Counted] = _Windows()
        self.keys: _Windows[_Keyed] = _Windows()
        self.over = threading.Event()

    def sample(self, now_ms: int) -> None:
        if now_ms - self._began_ms >= WINDOW_MS:
            self._began_ms = now_ms
            self.frames.turn()
            self.keys.turn()
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
        at_work = None if frame is None else _at_work(frame)
        if at_work is not None:
            self.frames.present[at_work.execution, True, at_work.frames] += 1
            if at_work.key is not None:
                self._count_key((at_work.execution, at_work.frames[0], at_work.key))
        for execution, subtask in list(self._rounds.subtasks.items()):
            if at_work is None or execution != at_work.execution:
                waits = (execution, False, (self._waits_for(execution, subtask),))
                self.frames.present[waits] += 1

    def _count_key(self, keyed: _Keyed) -> None:
        present = self.keys.present
        present[keyed] += 1
        if len(present) > KEYS_MAX:
            for each in [each for each, samples in present.items() if samples == 1]:
                del present[each]

    def _waits_for(self, execution: ExecutionId, subtask: Subtask) -> str:
        if not subtask.outputs.room.is_free:
            return WAITS_FOR_ROOM
        return WAITS_FOR_TURN if self._rounds.is_listed(execution) else WAITS_FOR_INPUT


class _AtWork(NamedTuple):
    """The subtask that has its turn, with its frames. key: that its operator works on, as text."""

    execution: ExecutionId
    frames: tuple[str, ...]
    key: str | None


def _at_work(frame: FrameType) -> _AtWork | None:
    """Finds what the loop works at; None if it does something else."""
    lines: list[Line] = []
    operator: str | None = None
    key: str | None = None
    for each in _outwards(frame):
        code = each.f_code
        if code in (the_rounds.Rounds.act.__code__, the_subtask.Subtask.turn.__code__):
            names = each.f_locals
            subtask = names.get("subtask", names.get("self"))
            if subtask is None:
                return None
            return _AtWork(subtask.execution, folded(operator, lines), key)
        if operator is not None:
            continue
        if (found := operator_of(each)) is not None:
            operator = found.context.info.name
            if found.context.info.keyed:
                key = key_in(found.context.state.cell)
            continue
        module = str(each.f_globals.get("__name__", ""))
        ours = module.partition(".")[0] == OURS
        lines.append(Line(code.co_qualname, code.co_filename, each.f_lineno or 0, ours))
    return None


def key_in(cell: KeyCell) -> str | None:
    """The key in hand, as text; None where there is none, as of a step that works on columns."""
    if cell.group < 0:
        return None
    key = cell.key
    parts = key if isinstance(key, tuple) else (key,)
    if not all(type(part) in _PLAIN for part in parts):
        return f"a {type(key).__name__}"
    text = repr(key)
    return text if len(text) <= KEY_LETTERS else f"{text[: KEY_LETTERS - 1]}…"


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    found: FrameType | None = frame
    while found is not None:
        yield found
        found = found.f_back
