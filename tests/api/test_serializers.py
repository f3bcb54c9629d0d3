from io import BytesIO

import pytest

from tidegate import CountWindow, GlobalWindow, TimeWindow
from tidegate.api.windows.window import (
    CountWindowSerializer,
    GlobalWindowSerializer,
    TimeWindowSerializer,
    TypeSerializer,
)


@pytest.mark.parametrize(
    ("serializer", "window"),
    [
        (TimeWindowSerializer(), TimeWindow(-5, 2**40)),
        (CountWindowSerializer(), CountWindow(7)),
        (GlobalWindowSerializer(), GlobalWindow.get()),
    ],
    ids=["time", "count", "global"],
)
def test_windows_come_back_one_after_the_other(serializer: TypeSerializer, window: object) -> None:
    stream = BytesIO()
    serializer.serialize(window, stream)
    serializer.serialize(window, stream)
    stream.seek(0)
    assert [serializer.deserialize(stream), serializer.deserialize(stream)] == [window, window]
    assert stream.read() == b""
