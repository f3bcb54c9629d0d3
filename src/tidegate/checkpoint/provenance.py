"""Facts for which Flink's format has no place, in a master state named ``tidegate``.

Flink keeps master states of hooks that it does not know of, so the file stays legal, and what it
says of its files is durable in the same moment as the file itself. It says it of itself too: the
state that lies in ``_metadata`` has no other checksum.

Where there is a key, the file is signed: what it says of its files holds for their SHA-256 too, so
that one code over ``_metadata`` covers all state.
Payload, version 1: a JSON object in UTF-8 (docs/formats/metadata.md, section 7).
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from google_crc32c import value as crc32c

from flinkformat import metadata as codec
from flinkformat.frozen import frozen
from flinkformat.snapshots import MasterState
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.files import FileChecksum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import CheckpointMetadata

NAME: Final = "tidegate"
VERSION: Final = 1
CHECKSUMS: Final = "checksums"
SEAL: Final = "crc32c"
SIGNATURE: Final = "hmac_sha256"

_UNSEALED: Final = "00000000"
_UNSIGNED: Final = "0" * 64
_SIGNATURE_FIELD: Final = re.compile(rb'"hmac_sha256":"([0-9a-f]{64})"')
_SEAL_FIELD: Final = re.compile(rb'"crc32c":"([0-9a-f]{8})"')


@frozen
class Provenance:
    """Where a snapshot comes from.

    facts: values of JSON by name, such as the job's name and the versions that wrote it.
    checksums: crc32c and size in bytes of each file and segment, by `checksum_name`.
    """

    facts: Mapping[str, object]
    checksums: Mapping[str, FileChecksum]


def to_master_state(provenance: Provenance) -> MasterState:
    """The master state that says so, for `sealed`; equal provenance makes equal bytes."""
    checksums = {
        path: [size, crc, sha256] if sha256 else [size, crc]
        for path, (crc, size, sha256) in provenance.checksums.items()
    }
    return _master_state({**provenance.facts, CHECKSUMS: checksums, SEAL: _UNSEALED})


def signable(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """The provenance with room for a signature."""
    own = _own(metadata)
    assert own is not None, "who signs says where the snapshot comes from"
    with_room = _master_state({**json.loads(own.payload), SIGNATURE: _UNSIGNED})
    states = (with_room if state is own else state for state in metadata.master_states)
    return replace(metadata, master_states=tuple(states))


def _master_state(payload: Mapping[str, object]) -> MasterState:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return MasterState(NAME, VERSION, text.encode())


def encoded(metadata: CheckpointMetadata, key: bytes | None) -> bytes:
    """The bytes of a file. key: signs it; None for a file that nobody signs."""
    if key is not None:
        metadata = signable(metadata)
    return sealed(codec.encode(metadata), metadata, key)


def sealed(data: bytes, metadata: CheckpointMetadata, key: bytes | None = None) -> bytes:
    """A ``_metadata`` that says its own checksum, where it says anything of where it comes from.

    data: what `metadata` was encoded as. key: signs it, which has to be `signable` then.
    """
    state = _own(metadata)
    if state is None:
        return data
    payload = state.payload
    if key is not None:
        signed = _with(_SIGNATURE_FIELD, payload, _signature(key, data))
        data, payload = data.replace(payload, signed, 1), signed
    return data.replace(payload, _with(_SEAL_FIELD, payload, f"{crc32c(data):08x}"), 1)


def check_seal(data: bytes, metadata: CheckpointMetadata, key: bytes | None = None) -> None:
    """Hold a ``_metadata`` against its own checksum, where it says one.

    data: what `metadata` was decoded from. key: the file has to be signed with it. Raises
    FormatError, and RestoreRefused for a file that is not signed so.
    """
    state = _own(metadata)
    if key is not None:
        _check_signature(data, state, key)
    if state is None:
        return
    field = _SEAL_FIELD.search(state.payload)
    if field is None:
        raise _refused(state.payload)
    said = field[1].decode()
    blank = data.replace(state.payload, _with(_SEAL_FIELD, state.payload, _UNSEALED), 1)
    if said not in (_UNSEALED, found := f"{crc32c(blank):08x}"):
        raise FormatError(
            "The file is not as it was written",
            remedy="Put the file back as it was, or name another snapshot.",
            expected=f"crc32c {said}",
            found=f"crc32c {found}",
        )


def _check_signature(data: bytes, state: MasterState | None, key: bytes) -> None:
    field = None if state is None else _SIGNATURE_FIELD.search(state.payload)
    if state is None or field is None:
        raise RestoreRefused(
            "The snapshot is not signed",
            remedy="Start from one that is. One that you trust you sign by copying it: "
            "SavepointWriter.from_existing(path).write(target, key_file=...).",
        )
    blank = _with(_SIGNATURE_FIELD, state.payload, _UNSIGNED)
    blank = _with(_SEAL_FIELD, blank, _UNSEALED)
    expected = _signature(key, data.replace(state.payload, blank, 1))
    if not hmac.compare_digest(field[1].decode(), expected):
        raise RestoreRefused(
            "The snapshot is not signed with this key, or was changed since",
            remedy="Give the key that it was signed with, or start from another snapshot.",
        )


def _signature(key: bytes, data: bytes) -> str:
    return hmac.digest(key, data, "sha256").hex()


def _with(field: re.Pattern[bytes], payload: bytes, value: str) -> bytes:
    """The payload with another value of the same length in a field, if it has that field."""
    found = field.search(payload)
    if found is None:
        return payload
    return payload[: found.start(1)] + value.encode() + payload[found.end(1) :]


def hook_states(metadata: CheckpointMetadata) -> tuple[MasterState, ...]:
    """The master states that are those of the job's hooks."""
    return tuple(state for state in metadata.master_states if state.name != NAME)


def provenance_of(metadata: CheckpointMetadata) -> Provenance | None:
    """Provenance of a snapshot; None if Flink, or a later release of ours, wrote it.

    Raises FormatError for a payload that is not what its version says.
    """
    state = _own(metadata)
    return None if state is None else _read(state.payload)


def _own(metadata: CheckpointMetadata) -> MasterState | None:
    known = (
        each for each in metadata.master_states if (each.name, each.version) == (NAME, VERSION)
    )
    return next(known, None)


def checksums_of(metadata: CheckpointMetadata) -> dict[str, FileChecksum]:
    """crc32c and size of the files and segments, by their names; none of a snapshot of Flink's.

    No two files have one name, and folders may be moved, so paths say less. Raises FormatError.
    """
    provenance = provenance_of(metadata)
    known = {} if provenance is None else provenance.checksums
    return {name_of(path): checksum for path, checksum in known.items()}


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _read(payload: bytes) -> Provenance:
    try:
        found: object = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _refused(payload) from error
    if not isinstance(found, dict):
        raise _refused(payload)
    facts = cast("dict[str, object]", found)
    checksums = facts.pop(CHECKSUMS, None)
    facts.pop(SIGNATURE, None)
    if not _is_checksums(checksums) or not isinstance(facts.pop(SEAL, None), str):
        raise _refused(payload)
    return Provenance(
        facts,
        {path: FileChecksum(crc, size, *more) for path, (size, crc, *more) in checksums.items()},
    )


def _is_checksums(found: object) -> TypeGuard[dict[str, tuple[int, int, *tuple[str, ...]]]]:
    return isinstance(found, dict) and all(
        isinstance(known, list)
        and [type(each) for each in cast("list[object]", known)] in ([int, int], [int, int, str])
        for known in cast("dict[str, object]", found).values()
    )


def _refused(payload: bytes) -> FormatError:
    return FormatError(
        "the master state 'tidegate' cannot be read",
        where="master state 'tidegate'",
        expected="a JSON object with its own crc32c, and checksums: each a size, a crc32c, and "
        "a SHA-256 if it is signed",
        found=repr(payload[:60]),
    )
