"""Modules that a program brings along reach Spark's executors."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate import ConfigError, StreamExecutionEnvironment
from tidegate.spark.access.classic import ClassicAccess

pytestmark = pytest.mark.slow


def test_executors_import_modules_folders_and_wheels(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "brought"
    (folder / "shipped_package").mkdir(parents=True)
    (folder / "shipped_package" / "__init__.py").write_text("answer = 40")
    module = tmp_path / "shipped_module.py"
    module.write_text("answer = 2")
    wheel = tmp_path / "shipped_wheel-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as packed:
        packed.writestr("shipped_wheel.py", "answer = 100")
    for path in (folder, module, wheel):
        ClassicAccess(spark).give_python_file(str(path))

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import shipped_module  # pyright: ignore[reportMissingImports]
        import shipped_package  # pyright: ignore[reportMissingImports]
        import shipped_wheel  # pyright: ignore[reportMissingImports]

        for _ in batches:
            parts = shipped_module, shipped_package, shipped_wheel
            total = sum(int(part.answer) for part in parts)
            yield pa.RecordBatch.from_pydict({"answer": [total]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(answer, "answer long").collect()
    assert row["answer"] == 142


def test_a_module_that_changes_between_two_jobs_on_one_machine_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    module = tmp_path / "changing_module.py"
    env = StreamExecutionEnvironment.on_spark(spark, 1)

    def answer(number: int) -> int:
        import changing_module  # pyright: ignore[reportMissingImports]

        return number + int(changing_module.answer)

    module.write_text("answer = 40")
    env.add_python_file(str(module))
    with env.from_sequence(1, 1).map(answer).execute_and_collect() as found:
        assert list(found) == [41]
    module.write_text("answer = 50")
    with pytest.raises(ConfigError, match=r"changing_module\.py has changed since a job"):
        env.from_sequence(1, 1).map(answer).execute_and_collect()
