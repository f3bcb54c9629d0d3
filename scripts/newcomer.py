"""A newcomer's ten minutes: from an empty folder to a job that was killed and went on.

Builds the sdist and the wheel, and follows docs/quickstart.md line by line in an empty folder, with
a Python that has nothing installed and without Java:

    .venv/bin/python -m scripts.newcomer --python python3.13 [--spark]

Says how long each line took. Ends with 1 where a line fails or the result is not the page's.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from scripts.wheels import pure_wheels

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
INSTALL = "pip install tidegate"
KILL = "kill -9"
WAIT = "sleep 6"
SURELY = "while kill -0 $! && ! compgen -G 'checkpoints/*/chk-*/_metadata'; do sleep 0.1; done"
"""The page's wait on a machine of any speed: until there is a checkpoint to go on from."""

RESULT = "3000 orders in 90 windows"
ON_SPARK = "tidegate run --runtime spark -p 2 orders.py"

TOOLS = ("bash", "sleep", "uname", "basename", "dirname")
"""What the page's lines need beside Python; a PATH without Java has to be made of something."""

LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page that was followed.

    seconds: as a clock on the wall has it. processor_s: on all cores, whatever else was running.
    """

    command: str
    seconds: float
    processor_s: float
    exit_code: int
    said: str


def main() -> int:
    """Follow the page, and say how long it took."""
    parser = argparse.ArgumentParser(description="Follow the quickstart in an empty folder.")
    parser.add_argument("--python", default=sys.executable, help="the newcomer's Python")
    parser.add_argument("--spark", action="store_true", help="run the job on Spark at the end")
    wishes = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, wheel = build(Path(folder, "dist"))
        newcomer = Newcomer(Path(folder, "empty"), wishes.python)
        lines: list[Line] = []
        for line in newcomer.follow(wheel, on_spark=wishes.spark):
            print(f"{line.seconds:6.1f} s  exit {line.exit_code}  {line.command}", flush=True)
            lines.append(line)
        print(f"{sum(line.seconds for line in lines):6.1f} s  in all")
        print(f"{sum(line.processor_s for line in lines):6.1f} s  of processor time")
    if went_well(lines):
        return 0
    print(lines[-1].said)
    return 1


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made of it; beside them lie those of the package that it needs."""
    pure_wheels(folder)
    (sdist,), (wheel,) = folder.glob("tidegate-*.tar.gz"), folder.glob("tidegate-*.whl")
    return sdist, wheel


def went_well(lines: list[Line]) -> bool:
    """True if no line failed, but for the killed one, and no order was lost or doubled."""
    failed = [line for line in lines if line.exit_code and KILL not in line.command]
    return not failed and any(RESULT in line.said for line in lines)


class Newcomer:
    """Somebody with an empty folder, a Python, and a page to follow."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder = folder
        self._tools = folder.parent / "tools"
        self._tools.mkdir(parents=True)
        folder.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self._tools / tool).symlink_to(found)
        starter = self._tools / "python3"
        starter.write_text(f'#!{self._tools}/bash\nexec {shutil.which(python)} "$@"\n')
        starter.chmod(0o755)

    def follow(self, wheel: Path, *, on_spark: bool = False) -> Iterator[Line]:
        """Do what the page says, up to the first line that fails."""
        for language, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if language == "python":
                (self._folder / name).write_text(text, encoding="utf-8")
                continue
            for command in shell_lines(text):
                install = f"pip install --find-links {wheel.parent} {wheel}"
                command = command.replace(INSTALL, install).replace(WAIT, SURELY)
                line = self.run(command)
                yield line
                if line.exit_code and KILL not in command:
                    return
        if on_spark:
            yield self.run(f"pip install --find-links {wheel.parent} '{wheel}[spark]'")
            shutil.rmtree(self._folder / "checkpoints")
            yield self.run(ON_SPARK, path=os.environ["PATH"])

    def run(self, command: str, *, path: str = "") -> Line:
        """Run a line of the shell, in the environment that the page has made.

        path: where programs are looked for, after those of the page; else without Java.
        """
        programs = os.pathsep.join([f"{self._folder}/venv/bin", path or str(self._tools)])
        environment = {
            name: value
            for name, value in os.environ.items()
            if path or not name.startswith(("JAVA", "SPARK", "PYTHON", "VIRTUAL_ENV"))
        }
        began, used = perf_counter(), processor_s()
        run = subprocess.run(
            [self._tools / "bash", "-c", command],
            cwd=self._folder,
            env={**environment, "PATH": programs},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        seconds = perf_counter() - began
        return Line(command, seconds, processor_s() - used, run.returncode, run.stdout)


def processor_s() -> float:
    """Processor time of all programs that have ended."""
    ended = os.times()
    return ended.children_user + ended.children_system


def shell_lines(console: str) -> list[str]:
    """The commands of a console block, without what they print."""
    return [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]


if __name__ == "__main__":
    sys.exit(main())
