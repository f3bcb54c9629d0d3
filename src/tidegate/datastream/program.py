"""Content of a program so far, shared by an environment and its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.config import execution
from tidegate.errors import GraphError
from tidegate.graph.transformations import NodeKind, OperatorTransformation

if TYPE_CHECKING:
    from tidegate.api.operator import Operator
    from tidegate.config.configuration import Configuration
    from tidegate.graph.transformations import Transformation


class Program:
    """Counts the calls and keeps the operators that were made since the last execution.

    Sources are kept by those who read them.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._calls = 0
        self.shown = False
        """Whether the program was asked for its plan, which may be all that was wanted."""
        self.executed = False
        """Whether steps were taken for an execution before."""
        self._operators: list[OperatorTransformation] = []

    @property
    def operators(self) -> tuple[OperatorTransformation, ...]:
        """The operators that the next execution runs, with all that they read."""
        return tuple(self._operators)

    def add(
        self,
        kind: NodeKind,
        name: str,
        operator: Operator,
        inputs: tuple[Transformation, ...] = (),
        *,
        keyed: bool = False,
        stateful: bool = False,
        parallelism_max: int | None = None,
    ) -> OperatorTransformation:
        """A new operator, at the parallelism that holds now."""
        self._calls += 1
        parallelism = self._configuration.get(execution.PARALLELISM)
        made = OperatorTransformation(
            id=self._calls,
            kind=kind,
            name=name,
            operator=operator,
            inputs=inputs,
            parallelism=min(parallelism, parallelism_max or parallelism),
            parallelism_max=parallelism_max,
            keyed=keyed,
            stateful=stateful,
        )
        if kind is not NodeKind.SOURCE:
            self._operators.append(made)
        return made

    def number(self) -> int:
        """How many operators were made in all; grows with each."""
        return self._calls

    def take(self) -> tuple[OperatorTransformation, ...]:
        """The operators, which then belong to whoever took them; a new program begins."""
        taken = self.operators
        self._operators.clear()
        return taken

    def take_for_execution(self) -> tuple[OperatorTransformation, ...]:
        """Takes the operators. Raises GraphError if an execution before has taken all."""
        taken = self.take()
        if not taken and self.executed:
            raise GraphError(
                "No operators defined in streaming topology. Cannot execute: the execution before "
                "has taken all steps",
                remedy="Each of execute, execute_async, execute_and_collect, collect and to_arrow "
                "runs what was built since the one before; call one of them, or build the steps "
                "again.",
            )
        self.executed = True
        return taken
