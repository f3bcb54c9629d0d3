"""Streams as a person reads them at a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.graph.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
)

if TYPE_CHECKING:
    from tidegate.graph.transformations import Transformation
    from tidegate.typeinfo.types import TypeInformation


def name_of(transformation: Transformation) -> str:
    """The name of the step that records come from, in quotes; those of all steps of a union."""
    match transformation:
        case OperatorTransformation(name=name):
            return f"'{name}'"
        case PartitionTransformation(input=step):
            return name_of(step)
        case SideOutputTransformation(input=step, tag=tag):
            return f"side output '{tag}' of {name_of(step)}"
        case _:
            return " and ".join(map(name_of, transformation.inputs))


def step_text(transformation: Transformation, type_info: TypeInformation | None) -> str:
    """A step with what is known of it: 'Map' of Long, parallelism 2, uid 'doubled'."""
    parts = [name_of(transformation)]
    if type_info is not None:
        parts[0] += f" of {type_info}"
    if isinstance(transformation, OperatorTransformation):
        parts.append(f"parallelism {transformation.parallelism}")
        if transformation.uid is not None:
            parts.append(f"uid '{transformation.uid}'")
    return ", ".join(parts)
