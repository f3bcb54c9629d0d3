"""DataFrames as sources. Checkpoints hold `FrameState` pickled under this module's name."""

from tidegate.connectors.frames.frame_source import FrameState

__all__ = ["FrameState"]
