"""Bodies of requests: what a field may not have is refused before anything is begun."""

import msgspec
import pytest

from tidegate.rest.messages import (
    CheckpointTriggerRequestBody,
    SavepointTriggerRequestBody,
    StopWithSavepointRequestBody,
)

BODIES = [
    SavepointTriggerRequestBody,
    StopWithSavepointRequestBody,
    CheckpointTriggerRequestBody,
]


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(
    ("trigger_id", "faulty"),
    [("0123456789abcdef" * 2, False), ("1", True), ("g" * 32, True), ("a" * 33, True)],
)
def test_an_operation_has_an_id_of_32_hexadecimal_digits(
    kind: type[SavepointTriggerRequestBody], trigger_id: str, faulty: bool
) -> None:
    assert msgspec.convert({"triggerId": trigger_id}, kind).faulty() == faulty


@pytest.mark.parametrize("kind", BODIES)
def test_whoever_names_no_id_gets_one(kind: type[SavepointTriggerRequestBody]) -> None:
    assert not msgspec.convert({}, kind).faulty()


def test_formats_and_types_are_those_that_there_are() -> None:
    assert msgspec.convert({"formatType": "ZIP"}, SavepointTriggerRequestBody).faulty()
    assert msgspec.convert({"checkpointType": "HALF"}, CheckpointTriggerRequestBody).faulty()
    assert not msgspec.convert({"formatType": "NATIVE"}, SavepointTriggerRequestBody).faulty()
