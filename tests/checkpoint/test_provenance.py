from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint import metadata
from tidegate.checkpoint.metadata.provenance import Provenance, provenance_of, to_master_state
from tidegate.errors import FormatError
from tidegate.model.ids import CheckpointId
from tidegate.model.snapshots import CheckpointMetadata, MasterState

ORDERS = Provenance(
    job_name="orders",
    python="3.11.7",
    packages={"tidegate": "0.1.0", "pyarrow": "26.0.0"},
    checksums={"file:/c/shared/f": (0xFFFFFFFF, 40_112), "g": (0, 0)},
)


def with_states(*states: MasterState) -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(), master_states=states)


def test_it_travels_in_a_metadata_file_beside_the_hooks() -> None:
    written = with_states(MasterState("hook", 1, b"{}"), to_master_state(ORDERS))
    assert provenance_of(metadata.decode(metadata.encode(written), str)) == ORDERS


def test_a_snapshot_of_flink_or_of_a_later_release_has_none_that_we_can_read() -> None:
    assert provenance_of(with_states(MasterState("hook", 1, b"{}"))) is None
    assert provenance_of(with_states(MasterState("tidegate", 2, b"\xff"))) is None


GOOD = json.loads(to_master_state(ORDERS).payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        json.dumps({**GOOD, "job": 5}).encode(),
        json.dumps({**GOOD, "packages": {"a": 1}}).encode(),
        json.dumps({**GOOD, "checksums": {"f": [1]}}).encode(),
        json.dumps({**GOOD, "checksums": {"f": [1, True]}}).encode(),
        json.dumps({**GOOD, "checksums": []}).encode(),
        json.dumps({k: v for k, v in GOOD.items() if k != "python"}).encode(),
    ],
)
def test_a_payload_that_says_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError, match="master state 'tidegate' cannot be read"):
        provenance_of(with_states(MasterState("tidegate", 1, payload)))


@given(checksums=st.dictionaries(st.text(), st.tuples(st.integers(0), st.integers(0))))
def test_equal_provenance_makes_equal_bytes(checksums: dict[str, tuple[int, int]]) -> None:
    def of(sums: dict[str, tuple[int, int]]) -> Provenance:
        return Provenance(job_name="", python="", packages={}, checksums=sums)

    backwards = dict(reversed(checksums.items()))
    assert to_master_state(of(checksums)) == to_master_state(of(backwards))
    assert provenance_of(with_states(to_master_state(of(checksums)))) == of(checksums)
