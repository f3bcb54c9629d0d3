"""Executors that have PySpark alone get Tidegate with the job."""

import os
import platform
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from tidegate.errors import ConfigError, NodeUnfit
from tidegate.spark.session import lost
from tidegate.spark.shipping import MADE_FOR, packed, ship
from tidegate.spark.unpacking import unpacked

END_S = 200.0
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from tidegate import StreamExecutionEnvironment

spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
for mode in ("STREAMING", "BATCH"):
    env = StreamExecutionEnvironment.on_spark(spark, 2)
    env.configure({"execution.runtime-mode": mode, "tidegate.spark.ship": sys.argv[1]})
    sums = env.from_sequence(1, 100).key_by(lambda n: n % 3).reduce(lambda a, b: a + b)
    with sums.execute_and_collect() as found:
        print("found", mode, {1650, 1683, 1717} <= set(found))
"""


def run(folder: Path, bare: Path, ship: str) -> subprocess.CompletedProcess[str]:
    script = folder / "job.py"
    script.write_text(PROGRAM)
    assert pyspark.__file__ is not None
    env = {
        **os.environ,
        "PYSPARK_PYTHON": str(bare),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [sys.executable, str(script), ship]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=END_S, check=False
    )


@pytest.mark.slow
@pytest.mark.feature("F305")
def test_a_job_runs_on_executors_that_have_pyspark_alone(tmp_path: Path, bare: Path) -> None:
    done = run(tmp_path, bare, "true")
    assert done.returncode == 0, done.stderr
    assert "found STREAMING True" in done.stdout and "found BATCH True" in done.stdout
    # Packed once, for both jobs.
    [archive] = (tmp_path / "cache" / "tidegate" / "shipped").iterdir()
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    assert {"tidegate/__init__.py", "flinkformat/__init__.py", "structlog/__init__.py"} <= names
    assert not any(name.startswith(("pyspark/", "numpy/", "pyarrow/", "..")) for name in names)


def test_an_archive_is_made_once_for_what_is_installed_and_old_ones_go(tmp_path: Path) -> None:
    old, unneeded, own = (tmp_path / name for name in ("tidegate-1.tar.gz", "tidegate-2", "other"))
    for file in (old, unneeded, own):
        file.touch()
    for file in (unneeded, own):
        os.utime(file, (0, 0))
    first = packed(tmp_path)
    made = first.stat().st_ino
    os.utime(first, (0, 0))
    assert packed(tmp_path) == first and first.stat().st_ino == made
    assert first.stat().st_mtime > 0, "it is needed again"
    assert sorted(tmp_path.iterdir()) == sorted((old, own, first))


@pytest.mark.parametrize(
    ("variable", "told"), [("HOME", "below ~/.cache"), ("XDG_CACHE_HOME", "below /")]
)
def test_a_cache_that_cannot_be_written_is_named(
    variable: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    check_cache_is_named(told)


def test_a_user_without_a_home_is_told_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    check_cache_is_named("Could not determine home directory")


def check_cache_is_named(told: str) -> None:
    access: Any = SimpleNamespace(application=object())
    with pytest.raises(ConfigError, match="the packages to be shipped cannot be") as refused:
        ship(access)
    assert told in refused.value.what and "XDG_CACHE_HOME" in refused.value.remedy


def test_jobs_that_pack_at_once_do_not_write_into_one_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(packed, [tmp_path, tmp_path])
    assert first == second and list(tmp_path.iterdir()) == [first]
    with tarfile.open(first) as tar:
        assert "tidegate/__init__.py" in tar.getnames()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (HERE, "3.99"),
        (platform.machine(), "abacus"),
        (EXTENSION_SUFFIXES[0], f".cpython-{sys.version_info[0]}{sys.version_info[1]}-musl.so"),
    ],
    ids=["version", "processor", "C library"],
)
def test_a_node_with_another_python_or_processor_is_named(ours: str, theirs: str) -> None:
    other = MADE_FOR.replace(ours, theirs, 1)
    assert other != MADE_FOR
    with pytest.raises(RuntimeError, match=rf"node \S+ has Python {HERE} on ") as refused:
        next(unpacked(b"", "folder", other)(iter(())))
    assert f"has {MADE_FOR}, and the shipped packages are for {other}:" in str(refused.value)
    assert isinstance(lost("lost", f"RuntimeError: {refused.value}"), NodeUnfit)
