"""Gives Tidegate, and the packages that it needs, to executors that have PySpark alone.

The installed packages are packed once into an archive, which stays in a cache folder, and Spark
unpacks it on each executor. What PySpark's Arrow functions need themselves is taken to be there:
NumPy, pandas and PyArrow are large, and of another version they would break PySpark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import cloudpickle

import flinkformat
import tidegate
from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.errors import ConfigError
from tidegate.spark.unpacking import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tidegate.spark.access.access import SparkAccess

    OverArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_THERE: Final = frozenset({"pyspark", "py4j", "numpy", "pandas", "pyarrow"})
_EXTRAS: Final = frozenset({"rocksdb", "kafka", "postgres", "zookeeper", "fsspec"})
"""Those whose packages work in slots and tasks."""

_OURS: Final = {"tidegate": tidegate, "flinkformat": flinkformat}
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_NO_CODE: Final = (".pyc", ".pth")
_KEPT_MS: Final = 30 * 24 * 3_600_000
"""An archive in the cache is deleted once no job has been given it for so long."""

MADE_FOR: Final = (
    f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}, "
    f"{EXTENSION_SUFFIXES[0]}"
)
"""The interpreters that compiled packages fit: version, processor, and the names of extensions.

These tell the C library, and an interpreter without the lock, too.
"""


@dataclass(frozen=True)
class Shipment:
    """An archive that the executors of an application have. folder: its name there."""

    folder: str

    def carried(self, function: OverArrow) -> OverArrow:
        """The function for ``mapInArrow``, for workers that cannot import it as they start."""
        payload = cloudpickle.dumps(function)
        return unpacked(payload, self.folder, MADE_FOR)


def ship(access: SparkAccess) -> Shipment:
    """Gives the packages to all executors, once an application. Raises ConfigError."""
    shipped = _shipped(access.application)
    if not shipped:
        archive = _packed_in_cache()
        folder = archive.name.removesuffix(".tar.gz")
        access.give_archive(str(archive), folder)
        megabytes = archive.stat().st_size / 1e6
        process_log().info("packages are shipped", archive=str(archive), megabytes=megabytes)
        shipped.append(Shipment(folder))
    return shipped[0]


@lru_cache(maxsize=1)
def _shipped(application: object) -> list[Shipment]:
    return []


def _packed_in_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return packed(Path(root).expanduser() / "tidegate" / "shipped")
    except (OSError, RuntimeError) as error:  # the latter for a user without a home
        raise ConfigError(
            f"the packages to be shipped cannot be packed below {root}: {error}",
            where="tidegate.spark.ship",
            remedy="Set XDG_CACHE_HOME to a folder that can be written, with some 100 MB free.",
        ) from error


def packed(cache: Path) -> Path:
    """The archive of what is installed now, made if it is not in the cache yet.

    One that is made takes the place of those that nobody has needed for a month.
    """
    files = dict(sorted(_files()))
    content = hashlib.sha256(MADE_FOR.encode())
    for name, file in files.items():
        found = file.stat()
        content.update(f"\n{name} {found.st_size} {found.st_mtime_ns}".encode())
    archive = cache / f"tidegate-{tidegate.__version__}-{content.hexdigest()[:16]}.tar.gz"
    try:
        os.utime(archive)
    except FileNotFoundError:
        cache.mkdir(parents=True, exist_ok=True)
        _tidy(cache)
        # Other jobs may pack at once: in threads, or in containers with one cache and one pid.
        with (
            tempfile.NamedTemporaryFile(dir=cache, prefix="tidegate-", delete=False) as made,
            tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as tar,
        ):
            for name, file in files.items():
                tar.add(file, name, recursive=False)
        Path(made.name).replace(archive)
    return archive


def _tidy(cache: Path) -> None:
    before_s = (SystemClock().wall_ms() - _KEPT_MS) / 1_000
    for found in cache.glob("tidegate-*"):
        with contextlib.suppress(FileNotFoundError):  # another program is as tidy
            if found.stat().st_mtime < before_s:
                found.unlink()


def _files() -> Iterator[tuple[str, Path]]:
    """Files to be packed, by their names below a folder of the import path."""
    for found in _distributions():
        ours = _OURS.get(found.name)
        if ours is not None:
            yield from _of_package(ours.__name__, Path(str(ours.__file__)).parent)
        for file in found.files or ():
            name = str(file)
            is_code = ours is None or ".dist-info/" in name
            place = Path(str(file.locate()))
            if (
                is_code
                and place.is_file()
                and not name.startswith("..")
                and place.suffix not in _NO_CODE
            ):
                yield name, place


def _of_package(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for file in folder.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{name}/{file.relative_to(folder)}", file


def _distributions() -> list[Distribution]:
    """Ours and all that they need, as far as it is installed; extras that are not are left out."""
    found: dict[str, Distribution] = {}
    due = [("tidegate", _EXTRAS)]
    while due:
        name, extras = due.pop()
        known = re.sub(r"[-_.]+", "-", name).lower()
        if known in _THERE:
            continue
        if known not in found:
            try:
                found[known] = distribution(name)
            except PackageNotFoundError as error:
                if known in _OURS:
                    raise ConfigError(
                        f"{name} cannot be shipped: it is not installed but imported as it lies",
                        where="tidegate.spark.ship",
                        remedy="Install it, with `pip install -e` where it is worked on.",
                    ) from error
                continue
        elif not extras:
            continue
        for requirement in found[known].requires or ():
            extra = _EXTRA.search(requirement)
            if (extra is None or extra[1] in extras) and (told := _REQUIREMENT.match(requirement)):
                wanted = frozenset(each.strip() for each in (told[2] or "").split(",") if each)
                due.append((told[1], wanted))
    return list(found.values())
