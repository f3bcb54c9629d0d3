"""Contents of a replay bundle: a zip file with facts for people and a step that can be run.

``facts.json`` can be read by anybody; ``step.bin`` holds code, as the job's graph does, and
``state.bin`` the state of the key in its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.model.elements import Batch
    from tidegate.model.topology import OperatorInfo, Vertex

FORMAT: Final = 1
FACTS, STEP, STATE = "facts.json", "step.bin", "state.bin"
"""Names in the file."""


@frozen
class StepToReplay:
    """The step and its last input.

    plan: the vertex's code, as it was shipped; operator: index in it. wall_ms: of the slot's clock
    as it failed. watermark_ms: before; None for none. batch, port: its input; None for a timer's
    call. timer: its time, and whether that is event time. parameters: of the job, without secrets.
    inputs: how many it has.
    """

    plan: bytes
    operator: int
    info: OperatorInfo
    vertex: Vertex
    subtask: int
    wall_ms: int
    watermark_ms: int | None
    batch: Batch | None
    port: int
    timer: tuple[int, bool] | None
    parameters: Mapping[str, str]
    inputs: int
