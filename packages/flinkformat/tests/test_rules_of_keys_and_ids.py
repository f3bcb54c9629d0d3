"""The code against rules computed by Flink 2.3: hashes, key groups, ranges, operator ids."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES

from flinkformat import java_hash
from flinkformat.errors import ConfigError
from flinkformat.key_groups import (
    KeyGroupRange,
    default_max_parallelism,
    key_group_prefix_bytes,
    subtask_of_key_group,
)
from flinkformat.operator_ids import HashedEdge, HashedNode, operator_id_of_uid, operator_ids

if TYPE_CHECKING:
    from collections.abc import Callable

Case = dict[str, Any]
RULES = FIXTURES / "golden-rules.jsonl"


def cases(kind: str) -> list[Any]:
    """Parametrised cases of one kind."""
    rows = (json.loads(line) for line in RULES.read_text(encoding="utf-8").splitlines())
    return [pytest.param(row, id=row["case"]) for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("case", cases("murmur"))
def test_murmur_of_a_hash(case: Case) -> None:
    assert java_hash.mix(case["hash"]) == case["murmur"]
    assert java_hash.bit_mix(case["hash"]) == case["bitMix"]
    for max_parallelism, group in case["keyGroups"]:
        assert java_hash.key_group_of_hash(case["hash"], max_parallelism) == group


def _hash_time(text: str) -> int:
    time = datetime.time.fromisoformat(text)
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    return java_hash.hash_local_time(seconds * 10**9 + time.microsecond * 1000)


def _hash_date(text: str) -> int:
    date = datetime.date.fromisoformat(text)
    return java_hash.hash_local_date(date.year, date.month, date.day)


def _hash_date_time(text: str) -> int:
    date, time = text.split("T")
    clock, nanos = time.split(".")
    hour, minute, second = map(int, clock.split(":"))
    nano_of_day = ((hour * 60 + minute) * 60 + second) * 10**9 + int(nanos)
    return _hash_date(date) ^ java_hash.hash_local_time(nano_of_day)


def _hash_instant(text: str) -> int:
    seconds, fraction = text.split(".")
    return java_hash.hash_instant(int(seconds), int(fraction.ljust(9, "0")))


def _hash_decimal(text: str) -> int:
    _, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    return java_hash.hash_big_decimal(int("".join(map(str, digits))), -exponent)


HASHES: dict[str, Callable[[Any], int]] = {
    "String": java_hash.hash_string,
    "StringValue": java_hash.hash_string,
    "Character": ord,
    "Long": java_hash.hash_long,
    "LongValue": lambda value: java_hash.int32(43 + java_hash.hash_long(value)),
    "Integer": java_hash.int32,
    "Short": java_hash.int32,
    "Byte": java_hash.int32,
    "Boolean": java_hash.hash_boolean,
    "Double": lambda text: java_hash.hash_double(float(text)),
    "Float": lambda text: java_hash.hash_float(float(text)),
    "BigInteger": lambda text: java_hash.hash_big_integer(int(text)),
    "BigDecimal": _hash_decimal,
    "LocalDate": _hash_date,
    "LocalTime": _hash_time,
    "LocalDateTime": _hash_date_time,
    "Instant": _hash_instant,
    "UUID": lambda text: java_hash.hash_uuid(uuid.UUID(text).int),
    "byte[]": lambda text: java_hash.hash_bytes(bytes.fromhex(text)),
}
KINDS = {"UPDATE_BEFORE": 1, "UPDATE_AFTER": 2, "DELETE": 3}


def hash_of(name: str, value: Any) -> int:
    """Hash of a golden value by the name of its type, such as `Row<String,Long> kind=DELETE`."""
    name, _, kind = name.partition(" kind=")
    outer, _, inner = name.partition("<")
    if not inner and outer != "Tuple0":
        return HASHES[name](value)
    names = [inner[:-1]] if "<" in inner else inner[:-1].split(",")
    fields = zip(names, value, strict=outer != "List") if outer != "Tuple0" else []
    if outer == "Row":
        hashes = [None if each is None else hash_of(of, each) for of, each in fields]
        return java_hash.hash_row(hashes, kind=KINDS.get(kind, 0))
    if outer == "List":
        return java_hash.hash_list(hash_of(names[0], each) for each in value)
    return java_hash.hash_tuple(0 if each is None else hash_of(of, each) for of, each in fields)


@pytest.mark.parametrize("case", cases("key"))
def test_hash_code_and_key_group_of_a_key(case: Case) -> None:
    code = hash_of(case["type"], case["value"])
    assert code == case["hashCode"]
    for max_parallelism, group in case["keyGroups"]:
        assert java_hash.key_group_of_hash(code, max_parallelism) == group


@pytest.mark.parametrize("case", cases("ranges"))
def test_ranges_of_subtasks(case: Case) -> None:
    p, m = case["parallelism"], case["maxParallelism"]
    ranges = [KeyGroupRange.of(subtask, p, m) for subtask in range(p)]
    assert [[r.first, r.last] for r in ranges] == case["ranges"]
    for group, subtask in case["operatorIndexOf"]:
        assert subtask_of_key_group(group, p, m) == subtask


@pytest.mark.parametrize("case", cases("defaultMaxParallelism"))
def test_default_max_parallelism(case: Case) -> None:
    made = default_max_parallelism(case["parallelism"])
    assert made == case["maxParallelism"]
    assert key_group_prefix_bytes(made) == case["prefixBytes"]


@pytest.mark.parametrize("case", cases("keyGroupPrefixBytes"))
def test_bytes_of_the_key_group_prefix(case: Case) -> None:
    assert key_group_prefix_bytes(case["maxParallelism"]) == case["prefixBytes"]


@pytest.mark.parametrize("case", cases("parallelismError"))
def test_parallelism_out_of_bounds(case: Case) -> None:
    with pytest.raises(ConfigError) as raised:
        default_max_parallelism(case["parallelism"])
    assert f"IllegalArgumentException: {raised.value.what}" == case["error"]


@pytest.mark.parametrize("case", cases("keyedRescale"))
def test_key_groups_of_each_old_handle_after_a_rescale(case: Case) -> None:
    m, old, new = case["maxParallelism"], case["oldParallelism"], case["newParallelism"]
    for subtask, handles in enumerate(case["handles"]):
        mine = KeyGroupRange.of(subtask, new, m)
        parts = [(i, mine.intersection(KeyGroupRange.of(i, old, m))) for i in range(old)]
        made = [[f"old{i}", part.first, part.last] for i, part in parts if not part.is_empty]
        assert made == [handle[:3] for handle in handles]


@pytest.mark.parametrize("case", cases("uid"))
def test_operator_id_of_a_uid(case: Case) -> None:
    made = operator_id_of_uid(case["uid"])
    assert made.hex() == case["operatorId"] == case["bytes"]
    assert int.from_bytes(made[:8], "big", signed=True) == case["lowerPart"]
    assert int.from_bytes(made[8:], "big", signed=True) == case["upperPart"]


@pytest.mark.parametrize("case", cases("autoIds"))
def test_operator_ids_of_a_graph(case: Case) -> None:
    nodes = [HashedNode(each["index"], each["uid"]) for each in case["nodes"]]
    chainable = {
        (each["index"], target): may for each in case["nodes"] for target, _, may in each["outputs"]
    }
    edges = [
        HashedEdge(source, each["index"], chainable[source, each["index"]])
        for each in case["nodes"]
        for source, _ in each["inputs"]
    ]
    made = operator_ids(nodes, edges)
    assert {node: id.hex() for node, id in made.items()} == {
        each["index"]: each["operatorId"] for each in case["nodes"]
    }


def test_no_kind_of_rule_is_left_out() -> None:
    """Those of state and of channels have tests of their own beside this one."""
    rows = [json.loads(line) for line in RULES.read_text(encoding="utf-8").splitlines()]
    elsewhere = {"operatorStateRedistribution", "channelStateMapping"}
    here = {"murmur", "key", "ranges", "defaultMaxParallelism", "keyGroupPrefixBytes"}
    here |= {"parallelismError", "keyedRescale", "uid", "autoIds"}
    assert {row["kind"] for row in rows} == here | elsewhere and len(rows) == 309
