"""Samples as the tree of a flame graph, and as the hottest keys. Source: dashboard §3.8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.model.control import FrameCount, Samples

Node = dict[str, object]

KEYS_SHOWN: Final = 20

ENDED: Final[Node] = {"endTimestamp": -1, "data": None}
OFF: Final[Node] = {"endTimestamp": -2, "data": None}
NOT_YET: Final[Node] = {"endTimestamp": -3, "data": None}


def tree(counts: Iterable[FrameCount]) -> Node:
    """Frames below one root; ``value`` is the number of samples in a frame or below it."""
    root = _Frame("root")
    for each in counts:
        root.value += each.samples
        frame = root
        for name in each.frames:
            frame = frame.child(name)
            frame.value += each.samples
    return root.shape()


def hottest_keys(told: Iterable[Samples]) -> Node:
    """Keys with the largest shares of the time that operators worked on keys, over all subtasks."""
    answers = list(told)
    keyed = sum(each.keyed for each in answers)
    keys = sorted((key for each in answers for key in each.keys), key=lambda key: -key.samples)
    return {
        "samples": keyed,
        "keys": [
            {
                "operator": each.operator,
                "key": each.key,
                "subtask": each.subtask,
                "share": each.samples / keyed,
            }
            for each in keys[:KEYS_SHOWN]
        ],
    }


class _Frame:
    __slots__ = ("_children", "_name", "value")

    def __init__(self, name: str) -> None:
        self._name = name
        self._children: dict[str, _Frame] = {}
        self.value = 0

    def child(self, name: str) -> _Frame:
        found = self._children.get(name)
        if found is None:
            found = self._children[name] = _Frame(name)
        return found

    def shape(self) -> Node:
        children = sorted(self._children.items(), key=lambda each: (-each[1].value, each[0]))
        return {
            "name": self._name,
            "value": self.value,
            "children": [child.shape() for _, child in children],
        }
