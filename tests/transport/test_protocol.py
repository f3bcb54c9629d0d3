"""Headers of data frames: channel, epoch, attempt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import FormatError
from tidegate.model.ids import Attempt, ChannelId, Epoch
from tidegate.transport.protocol import HEADER_BYTES, FrameHeader, FrameKind, pack, unpack

short = st.integers(0, 2**16 - 1)
long = st.integers(0, 2**32 - 1)


@given(
    kind=st.sampled_from(FrameKind),
    channel=st.builds(ChannelId, short, short, short),
    epoch=long,
    attempt=long,
    credit=long,
    body=st.binary(max_size=8),
)
def test_a_header_comes_back_whatever_follows_it(
    kind: FrameKind, channel: ChannelId, epoch: int, attempt: int, credit: int, body: bytes
) -> None:
    header = FrameHeader(kind, channel, Epoch(epoch), Attempt(attempt), credit)
    packed = pack(header)
    assert len(packed) == HEADER_BYTES
    assert unpack(memoryview(packed + body)) == header


@given(data=st.binary(max_size=HEADER_BYTES + 4))
def test_any_bytes_are_a_header_or_a_format_error(data: bytes) -> None:
    try:
        header = unpack(memoryview(data))
    except FormatError as error:
        assert len(data) < HEADER_BYTES or data[0] not in (1, 2, 3)
        assert data[:HEADER_BYTES].hex() in str(error)
    else:
        assert pack(header) == data[:HEADER_BYTES]


def test_a_header_without_kind_says_what_was_found() -> None:
    with pytest.raises(FormatError, match="kind 1, 2 or 3"):
        unpack(memoryview(b"\x07" * HEADER_BYTES))
