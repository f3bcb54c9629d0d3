"""What Flink's format has no place for, in a master state of our own named ``tidegate``.

Flink keeps master states of hooks that it does not know of, so the file stays legal, and what it
says of its files is durable in the same moment as the file itself.
Payload, version 1: a JSON object in UTF-8 (docs/formats/metadata.md, section 7).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from tidegate.errors import FormatError
from tidegate.model.snapshots import MasterState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.model.snapshots import CheckpointMetadata

NAME: Final = "tidegate"
VERSION: Final = 1
CHECKSUMS: Final = "checksums"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a snapshot comes from.

    facts: values of JSON by name, such as the job's name and the versions that wrote it.
    checksums: crc32c and size in bytes of each file, by its path as in the handle that names it.
    """

    facts: Mapping[str, object]
    checksums: Mapping[str, tuple[int, int]]


def to_master_state(provenance: Provenance) -> MasterState:
    """The master state that says so; equal provenance makes equal bytes."""
    checksums = {path: [size, crc] for path, (crc, size) in provenance.checksums.items()}
    payload = {**provenance.facts, CHECKSUMS: checksums}
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return MasterState(NAME, VERSION, text.encode())


def hook_states(metadata: CheckpointMetadata) -> tuple[MasterState, ...]:
    """The master states that are those of the job's hooks."""
    return tuple(state for state in metadata.master_states if state.name != NAME)


def provenance_of(metadata: CheckpointMetadata) -> Provenance | None:
    """What the snapshot says of itself; None in one that Flink wrote, or a later release of ours.

    Raises FormatError for a payload that is not what its version says.
    """
    for state in metadata.master_states:
        if state.name == NAME and state.version == VERSION:
            return _read(state.payload)
    return None


def _read(payload: bytes) -> Provenance:
    try:
        found: object = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _refused(payload) from error
    if not isinstance(found, dict):
        raise _refused(payload)
    facts = cast("dict[str, object]", found)
    checksums = facts.pop(CHECKSUMS, None)
    if not _is_checksums(checksums):
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
        expected="a JSON object with checksums, each of them a size and a crc32c",
        found=repr(payload[:60]),
    )
