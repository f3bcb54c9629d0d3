"""Pickles of functions and of objects whose classes cannot be imported elsewhere: by value.

A module of its own, for what it imports takes 30 ms.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any, Final

import cloudpickle

_CACHE: Final = "__msgspec_cache__"


def pickled_by_value(value: object) -> bytes:
    """Pickles a value with protocol 5. Raises whatever the value's own hooks raise."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Corrects what cloudpickle makes of the attributes of a class that is pickled by value.

    The data that msgspec keeps with a class that it has read or written cannot be pickled; msgspec
    makes it again when needed. And a field without default says so by a value that is known by
    identity: a copy of it would be a default.
    """

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"  # by its name in its module
        if isinstance(obj, type) and _CACHE in vars(obj):
            delattr(obj, _CACHE)
        return super().reducer_override(obj)
