"""Snapshots signed with a key: the bytes, and what is refused."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat import metadata as codec
from flinkformat.snapshots import CheckpointMetadata
from tidegate.checkpoint.provenance import (
    Provenance,
    check_seal,
    checksums_of,
    encoded,
    provenance_of,
    sealed,
    to_master_state,
)
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.files import FileChecksum
from tidegate.model.ids import CheckpointId

KEY = b"0123456789abcdef0123456789abcdef"
DIGEST = "9f" * 32
HEAD = bytes.fromhex(
    "4960672d00000006000000000000000700000001c96b1696000000f40000000100087469646567617465000000e2"
)
"""Magic, version, checkpoint id; one master state: magic, length, version, name, length."""
PAYLOAD = (
    b'{"checksums":{"1-0-9c":[40112,3735928559,"' + DIGEST.encode() + b'"]},'
    b'"crc32c":"%s","hmac_sha256":"%s","job":"orders"}'
)


def snapshot(**facts: object) -> CheckpointMetadata:
    known = {"1-0-9c": FileChecksum(0xDEADBEEF, 40_112, DIGEST)}
    state = to_master_state(Provenance({"job": "orders", **facts}, known))
    return CheckpointMetadata(checkpoint_id=CheckpointId(7), operators=(), master_states=(state,))


def decoded(data: bytes) -> CheckpointMetadata:
    return codec.decode(data, lambda: "handle")


def test_the_signature_is_that_of_the_file_with_nothing_in_its_place() -> None:
    data = encoded(snapshot(), KEY)
    blank = PAYLOAD % (b"0" * 8, b"0" * 64)
    at = data.index(b'{"checksums"')
    unsigned = data[:at] + blank + data[at + len(blank) :]
    assert data[:at] == HEAD
    code = hmac.digest(KEY, unsigned, "sha256").hex().encode()
    assert code == b"95a8b5120af8f5b1c1752d07bd5223ec70a708814e334197b9fb31b3e3720846"
    assert data[at : at + len(blank)] == PAYLOAD % (b"15baee15", code)
    found = decoded(data)
    check_seal(data, found, KEY)
    check_seal(data, found)
    assert checksums_of(found) == {"1-0-9c": FileChecksum(0xDEADBEEF, 40_112, DIGEST)}
    known = provenance_of(found)
    assert known is not None and known.facts == {"job": "orders"}


def test_what_is_not_signed_or_with_another_key_is_refused() -> None:
    data = encoded(snapshot(), None)
    check_seal(data, decoded(data))
    with pytest.raises(RestoreRefused, match="is not signed") as told:
        check_seal(data, decoded(data), KEY)
    assert "SavepointWriter" in told.value.remedy
    signed = encoded(snapshot(), KEY)
    with pytest.raises(RestoreRefused, match="with this key"):
        check_seal(signed, decoded(signed), b"another key, another key")
    bare = codec.encode(
        CheckpointMetadata(checkpoint_id=CheckpointId(7), operators=(), master_states=())
    )
    with pytest.raises(RestoreRefused, match="is not signed"):
        check_seal(bare, decoded(bare), KEY)


@pytest.mark.parametrize("text", ['"hmac_sha256":"' + "0" * 64 + '"', '"crc32c":"00000000"'])
def test_a_fact_that_looks_like_a_signature_is_none(text: str) -> None:
    data = encoded(snapshot(job=text, versions={"a": text}), KEY)
    check_seal(data, decoded(data), KEY)
    with pytest.raises(RestoreRefused):
        unsigned = encoded(snapshot(job=text), None)
        check_seal(unsigned, decoded(unsigned), KEY)


def test_a_signature_without_a_checksum_beside_it_is_none() -> None:
    data = encoded(snapshot(), KEY).replace(b'"crc32c":"', b'"crc32d":"')
    with pytest.raises(RestoreRefused, match="was changed since"):
        check_seal(data, decoded(data), KEY)


@given(place=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_no_bit_can_be_changed_even_with_a_new_checksum(place: int, bit: int) -> None:
    data = bytearray(encoded(snapshot(), KEY))
    data[place % len(data)] ^= 1 << bit
    try:
        found = decoded(bytes(data))
        changed = sealed(bytes(data), found)
        found = decoded(changed)
    except (FormatError, AssertionError):
        return  # it is no _metadata any more, or has no checksum to be made anew
    if changed != encoded(snapshot(), KEY):
        with pytest.raises((RestoreRefused, FormatError)):
            check_seal(changed, found, KEY)
