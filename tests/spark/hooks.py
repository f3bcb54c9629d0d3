"""A master hook that notes what it hears."""

from tidegate import MasterTriggerRestoreHook


class Text:
    version = 1

    def serialize(self, state: str) -> bytes:
        return state.encode()

    def deserialize(self, version: int, data: bytes) -> str:
        return data.decode()


class Offsets(MasterTriggerRestoreHook[str]):
    """Stands for a store outside that takes part in snapshots."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.triggered: list[int] = []

    def get_identifier(self) -> str:
        return "offsets"

    def trigger_checkpoint(self, checkpoint_id: int, timestamp_ms: int) -> str:
        self.triggered.append(checkpoint_id)
        return "as of the batch"

    def restore_checkpoint(self, checkpoint_id: int, state: str | None) -> None:
        self.heard.append(state)

    def reset(self) -> None:
        self.heard.append("reset")

    def close(self) -> None:
        self.heard.append("closed")

    def create_checkpoint_data_serializer(self) -> Text:
        return Text()
