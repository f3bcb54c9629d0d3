"""Makes tests/pyflink/outputs again: what PyFlink prints for each of tests/pyflink/programs.

Run it by the Python of an environment with apache-flink 2.3 and Java 17:

    PATH=ENVIRONMENT/bin:$PATH ENVIRONMENT/bin/python scripts/pyflink_outputs.py [PROGRAM ...]
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "pyflink"
MARK = "==== "
LIMIT_S = 900


def main() -> None:
    """Run all programs, or those that are named, in one process with one JVM."""
    names = sys.argv[1:] or sorted(path.stem for path in (FOLDER / "programs").glob("*.py"))
    run = subprocess.run(
        [sys.executable, __file__, MARK, *names], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S
    )
    outputs = FOLDER / "outputs"
    outputs.mkdir(exist_ok=True)
    for part in run.stdout.split(MARK)[1:]:
        name, _, text = part.partition("\n")
        print(name, len(text.splitlines()), "lines")
        (outputs / f"{name}.txt").write_text(text)
    run.check_returncode()


def run_programs(names: list[str]) -> None:
    """Run them one by one; the JVM writes to the same standard output."""
    for name in names:
        os.write(1, f"{MARK}{name}\n".encode())
        runpy.run_path(str(FOLDER / "programs" / f"{name}.py"), run_name="__main__")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [MARK]:
        run_programs(sys.argv[2:])
    else:
        main()
