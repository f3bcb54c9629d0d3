from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.configuration import ALL
from tidegate.config.values import (
    DurationType,
    ListType,
    MapType,
    MemoryType,
    PortRangeType,
)

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]))


@given(st.integers(min_value=0, max_value=2**60))
def test_a_rendered_duration_parses_to_itself(duration_ms: int) -> None:
    kind = DurationType()
    assert kind.parse(kind.render(duration_ms)) == duration_ms


@given(st.integers(min_value=0, max_value=2**60))
def test_a_rendered_size_parses_to_itself(size: int) -> None:
    kind = MemoryType()
    assert kind.parse(kind.render(size)) == size


@given(st.lists(words))
def test_a_rendered_list_parses_to_itself(items: list[str]) -> None:
    kind = ListType()
    assert kind.parse(kind.render(items)) == tuple(items)


@given(st.dictionaries(words, words))
def test_a_rendered_map_parses_to_itself(entries: dict[str, str]) -> None:
    kind = MapType()
    assert kind.parse(kind.render(entries)) == entries


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_a_rendered_port_range_parses_to_itself(one: int, other: int) -> None:
    ports = min(one, other), max(one, other)
    kind = PortRangeType()
    assert kind.parse(kind.render(ports)) == ports


@given(st.sampled_from(ALL), st.text() | st.integers() | st.booleans() | st.none())
def test_any_value_is_taken_or_refused_as_a_value_error(option: object, value: object) -> None:
    assert hasattr(option, "type")
    try:
        parsed = option.type.parse(value)
    except ValueError:
        return
    assert option.type.parse(option.type.render(parsed)) == parsed
