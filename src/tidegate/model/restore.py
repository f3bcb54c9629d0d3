"""Everything a subtask starts from: its share of state and of in-flight data."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.handles import KeyedStateHandle, OperatorStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import ChannelId, OperatorId


@frozen(kw_only=True)
class RestoredOperatorState:
    """State of one operator for one subtask: handles of several old subtasks after a rescale."""

    managed_operator: tuple[OperatorStateHandle, ...] = ()
    raw_operator: tuple[OperatorStateHandle, ...] = ()
    managed_keyed: tuple[KeyedStateHandle, ...] = ()
    raw_keyed: tuple[KeyedStateHandle, ...] = ()


@frozen
class InFlightData:
    """Data of one channel that a barrier had overtaken, in a file of channel state.

    channel: where its reader takes it in. offsets: where each batch begins. key_groups: of whose
    rows alone it is; None for all.
    """

    channel: ChannelId
    file: StreamStateHandle
    offsets: tuple[int, ...]
    key_groups: KeyGroupRange | None = None


@frozen
class SubtaskRestore:
    """Everything that one subtask starts from.

    operators: without those that start empty. finished: all of its vertex had finished, so it
    only passes barriers and the end on. in_flight: what it reads before anything new, in order.
    checksums: crc32c and size of its files and segments, by `checksum_name`, where they are known.
    """

    operators: Mapping[OperatorId, RestoredOperatorState]
    finished: bool
    in_flight: tuple[InFlightData, ...] = ()
    checksums: Mapping[str, FileChecksum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        starts_empty = not self.operators and not self.in_flight
        assert starts_empty or not self.finished, "who has finished has no state any more"
