"""Small programs written out node by node, as the fluent surface would make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.api.operator import KeyBy, Operator, SourceOperator
from tidegate.graph.transformations import (
    ChainingStrategy,
    NodeKind,
    OperatorTransformation,
    PartitionTransformation,
    Placement,
    StateOf,
    Transformation,
)
from tidegate.model.topology import Partitioner

if TYPE_CHECKING:
    from tidegate.api.coordinator import CoordinatorContext, OperatorCoordinator


class Reader(SourceOperator):
    """A source whose splits the driver hands out."""

    def coordinator(self, context: CoordinatorContext) -> OperatorCoordinator:
        raise NotImplementedError


class Step(Operator):
    """An operator that holds what it is given, such as a user's function."""

    def __init__(self, held: object = None) -> None:
        self.held = held


class Program:
    """Makes nodes in the order of the calls."""

    def __init__(self, parallelism: int = 1) -> None:
        self.parallelism = parallelism
        self.made: list[OperatorTransformation] = []

    def source(self, name: str = "source", **settings: Any) -> OperatorTransformation:
        return self._add(NodeKind.SOURCE, name, Reader(), (), settings)

    def step(
        self, name: str, *inputs: Transformation, held: object = None, **settings: Any
    ) -> OperatorTransformation:
        return self._add(NodeKind.OPERATOR, name, Step(held), inputs, settings)

    def sink(self, name: str, *inputs: Transformation, **settings: Any) -> OperatorTransformation:
        return self._add(NodeKind.SINK, name, Step(), inputs, settings)

    def _add(
        self,
        kind: NodeKind,
        name: str,
        operator: Operator,
        inputs: tuple[Transformation, ...],
        settings: dict[str, Any],
    ) -> OperatorTransformation:
        placement = Placement(
            settings.pop("parallelism", self.parallelism),
            settings.pop("parallelism_max", None),
            max_parallelism=settings.pop("max_parallelism", None),
            chaining=settings.pop("chaining", ChainingStrategy.ALWAYS),
        )
        kept = settings.pop("stateful", False)
        number, state = len(self.made) + 1, StateOf(kept=kept, **settings)
        made = OperatorTransformation(number, kind, name, operator, inputs, placement, state)
        self.made.append(made)
        return made


def keyed(given: Transformation, column: str = "key") -> PartitionTransformation:
    return PartitionTransformation(given, Partitioner.HASH, KeyBy(column=column))


def partitioned(given: Transformation, how: Partitioner) -> PartitionTransformation:
    return PartitionTransformation(given, how)


def word_count(parallelism: int = 2) -> Program:
    """source(1) → FlatMap(p) → hash → Reduce(p) → Print(p)."""
    program = Program(parallelism)
    lines = program.source("lines", parallelism=1, parallelism_max=1)
    words = program.step("FlatMap", lines)
    counts = program.step("Reduce", keyed(words), keyed=True, stateful=True)
    program.sink("Print", counts)
    return program
