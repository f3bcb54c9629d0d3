"""Ships Python files to executors on other machines, which import them as Spark does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession


def ship_python_files(spark: SparkSession, files: Iterable[str]) -> None:
    """Gives modules and archives to all executors of a session; a folder goes as an archive.

    files: absolute paths. They stay with the session, as what ``addPyFile`` was given does.
    """
    from pyspark import SparkFiles

    for file in map(Path, files):
        if not file.is_dir():
            spark.sparkContext.addPyFile(str(file))
            continue
        # Executors fetch it later; the session deletes this folder when it stops.
        folder = Path(SparkFiles.getRootDirectory()) / "tidegate"
        folder.mkdir(exist_ok=True)
        archive = shutil.make_archive(str(folder / file.name), "zip", file)
        spark.sparkContext.addPyFile(archive)
