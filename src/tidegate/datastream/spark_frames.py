"""The door to Spark's DataFrames, whose module is above this floor and needs PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from tidegate.graph.runtime import load_of_spark

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.api.source import Staged


class FrameOutput(Protocol):
    """A folder of Parquet files that becomes a Spark DataFrame."""

    @property
    def folder(self) -> str:
        """Folder of the Parquet files."""
        ...

    def read(self, schema: pa.Schema) -> object:
        """The files there as a DataFrame."""
        ...


class SparkFrames(Protocol):
    """Interface of ``tidegate.spark.frames``, the module that knows Spark's DataFrames."""

    def StagedFrame(self, frame: object, folder: str | None) -> Staged:
        """A DataFrame, to be written before a job reads it."""
        ...

    def FrameOutput(
        self, spark: object, folder: str | None, checkpoints: str | None, *, resumed: bool
    ) -> FrameOutput:
        """A folder for a job to write to."""
        ...

    def declared_schema(self, schema: object) -> pa.Schema:
        """A schema, however it is written, as Arrow's."""
        ...


def load_frames() -> SparkFrames:
    """Loads the module that knows Spark's DataFrames. Raises ConfigError if PySpark is missing."""
    loaded = load_of_spark("tidegate.spark.frames", where="from_spark, to_spark")
    return cast("SparkFrames", loaded)


def spark_session(spark: object | None, slots: int | None) -> object:
    """The session handed in, else a new local one with room for this many slots.

    slots: None for a batch, whose tasks come in waves.
    """
    loaded = load_of_spark("tidegate.spark.session", where="StreamExecutionEnvironment.on_spark")
    return loaded.session_for(spark, slots)
