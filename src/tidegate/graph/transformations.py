"""The program, call by call: one node for each operator, partitioning, union, side output.

The fluent surface makes the nodes and sets what ``name``, ``uid`` and the like say; how they hang
together never changes. Ids only count the calls, so that a node's inputs have lower ids than it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import KeyBy, Operator
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import Partitioner


class NodeKind(Enum):
    """Kind of an operator in a plan; values are Flink's."""

    SOURCE = "Data Source"
    OPERATOR = "Operator"
    SINK = "Data Sink"


class ChainingStrategy(Enum):
    """An operator's readiness to share a task with its neighbours; names are Flink's.

    HEAD begins a chain, NEVER stands alone.
    """

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"
    NEVER = "NEVER"


@dataclass(slots=True)
class StateOf:
    """State of an operator, and how a restore finds it.

    keyed: its inputs must be key exchanges, but for those after the first that are broadcast. kept:
    it has state that a restore looks up by its id.
    """

    keyed: bool = False
    kept: bool = False
    uid: str | None = None
    uid_hash: OperatorId | None = None


@dataclass(slots=True)
class Placement:
    """Number of an operator's subtasks, and its readiness to share their tasks.

    most: what ``parallelism`` may be at most, 1 for what cannot be split. is_set: whether the
    program chose it for this operator.
    """

    parallelism: int
    most: int | None = None
    is_set: bool = False
    max_parallelism: int | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS


@dataclass(slots=True)
class Notes:
    """Text for plans, and settings that are kept without effect.

    slot_sharing_group: needless, since each slot hosts a subtask of every vertex.
    """

    description: str = ""
    buffer_timeout_ms: int | None = None
    slot_sharing_group: str | None = None


@dataclass(slots=True, eq=False)
class OperatorTransformation:
    """An operator and where its input comes from; inputs stand in the order of its ports."""

    id: int
    kind: NodeKind
    name: str
    operator: Operator
    inputs: tuple[Transformation, ...]
    placement: Placement
    state: StateOf = field(default_factory=StateOf)
    notes: Notes = field(default_factory=Notes)


@frozen(eq=False)
class PartitionTransformation:
    """How rows find the subtask that reads them. partition: for CUSTOM only.

    FORWARD with a key is of rows that the operator before it has keyed.
    """

    input: Transformation
    partitioner: Partitioner
    key: KeyBy | None = None
    partition: Callable[[object, int], int] | None = None


@frozen(eq=False)
class UnionTransformation:
    """Several streams as one."""

    inputs: tuple[Transformation, ...]


@frozen(eq=False)
class SideOutputTransformation:
    """Rows that an operator emits under a tag."""

    input: Transformation
    tag: str


Transformation = (
    OperatorTransformation
    | PartitionTransformation
    | UnionTransformation
    | SideOutputTransformation
)
