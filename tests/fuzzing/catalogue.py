"""Every reader of bytes that others have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzzing.of_flink import readers_of_flink
from tests.fuzzing.of_folders import readers_of_folders
from tests.fuzzing.of_links import readers_of_links
from tests.fuzzing.of_metadata import readers_of_metadata
from tests.fuzzing.of_state import readers_of_state
from tests.fuzzing.of_texts import readers_of_texts

if TYPE_CHECKING:
    from tests.fuzzing.cases import Reader


def all_readers() -> list[Reader]:
    """In the order in which they are read."""
    return [
        *readers_of_metadata(),
        *readers_of_state(),
        *readers_of_links(),
        *readers_of_texts(),
        *readers_of_flink(),
        *readers_of_folders(),
    ]
