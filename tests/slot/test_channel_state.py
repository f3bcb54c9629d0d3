"""In-flight data of subtasks: written, shared by files, and read back."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import pytest

from flinkformat.handles import FileStateHandle, StreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from tests.storage.checkpoint_folders import JOB, TornFiles
from tests.worlds.subtask import Recorder, World, barrier, rows
from tidegate.checkpoint.channel_state.file_format import (
    ChannelInfo,
    InputChannelInfo,
    ResultSubpartitionInfo,
    read_chunks,
)
from tidegate.checkpoint.channel_state.group import Side
from tidegate.errors import CheckpointAborted, StorageFailed
from tidegate.model.elements import (
    AlignmentType,
    ArrowBatch,
    Barrier,
    CheckpointOptions,
    Element,
    RowBatch,
    Watermark,
)
from tidegate.model.files import FileChecksum
from tidegate.model.ids import (
    Attempt,
    ChannelId,
    CheckpointId,
    Epoch,
    ExecutionId,
    SubtaskId,
    VertexId,
)
from tidegate.model.restore import InFlightData
from tidegate.model.settings import CheckpointSettings
from tidegate.slot.channel_state import (
    EMPTY,
    RESULTS_MAX,
    ChannelStateFile,
    ChannelStateResult,
    ChannelStateStorage,
    ChannelStateWriter,
    SharedFiles,
    read_in_flight,
    within,
)
from tidegate.slot.in_flight import InFlight, InFlightPlaces
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores
from tidegate.transport import codec

CAME, UNSENT = InputChannelInfo(0, 1), ResultSubpartitionInfo(0, 0)
FIRST, SECOND = CheckpointId(1), CheckpointId(2)


def member(index: int) -> ExecutionId:
    return ExecutionId(SubtaskId(VertexId(b"v" * 16), index), Attempt(0), Epoch(1))


class Files:
    """Files in memory; what is to run waits for ``run_all``."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.members: list[int] = []
        self.targets: list[Barrier] = []
        self.deleted: list[ChannelStateFile] = []
        self.broken: str | None = None
        self._work: list[Coroutine[None, None, None]] = []

    def run(self, work: Coroutine[None, None, None], /) -> None:
        self._work.append(work)

    async def write(
        self, member: ExecutionId, barrier: Barrier, parts: Sequence[bytes]
    ) -> ChannelStateFile:
        if self.broken is not None:
            raise StorageFailed(self.broken)
        self.written.append(b"".join(parts))
        self.members.append(member.subtask.index)
        self.targets.append(barrier)
        name = f"file {len(self.written)}"
        return ChannelStateFile(FileStateHandle(name, len(self.written[-1])), {name: (7, 9)})

    async def delete(self, file: ChannelStateFile) -> None:
        self.deleted.append(file)

    @property
    def busy(self) -> bool:
        return bool(self._work)

    def run_all(self) -> None:
        while self._work:
            work, self._work = self._work, []
            for each in work:
                asyncio.run(each)

    def read(self, handle: StreamStateHandle) -> bytes:
        assert isinstance(handle, FileStateHandle)
        return self.written[int(handle.file_path.split()[1]) - 1]


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def shared(files: Files) -> SharedFiles:
    return SharedFiles(files)


@pytest.fixture
def writer(shared: SharedFiles) -> ChannelStateWriter:
    return ChannelStateWriter(shared, member(0))


def save(
    writer: ChannelStateWriter,
    checkpoint: CheckpointId,
    came: Sequence[Element] = (),
    unsent: Sequence[Element] = (),
) -> None:
    writer.add(checkpoint, CAME, came)
    writer.add(checkpoint, UNSENT, unsent)


def finish(writer: ChannelStateWriter, checkpoint: CheckpointId) -> None:
    writer.finish(checkpoint, Side.INPUT)
    writer.finish(checkpoint, Side.OUTPUT)


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.feature("F155")
def test_a_checkpoint_is_started_filled_finished_and_taken(
    writer: ChannelStateWriter, files: Files
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1)], [rows(2)])
    finish(writer, FIRST)
    result = writer.take_result(FIRST)
    files.run_all()
    assert result.is_done
    asyncio.run(result.ready())


@pytest.mark.feature("F155")
def test_a_checkpoint_may_be_given_up_at_any_time(writer: ChannelStateWriter, files: Files) -> None:
    writer.abort(FIRST, "ahead")
    writer.start(barrier(2))
    writer.abort(SECOND, "under way")
    writer.abort(SECOND, "again")
    files.run_all()
    assert files.written == []


@pytest.mark.feature("F155")
def test_it_may_be_closed_twice(writer: ChannelStateWriter, files: Files) -> None:
    writer.close()
    writer.close()
    files.run_all()
    assert files.written == []


@pytest.mark.feature("F157", "F166")
@pytest.mark.parametrize("alignment", [AlignmentType.ALIGNED, AlignmentType.AT_LEAST_ONCE])
def test_a_checkpoint_whose_barriers_overtake_nothing_is_not_started(
    writer: ChannelStateWriter, files: Files, alignment: AlignmentType
) -> None:
    world = World(Recorder("a", [])).start()
    operator = world.operator_ids[0]
    places = InFlightPlaces(writer, {}, operator, operator)
    in_flight = InFlight(world.gate, world.outputs, places, [].append, lambda _: 0)
    cut = Barrier(FIRST, 0, CheckpointOptions(alignment=alignment))
    in_flight.send(cut)
    result = in_flight.result(cut)
    assert result is EMPTY and result.is_done
    assert (result.inputs, result.outputs, result.bytes_persisted) == ((), (), 0)
    with pytest.raises(ValueError, match="no result of checkpoint 1"):
        writer.take_result(FIRST)
    assert not in_flight.leaving and not files.busy


@pytest.mark.parametrize("kept", [2, 1])
def test_so_many_subtasks_share_their_files(kept: int) -> None:
    storage = ChannelStateStorage(lambda: None, never, lambda: 0, never)
    writers = [storage.writer(member(index), kept) for index in range(3)]
    for writer in writers:
        writer.start(barrier(1))
    for writer in writers[:kept]:
        finish(writer, FIRST)
    done = [writer.take_result(FIRST).is_done for writer in writers]
    assert done == [True] * kept + [False] * (3 - kept)


def never(work: object) -> NoReturn:
    raise AssertionError(f"nothing is to be run for {work}")


# --- data -----------------------------------------------------------------------------------------


@pytest.mark.feature("F156", "F159", "F165", "F167")
def test_the_handles_fit_the_bytes(writer: ChannelStateWriter, files: Files) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1, 2), rows(3), rows()], [rows(4), rows(5)])
    writer.finish(FIRST, Side.INPUT)
    result = writer.take_result(FIRST)
    files.run_all()
    assert not result.is_done, "the other side is still open"
    writer.finish(FIRST, Side.OUTPUT)
    files.run_all()
    assert result.is_done and result.checksums == {"file 1": (7, 9)}
    (held,) = unmerge_input(result.inputs[0])
    (sent,) = unmerge_output(result.outputs[0])
    found = [codec.decode(buffer) for buffer in read_chunks(files.written[0], held.offsets)]
    assert found == [rows(1, 2), rows(3), rows()]
    found = [codec.decode(buffer) for buffer in read_chunks(files.written[0], sent.offsets)]
    assert found == [rows(4), rows(5)]
    assert result.bytes_persisted == held.state_size + sent.state_size
    assert len(files.written[0]) == 4 + result.bytes_persisted


@pytest.mark.feature("F159")
def test_a_second_start_is_refused_and_leaves_the_first(
    writer: ChannelStateWriter, files: Files
) -> None:
    writer.start(barrier(1))
    with pytest.raises(ValueError, match="started checkpoint 1 already"):
        writer.start(barrier(1))
    finish(writer, FIRST)
    files.run_all()
    assert writer.take_result(FIRST).is_done


@pytest.mark.feature("F165")
def test_a_result_is_taken_once(writer: ChannelStateWriter) -> None:
    writer.start(barrier(1))
    writer.take_result(FIRST)
    with pytest.raises(ValueError, match=r"subtask 0 .* has no result of checkpoint 1"):
        writer.take_result(FIRST)


@pytest.mark.feature("F161", "F172")
@pytest.mark.parametrize("event", [barrier(1), Watermark(3)])
@pytest.mark.parametrize("info", [CAME, UNSENT])
def test_only_batches_are_data(
    writer: ChannelStateWriter, info: ChannelInfo, event: Element
) -> None:
    writer.start(barrier(1))
    with pytest.raises(ValueError, match=f"should be a buffer but is a {type(event).__name__}"):
        writer.add(FIRST, info, [event])


@pytest.mark.feature("F168")
def test_so_many_results_may_wait_to_be_taken(writer: ChannelStateWriter) -> None:
    for number in range(1, RESULTS_MAX + 1):
        writer.start(barrier(number))
    with pytest.raises(RuntimeError, match="results of 1000 checkpoints"):
        writer.start(barrier(RESULTS_MAX + 1))


@pytest.mark.feature("F169")
def test_after_the_end_what_waits_fails_and_nothing_can_be_asked_for(
    shared: SharedFiles, writer: ChannelStateWriter, files: Files
) -> None:
    other = ChannelStateWriter(shared, member(1))
    for each in (writer, other):
        each.start(barrier(1))
    taken = writer.take_result(FIRST)
    save(other, FIRST, [rows(1)])
    finish(other, FIRST)
    writer.close()
    files.run_all()
    assert not taken.is_done, "whoever has taken it is over as well"
    assert other.take_result(FIRST).is_done, "the others go on"
    for call in (
        lambda: writer.start(barrier(2)),
        lambda: save(writer, FIRST, [rows(1)]),
        lambda: writer.finish(FIRST, Side.INPUT),
        lambda: writer.abort(FIRST, "why"),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()


@pytest.mark.feature("F164", "F170")
def test_an_abort_outdoes_what_was_added_before(writer: ChannelStateWriter, files: Files) -> None:
    writer.start(barrier(1))
    for _ in range(10):
        save(writer, FIRST, [rows(1)])
    result = writer.take_result(FIRST)
    writer.abort(FIRST, "enough")
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    files.run_all()
    with pytest.raises(CheckpointAborted, match="enough") as caught:
        asyncio.run(result.ready())
    assert caught.value.reason == "CHECKPOINT_DECLINED"
    assert files.written == []


@pytest.mark.feature("F170")
def test_a_request_that_fails_takes_what_waits_with_it(
    writer: ChannelStateWriter, files: Files
) -> None:
    writer.start(barrier(1))
    result = writer.take_result(FIRST)
    writer.finish(FIRST, Side.INPUT)
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    files.run_all()
    with pytest.raises(StorageFailed, match="more input data of checkpoint 1"):
        asyncio.run(result.ready())
    writer.start(barrier(2))
    finish(writer, SECOND)
    files.run_all()
    assert writer.take_result(SECOND).is_done


@pytest.mark.feature("F243")
def test_several_subtasks_share_one_file(shared: SharedFiles, files: Files) -> None:
    writers = [ChannelStateWriter(shared, member(index)) for index in range(5)]
    for writer in writers:
        writer.start(barrier(1))
        save(writer, FIRST, [rows(1)])
    results = [writer.take_result(FIRST) for writer in writers]
    for writer in writers:
        finish(writer, FIRST)
    files.run_all()
    assert len(files.written) == 1 and all(result.is_done for result in results)
    owners = [unmerge_input(result.inputs[0])[0].subtask_index for result in results]
    assert owners == [0, 1, 2, 3, 4]


def test_a_disk_that_is_full_fails_all_that_share_and_not_the_next_checkpoint(
    shared: SharedFiles, files: Files
) -> None:
    writers = [ChannelStateWriter(shared, member(index)) for index in range(2)]
    files.broken = "no space left"
    for number, error in ((1, "no space left"), (2, None)):
        for writer in writers:
            writer.start(barrier(number))
            save(writer, CheckpointId(number), [rows(1)])
            finish(writer, CheckpointId(number))
        files.run_all()
        for writer in writers:
            result = writer.take_result(CheckpointId(number))
            if error is None:
                asyncio.run(result.ready())
            else:
                with pytest.raises(CheckpointAborted, match=error) as caught:
                    asyncio.run(result.ready())
                assert caught.value.reason == "CHECKPOINT_ASYNC_EXCEPTION"
        files.broken = None


@pytest.mark.feature("F171")
def test_nothing_is_kept_of_checkpoints_that_were_given_up(
    writer: ChannelStateWriter, files: Files
) -> None:
    before = results_in_memory()
    for number in range(1, 200):
        writer.start(barrier(number))
        save(writer, CheckpointId(number), [rows(*range(50))])
        writer.abort(CheckpointId(number), "storm")
        if number % 7 == 0:
            files.run_all()
    files.run_all()
    assert files.written == []
    assert results_in_memory() == before


def results_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, ChannelStateResult) for each in gc.get_objects())


def test_a_file_for_a_subtask_that_is_over_is_deleted(
    writer: ChannelStateWriter, files: Files
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    writer.close()
    files.run_all()
    assert [file.checksums for file in files.deleted] == [{"file 1": (7, 9)}]


@pytest.mark.parametrize("when", ["before it is written", "after it is written"])
def test_a_file_that_nobody_takes_is_deleted(
    writer: ChannelStateWriter, files: Files, when: str
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    result = writer.take_result(FIRST)
    if when == "after it is written":
        files.run_all()
        assert result.is_done and files.deleted == []
    result.give_up()
    result.give_up()
    files.run_all()
    assert [file.checksums for file in files.deleted] == [{"file 1": (7, 9)}]


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.feature("F152", "F154")
def test_what_was_written_is_read_back_into_its_channels(
    writer: ChannelStateWriter, files: Files
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1, 2), rows(3)], [rows(4)])
    finish(writer, FIRST)
    files.run_all()
    result = writer.take_result(FIRST)
    (held,), (sent,) = unmerge_input(result.inputs[0]), unmerge_output(result.outputs[0])
    channel = ChannelId(0, 1, 0)
    opened: list[StreamStateHandle] = []

    def read(handle: StreamStateHandle) -> bytes:
        opened.append(handle)
        return files.read(handle)

    data = [InFlightData(channel, h.delegate, h.offsets) for h in (held, sent)]
    assert read_in_flight(data, read) == [
        (channel, rows(1, 2)),
        (channel, rows(3)),
        (channel, rows(4)),
    ]
    assert len(opened) == 1, "a file is read once"


@pytest.mark.feature("F154")
def test_without_in_flight_data_no_file_is_opened() -> None:
    def read(handle: StreamStateHandle) -> bytes:
        raise AssertionError(f"{handle} was read")

    assert read_in_flight((), read) == []


def keyed_batches() -> Iterator[RowBatch | ArrowBatch]:
    import numpy as np
    import pyarrow as pa

    groups = [0, 5, 3, 5, 9]
    yield RowBatch(list("abcde"), [1, 2, 3, 4, 5], list("ABCDE"), groups)
    batch = pa.record_batch({"value": list("abcde")})
    yield ArrowBatch(batch, np.array([1, 2, 3, 4, 5]), "value", np.array(groups))


@pytest.mark.feature("F241")
@pytest.mark.parametrize("batch", list(keyed_batches()), ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("first", "last", "times"),
    [(3, 5, [2, 3, 4]), (0, 0, [1]), (6, 8, []), (0, 9, [1, 2, 3, 4, 5])],
)
def test_rows_are_cut_to_the_key_groups_of_their_reader(
    batch: RowBatch | ArrowBatch, first: int, last: int, times: list[int]
) -> None:
    kept = within(batch, KeyGroupRange(first, last))
    assert kept.timestamps_ms is not None and kept.key_groups is not None
    assert list(kept.timestamps_ms) == times and len(kept) == len(times)
    assert all(first <= group <= last for group in kept.key_groups)


# --- where the files are ----------------------------------------------------------------------


def storing(files: MemoryFiles, work: list[Coroutine[None, None, None]]) -> ChannelStateStorage:
    """In folders of a job; coroutines that it starts are put by."""
    settings = CheckpointSettings(
        storage="filesystem", directory="memory:/c", inline_threshold_bytes=0
    )
    storage = CheckpointStorage(JOB, settings, Stores(files))

    async def at_once(call: Callable[[], object]) -> object:
        return call()

    return ChannelStateStorage(lambda: storage, at_once, lambda: 7, work.append)


def test_a_file_is_written_and_goes_once_nobody_takes_it() -> None:
    files = MemoryFiles()
    storage = storing(files, [])
    written = asyncio.run(storage.write(member(0), barrier(1), [b"a", b"bc"]))
    assert list(files.files.values()) == [b"abc"] and written.handle.state_size == 3
    asyncio.run(storage.delete(written))
    assert files.files == {}


def test_nothing_is_left_of_a_file_that_fails() -> None:
    files = TornFiles()
    with pytest.raises(StorageFailed, match="disk is full"):
        asyncio.run(storing(files, []).write(member(0), barrier(1), [b"abc"]))
    assert files.files == {}


def test_what_cannot_be_deleted_is_left_to_the_sweep() -> None:
    files = MemoryFiles()
    storage = storing(files, [])
    written = asyncio.run(storage.write(member(0), barrier(1), [b"abc"]))
    elsewhere = replace(written, checksums={"nowhere:/c/f": FileChecksum(3, 1)})
    asyncio.run(storage.delete(elsewhere))
    assert len(files.files) == 1
