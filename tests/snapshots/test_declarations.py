"""What a state is declared as, told in an option of a data source: data, and never code."""

import base64
import pickle
from pathlib import Path

import pytest

from tests.cli.touch import Touch
from tests.snapshots.filled import TTL
from tests.snapshots.flights import Flights
from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import ConfigError
from tidegate.snapshots.rows import StateDeclaration
from tidegate.snapshots.writing.distributed import DeclaredTypes
from tidegate.snapshots.writing.writer import SavepointWriter
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import Types

DESCRIPTORS = [
    ValueStateDescriptor("state", Types.LONG()),
    ValueStateDescriptor("state"),
    ValueStateDescriptor("state", Flights),
    ValueStateDescriptor("state", Types.LONG(), ttl=TTL),
    ListStateDescriptor("state", Types.STRING()),
    ListStateDescriptor("state", Types.STRING(), ttl=TTL),
    MapStateDescriptor("state", Types.STRING(), Types.TUPLE([Types.INT(), Types.DOUBLE()])),
    ReducingStateDescriptor("state", max, Types.LONG()),
]


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=repr)
def test_a_state_is_written_alike_from_its_text_and_from_its_descriptor(
    descriptor: StateDescriptor,
) -> None:
    declared, _ = StateDeclaration.of(descriptor, where="here")
    text = DeclaredTypes(declared, type_of_hint(str), Types.LONG()).to_text()
    again = DeclaredTypes.from_text("state", text)
    assert (again.key_type, again.namespace_type) == (Types.STRING(), Types.LONG())
    with SavepointWriter.new_savepoint() as writer:
        told = writer.form("uid", again.state, key_type=again.key_type, namespace_type=int)
        own = writer.form("uid", descriptor, key_type=str, namespace_type=int)
    assert told.header == own.header
    assert (told.info.kind, told.info.expires) == (own.info.kind, own.info.expires)
    assert str(told.info.value_type) == str(own.info.value_type)


def test_an_option_that_would_run_code_is_refused_unread(tmp_path: Path) -> None:
    planted = pickle.dumps((Touch(tmp_path / "touched"), None, None))
    for text in (base64.b64encode(planted).decode(), '{"kind": "value"}', "[" * 5_000, "[]", "7"):
        with pytest.raises(ConfigError, match="'descriptor' declares no state"):
            DeclaredTypes.from_text("state", text)
    assert not (tmp_path / "touched").exists()


def test_records_that_only_a_pickle_holds_are_no_data() -> None:
    by_flights = MapStateDescriptor("state", Flights, Types.LONG())
    declared, _ = StateDeclaration.of(by_flights, where="here")
    with pytest.raises(ConfigError, match="use SavepointWriter"):
        DeclaredTypes(declared, None, None).to_text()
