"""Graphs and tables as HTML, for notebooks: drawn in the colour of the text, dark or light."""

from __future__ import annotations

from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.stream_graph import StreamGraph

_WIDTH: Final = 220
_LINE: Final = 17
_ABOVE: Final = 22
_GAP: Final = 22
_BETWEEN: Final = 80
_LETTERS: Final = 27


@frozen
class Box:
    """A step. lines: below its name. busy: share of its bar that is filled; None for no bar.

    marked: drawn with a thick frame.
    """

    id: object
    name: str
    lines: Sequence[str] = ()
    busy: float | None = None
    marked: bool = False


@frozen
class Arrow:
    """From one step to another, by the ids of their boxes."""

    source: object
    target: object
    label: str = ""


def job_svg(graph: JobGraph) -> str:
    """A job as it would run, one box a vertex."""
    boxes = [
        Box(vertex.id, vertex.name, (subtasks(vertex.parallelism),))
        for vertex in graph.topology.vertices
    ]
    arrows = [
        Arrow(edge.source, edge.target, edge.partitioner.value) for edge in graph.topology.edges
    ]
    return svg(boxes, arrows)


def steps_svg(graph: StreamGraph) -> str:
    """Steps as a program wrote them; those that none reads are marked."""
    read = {edge.source for edge in graph.edges}
    boxes = [
        Box(node.id, node.name, (subtasks(node.parallelism),), marked=node.id not in read)
        for node in graph.nodes
    ]
    arrows = [Arrow(edge.source, edge.target, edge.partitioner.value) for edge in graph.edges]
    return svg(boxes, arrows)


def subtasks(count: int) -> str:
    """A number of subtasks, in words."""
    return "1 subtask" if count == 1 else f"{count} subtasks"


def svg(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """The boxes in layers from left to right, each behind all that feed it.

    boxes: in an order in which none stands before one that feeds it.
    """
    height = _ABOVE + _LINE * max((len(box.lines) for box in boxes), default=0) + 14
    places = _places(boxes, arrows, height)
    right = max((x for x, _ in places.values()), default=0) + _WIDTH + 2
    below = max((y for _, y in places.values()), default=0) + height + 2
    paths = [
        _arrow(places[arrow.source], places[arrow.target], height, arrow.label) for arrow in arrows
    ]
    drawn = [_box(box, places[box.id], height) for box in boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {right} {below}" width="{right}" '
        'style="max-width:100%;height:auto;font:12px sans-serif" fill="currentColor" role="img">'
        f"{''.join(paths)}{''.join(drawn)}</svg>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table. head: names of its columns."""
    names = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in head)
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:left">{escape("" if cell is None else str(cell))}</td>'
            for cell in row
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>"


def records(rows: Sequence[object]) -> str:
    """Records as a table, a column a field where all have the same fields."""
    fields = [_fields(row) for row in rows]
    names = list(fields[0])
    if all(list(each) == names for each in fields):
        return table(names, [list(each.values()) for each in fields])
    return table(("record",), [[repr(row)] for row in rows])


def _fields(row: object) -> Mapping[str, object]:
    if isinstance(row, dict):
        return {str(name): value for name, value in row.items()}
    if is_dataclass(row):
        return {each.name: getattr(row, each.name) for each in fields_of(row)}
    if isinstance(row, tuple):
        names = getattr(row, "_fields", None) or [f"f{index}" for index in range(len(row))]
        return dict(zip(names, row, strict=True))
    return {"record": repr(row)}


def paragraph(text: str, *, bold: str = "") -> str:
    """A paragraph. bold: what it begins with."""
    begin = f"<b>{escape(bold)}</b> " if bold else ""
    return f"<p>{begin}{escape(text)}</p>"


def link(url: str, text: str) -> str:
    """A paragraph that leads elsewhere."""
    return f'<p><a href="{escape(url)}" target="_blank">{escape(text)}</a></p>'


def _places(
    boxes: Sequence[Box], arrows: Sequence[Arrow], height: int
) -> Mapping[object, tuple[int, int]]:
    layers: dict[object, int] = {}
    rows: dict[int, int] = {}
    places: dict[object, tuple[int, int]] = {}
    for box in boxes:
        feeding = [layers[arrow.source] for arrow in arrows if arrow.target == box.id]
        layer = layers[box.id] = 1 + max(feeding, default=-1)
        row = rows.get(layer, 0)
        rows[layer] = row + 1
        places[box.id] = (layer * (_WIDTH + _BETWEEN), row * (height + _GAP))
    return places


def _arrow(source: tuple[int, int], target: tuple[int, int], height: int, label: str) -> str:
    x1, y1 = source[0] + _WIDTH, source[1] + height // 2
    x2, y2 = target[0], target[1] + height // 2
    bend = (x2 - x1) // 2
    return (
        f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 7} {y2}" fill="none" '
        f'stroke="currentColor" opacity="0.5"/>'
        f'<path d="M{x2 - 8} {y2 - 4}L{x2} {y2}L{x2 - 8} {y2 + 4}z" opacity="0.5"/>'
        f'<text x="{x1 + bend}" y="{(y1 + y2) // 2 - 5}" text-anchor="middle" font-size="9" '
        f'opacity="0.75">{escape(label)}</text>'
    )


def _box(box: Box, place: tuple[int, int], height: int) -> str:
    x, y = place
    name = box.name if len(box.name) <= _LETTERS else f"{box.name[: _LETTERS - 1]}…"
    lines = "".join(
        f'<text x="{x + 10}" y="{y + _ABOVE + _LINE * (number + 1) - 3}" opacity="0.75">'
        f"{escape(line)}</text>"
        for number, line in enumerate(box.lines)
    )
    bar = ""
    if box.busy is not None:
        length = _WIDTH - 20
        bar = (
            f'<rect x="{x + 10}" y="{y + height - 9}" width="{length}" height="4" opacity="0.15"/>'
            f'<rect x="{x + 10}" y="{y + height - 9}" height="4" '
            f'width="{length * min(max(box.busy, 0.0), 1.0):.0f}" opacity="0.7"/>'
        )
    return (
        f"<g><title>{escape(box.name)}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="6" fill="none" '
        f'stroke="currentColor" stroke-width="{2 if box.marked else 1}"/>'
        f'<text x="{x + 10}" y="{y + _ABOVE - 4}" font-weight="bold">{escape(name)}</text>'
        f"{lines}{bar}</g>"
    )
