"""A subtask whose output is held back, with what its unaligned checkpoints save."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.slot.world import World
from tidegate.api.operator import Operator
from tidegate.checkpoint.channel_state.machine import (
    ChannelInfo,
    InputChannelInfo,
    ResultSubpartitionInfo,
)
from tidegate.model.elements import (
    AlignmentType,
    Barrier,
    CheckpointOptions,
    Element,
    RowBatch,
)
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import CheckpointSettings, JobSettings, SlotSettings
from tidegate.slot.channel_state import EMPTY, ChannelStateWriteResult

UNALIGNED = JobSettings(
    checkpoints=CheckpointSettings(interval_ms=1_000, unaligned=True), slot=SlotSettings(rows=4)
)


TIMEOUT_MS = 100


@dataclass
class Saved:
    """A writer that keeps what it is given."""

    data: dict[tuple[int, ChannelInfo], list[object]] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)
    finished: list[tuple[int, str]] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    closed: bool = False

    def start(self, barrier: Barrier) -> None:
        pass

    def add_input_data(
        self,
        checkpoint: CheckpointId,
        info: InputChannelInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        self._add(checkpoint, info, start_sequence, data)

    def add_output_data(
        self,
        checkpoint: CheckpointId,
        info: ResultSubpartitionInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        self._add(checkpoint, info, start_sequence, data)

    def _add(
        self, checkpoint: CheckpointId, info: ChannelInfo, sequence: int, data: Iterable[Element]
    ) -> None:
        for batch in data:
            assert isinstance(batch, RowBatch)
            self.data.setdefault((checkpoint, info), []).extend(batch.values)
            self.sequences.append(sequence)

    def finish_input(self, checkpoint: CheckpointId) -> None:
        self.finished.append((checkpoint, "input"))

    def finish_output(self, checkpoint: CheckpointId) -> None:
        self.finished.append((checkpoint, "output"))

    def abort(self, checkpoint: CheckpointId, cause: str, *, clean_up: bool) -> None:
        self.aborted.append(checkpoint)

    def get_and_remove_write_result(self, checkpoint: CheckpointId) -> ChannelStateWriteResult:
        return EMPTY

    def close(self) -> None:
        self.closed = True

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
