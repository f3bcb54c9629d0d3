"""Which windows had fired when the snapshot was taken that an operator was restored from.

Event time starts again after a restore, and what windows held may be there still: those that had
fired fire again only for the keys that get more.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, cast

from flinkformat.key_groups import KeyGroupRange
from tidegate.api.state import OperatorStateDescriptor, RedistributionMode, ValueStateDescriptor
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.typeinfo.types import BOOLEAN, LONG

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext
    from tidegate.api.state import ValueState

_PROGRESS: Final = "window-progress"
_AGAIN: Final = "window-again"


class Progress:
    """The time that each key group had reached. until_ms: the latest; nothing had fired after it.

    Part of snapshots: ranges of key groups with their time, and the windows that are to fire again,
    under their start.
    """

    def __init__(self, context: OperatorContext) -> None:
        self._groups = KeyGroupRange.of(
            context.info.subtask, context.info.parallelism, context.info.max_parallelism
        )
        descriptor = OperatorStateDescriptor(_PROGRESS, mode=RedistributionMode.UNION)
        self._list = context.state.operator_state(descriptor)
        again = context.state.keyed_state(ValueStateDescriptor(_AGAIN, BOOLEAN), LONG)
        self._again = cast("ValueState[bool]", again)
        self._reached: dict[int, int] = {}
        for first, last, time_ms in self._list.get():
            groups = KeyGroupRange(first, last).intersection(self._groups)
            self._reached.update(zip(groups, repeat(time_ms), strict=False))
        self.until_ms = max(self._reached.values(), default=MIN_TIMESTAMP_MS)

    def of(self, group: int) -> int:
        """Time that a key group had reached; the beginning of time once it has caught up."""
        return self._reached.get(group, MIN_TIMESTAMP_MS)

    def caught_up(self) -> None:
        self._reached.clear()
        self.until_ms = MIN_TIMESTAMP_MS

    def fire_again(self) -> None:
        self._again.update(True)

    def is_to_fire(self) -> bool:
        """True, once, if a fired window of the current pair has new records."""
        again = self._again.value() is not None
        self._again.clear()
        return again

    def note(self, before_ms: int, from_ms: int | None = None, first: int = 0) -> None:
        """Writes progress into state, from key group ``first`` on. from_ms: the time reached."""
        groups = self._groups
        if not self._reached and from_ms is None:
            self._list.update([(groups.first, groups.last, before_ms)])
            return
        later_ms = before_ms if from_ms is None else from_ms
        self._list.update(
            (group, group, max(before_ms if group < first else later_ms, self.of(group)))
            for group in groups
        )
