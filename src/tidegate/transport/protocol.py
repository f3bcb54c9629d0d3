"""Many channels over one link: what each frame is for, and who may still speak.

Without IO. A frame names its channel and the epoch and attempt of the deployment that it belongs
to; frames of an older deployment are dropped, so nothing of a subtask's former life reaches its
successor. Both ends of a channel are always deployed together, hence one attempt serves both.
Bytes: docs/formats/wire.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from flinkformat.frozen import frozen
from tidegate.errors import FormatError
from tidegate.model.ids import Attempt, ChannelId, Epoch

_HEADER = struct.Struct("!BHHHIII")
HEADER_BYTES = _HEADER.size


class FrameKind(IntEnum):
    """Purpose of a frame on a link."""

    ELEMENT = 1
    CREDIT = 2
    SIZE = 3


@frozen
class FrameHeader:
    """number: batches granted, on CREDIT frames; rows of a batch, on SIZE frames; else 0."""

    kind: FrameKind
    channel: ChannelId
    epoch: Epoch
    attempt: Attempt
    number: int = 0


def pack(header: FrameHeader) -> bytes:
    channel = header.channel
    return _HEADER.pack(
        header.kind,
        channel.edge,
        channel.producer,
        channel.consumer,
        header.epoch,
        header.attempt,
        header.number,
    )


def unpack(frame: memoryview) -> FrameHeader:
    try:
        kind, edge, producer, consumer, epoch, attempt, number = _HEADER.unpack_from(frame)
        return FrameHeader(
            FrameKind(kind),
            ChannelId(edge, producer, consumer),
            Epoch(epoch),
            Attempt(attempt),
            number,
        )
    except (struct.error, ValueError) as error:
        raise FormatError(
            "a data frame without a valid header",
            offset=0,
            expected=f"{HEADER_BYTES} bytes, kind 1, 2 or 3",
            found=bytes(frame[:HEADER_BYTES]).hex(),
        ) from error
