"""What functions print and log in slots is printed by the driver."""

import logging
import sys

import pytest

from tests.e2e.runtimes import Jobs, finished


def chatty(number: int) -> int:
    print("printed", number)
    print("told", number, file=sys.stderr)
    logging.getLogger("chatty").info("logged %s", number)
    return number


def check_functions_are_heard(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handler, level = logging.StreamHandler(sys.stderr), root.level
    handler.setFormatter(logging.Formatter("%(levelname)s of %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        env = jobs.env(2, **{"tidegate.print.lines-to-driver": 100})
        env.from_sequence(1, 3).map(chatty).print()
        finished(jobs.start(env, "chatty"))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    out, err = capsys.readouterr()
    printed = sorted(line.rpartition("> ")[2] for line in out.splitlines())
    assert printed == ["1", "2", "3", "printed 1", "printed 2", "printed 3"]
    heard = {line for line in err.splitlines() if "told" in line or "logged" in line}
    numbers = (1, 2, 3)
    logged = {f"INFO of chatty: logged {n}" for n in numbers}
    assert heard == {f"told {n}" for n in numbers} | logged
