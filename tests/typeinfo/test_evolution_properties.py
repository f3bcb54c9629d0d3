"""Random types and random edits of them: read as they are, migrated with the right values, refused.

A type is drawn together with an edited one, what becomes of a value, and the fault if there is one.
Records are dataclasses and NamedTuples made for it, and rows.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.properties import examples
from tidegate.typeinfo.evolution import AsIs, Migrate, Refuse, judge
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import (
    ListTypeInfo,
    MapTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HINTS: dict[TypeInformation, type] = {
    Types.STRING(): str,
    Types.SQL_DATE(): datetime.date,
    Types.FLOAT(): float,
    Types.DOUBLE(): float,
    Types.BOOLEAN(): bool,
}
INTEGERS = (Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT())
NAMES = ("a", "b", "c", "d")
DEFAULT = "default"


@dataclass
class Edited:
    """A type before and after, values of the old one, and what they are in the new one."""

    old: TypeInformation
    new: TypeInformation
    values: st.SearchStrategy[Any]
    after: Callable[[Any], Any] = lambda value: value
    same: bool = True
    faults: list[str] = field(default_factory=list[str])


def unchanged(of: TypeInformation, values: st.SearchStrategy[Any]) -> Edited:
    return Edited(of, of, values)


@st.composite
def integers(draw: st.DrawFn) -> Edited:
    """Wider, the same, or narrower, which is refused."""
    old, new = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    faults = ["the value"] if new < old else []
    values = st.integers(-(2**63), 2**80 if old == 4 else 2**63 - 1)
    return Edited(INTEGERS[old], INTEGERS[new], values, same=old == new, faults=faults)


LEAVES = (
    integers()
    | st.just(unchanged(Types.STRING(), st.text(max_size=3)))
    | st.just(unchanged(Types.SQL_DATE(), st.dates()))
    | st.just(Edited(Types.FLOAT(), Types.DOUBLE(), st.floats(allow_nan=False), same=False))
    | st.just(Edited(Types.LONG(), Types.STRING(), st.integers(0, 5), same=False, faults=["type"]))
    | st.just(unchanged(Types.BOOLEAN(), st.booleans()))
)


def container(
    inner: Edited, make: Callable[[TypeInformation], TypeInformation], **parts: Any
) -> Edited:
    return Edited(make(inner.old), make(inner.new), same=inner.same, faults=inner.faults, **parts)


def lists(inner: Edited) -> Edited:
    values = st.lists(inner.values, max_size=2)
    return container(inner, Types.LIST, values=values, after=lambda all: [*map(inner.after, all)])


def maps(inner: Edited) -> Edited:
    return container(
        inner,
        lambda of: Types.MAP(Types.STRING(), of),
        values=st.dictionaries(st.text(max_size=2), inner.values, max_size=2),
        after=lambda entries: {key: inner.after(each) for key, each in entries.items()},
    )


def tuples(parts: list[Edited]) -> Edited:
    return Edited(
        Types.TUPLE([each.old for each in parts]),
        Types.TUPLE([each.new for each in parts]),
        st.tuples(*(each.values for each in parts)),
        lambda value: tuple(each.after(of) for each, of in zip(parts, value, strict=True)),
        all(each.same for each in parts),
        [fault for each in parts for fault in each.faults],
    )


def hint_of(of: TypeInformation) -> Any:
    """What a field of the type has for a hint."""
    match of:
        case ListTypeInfo():
            return list[hint_of(of.element_type)] | None
        case MapTypeInfo():
            return dict[str, hint_of(of.value_type)] | None
        case TupleTypeInfo():
            return tuple[tuple(map(hint_of, of.field_types))] | None
        case RecordTypeInfo():
            return of.python_class
        case RowTypeInfo():
            return Row
        case _:
            return HINTS.get(of, int) | None


def record_class(kind: str, fields: dict[str, TypeInformation], defaulted: Sequence[str]) -> Any:
    """A class with these fields, of which the last may have a default."""
    hints = [(name, hint_of(of)) for name, of in fields.items()]
    if kind == "dataclass":
        plain: list[Any] = [each for each in hints if each[0] not in defaulted]
        return make_dataclass("Made", plain + [(*e, DEFAULT) for e in hints if e[0] in defaulted])
    made: Any = NamedTuple("Made", hints)  # type: ignore[misc]
    made.__new__.__defaults__ = (DEFAULT,) * len(defaulted)
    return made


def record_type(
    kind: str, fields: dict[str, TypeInformation], defaulted: Sequence[str], made: type
) -> TypeInformation:
    types = tuple(fields.values())
    return RecordTypeInfo("Made", kind, tuple(fields), types, frozenset(defaulted), made)


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Edited]) -> Edited:
    """Fields stay, go, come with or without a default, and change places."""
    kind = draw(st.sampled_from(("dataclass", "namedtuple", "row")))
    parts = draw(st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=4))
    stay = draw(st.just(list(parts)) | st.lists(st.sampled_from(list(parts)), unique=True))
    added = draw(st.sampled_from(((), ("z",), ("y", "z"))))
    bare = frozenset(draw(st.sampled_from(((), added[:1])))) if kind != "row" else frozenset()
    new_names = (*sorted(bare), *stay, *(name for name in added if name not in bare))
    defaulted = [name for name in added if name not in bare]
    faults = [fault for name in stay for fault in parts[name].faults] + sorted(bare)
    old_fields = {name: each.old for name, each in parts.items()}
    new_fields = {n: parts[n].new if n in parts else Types.STRING() for n in new_names}
    same = tuple(parts) == new_names and all(parts[name].same for name in stay)
    if kind == "row":
        old_class, new_class = Row, Row
        old: TypeInformation = Types.ROW_NAMED([*parts], [*old_fields.values()])
        new: TypeInformation = Types.ROW_NAMED(new_names, [*new_fields.values()])
    else:
        old_class = record_class(kind, old_fields, ())
        new_class = old_class if same else record_class(kind, new_fields, defaulted)
        old = record_type(kind, old_fields, (), old_class)
        new = record_type(kind, new_fields, defaulted, new_class)

    def after(value: Any) -> Any:
        kept = {name: parts[name].after(getattr(value, name)) for name in stay}
        if kind == "row":
            return Row.named(new_names, [kept.get(name) for name in new_names])
        return new_class(**kept)

    values = st.tuples(*(each.values for each in parts.values())).map(
        lambda of: old_class(**dict(zip(parts, of, strict=True)))
    )
    return Edited(old, new, values, after, same, faults)


EDITED = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lists)
        | inner.map(maps)
        | st.lists(inner, min_size=1, max_size=3).map(tuples)
        | records(inner)
        | records(inner)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@examples(400)
@given(edited=EDITED, data=st.data())
def test_each_value_of_an_old_type_is_read_right_or_none_is(
    edited: Edited, data: st.DataObject
) -> None:
    old, new = serializer_of(edited.old), serializer_of(edited.new)
    verdict = judge(SerializerSnapshot.from_bytes(old.snapshot().to_bytes()), new)
    event(type(verdict).__name__)
    if edited.faults:
        assert isinstance(verdict, Refuse)
        assert str(edited.old) in verdict.reason and str(edited.new) in verdict.reason
        return
    assert isinstance(verdict, AsIs if edited.same else Migrate)
    values = data.draw(st.lists(edited.values | st.none(), max_size=3))
    piece = old.encode_many(values)
    if piece[:1] == b"\x02" and holds_made(edited.old):
        return  # classes that are made here can't be found by a pickle
    reader = new if isinstance(verdict, AsIs) else verdict.reader
    expected = [None if value is None else edited.after(value) for value in values]
    assert reader.decode_many(piece) == expected
    assert reader.decode_each(old.encode_each(values)) == expected


def holds_made(of: TypeInformation) -> bool:
    return isinstance(of, RecordTypeInfo) or any(map(holds_made, of.children))
