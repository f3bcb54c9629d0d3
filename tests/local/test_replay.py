"""A step that fails leaves a bundle, from which it fails again, and passes once it is mended."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import textwrap
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.e2e.replayed import STEPS, MendedSums, check_step_fails_again, parity
from tests.e2e.runtimes import Jobs, failure_of
from tests.e2e.watch import until
from tests.house.source import ROOT
from tidegate.errors import FormatError, UserError
from tidegate.testing import ReplayBundle

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.feature("F300")]

LIMIT_S = 100
PROGRAM = """
    from tidegate import KeyedProcessFunction, StreamExecutionEnvironment, Types
    from tidegate.state import ListStateDescriptor, ValueStateDescriptor

    class Totals(KeyedProcessFunction):
        def open(self, runtime_context):
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
            self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.STRING()))

        def process_element(self, order, ctx):
            total = (self.total.value() or 0) + order["amount"]
            self.total.update(total)
            self.seen.add(order["id"])
            yield ctx.get_current_key(), total

    orders = [{"user": f"u{n % 3}", "id": f"o{n}", "amount": n} for n in range(20)]
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([*orders, {"user": "u1", "id": "late one"}])
    totals = stream.key_by(lambda order: order["user"]).process(Totals()).name("totals")
    totals.uid("totals").print()
    env.execute("orders")
"""


def tidegate(*args: object, given: str = "", exit_code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *map(str, args)],
        input=given,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=ROOT / "src",
    )
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_a_bad_row_is_found_reproduced_and_mended(tmp_path: Path) -> None:
    script, folder = tmp_path / "orders.py", tmp_path / "bundles"
    script.write_text(textwrap.dedent(PROGRAM))
    told = tidegate("run", "-p", 2, "-D", f"tidegate.replay.dir={folder}", script, exit_code=1)
    [bundle] = folder.glob("*.replay")
    assert f"tidegate replay {bundle}" in told
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    again = tidegate("replay", bundle, exit_code=1)
    shown, _, replayed = again.partition("running it again, with the code of the bundle")
    assert "{'user': 'u1', 'id': 'late one'}" in shown and "uid 'totals'" in shown
    assert "state total    70" in shown and "'o1', 'o4', 'o7'" in shown
    lines = script.read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if '["amount"]' in text)
    at = f'orders.py", line {line}, in process_element'
    assert "KeyError: 'amount'" in replayed and at in replayed and at in told
    mended = script.read_text().replace('order["amount"]', 'order.get("amount", 0)')
    script.write_text(mended)
    passed = tidegate("replay", bundle, "--program", script)
    assert "it passes" in passed and "result ('u1', 70)" in passed
    assert "it fails again" in tidegate("replay", bundle, exit_code=1), "its own code is as it was"


def test_a_debugger_stops_where_it_fails(tmp_path: Path) -> None:
    script, folder = tmp_path / "orders.py", tmp_path / "bundles"
    script.write_text(textwrap.dedent(PROGRAM))
    tidegate("run", "-D", f"tidegate.replay.dir={folder}", script, exit_code=1)
    [bundle] = folder.glob("*.replay")
    told = tidegate(
        "replay", bundle, "--pdb", given="p order\np ctx.get_current_key()\nq\n", exit_code=1
    )
    assert "(Pdb) {'user': 'u1', 'id': 'late one'}" in told and "(Pdb) 'u1'" in told


@pytest.mark.parametrize("name", STEPS)
def test_each_kind_of_step_fails_again_in_the_same_way(jobs: Jobs, name: str) -> None:
    bundle = check_step_fails_again(jobs, name)
    if name == "keyed":
        mended = bundle.run(lambda numbers: numbers.key_by(parity).process(MendedSums()))
        assert (mended.error, mended.results) == (None, [((1, 9), None)])


def test_what_does_not_fit_is_left_out_and_told(jobs: Jobs) -> None:
    folder = jobs.folder / "bundles"
    settings = {"tidegate.replay.dir": str(folder), "tidegate.replay.max-size": "20 kb"}
    env = jobs.env(1, **settings)
    rows = ["x" * 900] * 100
    env.from_collection([*rows, ""]).map(lambda text: text[0]).name("first").print()
    assert failure_of(jobs.start(env, "large")) is not None
    until(lambda: folder.is_dir() and any(folder.glob("*.replay")), "there is a bundle")
    [path] = folder.glob("*.replay")
    assert path.stat().st_size < 20_000
    bundle = ReplayBundle.read(path)
    assert bundle.facts["left_out"] == ["earlier inputs"] and bundle.facts["row"] == "''"
    assert 5 < len(bundle.facts["last_inputs"]) < 30
    assert "IndexError" in str(bundle.run().error)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.replay"
    with pytest.raises(UserError, match="There is no file"):
        ReplayBundle.read(file)
    for content in (b"", b"PK\x03\x04 and no more"):
        file.write_bytes(content)
        with pytest.raises(FormatError, match="no replay bundle"):
            ReplayBundle.read(file)
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("facts.json", json.dumps({"format": 99}))
        zipped.writestr("step.bin", b"")
    with pytest.raises(UserError, match="format 99"):
        ReplayBundle.read(file)
