"""Sources and sinks by name; each is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.connectors.collect import CollectSink
    from tidegate.connectors.collection import CollectionSource
    from tidegate.connectors.files.sink import FileSink
    from tidegate.connectors.files.source import FileSource
    from tidegate.connectors.generator import DataGeneratorSource, NumberSequenceSource
    from tidegate.connectors.print import PrintSink

__all__ = [
    "CollectSink",
    "CollectionSource",
    "DataGeneratorSource",
    "FileSink",
    "FileSource",
    "NumberSequenceSource",
    "PrintSink",
]

_PLACES = {
    "CollectSink": "tidegate.connectors.collect",
    "CollectionSource": "tidegate.connectors.collection",
    "DataGeneratorSource": "tidegate.connectors.generator",
    "FileSink": "tidegate.connectors.files.sink",
    "FileSource": "tidegate.connectors.files.source",
    "NumberSequenceSource": "tidegate.connectors.generator",
    "PrintSink": "tidegate.connectors.print",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate.connectors' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
