from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat import metadata
from flinkformat.snapshots import CheckpointMetadata, MasterState
from tidegate.checkpoint.provenance import (
    Provenance,
    check_seal,
    provenance_of,
    sealed,
    to_master_state,
)
from tidegate.errors import FormatError
from tidegate.model.files import FileChecksum
from tidegate.model.ids import CheckpointId

ORDERS = Provenance(
    {"job": "orders", "python": "3.11.7", "packages": {"tidegate": "0.1.0"}},
    {"file:/c/shared/f": FileChecksum(0xFFFFFFFF, 40_112), "g": FileChecksum(0, 0)},
)


def with_states(*states: MasterState) -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(), master_states=states)


def test_it_travels_in_a_metadata_file_beside_the_hooks() -> None:
    written = with_states(MasterState("hook", 1, b"{}"), to_master_state(ORDERS))
    assert provenance_of(metadata.decode(metadata.encode(written), str)) == ORDERS


def test_its_bytes_are_those_of_the_format_page() -> None:
    assert to_master_state(
        Provenance({"job": "orders"}, {"f": FileChecksum(0xDEADBEEF, 7)})
    ).payload == (b'{"checksums":{"f":[7,3735928559]},"crc32c":"00000000","job":"orders"}')


def test_a_snapshot_of_flink_or_of_a_later_release_has_none_that_we_can_read() -> None:
    assert provenance_of(with_states(MasterState("hook", 1, b"{}"))) is None
    assert provenance_of(with_states(MasterState("tidegate", 2, b"\xff"))) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"checksums":[]}',
        b'{"checksums":{},"job":"orders"}',
        b'{"checksums":{"f":[1]}}',
        b'{"checksums":{"f":[1,true]}}',
        b'{"checksums":{"f":[1,"2"]}}',
    ],
)
def test_a_payload_that_says_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError, match="master state 'tidegate' cannot be read"):
        provenance_of(with_states(MasterState("tidegate", 1, payload)))


@given(
    checksums=st.dictionaries(st.text(), st.builds(FileChecksum, st.integers(0), st.integers(0)))
)
def test_equal_provenance_makes_equal_bytes(checksums: dict[str, tuple[int, int]]) -> None:
    backwards = Provenance({}, dict(reversed(checksums.items())))
    state = to_master_state(Provenance({}, checksums))
    assert state == to_master_state(backwards)
    assert provenance_of(with_states(state)) == backwards


def test_no_bit_of_a_sealed_file_changes_unseen() -> None:
    written = with_states(MasterState("hook", 1, b"of the user"), to_master_state(ORDERS))
    data = sealed(metadata.encode(written), written)
    check_seal(data, metadata.decode(data, str))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decoded = metadata.decode(bytes(changed), str)
            if provenance_of(decoded) is None:
                raise FormatError("it is not ours any more")
            check_seal(bytes(changed), decoded)
    with pytest.raises(FormatError, match="not as it was written"):
        check_seal(data + b"more", metadata.decode(data, str))


def test_what_nobody_has_sealed_is_not_held_against_it() -> None:
    written = with_states(to_master_state(ORDERS))
    check_seal(metadata.encode(written), written)
    check_seal(b"of Flink", with_states())
