"""Compiles the loops with mypyc, which needs a C compiler.

What is built goes into a folder that no other source and no other Python reads (`forms`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidegate.errors import NotCompiled
from tidegate.loops import forms

LIMIT_S: Final = 600
_SETUP: Final = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="loops", ext_modules=mypycify({arguments!r}, opt_level="3"))
"""


def build(place: Path | None = None) -> Path:
    """Compile the loops, unless that was done before; returns their folder.

    place: holds folders of compiled modules; by default the first of ``forms.places_of_folders``
    that can be written. Raises NotCompiled.
    """
    place = place or _place()
    folder = place / forms.tag()
    if folder.is_dir():
        return folder
    for module in ("mypyc", "setuptools"):
        if find_spec(module) is None:
            raise NotCompiled(
                f"{module} is not installed, which compiles the loops",
                where=sys.executable,
                remedy="pip install 'tidegate[compile]'; jobs run without it, more slowly.",
            )
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-loops-") as work:
        _compile(Path(work))
        made = Path(tempfile.mkdtemp(prefix="building-", dir=place))
        try:
            _keep(Path(work), made)
            _try_out(made)
            made.chmod(0o755)
            made.rename(folder)
        except OSError:
            # Somebody else was first, with the same.
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    if place == forms.places_of_folders()[0]:
        # Nobody else's source is beside this one, so what was built of an older one has no use.
        for stale in place.glob(f"{forms.interpreter()}-*"):
            if stale != folder:
                shutil.rmtree(stale, ignore_errors=True)
    return folder


def _place() -> Path:
    for place in forms.places_of_folders():
        parent = place if place.is_dir() else place.parent
        if os.access(parent, os.W_OK):
            return place
    return forms.places_of_folders()[-1]


def _compile(work: Path) -> None:
    package = work / forms.PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    for source in forms.sources():
        text = source.read_text(encoding="utf-8")
        text = text.replace("tidegate.loops.", f"{forms.PACKAGE}.")
        (package / source.name).write_text(text, encoding="utf-8")
    files = [f"{forms.PACKAGE}/{source.name}" for source in forms.sources()]
    (work / "setup.py").write_text(_SETUP.format(arguments=["--strict", *files]))
    _run(work, "setup.py", "build_ext", "--inplace")


def _keep(work: Path, folder: Path) -> None:
    """Copies the compiled modules, and what they share."""
    for module in (*work.glob("*__mypyc.*"), *(work / forms.PACKAGE).glob("*.*")):
        if module.suffix in (".so", ".pyd"):
            kept = folder / module.relative_to(work)
            kept.parent.mkdir(exist_ok=True)
            shutil.copy(module, kept)


def _try_out(folder: Path) -> None:
    code = (
        "import pathlib, sys; from tidegate.loops import forms; "
        "forms.load(pathlib.Path(sys.argv[1]))"
    )
    _run(folder, "-c", code, str(folder))


def _run(folder: Path, *arguments: str) -> None:
    path = os.pathsep.join([*sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise NotCompiled(
            f"compiling the loops took more than {LIMIT_S} s",
            where=sys.executable,
            remedy="Run 'tidegate compile' when the machine has more time.",
        ) from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise NotCompiled(
            f"the loops could not be compiled: {said}",
            where=sys.executable,
            remedy="Install a C compiler and the headers of this Python (Debian: gcc and "
            "python3-dev); jobs run without compiled loops, more slowly.",
        )
