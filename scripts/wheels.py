"""Builds the wheels of a release: python -m scripts.wheels FOLDER.

Into FOLDER (dist without one): the sdists, the pure wheels, and a wheel for this Python that holds
compiled loops beside the same files. The pure wheel is what any other Python takes.
"""

import base64
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from tidegate.loops.build import build as compiled

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 600
BUILT = PurePosixPath("tidegate/loops/built")


def main() -> None:
    """Prints the names of what was built."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    pure_wheels(folder)
    for wheel in folder.glob("tidegate-*-none-any.whl"):
        with_compiled_loops(wheel)
    print("\n".join(sorted(path.name for path in folder.iterdir())))


def pure_wheels(folder: Path) -> None:
    """The sdist of each package, and the wheel made of it."""
    for project in (ROOT / "packages" / "flinkformat", ROOT):
        command = [sys.executable, "-m", "build", "--outdir", str(folder), str(project)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert run.returncode == 0, run.stdout + run.stderr


def with_compiled_loops(wheel: Path) -> Path:
    """A wheel for this Python beside the pure one. Raises NotCompiled."""
    tag = wheel_tag()
    made = wheel.with_name(wheel.name.replace("py3-none-any", tag))
    with (
        tempfile.TemporaryDirectory() as place,
        zipfile.ZipFile(wheel) as pure,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as whole,
    ):
        files = {name: pure.read(name) for name in pure.namelist()}
        for path in sorted(compiled(Path(place)).rglob("*.*")):
            if path.is_file():
                files[str(BUILT / path.relative_to(place))] = path.read_bytes()
        (about,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
        said = files[about].decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        files[about] = said.replace("Tag: py3-none-any", f"Tag: {tag}").encode()
        record = about.replace("WHEEL", "RECORD")
        del files[record]
        lines = [f"{name},sha256={digest(data)},{len(data)}" for name, data in files.items()]
        files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
        for name, data in files.items():
            whole.writestr(name, data)
    return made


def wheel_tag() -> str:
    """Interpreter, ABI and platform that compiled loops are for."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}-{platform}"


def digest(data: bytes) -> str:
    """As RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
