"""Decoders of classes, made by one thread at a time.

Msgspec keeps what it learns of a class with the class, where other threads see it while it is
incomplete: decoding with it crashes the process, as when subtasks of one slot are restored side by
side.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

_MAKING: Final = threading.Lock()
"""Held while msgspec looks at classes; guards nothing that belongs to a job."""


def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A MessagePack decoder for a class, or a type made of classes."""
    with _MAKING:
        return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A JSON decoder for a class, or a type made of classes."""
    with _MAKING:
        return msgspec.json.Decoder(kind)
