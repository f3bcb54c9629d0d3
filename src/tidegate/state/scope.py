"""The subtask of an operator that state belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.api.operator import KeyCell
from tidegate.state.format.headers import KeyedHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.clock import Clock
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.state.format.headers import ColumnsHeader, StateHeader
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class StateScope:
    """One operator in one subtask, and the key on which its keyed state stands.

    key_type: as declared; None for the types that the keys have. name, uid: of the operator, for
    errors. compression: of what snapshots write. pair_cell: the key with a namespace beside it.
    """

    operator: OperatorId
    key_groups: KeyGroupRange
    max_parallelism: int
    clock: Clock
    cell: KeyCell
    key_type: TypeInformation | None = None
    name: str = ""
    uid: str | None = None
    compression: bool = False
    pair_cell: KeyCell = field(default_factory=KeyCell)

    @property
    def where(self) -> str:
        """Names the operator in errors."""
        uid = f" (uid '{self.uid}')" if self.uid else ""
        return f"operator '{self.name or self.operator.hex()}'{uid}"

    @property
    def compress(self) -> Callable[[bytes], bytes] | None:
        """Makes parts of a snapshot smaller; None if they are written as they are."""
        if not self.compression:
            return None
        # PyArrow takes long to import, and only compressed state pays for it.
        from tidegate.state.format.compression import compressed

        return compressed

    def header(
        self,
        checkpoint: CheckpointId,
        key: bytes | None,
        states: list[StateHeader],
        columns: ColumnsHeader | None,
    ) -> KeyedHeader:
        """The header of a stream of its keyed state; fields as there."""
        return KeyedHeader(self.operator, checkpoint, self.max_parallelism, key, states, columns)

    def handle_name(self, checkpoint: CheckpointId) -> str:
        """The name of the handle of all its keyed state in one stream."""
        groups = self.key_groups
        return f"{self.operator.hex()}-{checkpoint}-{groups.first}-{groups.last}"
