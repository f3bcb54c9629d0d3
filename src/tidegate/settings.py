"""Settings of a job as values: checkpoints, restarts, state backends."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from tidegate.faces import named

    return named(__name__, name)


def __dir__() -> list[str]:
    from tidegate.faces import shown

    return shown(__name__)
