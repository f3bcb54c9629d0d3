"""What frames of a link do to the channels of a slot, and those of its neighbour."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from tests.worlds.subtask import From, Into, rows
from tidegate.errors import PeerLost
from tidegate.model.elements import ArrowBatch, Element, Watermark
from tidegate.model.ids import (
    Attempt,
    ChannelId,
    Epoch,
    ExecutionId,
    SlotId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import SlotSettings
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.slot.channels.links import Links
from tidegate.slot.channels.output import ChannelOutput, Room
from tidegate.transport import codec, protocol
from tidegate.transport.memory import MemoryNetwork
from tidegate.transport.protocol import FrameHeader, FrameKind
from tidegate.transport.wire import Buffer

CHANNEL = ChannelId(0, 1, 0)
HERE = SlotId("here")


def execution(attempt: int = 0) -> ExecutionId:
    return ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(attempt), Epoch(1))


def frame(kind: FrameKind, *, attempt: int = 0, number: int = 0, body: bytes = b"") -> memoryview:
    header = FrameHeader(kind, CHANNEL, Epoch(1), Attempt(attempt), number)
    return memoryview(protocol.pack(header) + body)


def element(sent: Element) -> bytes:
    return b"".join(bytes(part) for part in codec.encode(sent))


def links(lost: Callable[[SlotId, PeerLost], None] = print) -> Links:
    return Links(HERE, MemoryNetwork(), lost=lost, timeout_s=1.0)


class Reading:
    """A subtask with channels."""

    execution = execution()

    def __init__(self) -> None:
        self.grants = self.turns = 0

    def ready(self) -> None:
        self.turns += 1

    def granted(self) -> None:
        self.grants += 1

    def fail(self, error: Exception) -> None:
        raise error


class FromPeer:
    """A link that a peer has dialled."""

    peer = "peer"

    def __init__(self) -> None:
        self.closed = False

    def send(self, parts: Sequence[Buffer]) -> None:
        raise AssertionError("nothing is sent here")

    def close(self) -> None:
        self.closed = True


def add_output(to: Links) -> ChannelOutput:
    output = ChannelOutput(CHANNEL, SlotSettings(), Into([]), Room())
    to.add_output(Reading(), output)
    return output


def rows_of(output: ChannelOutput) -> int:
    """Rows of a batch that the output sends."""
    return output._sender.rows


def test_rows_that_come_are_counted_with_their_bytes() -> None:
    receiving = links()
    channel = InputChannel(CHANNEL, 0, From(0, [], []))
    gate = Gate([channel], Reading())
    receiving.add_input(Reading(), gate, channel)
    body = element(rows("a" * 100, "b" * 100))
    receiving.frame(frame(FrameKind.ELEMENT, body=body))
    assert (channel.rows_came, channel.bytes_came) == (2, len(body)) and len(body) > 200
    receiving.frame(frame(FrameKind.ELEMENT, body=element(Watermark(5))))
    arrow = ArrowBatch(pa.record_batch({"v": [1]}))
    receiving.frame(frame(FrameKind.ELEMENT, body=element(arrow)))
    assert channel.rows_came == 2 and len(channel.queue) == 3


def test_credit_gives_a_turn_only_to_a_subtask_that_waits_for_room() -> None:
    sending, linked, room = links(), Reading(), Room()
    output = ChannelOutput(CHANNEL, SlotSettings(), Into([]), room)
    sending.add_output(linked, output)
    sending.frame(frame(FrameKind.CREDIT, number=1))
    assert (linked.grants, linked.turns) == (1, 0)
    while not room.waiting:
        output.arrow(ArrowBatch(pa.record_batch({"v": [1]})))
    output.arrow(ArrowBatch(pa.record_batch({"v": [1]})))
    sending.frame(frame(FrameKind.CREDIT, number=1))
    assert (linked.grants, linked.turns) == (2, 0), "one batch waits still"
    sending.frame(frame(FrameKind.CREDIT, number=1))
    assert (linked.grants, linked.turns) == (3, 1)


def test_a_size_reaches_the_sender_of_its_deployment_only() -> None:
    sending = links()
    output = add_output(sending)
    sending.frame(frame(FrameKind.SIZE, attempt=1, number=7))
    assert rows_of(output) == 1
    sending.frame(frame(FrameKind.SIZE, number=7))
    assert rows_of(output) == 7


def test_a_reader_tells_a_sender_in_its_own_slot_and_over_a_link() -> None:
    here = links()
    output = add_output(here)
    here.to_producer(execution(), CHANNEL, HERE).resize(9)
    assert rows_of(output) == 9
    sent: list[bytes] = []
    far = here.to_producer(execution(), CHANNEL, SlotId("far"))
    far.resize(11)  # a link that is broken: its subtasks are about to fail
    here.accept(_Wire(sent))
    far.resize(11)
    assert sent == [bytes(frame(FrameKind.SIZE, number=11))]


def test_bytes_are_counted_where_rows_leave_the_slot_and_of_arrow_batches_in_both_cases() -> None:
    sent: list[bytes] = []
    here, peer = links(), SlotId("far")
    here.accept(_Wire(sent))
    batch = ArrowBatch(pa.record_batch({"a": [1, 2]}))
    for slot, crosses in ((peer, True), (HERE, False)):
        far = here.to_consumer(execution(), CHANNEL, slot)
        output = ChannelOutput(CHANNEL, SlotSettings(), far, Room())
        output.resize(100)
        output.rows(rows(1, 2), 0)
        output.mark(Watermark(7))
        expected = len(element(rows(1, 2))) if crosses else 0
        assert output.bytes_sent == expected
        output.arrow(batch)
        assert output.bytes_sent == expected + batch.batch.nbytes
    assert len(sent) == 3


class _Wire:
    """A link that keeps what it is given."""

    peer = "far"

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def send(self, parts: list[bytes]) -> None:
        self._sent.append(b"".join(parts))

    def close(self) -> None:
        """Nothing to end."""


def test_a_link_that_was_dialled_anew_outlives_the_news_of_the_one_before() -> None:
    lost: list[SlotId] = []
    these = links(lambda peer, error: lost.append(peer))
    former, newer = FromPeer(), FromPeer()
    old, new = these.accept(former), these.accept(newer)
    assert former.closed and not newer.closed
    old.on_closed(PeerLost("it broke"))
    assert lost == []
    new.on_closed(PeerLost("it broke too"))
    assert lost == ["peer"]
