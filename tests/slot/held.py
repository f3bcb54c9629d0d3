"""A subtask whose output is held back, with what its unaligned checkpoints save."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.worlds.subtask import World
from tidegate.api.operator import Operator
from tidegate.checkpoint.channel_state.file_format import (
    ChannelInfo,
    InputChannelInfo,
    ResultSubpartitionInfo,
)
from tidegate.checkpoint.channel_state.group import Side
from tidegate.model.elements import (
    AlignmentType,
    Barrier,
    CheckpointOptions,
    Element,
    RowBatch,
)
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import CheckpointSettings, JobSettings, SlotSettings
from tidegate.slot.channel_state import EMPTY, ChannelStateResult

UNALIGNED = JobSettings(
    checkpoints=CheckpointSettings(interval_ms=1_000, unaligned=True), slot=SlotSettings(rows=4)
)


TIMEOUT_MS = 100


@dataclass
class Saved:
    """A writer that keeps what it is given."""

    data: dict[tuple[int, ChannelInfo], list[object]] = field(default_factory=dict)
    finished: list[tuple[int, str]] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    def start(self, barrier: Barrier) -> None:
        pass

    def add(self, checkpoint: CheckpointId, info: ChannelInfo, data: Iterable[Element]) -> None:
        for batch in data:
            assert isinstance(batch, RowBatch)
            self.data.setdefault((checkpoint, info), []).extend(batch.values)

    def finish(self, checkpoint: CheckpointId, side: Side) -> None:
        self.finished.append((checkpoint, side.value))

    def abort(self, checkpoint: CheckpointId, cause: str) -> None:
        self.aborted.append(checkpoint)

    def take_result(self, checkpoint: CheckpointId) -> ChannelStateResult:
        return EMPTY

    def came(self, checkpoint: int, channel: int = 0) -> list[object]:
        return self.data.get((checkpoint, InputChannelInfo(0, channel)), [])

    def unsent(self, checkpoint: int, channel: int = 0) -> list[object]:
        return self.data.get((checkpoint, ResultSubpartitionInfo(0, channel)), [])


class Held(World):
    """A world with unaligned checkpoints."""

    def __init__(self, *operators: Operator, **given: object) -> None:
        self.saved = Saved()
        super().__init__(
            *operators,
            settings=UNALIGNED,
            channel_state=self.saved,
            **given,  # type: ignore[arg-type]
        )

    def barrier(self, checkpoint: int, *, timed: bool = False) -> Barrier:
        options = (
            CheckpointOptions(aligned_timeout_ms=TIMEOUT_MS)
            if timed
            else CheckpointOptions(alignment=AlignmentType.UNALIGNED)
        )
        return Barrier(CheckpointId(checkpoint), self.clock.wall_ms(), options)
