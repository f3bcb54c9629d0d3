"""A ``_metadata`` as it is written: sealed, and signed where there is a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat import metadata as codec
from tidegate.checkpoint.provenance import sealed, signable

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata


def encoded(metadata: CheckpointMetadata, key: bytes | None) -> bytes:
    """The bytes of a file. key: signs it; None for a file that nobody signs."""
    if key is not None:
        metadata = signable(metadata)
    return sealed(codec.encode(metadata), metadata, key)
