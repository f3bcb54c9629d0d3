from __future__ import annotations

import sys
from dataclasses import dataclass, field, make_dataclass
from typing import NamedTuple

import pytest

from flinkformat.row import Row
from tidegate.errors import SerializerIncompatible
from tidegate.typeinfo.evolution import AsIs, Migrate, Refuse, judge, judge_key, reader_for
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import TypeInformation, Types


def remembered(type_info: TypeInformation | None) -> SerializerSnapshot:
    """The snapshot as it comes back from a checkpoint, where no class is left."""
    return SerializerSnapshot.from_bytes(serializer_of(type_info).snapshot().to_bytes())


@dataclass
class Before:
    count: int
    last: tuple[int, int]


@dataclass
class After:
    last: tuple[int, int]
    count: int
    mean: float = 0.5
    tags: list[str] = field(default_factory=list)


class OldPoint(NamedTuple):
    x: int
    y: int


class NewPoint(NamedTuple):
    y: int
    x: int
    z: int = 7


@pytest.mark.parametrize(
    "type_info",
    [
        None,
        Types.LONG(),
        Types.MAP(Types.STRING(), Types.TUPLE([Types.INT(), Types.LIST(Types.DOUBLE())])),
        Types.ROW([Types.INT()]),
        type_of_hint(Before),
        type_of_hint(OldPoint),
    ],
    ids=str,
)
def test_the_same_type_reads_as_it_is(type_info: TypeInformation | None) -> None:
    assert judge(remembered(type_info), serializer_of(type_info)) == AsIs()


def test_an_array_and_a_list_of_the_same_elements_are_the_same() -> None:
    old, new = Types.BASIC_ARRAY(Types.INT()), Types.LIST(Types.INT())
    assert judge(remembered(old), serializer_of(new)) == AsIs()


def test_added_fields_with_defaults_migrate() -> None:
    old, new = serializer_of(type_of_hint(Before)), serializer_of(type_of_hint(After))
    piece = old.encode_many([Before(3, (1, 2)), None])
    verdict = judge(remembered(old.type_info), new)
    assert isinstance(verdict, Migrate)
    assert verdict.reader.decode_many(piece) == [After((1, 2), 3, 0.5, []), None]


def test_a_named_tuple_is_migrated_by_its_old_names() -> None:
    old, new = serializer_of(type_of_hint(OldPoint)), serializer_of(type_of_hint(NewPoint))
    reader = reader_for(remembered(old.type_info), new, where="")
    assert reader.decode_many(old.encode_many([OldPoint(x=1, y=2)])) == [NewPoint(y=2, x=1, z=7)]


def test_records_within_containers_migrate_too() -> None:
    old = serializer_of(type_of_hint(dict[str, list[Before]]))
    new = serializer_of(type_of_hint(dict[str, list[After]]))
    reader = reader_for(remembered(old.type_info), new, where="")
    made = reader.decode_many(old.encode_many([{"a": [Before(1, (2, 3))]}]))
    assert made == [{"a": [After((2, 3), 1)]}]


@dataclass(slots=True)
class OldSlots:
    count: int
    texts: list[str]
    gone: int


@dataclass(slots=True)
class NewSlots:
    texts: list[str]
    added: str = "new"
    count: int = 0


@dataclass(frozen=True, slots=True)
class OldFrozen:
    count: int
    gone: int


@dataclass(frozen=True, slots=True)
class NewFrozen:
    added: int = 5
    count: int = 0


class OldPlace(NamedTuple):
    x: int
    y: int
    gone: int


def test_a_removed_field_is_left_behind() -> None:
    old, new = serializer_of(type_of_hint(Before)), serializer_of(type_of_hint(Narrow))
    reader = reader_for(remembered(old.type_info), new, where="")
    assert reader.decode_many(old.encode_many([Before(3, (1, 2))])) == [Narrow(3)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Before(3, (1, 2)), After((1, 2), 3)),
        (OldSlots(1, ["a"], 2), NewSlots(["a"], "new", 1)),
        (OldFrozen(1, 2), NewFrozen(5, 1)),
        (OldPlace(1, 2, 3), NewPoint(y=2, x=1, z=7)),
    ],
    ids=str,
)
@pytest.mark.parametrize("too_long", [False, True])
def test_pieces_of_pickle_migrate_like_others(
    old: object, new: object, too_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same class under its old and its new form, one after the other, as two programs see it.

    too_long: for MessagePack, which holds 64 bits: such a piece of typed values is pickled.
    """
    was, now = type(old), type(new)
    number = 2**80 if too_long else 4
    before = Types.TUPLE([Types.LIST(type_of_hint(was)), Types.BIG_INT()])
    after = Types.TUPLE([Types.LIST(type_of_hint(now)), Types.BIG_INT()])
    piece = serializer_of(before).encode_many([([old], number)])
    assert (piece[:1] == b"\x02") == too_long
    with monkeypatch.context() as names:
        names.setattr(sys.modules[__name__], was.__name__, now)
        reader = reader_for(remembered(before), serializer_of(after), where="")
        assert reader.decode_many(piece) == [([new], number)]


def test_rows_migrate_by_name() -> None:
    old = Types.ROW_NAMED(["a", "b", "gone"], [Types.INT(), Types.STRING(), Types.LONG()])
    new = Types.ROW_NAMED(["b", "added", "a"], [Types.STRING(), Types.LONG(), Types.LONG()])
    piece = serializer_of(old).encode_many([Row(a=1, b="x", gone=2), Row(3, "y", 4), None])
    reader = reader_for(remembered(old), serializer_of(new), where="")
    assert reader.decode_many(piece) == [
        Row(b="x", added=None, a=1),
        Row("y", None, 3),
        None,
    ]


def test_what_was_undeclared_stays_as_pickle_has_it() -> None:
    piece = serializer_of(None).encode_many([{"a": {1, 2}}])
    reader = reader_for(remembered(None), serializer_of(None), where="")
    assert reader.decode_many(piece) == [{"a": {1, 2}}]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Types.BYTE(), Types.SHORT()),
        (Types.INT(), Types.LONG()),
        (Types.LONG(), Types.BIG_INT()),
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.LONG()])),
        (Types.LIST(Types.SHORT()), Types.LIST(Types.INT())),
        (Types.MAP(Types.INT(), Types.INT()), Types.MAP(Types.LONG(), Types.INT())),
    ],
    ids=str,
)
def test_wider_numbers_migrate(old: TypeInformation, new: TypeInformation) -> None:
    values: list[object] = {
        "T": [(7,)],
        "L": [[7]],
        "M": [{7: 7}],
    }.get(str(new)[0] if new.children else "", [7])
    reader = reader_for(remembered(old), serializer_of(new), where="")
    assert reader.decode_many(serializer_of(old).encode_many(values)) == values


def test_a_wider_float_migrates() -> None:
    assert isinstance(judge(remembered(Types.FLOAT()), serializer_of(Types.DOUBLE())), Migrate)


Narrow = make_dataclass("Narrow", [("count", int)])
Bare = make_dataclass("Bare", [("count", int), ("last", tuple[int, int]), ("mean", float)])
Other = make_dataclass("Other", [("count", str), ("last", tuple[int, str])])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (Types.LONG(), Types.INT(), "the value was Long and is Integer"),
        (Types.LONG(), Types.STRING(), "the value was Long and is String"),
        (Types.INT(), Types.DOUBLE(), "the value was Integer and is Double"),
        (None, Types.LONG(), "it was written by pickle and is read by msgpack"),
        (Types.LONG(), None, "it was written by msgpack and is read by pickle"),
        (
            Types.TUPLE([Types.INT()]),
            Types.TUPLE([Types.INT(), Types.INT()]),
            "the value was TupleTypeInfo(Integer) and is TupleTypeInfo(Integer, Integer)",
        ),
        (
            Types.MAP(Types.STRING(), Types.TUPLE([Types.LONG()])),
            Types.MAP(Types.STRING(), Types.TUPLE([Types.STRING()])),
            "value.[0] was Long and is String",
        ),
        (type_of_hint(Before), type_of_hint(Bare), "mean is new and has no default"),
        (
            type_of_hint(Before),
            type_of_hint(Other),
            "count was Long and is String; last.[1] was Long and is String",
        ),
        (
            type_of_hint(OldPoint),
            Types.TUPLE([Types.LONG(), Types.LONG()]),
            "the value was OldPoint(x: Long, y: Long) and is TupleTypeInfo(Long, Long)",
        ),
    ],
    ids=str,
)
def test_all_else_is_refused_with_both_shapes(
    old: TypeInformation | None, new: TypeInformation | None, fault: str
) -> None:
    verdict = judge(remembered(old), serializer_of(new))
    assert isinstance(verdict, Refuse)
    assert fault in verdict.reason
    pickled = Types.PICKLED_BYTE_ARRAY()
    assert f"was {old or pickled} and is now {new or pickled}" in verdict.reason


def test_a_refusal_names_the_place_and_the_way_out() -> None:
    with pytest.raises(SerializerIncompatible) as raised:
        reader_for(
            remembered(Types.LONG()),
            serializer_of(Types.STRING()),
            where="state 'sum' of operator 'count'",
        )
    assert raised.value.where == "state 'sum' of operator 'count'"
    assert raised.value.what.startswith("The state was Long and is now String")
    assert raised.value.remedy


def test_a_newer_format_is_refused() -> None:
    verdict = judge(SerializerSnapshot("msgpack", 9, Types.LONG()), serializer_of(Types.LONG()))
    assert isinstance(verdict, Refuse)
    assert "newer release" in verdict.reason


def test_the_type_of_keys_cannot_change_at_all() -> None:
    assert judge_key(remembered(Types.INT()), serializer_of(Types.INT())) == AsIs()
    assert isinstance(judge_key(remembered(Types.INT()), serializer_of(Types.LONG())), Refuse)
    with pytest.raises(SerializerIncompatible, match="the type of keys can't change"):
        reader_for(remembered(Types.INT()), serializer_of(Types.LONG()), where="", key=True)
    assert isinstance(judge_key(remembered(None), serializer_of(Types.LONG())), Refuse)
