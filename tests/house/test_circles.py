"""Modules import each other in one direction, type-only imports counted.

Today's circles are named here; the list may only shrink.
"""

import ast
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from tests.house.source import PACKAGES, ROOT, nodes, python_files

CIRCLES = [
    "datastream.connected datastream.environment datastream.joined datastream.keyed "
    "datastream.stream datastream.topologies datastream.windowed",
]


DEPTH_MAX = 5
DEEPER = {
    "slot": 9,
}
"""Rooms whose longest chain of imports has more modules than that; numbers may only shrink."""


def test_there_is_no_circle_but_those_named_here() -> None:
    assert [circle.replace("tidegate.", "") for circle in circles()] == CIRCLES


def test_no_chain_of_imports_within_a_room_is_longer_than_a_reader_follows() -> None:
    rooms = {name.split(".")[1] for name in imports() if name.startswith("tidegate.")}
    longest = {room: longest_chain(room) for room in sorted(rooms)}
    deep = {r: " > ".join(c) for r, c in longest.items() if len(c) > DEEPER.get(r, DEPTH_MAX)}
    assert deep == {}


def longest_chain(room: str) -> list[str]:
    """Modules of a room, each importing the next; those of a circle count as one."""
    within = f"tidegate.{room}"
    own = {m for m in imports() if m == within or m.startswith(f"{within}.")}
    graph = {module: imports()[module] & own for module in own}
    reached = {module: reachable(module, graph) for module in own}

    @cache
    def chain(module: str) -> tuple[str, ...]:
        circle = {module} | {other for other in reached[module] if module in reached[other]}
        behind = {other for each in circle for other in graph[each]} - circle
        return (module, *max(map(chain, sorted(behind)), key=len, default=()))

    return list(max(map(chain, sorted(own)), key=len))


def circles() -> list[str]:
    """Groups of modules that import each other, each as its names in one line."""
    graph = imports()
    reached = {module: reachable(module, graph) for module in graph}
    groups = {
        " ".join(sorted(m for m in reached[module] if module in reached[m]))
        for module in graph
        if module in reached[module]
    }
    return sorted(groups)


def reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


@cache
def imports() -> dict[str, set[str]]:
    """Of each module those of ours that it imports, wherever in it."""
    modules = {name_of(path): path for path in python_files(*PACKAGES)}
    return {
        name: {other for other in imported(path, modules.keys()) if other != name}
        for name, path in modules.items()
    }


def name_of(path: Path) -> str:
    folder = next(ROOT / each for each in PACKAGES if (ROOT / each) in path.parents)
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules or node.module in modules:
                    yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
