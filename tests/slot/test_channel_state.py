"""The writer of in-flight data: the real one and the one that does nothing."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import NoReturn

import pytest

from flinkformat.handles import FileStateHandle, StreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from tests.slot.world import barrier, rows
from tidegate.checkpoint.channel_state.machine import (
    SEQUENCE_NUMBER_UNKNOWN,
    Abort,
    Add,
    InputChannelInfo,
    Request,
    ResultSubpartitionInfo,
    read_chunks,
)
from tidegate.errors import CheckpointAborted, StorageFailed
from tidegate.model.elements import ArrowBatch, Barrier, Element, RowBatch, Watermark
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
    NO_CHANNEL_STATE,
    RESULTS_MAX,
    ChannelStateFile,
    ChannelStateWriter,
    ChannelStateWriteRequestExecutor,
    ChannelStateWriterImpl,
    ChannelStateWriters,
    SequentialChannelStateReader,
    within,
)
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
        self._soon: list[Callable[[], None]] = []
        self._work: list[Coroutine[None, None, None]] = []

    def soon(self, act: Callable[[], None]) -> None:
        self._soon.append(act)

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

    def run_all(self) -> None:
        while self._soon or self._work:
            soon, self._soon = self._soon, []
            for act in soon:
                act()
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
def shared(files: Files) -> ChannelStateWriteRequestExecutor:
    return ChannelStateWriteRequestExecutor(files)


@pytest.fixture
def writer(shared: ChannelStateWriteRequestExecutor) -> ChannelStateWriterImpl:
    return ChannelStateWriterImpl(shared, member(0))


def save(
    writer: ChannelStateWriter,
    checkpoint: CheckpointId,
    came: Sequence[Element] = (),
    unsent: Sequence[Element] = (),
) -> None:
    writer.add_input_data(checkpoint, CAME, SEQUENCE_NUMBER_UNKNOWN, came)
    writer.add_output_data(checkpoint, UNSENT, SEQUENCE_NUMBER_UNKNOWN, unsent)


def finish(writer: ChannelStateWriter, checkpoint: CheckpointId) -> None:
    writer.finish_input(checkpoint)
    writer.finish_output(checkpoint)


# --- the contract ---------------------------------------------------------------------------------


@pytest.fixture(params=["real", "none"])
def either(request: pytest.FixtureRequest, writer: ChannelStateWriterImpl) -> ChannelStateWriter:
    return writer if request.param == "real" else NO_CHANNEL_STATE


@pytest.mark.feature("F155")
class TestContract:
    """What a subtask may do with any writer."""

    def test_a_checkpoint_is_started_filled_finished_and_taken(
        self, either: ChannelStateWriter, files: Files
    ) -> None:
        either.start(barrier(1))
        save(either, FIRST, [rows(1)], [rows(2)])
        finish(either, FIRST)
        result = either.get_and_remove_write_result(FIRST)
        files.run_all()
        assert result.is_done
        asyncio.run(result.ready())

    def test_a_checkpoint_may_be_given_up_at_any_time(
        self, either: ChannelStateWriter, files: Files
    ) -> None:
        either.abort(FIRST, "ahead", clean_up=True)
        either.start(barrier(2))
        either.abort(SECOND, "under way", clean_up=True)
        either.abort(SECOND, "again", clean_up=False)
        files.run_all()
        assert files.written == []

    def test_it_may_be_closed_twice(self, either: ChannelStateWriter, files: Files) -> None:
        either.close()
        either.close()
        files.run_all()
        assert files.written == []


@pytest.mark.feature("F157", "F166")
def test_without_channel_state_every_result_is_the_empty_one() -> None:
    NO_CHANNEL_STATE.start(barrier(1))
    save(NO_CHANNEL_STATE, FIRST, [rows(1)])
    result = NO_CHANNEL_STATE.get_and_remove_write_result(FIRST)
    assert result is EMPTY and result.is_done
    assert (result.inputs, result.outputs, result.bytes_persisted) == ((), (), 0)


@pytest.mark.feature("F166")
@pytest.mark.parametrize("unaligned", [False, True])
def test_only_a_job_with_unaligned_checkpoints_gets_a_writer_that_writes(unaligned: bool) -> None:
    def never(work: object) -> NoReturn:
        raise AssertionError(f"nothing is to be run for {work}")

    writers = ChannelStateWriters(lambda: None, never, lambda: 0, never)
    given = writers.writer(member(0), CheckpointSettings(unaligned=unaligned))
    assert (given is NO_CHANNEL_STATE) is not unaligned


# --- the real one ---------------------------------------------------------------------------------


@pytest.mark.feature("F156", "F159", "F165", "F167")
def test_the_handles_fit_the_bytes(writer: ChannelStateWriterImpl, files: Files) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1, 2), rows(3), rows()], [rows(4), rows(5)])
    writer.finish_input(FIRST)
    result = writer.get_and_remove_write_result(FIRST)
    files.run_all()
    assert not result.is_done, "the other side is still open"
    writer.finish_output(FIRST)
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
    writer: ChannelStateWriterImpl, files: Files
) -> None:
    writer.start(barrier(1))
    with pytest.raises(ValueError, match="started checkpoint 1 already"):
        writer.start(barrier(1))
    finish(writer, FIRST)
    files.run_all()
    assert writer.get_and_remove_write_result(FIRST).is_done


@pytest.mark.feature("F165")
def test_a_result_is_taken_once(writer: ChannelStateWriterImpl) -> None:
    writer.start(barrier(1))
    writer.get_and_remove_write_result(FIRST)
    with pytest.raises(ValueError, match=r"subtask 0 .* has no result of checkpoint 1"):
        writer.get_and_remove_write_result(FIRST)


@pytest.mark.feature("F161", "F172")
@pytest.mark.parametrize("event", [barrier(1), Watermark(3)])
def test_only_batches_are_data(writer: ChannelStateWriterImpl, event: Element) -> None:
    writer.start(barrier(1))
    name = type(event).__name__
    for add, info in ((writer.add_input_data, CAME), (writer.add_output_data, UNSENT)):
        with pytest.raises(ValueError, match=f"should be a buffer but is a {name}"):
            add(FIRST, info, SEQUENCE_NUMBER_UNKNOWN, [event])  # type: ignore[arg-type]


@pytest.mark.feature("F168")
def test_so_many_results_may_wait_to_be_taken(writer: ChannelStateWriterImpl) -> None:
    for number in range(1, RESULTS_MAX + 1):
        writer.start(barrier(number))
    with pytest.raises(RuntimeError, match="results of 1000 checkpoints"):
        writer.start(barrier(RESULTS_MAX + 1))


@pytest.mark.feature("F169")
def test_after_the_end_what_waits_fails_and_nothing_can_be_asked_for(
    writer: ChannelStateWriterImpl, files: Files
) -> None:
    writer.start(barrier(1))
    result = writer._results[FIRST]
    writer.close()
    files.run_all()
    with pytest.raises(StorageFailed, match="ended in checkpoint 1"):
        asyncio.run(result.ready())
    for call in (
        lambda: writer.start(barrier(2)),
        lambda: save(writer, FIRST, [rows(1)]),
        lambda: writer.finish_input(FIRST),
        lambda: writer.abort(FIRST, "why", clean_up=True),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()


@pytest.mark.feature("F164", "F170")
def test_an_abort_comes_before_what_waits(
    shared: ChannelStateWriteRequestExecutor, files: Files
) -> None:
    seen: list[Request] = []
    dispatch = shared._dispatcher.dispatch
    shared._dispatcher.dispatch = lambda r: seen.append(r) or dispatch(r)  # type: ignore[method-assign,func-returns-value]
    writer = ChannelStateWriterImpl(shared, member(0))
    writer.start(barrier(1))
    files.run_all()
    for _ in range(10):
        save(writer, FIRST, [rows(1)])
    result = writer.get_and_remove_write_result(FIRST)
    writer.abort(FIRST, "enough", clean_up=True)
    seen.clear()
    files.run_all()
    assert [type(request) for request in seen] == [Abort] + [Add] * 10 + [Abort]
    with pytest.raises(CheckpointAborted, match="enough") as caught:
        asyncio.run(result.ready())
    assert caught.value.reason == "CHECKPOINT_DECLINED"
    assert files.written == []


@pytest.mark.feature("F170")
def test_a_request_that_fails_takes_what_waits_with_it(
    writer: ChannelStateWriterImpl, files: Files
) -> None:
    writer.start(barrier(1))
    result = writer.get_and_remove_write_result(FIRST)
    writer.finish_input(FIRST)
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    files.run_all()
    with pytest.raises(StorageFailed, match="more input data of checkpoint 1"):
        asyncio.run(result.ready())
    writer.start(barrier(2))
    finish(writer, SECOND)
    files.run_all()
    assert writer.get_and_remove_write_result(SECOND).is_done


@pytest.mark.feature("F243")
def test_several_subtasks_share_one_file(
    shared: ChannelStateWriteRequestExecutor, files: Files
) -> None:
    writers = [ChannelStateWriterImpl(shared, member(index)) for index in range(5)]
    for writer in writers:
        writer.start(barrier(1))
        save(writer, FIRST, [rows(1)])
    results = [writer.get_and_remove_write_result(FIRST) for writer in writers]
    for writer in writers:
        finish(writer, FIRST)
    files.run_all()
    assert len(files.written) == 1 and all(result.is_done for result in results)
    owners = [unmerge_input(result.inputs[0])[0].subtask_index for result in results]
    assert owners == [0, 1, 2, 3, 4]


def test_a_disk_that_is_full_fails_all_that_share_and_not_the_next_checkpoint(
    shared: ChannelStateWriteRequestExecutor, files: Files
) -> None:
    writers = [ChannelStateWriterImpl(shared, member(index)) for index in range(2)]
    files.broken = "no space left"
    for number, error in ((1, "no space left"), (2, None)):
        for writer in writers:
            writer.start(barrier(number))
            save(writer, CheckpointId(number), [rows(1)])
            finish(writer, CheckpointId(number))
        files.run_all()
        for writer in writers:
            result = writer.get_and_remove_write_result(CheckpointId(number))
            if error is None:
                asyncio.run(result.ready())
            else:
                with pytest.raises(CheckpointAborted, match=error) as caught:
                    asyncio.run(result.ready())
                assert caught.value.reason == "CHECKPOINT_ASYNC_EXCEPTION"
        files.broken = None


@pytest.mark.feature("F171")
def test_nothing_is_kept_of_checkpoints_that_were_given_up(
    shared: ChannelStateWriteRequestExecutor, writer: ChannelStateWriterImpl, files: Files
) -> None:
    for number in range(1, 200):
        writer.start(barrier(number))
        save(writer, CheckpointId(number), [rows(*range(50))])
        writer.abort(CheckpointId(number), "storm", clean_up=True)
        if number % 7 == 0:
            files.run_all()
    files.run_all()
    assert not writer._results and not shared._results and not shared._requests
    assert shared._dispatcher._writer is None


@pytest.mark.parametrize("when", ["before it is written", "after it is written"])
def test_a_file_that_nobody_takes_is_deleted(
    writer: ChannelStateWriterImpl, files: Files, when: str
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1)])
    finish(writer, FIRST)
    result = writer.get_and_remove_write_result(FIRST)
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
    writer: ChannelStateWriterImpl, files: Files
) -> None:
    writer.start(barrier(1))
    save(writer, FIRST, [rows(1, 2), rows(3)], [rows(4)])
    finish(writer, FIRST)
    files.run_all()
    result = writer.get_and_remove_write_result(FIRST)
    (held,), (sent,) = unmerge_input(result.inputs[0]), unmerge_output(result.outputs[0])
    channel = ChannelId(0, 1, 0)
    opened: list[StreamStateHandle] = []

    def read(handle: StreamStateHandle) -> bytes:
        opened.append(handle)
        return files.read(handle)

    reader = SequentialChannelStateReader(read)
    data = [InFlightData(channel, h.delegate, h.offsets) for h in (held, sent)]
    assert reader.read_data(data) == [
        (channel, rows(1, 2)),
        (channel, rows(3)),
        (channel, rows(4)),
    ]
    assert len(opened) == 1, "a file is read once"
    reader.close()
    reader.close()


@pytest.mark.feature("F154")
def test_without_in_flight_data_no_file_is_opened() -> None:
    def read(handle: StreamStateHandle) -> bytes:
        raise AssertionError(f"{handle} was read")

    reader = SequentialChannelStateReader(read)
    assert reader.read_data(()) == []
    reader.close()


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
