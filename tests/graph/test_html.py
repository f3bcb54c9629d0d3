"""Drawings and tables for notebooks."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tidegate.graph.html import Arrow, Box, link, paragraph, records, svg, table

if TYPE_CHECKING:
    from collections.abc import Mapping


def frames(drawing: str) -> Mapping[str, tuple[int, int]]:
    """Left upper corners of the boxes, by name."""
    found: dict[str, tuple[int, int]] = {}
    for box in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}g"):
        [title, frame, *_] = box
        found[title.text or ""] = int(frame.attrib["x"]), int(frame.attrib["y"])
    return found


def test_each_box_stands_behind_all_that_feed_it_and_none_on_another() -> None:
    boxes = [Box(number, f"step {number}") for number in range(5)]
    arrows = [Arrow(0, 2), Arrow(1, 2), Arrow(2, 3), Arrow(0, 3), Arrow(2, 4, "HASH")]
    drawing = svg(boxes, arrows)
    places = frames(drawing)
    assert len(set(places.values())) == 5
    for arrow in arrows:
        assert places[f"step {arrow.source}"][0] < places[f"step {arrow.target}"][0]
    assert drawing.count("<path") == 2 * len(arrows) and ">HASH<" in drawing


def test_texts_of_users_stay_texts() -> None:
    drawing = svg([Box(1, "<script>", ("a & b",), busy=2.0)], [])
    assert ET.fromstring(drawing) is not None and "<script" not in drawing
    assert "a &amp; b" in drawing
    assert "<b>&lt;x&gt;</b> &lt;y&gt;" in paragraph("<y>", bold="<x>")
    assert '"' not in link('http://h/"x', "&").replace('href="', "").replace(
        '" target="_blank"', ""
    )
    assert "<td" in table(["<n>"], [["<v>", None]]) and "<v>" not in table(["<n>"], [["<v>"]])


def test_a_long_name_is_cut_and_kept_as_a_title() -> None:
    drawing = svg([Box(1, "a" * 80)], [])
    assert list(frames(drawing)) == ["a" * 80] and "a…</text>" in drawing


Named = namedtuple("Named", ["city", "total"])


@dataclass
class Kept:
    city: str
    total: int


@pytest.mark.parametrize(
    ("rows", "head"),
    [
        ([{"city": "a", "total": 1}, {"city": "b", "total": 2}], ["city", "total"]),
        ([Named("a", 1)], ["city", "total"]),
        ([Kept("a", 1)], ["city", "total"]),
        ([(1, 2), (3, 4)], ["f0", "f1"]),
        ([1, 2], ["record"]),
        ([(1, 2), (3,)], ["record"]),
        ([{"a": 1}, 7], ["record"]),
    ],
    ids=["dicts", "named", "dataclasses", "tuples", "numbers", "odd lengths", "mixed"],
)
def test_records_have_a_column_a_field_where_all_have_the_same(
    rows: list[object], head: list[str]
) -> None:
    told = records(rows)
    assert re.findall(r"<th[^>]*>([^<]*)</th>", told) == head
    assert told.count("<td") == len(rows) * len(head)
