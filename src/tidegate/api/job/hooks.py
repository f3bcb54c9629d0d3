"""Master hooks: systems outside the job that take part in its checkpoints.

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
    """Encodes the state of a hook."""

    @property
    def version(self) -> int:
        """Version of the encoding of ``serialize``; kept beside the bytes in ``_metadata``."""
        ...

    def serialize(self, state: T) -> bytes:
        """Encodes the state of the hook."""
        ...

    def deserialize(self, version: int, data: bytes) -> T:
        """Decodes a state that was written with that version."""
        ...


class MasterTriggerRestoreHook(ABC, Generic[T]):
    """A hook; register it with ``env.add_master_hook``."""

    @abstractmethod
    def get_identifier(self) -> str:
        """Id under which the hook's state is found: unique in the job, the same in each version."""

    @abstractmethod
    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> T | Future[T | None] | None:
        """Starts a checkpoint; the result, or the future's, is the hook's state in it.

        timestamp_ms: of the trigger, wall clock. None: no state. An exception fails the checkpoint.
        """

    @abstractmethod
    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: T | None) -> None:
        """The job resumes from a checkpoint. state: None if the hook has none in it."""

    def reset(self) -> None:
        """The job starts from nothing, since there is no checkpoint."""

    def close(self) -> None:
        """Called at the end of the job."""

    def create_checkpoint_data_serializer(self) -> MasterStateSerializer[T] | None:
        """Serializer of the state; None for a hook that never has any."""
        return None
