"""Python files that a program brings along, made ready for Spark to give them to executors."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIXES: Final = frozenset({".py", ".zip", ".egg", ".jar"})
"""Names that Spark puts on the import path of its workers, or below a folder that is on it."""

_MODULE: Final = ".py"


def ready(path: str, folder: Path, application: object) -> Path:
    """The file that Spark is to give to executors: a module, or an archive that they import from.

    folder: archives are made in it; each keeps its name and content. application: modules, packages
    and archives that were made ready for it stay as they were; ConfigError for a changed one.
    """
    source = Path(path)
    found = sorted(source.rglob("*")) if source.is_dir() else [source]
    digests = _digests(f for f in found if f.is_file() and "__pycache__" not in f.parts)
    packages = {file.parent for file in digests if file.name == "__init__.py"}
    _refuse_changed(
        {
            file: digest
            for file, digest in digests.items()
            if file == source or file.suffix == _MODULE or not packages.isdisjoint(file.parents)
        },
        application,
    )
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


def refuse_changed_modules(path: str, application: object) -> None:
    """Raises ConfigError for a module that has changed since a job of the application named it.

    For workers on this machine, which import it, and read what lies beside it, where it is.
    """
    _refuse_changed(_digests(_modules(Path(path))), application)


def _modules(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    for folder, below, names in os.walk(source):
        below[:] = [name for name in below if not name.startswith(".")]
        modules = (Path(folder, name) for name in names if name.endswith(_MODULE))
        yield from filter(Path.is_file, modules)  # an editor's lock is a link that leads nowhere


def _digests(files: Iterable[Path]) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _refuse_changed(digests: dict[Path, str], application: object) -> None:
    given = _given(application)
    for file, digest in digests.items():
        if given.get(file, digest) != digest:
            raise ConfigError(
                f"{file} has changed since a job of this session brought it along",
                where="python.files",
                remedy="A file that has changed needs a new session: Spark's Python workers keep "
                "the modules that they have imported.",
            )
    given.update(digests)


@functools.lru_cache(maxsize=64)
def _given(application: object) -> dict[Path, str]:
    return {}
