"""Facts about the process that builds a program: its Spark session, the name of its script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def active_session() -> object:
    """The active Spark session, where this process has loaded PySpark at all."""
    sql: Any = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def script_name() -> str:
    """Name of the script or package that runs; `job` where Python was started otherwise."""
    file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file:
        return "job"
    path = Path(file)
    return path.parent.name if path.stem == "__main__" else path.stem
