"""What Flink's format has no place for, in a master state of our own named ``tidegate``.

Flink keeps master states of hooks that it does not know of, so the file stays legal, and what it
says of its files is durable in the same moment as the file itself. It says it of itself too: the
state that lies in ``_metadata`` has no other checksum.
Payload, version 1: a JSON object in UTF-8 (docs/formats/metadata.md, section 7).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from google_crc32c import value as crc32c

from tidegate.errors import FormatError
from tidegate.model.snapshots import MasterState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.model.snapshots import CheckpointMetadata

NAME: Final = "tidegate"
VERSION: Final = 1
CHECKSUMS: Final = "checksums"
SEAL: Final = "crc32c"

_UNSEALED: Final = "00000000"
_SEAL_FIELD: Final = re.compile(rb'"crc32c":"([0-9a-f]{8})"')


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a snapshot comes from.

    facts: values of JSON by name, such as the job's name and the versions that wrote it.
    checksums: crc32c and size in bytes of each file, by its path as in the handle that names it.
    """

    facts: Mapping[str, object]
    checksums: Mapping[str, tuple[int, int]]


def to_master_state(provenance: Provenance) -> MasterState:
    """The master state that says so, for `sealed`; equal provenance makes equal bytes."""
    checksums = {path: [size, crc] for path, (crc, size) in provenance.checksums.items()}
    payload = {**provenance.facts, CHECKSUMS: checksums, SEAL: _UNSEALED}
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return MasterState(NAME, VERSION, text.encode())


def sealed(data: bytes, metadata: CheckpointMetadata) -> bytes:
    """A ``_metadata`` that says its own checksum, where it says anything of where it comes from.

    data: what `metadata` was encoded as.
    """
    state = _own(metadata)
    if state is None:
        return data
    return data.replace(state.payload, _with_seal(state.payload, f"{crc32c(data):08x}"), 1)


def check_seal(data: bytes, metadata: CheckpointMetadata) -> None:
    """Hold a ``_metadata`` against its own checksum, where it says one.

    data: what `metadata` was decoded from. Raises FormatError.
    """
    state = _own(metadata)
    if state is None:
        return
    field = _SEAL_FIELD.search(state.payload)
    if field is None:
        raise _refused(state.payload)
    said = field[1].decode()
    blank = data.replace(state.payload, _with_seal(state.payload, _UNSEALED), 1)
    if said not in (_UNSEALED, found := f"{crc32c(blank):08x}"):
        raise FormatError(
            "The file is not as it was written",
            remedy="Put the file back as it was, or name another snapshot.",
            expected=f"crc32c {said}",
            found=f"crc32c {found}",
        )


def _with_seal(payload: bytes, seal: str) -> bytes:
    return _SEAL_FIELD.sub(f'"{SEAL}":"{seal}"'.encode(), payload, count=1)


def hook_states(metadata: CheckpointMetadata) -> tuple[MasterState, ...]:
    """The master states that are those of the job's hooks."""
    return tuple(state for state in metadata.master_states if state.name != NAME)


def provenance_of(metadata: CheckpointMetadata) -> Provenance | None:
    """What the snapshot says of itself; None in one that Flink wrote, or a later release of ours.

    Raises FormatError for a payload that is not what its version says.
    """
    state = _own(metadata)
    return None if state is None else _read(state.payload)


def _own(metadata: CheckpointMetadata) -> MasterState | None:
    known = (
        each for each in metadata.master_states if (each.name, each.version) == (NAME, VERSION)
    )
    return next(known, None)


def checksums_of(metadata: CheckpointMetadata) -> dict[str, tuple[int, int]]:
    """crc32c and size of the snapshot's files, by their names; none of a snapshot of Flink's.

    No two files have one name, and folders may be moved, so paths say less. Raises FormatError.
    """
    provenance = provenance_of(metadata)
    known = {} if provenance is None else provenance.checksums
    return {name_of(path): checksum for path, checksum in known.items()}


def name_of(path: str) -> str:
    """The name of a file."""
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
    if not _is_checksums(checksums) or not isinstance(facts.pop(SEAL, None), str):
        raise _refused(payload)
    return Provenance(facts, {path: (crc, size) for path, (size, crc) in checksums.items()})


def _is_checksums(found: object) -> TypeGuard[dict[str, list[int]]]:
    return isinstance(found, dict) and all(
        isinstance(pair, list) and [type(n) for n in cast("list[object]", pair)] == [int, int]
        for pair in cast("dict[str, object]", found).values()
    )


def _refused(payload: bytes) -> FormatError:
    return FormatError(
        "the master state 'tidegate' cannot be read",
        where="master state 'tidegate'",
        expected="a JSON object with its own crc32c, and checksums: each a size and a crc32c",
        found=repr(payload[:60]),
    )
