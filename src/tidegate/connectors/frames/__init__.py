"""DataFrames as sources. `FrameState` keeps its name here: checkpoints hold it pickled under it."""

from tidegate.connectors.frames.frame_source import FrameState

__all__ = ["FrameState"]
