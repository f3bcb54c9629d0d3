"""Tidegate: stateful stream processing with Flink-grade checkpoints, in Python, on Spark.

Every name of a program can be imported from here, and is loaded when it is first named. Connectors
stand in ``tidegate.connectors``; other names also by topic, as in ``tidegate.windows``.
"""

from __future__ import annotations

from typing import Any, Final

__version__: Final = "0.2.0"


def __getattr__(name: str) -> Any:
    from tidegate.faces import named

    return named(__name__, name)


def __dir__() -> list[str]:
    from tidegate.faces import shown

    return shown(__name__)
