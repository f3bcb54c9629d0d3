"""State of functions: kinds, descriptors and expiry.

Programs import these names from here. The modules in this folder are the room behind them, which
keeps state and its snapshots as bytes; they are internal, and none is called like a public name.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from tidegate.faces import named

    return named(__name__, name)


def __dir__() -> list[str]:
    from tidegate.faces import shown

    return shown(__name__)
