"""Makes tests/pyflink/outputs again: what PyFlink prints for each of tests/pyflink/programs.

And a savepoint of `continued`, and what that program prints when it goes on from it.

Run it by the Python of an environment with apache-flink 2.3 and Java 17:

    PATH=ENVIRONMENT/bin:$PATH ENVIRONMENT/bin/python scripts/pyflink_outputs.py [PROGRAM ...]
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "pyflink"
MARK = "==== "
LIMIT_S = 900
PORT = 18_081
FIRST_EVENTS_S = 30
"""After so long the first events have been printed; who runs this looks at it."""


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
    if not sys.argv[1:] or "continued" in sys.argv:
        (outputs / "continued.go-on.txt").write_text(continued(FOLDER / "savepoint"))


def continued(savepoint: Path) -> str:
    command = [sys.executable, str(FOLDER / "programs" / "continued.py")]
    shutil.rmtree(savepoint, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([*command, "begin", str(PORT)]) as begun:
            time.sleep(FIRST_EVENTS_S)
            (job,) = asked("jobs")["jobs"]
            asked(
                f"jobs/{job['id']}/stop",
                {"drain": False, "targetDirectory": f"file://{folder}", "formatType": "CANONICAL"},
            )
            begun.wait(LIMIT_S)
        (taken,) = Path(folder).iterdir()
        shutil.copytree(taken, savepoint)
    go_on = [*command, "go-on", f"file://{savepoint}"]
    run = subprocess.run(go_on, check=True, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True)
    return run.stdout


def asked(path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/{path}", data)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def run_programs(names: list[str]) -> None:
    """Run them one by one; the JVM writes to the same standard output."""
    del sys.argv[1:]
    for name in names:
        os.write(1, f"{MARK}{name}\n".encode())
        runpy.run_path(str(FOLDER / "programs" / f"{name}.py"), run_name="__main__")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [MARK]:
        run_programs(sys.argv[2:])
    else:
        main()
