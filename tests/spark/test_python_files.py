"""Modules that a program brings along reach Spark's executors."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.spark.access.classic import ClassicAccess

pytestmark = pytest.mark.slow


def test_executors_import_modules_and_folders(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "brought"
    (folder / "shipped_package").mkdir(parents=True)
    (folder / "shipped_package" / "__init__.py").write_text("answer = 40")
    module = tmp_path / "shipped_module.py"
    module.write_text("answer = 2")
    for path in (folder, module):
        ClassicAccess(spark).give_python_file(str(path))

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import shipped_module  # pyright: ignore[reportMissingImports]
        import shipped_package  # pyright: ignore[reportMissingImports]

        for _ in batches:
            total: int = shipped_module.answer + shipped_package.answer
            yield pa.RecordBatch.from_pydict({"answer": [total]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(answer, "answer long").collect()
    assert row["answer"] == 42
