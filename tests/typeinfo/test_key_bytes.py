"""What keys are on disk, byte for byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from tidegate.typeinfo.evolution import serializer_standing_in
from tidegate.typeinfo.key_hash import key_type_of
from tidegate.typeinfo.plain_keys import with_key_classes
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import NumberTypeInfo, TypeInformation, Types


class Level(Enum):
    LOW = 1


@dataclass(frozen=True)
class Leg:
    level: Level
    number: int


NUMBER = NumberTypeInfo(Types.DOUBLE())


@pytest.mark.parametrize(
    ("key", "type_info", "described", "piece"),
    [
        (UUID(int=5), None, '"UUID"', b"\xd9$00000000-0000-0000-0000-000000000005"),
        (timedelta(days=1, milliseconds=500), None, '"Duration"', b"\xa8P1DT0.5S"),
        (Decimal("0.1"), Types.BIG_DEC(), '"BigDecimal"', b"\xa30.1"),
        (2.5, None, '{"number":"Double"}', b"\xcb\x40\x04" + bytes(6)),
        (True, None, '{"number":"Boolean"}', b"\xc3"),
        (1, NUMBER, '{"number":"Double"}', b"\x01"),
        (Level.LOW, None, '{"enum":"Level","module":"HERE"}', b"\xa3LOW"),
        (
            Leg(Level.LOW, 3),
            None,
            '{"dataclass":"Leg","fields":[["level",{"enum":"Level","module":"HERE"}],'
            '["number","Long"]],"module":"HERE"}',
            b"\x82\xa5level\xa3LOW\xa6number\x03",
        ),
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_bytes_of_a_key_stay_what_they_are(
    key: object, type_info: TypeInformation | None, described: str, piece: bytes
) -> None:
    # Golden: state with such keys has to be found for good.
    serializer = serializer_of(type_info or key_type_of(key))
    shown = json.dumps(serializer.snapshot().to_json()["type"], separators=(",", ":"))
    assert shown == described.replace("HERE", __name__)
    assert serializer.encode_each([key]) == [b"\x01\x91" + piece]
    assert serializer.decode_each([b"\x01\x91" + piece]) == [key]
    snapshot = SerializerSnapshot.from_bytes(serializer.snapshot().to_bytes())
    found = serializer_of(with_key_classes(snapshot.type_info))
    [again] = found.decode_many(serializer.encode_many([key]))
    assert again == key and type(again) is type(key)
    # A tool that has no classes shows names for members, and fields for records.
    [shown] = serializer_standing_in(snapshot).decode_many(serializer.encode_many([key]))
    assert getattr(shown, "level", shown) in (key, "LOW")
