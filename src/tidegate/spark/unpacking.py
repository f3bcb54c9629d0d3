"""Code that runs in an executor's Python before Tidegate can be imported there.

Its inner function travels by value, so it names nothing outside itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


def unpacked(
    payload: bytes, folder: str, made_for: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow`` that loads another one once its modules can be imported.

    payload: the other one, pickled. folder: of the archive, as Spark names it. made_for: the
    interpreters that the packages in it fit, as `tidegate.spark.shipping` describes its own.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform
        import socket
        import sys
        from importlib.machinery import EXTENSION_SUFFIXES

        from pyspark import SparkFiles, cloudpickle

        found = (
            f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}, "
            f"{EXTENSION_SUFFIXES[0]}"
        )
        if found != made_for:
            raise RuntimeError(
                f"node {socket.gethostname()} has {found}, and the shipped packages are for "
                f"{made_for}: set spark.pyspark.python to one like the driver's there, or ship an "
                "environment with spark.archives"
            )
        place = SparkFiles.get(folder)
        if place not in sys.path:
            sys.path.insert(0, place)
        try:
            function = cloudpickle.loads(payload)
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"the Python of node {socket.gethostname()} ({sys.executable}) lacks "
                f"{error.name!r}, which is not shipped: install it there, or name it with "
                "python.files"
            ) from error
        yield from function(batches)

    return run
