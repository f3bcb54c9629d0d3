"""Python files that a program brings along, made ready for Spark to give them to executors."""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIXES: Final = frozenset({".py", ".zip", ".egg", ".jar"})
"""Names that Spark puts on the import path of its workers, or below a folder that is on it."""


def ready(path: str, folder: Path, application: object) -> Path:
    """The file that Spark is to give to executors: a module, or an archive that they import from.

    folder: archives are made in it; each keeps its name and content. application: the files that
    were made ready for it stay as they were. Raises ConfigError for one that has changed since.
    """
    source = Path(path)
    found = sorted(source.rglob("*")) if source.is_dir() else [source]
    digests = {
        file: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in found
        if file.is_file() and "__pycache__" not in file.parts
    }
    _refuse_changed(digests, source, _given(application))
    if source.is_file() and source.suffix in SUFFIXES:
        return source
    content = hashlib.sha256()
    for file, digest in digests.items():
        content.update(f"{file.relative_to(source)} {digest}\n".encode())
    # Spark takes no two files of one name, and its executors read them while the job runs.
    archive = folder / f"{source.name}-{content.hexdigest()[:12]}.zip"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            if source.is_dir():
                made = shutil.make_archive(f"{aside}/made", "zip", source)
            else:  # such as a wheel, which is an archive by another name
                made = shutil.copyfile(source, f"{aside}/made.zip")
            Path(made).replace(archive)
    return archive


def _refuse_changed(digests: Mapping[Path, str], source: Path, given: dict[Path, str]) -> None:
    modules = {f: digest for f, digest in digests.items() if f == source or f.suffix == ".py"}
    for file, digest in modules.items():
        if given.get(file, digest) != digest:
            raise ConfigError(
                f"{file} has changed since a job of this session brought it along",
                where="python.files",
                remedy="A file that has changed needs a new session: Spark's Python workers keep "
                "the modules that they have imported.",
            )
    given.update(modules)


@functools.lru_cache(maxsize=64)
def _given(application: object) -> dict[Path, str]:
    return {}
