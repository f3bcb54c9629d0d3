"""Apache Flink's checkpoint format, read and written, without an engine.

    import flinkformat as ff

    meta = ff.read("/checkpoints/…/chk-7")
    files = ff.StateFiles(lambda path: open(path, "rb"), folder="/checkpoints/…/chk-7")
    for operator in meta.operators:
        for state in ff.keyed_states(operator, files):
            for entry in state.entries():
                print(entry.state.name, entry.key, entry.value)
    data = ff.encode(meta, version=6)

Read and written are versions 2 (read alone) to 6 of ``_metadata``, and the state of each backend of
Flink: heap, RocksDB, canonical savepoints, changelogs within the metadata, operator state.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flinkformat.description import describe
    from flinkformat.errors import ConfigError, DescribedError, FormatError
    from flinkformat.files import StateBytes, StateFiles
    from flinkformat.folder import read
    from flinkformat.metadata import decode, encode, version_of
    from flinkformat.snapshots import (
        CheckpointMetadata,
        CheckpointProperties,
        MasterState,
        OperatorState,
        SubtaskState,
    )
    from flinkformat.state.entries import FlinkEntry
    from flinkformat.state.reading import FlinkKeyedState, keyed_states, operator_states
    from flinkformat.state_streams import Role, Stream, files_of, replace_streams, streams

__all__ = [
    "CheckpointMetadata",
    "CheckpointProperties",
    "ConfigError",
    "DescribedError",
    "FlinkEntry",
    "FlinkKeyedState",
    "FormatError",
    "MasterState",
    "OperatorState",
    "Role",
    "StateBytes",
    "StateFiles",
    "Stream",
    "SubtaskState",
    "decode",
    "describe",
    "encode",
    "files_of",
    "keyed_states",
    "operator_states",
    "read",
    "replace_streams",
    "streams",
    "version_of",
]

__version__: Final = "0.2.0"

_MODULES: Final = {
    "description": "describe",
    "errors": "ConfigError DescribedError FormatError",
    "files": "StateBytes StateFiles",
    "folder": "read",
    "metadata": "decode encode version_of",
    "snapshots": ("CheckpointMetadata CheckpointProperties MasterState OperatorState SubtaskState"),
    "state.entries": "FlinkEntry",
    "state.reading": "FlinkKeyedState keyed_states operator_states",
    "state_streams": "Role Stream files_of replace_streams streams",
}
"""Where each name stands; a module is loaded when one of its names is first asked for."""


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"flinkformat.{module}"), name)
    raise AttributeError(f"module 'flinkformat' has no attribute {name!r}")
