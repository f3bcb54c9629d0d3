"""Windows of a key that have merged, and the places of their contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.api.state import MapStateDescriptor
from tidegate.api.windows import Window
from tidegate.api.windows.assigners import MergeCallback
from tidegate.operators.windows.firing import namespace_of, window_of
from tidegate.typeinfo.types import PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.api.operator import OperatorContext
    from tidegate.api.state import MapState
    from tidegate.api.windows.assigners import MergingWindowAssigner

    Merged = Callable[[Window, list[Window], object, list[object]], None]


class MergingWindows:
    """The windows of the current key that may still merge, each with its *home*.

    The home is the namespace of a window under which the contents stand; it stays when that window
    grows, so that contents need not move.
    """

    def __init__(self, context: OperatorContext, assigner: MergingWindowAssigner[Any, Any]) -> None:
        windows = assigner.window_type or PICKLED
        descriptor = MapStateDescriptor("merging-window-set", windows, windows)
        self._homes = cast("MapState[object, object]", context.state.keyed_state(descriptor))
        self._merge = assigner.merge_windows

    def home(self, window: Window) -> object:
        """Place of a window's content; None if the window is gone."""
        return self._homes.get(namespace_of(window))

    def add(self, window: Window, merged: Merged) -> Window:
        """The window that this one becomes part of, or itself.

        merged: told of each merge: the new window, the old ones, its home, and their other homes.
        """
        if self._homes.contains(namespace_of(window)):
            return window
        found = _Merges()
        self._merge([window, *map(window_of, self._homes.keys())], found)
        joined, alone = window, True
        for parts, whole in found.groups:
            if window in parts:
                joined = whole
            old = [part for part in parts if part != window]
            homes = [self._taken_out(part) for part in old]
            if homes:
                alone = alone and window not in parts
                self._homes.put(namespace_of(whole), homes[0])
                if old != [whole]:
                    merged(whole, old, homes[0], homes[1:])
        if alone:
            self._homes.put(namespace_of(joined), namespace_of(window))
        return joined

    def retire(self, window: Window) -> None:
        """Removes a window that is over."""
        self._homes.remove(namespace_of(window))

    def _taken_out(self, window: Window) -> object:
        home = self._homes.get(namespace_of(window))
        self._homes.remove(namespace_of(window))
        return home


class _Merges(MergeCallback[Window]):
    def __init__(self) -> None:
        self.groups: list[tuple[list[Window], Window]] = []

    def merge(self, merged: Collection[Window], merge_result: Window) -> None:
        self.groups.append((list(merged), merge_result))
