"""Master hooks: something outside of the job that takes part in its checkpoints.

A hook lives in the driver. It is called when a checkpoint is triggered, may put state of its own
into it, and gets that state back when the job is restored. Its calls may block, for they are made
on the driver's pool. Source: Flink, ``MasterTriggerRestoreHook``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidegate.model.ids import CheckpointId

T = TypeVar("T")


class MasterStateSerializer(Protocol[T]):
    """How the state of a hook becomes bytes."""

    @property
    def version(self) -> int:
        """The form that ``serialize`` gives; it stands beside the bytes in ``_metadata``."""
        ...

    def serialize(self, state: T) -> bytes:
        """The state's bytes."""
        ...

    def deserialize(self, version: int, data: bytes) -> T:
        """The state of bytes that were written in a form of that number."""
        ...


class MasterTriggerRestoreHook(ABC, Generic[T]):
    """A hook; register it with ``env.add_master_hook``."""

    @abstractmethod
    def get_identifier(self) -> str:
        """Finds the hook's state again: one for each hook of a job, the same in each version."""

    @abstractmethod
    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> T | Future[T | None] | None:
        """A checkpoint begins; the result, or the future's, is the hook's state in it.

        timestamp_ms: of the trigger, wall clock. None: no state. What is raised fails the
        checkpoint.
        """

    @abstractmethod
    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: T | None) -> None:
        """The job goes on from a checkpoint. state: None where the hook has none in it."""

    def reset(self) -> None:
        """The job starts with nothing, because there is no checkpoint."""

    def close(self) -> None:
        """The job is over."""

    def create_checkpoint_data_serializer(self) -> MasterStateSerializer[T] | None:
        """What makes bytes of the state; None for a hook that never has any."""
        return None
