"""Guarantees of the sinks of a job from end to end, and what would break them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.config import checkpointing
from tidegate.model.settings import CheckpointingMode
from tidegate.model.topology import DeliveryGuarantee

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.model.settings import CheckpointSettings, JobSettings
    from tidegate.model.topology import Delivery, OperatorInfo

_ORDER: Final = (
    DeliveryGuarantee.NONE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.EXACTLY_ONCE,
)


@frozen
class EndToEnd:
    """The promise of a sink as part of its job.

    why: what the job takes from it; empty if it is all that the sink has to give. provided: what
    has to hold for it.
    """

    sink: str
    guarantee: DeliveryGuarantee
    why: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Fields of the plan's JSON, and of the page's."""
        return {
            "sink": self.sink,
            "guarantee": self.guarantee.value,
            "why": list(self.why),
            "provided": list(self.provided),
        }


def guarantees(operators: Iterable[OperatorInfo], settings: JobSettings) -> tuple[EndToEnd, ...]:
    """The promise of each sink among these operators, in their order.

    A batch takes nothing from it: it commits when all has come, or begins again.
    """
    return tuple(
        EndToEnd(info.name, info.delivery.guarantee, provided=info.delivery.provided)
        if settings.slot.final_only
        else _end_to_end(info.name, info.delivery, settings.checkpoints)
        for info in operators
        if info.delivery is not None
    )


def _end_to_end(sink: str, delivery: Delivery, settings: CheckpointSettings) -> EndToEnd:
    limits = [(limit, why) for limit, why in _limits(settings) if _below(limit, delivery.guarantee)]
    guarantee = min([delivery.guarantee, *(limit for limit, _ in limits)], key=_ORDER.index)
    if guarantee is DeliveryGuarantee.NONE:
        return EndToEnd(sink, guarantee, tuple(why for _, why in limits))
    provided = list(delivery.provided)
    if settings.directory is None:
        provided.append(
            "the driver lives, which keeps the checkpoints in its memory "
            f"({checkpointing.CHECKPOINT_DIRECTORY.key} gives them a folder)"
        )
    return EndToEnd(sink, guarantee, tuple(why for _, why in limits), tuple(provided))


def _limits(settings: CheckpointSettings) -> Iterator[tuple[DeliveryGuarantee, str]]:
    if not settings.periodic:
        yield (
            DeliveryGuarantee.NONE,
            "the job takes no checkpoints by itself, so that after a failure it begins again "
            f"({checkpointing.CHECKPOINT_INTERVAL.key} is not set)",
        )
    elif settings.mode is CheckpointingMode.AT_LEAST_ONCE:
        yield (
            DeliveryGuarantee.AT_LEAST_ONCE,
            f"{checkpointing.CHECKPOINT_MODE.key} is AT_LEAST_ONCE",
        )


def _below(limit: DeliveryGuarantee, guarantee: DeliveryGuarantee) -> bool:
    return _ORDER.index(limit) < _ORDER.index(guarantee)
