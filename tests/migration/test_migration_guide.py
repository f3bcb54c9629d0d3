"""The guide on migrating from PyFlink: its commands and programs, run in their order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from golden import FIXTURES

from flinkformat import metadata
from flinkformat.operator_ids import operator_id_of_uid
from tests.house.source import ROOT
from tidegate.snapshots.flink_snapshot import FlinkSnapshot

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs/guides/migrating-from-pyflink.md"
BLOCK = re.compile(r"^```(sh|text|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYFLINK = (
    FIXTURES / "pyflink-savepoint-canonical",
    {
        "alpha-py-keyed": "orders",
        "alpha-files": "files",
    },
)
RULES = FIXTURES / "types-heap-savepoint-canonical", {"alpha-bc": "alerts"}
LIMIT_S = 100.0


def savepoint(source: Path, uids: dict[str, str], folder: Path) -> None:
    """The savepoint of a real job, some of its operators under the names of the guide."""
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    decoded = metadata.decode((source / "_metadata").read_bytes(), lambda: "")
    operators = tuple(
        replace(
            operator, uid=uids[operator.uid], operator_id=operator_id_of_uid(uids[operator.uid])
        )
        for operator in decoded.operators
        if operator.uid in uids
    )
    (folder / "_metadata").write_bytes(metadata.encode(replace(decoded, operators=operators)))


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    return done.stdout


def lines(output: str) -> list[str]:
    """Without what only aligns columns."""
    return [" ".join(line.split()) for line in output.splitlines() if line.strip()]


@pytest.mark.slow
def test_the_guide_on_migrating_does_what_it_says(tmp_path: Path) -> None:
    savepoint(*PYFLINK, tmp_path / "flink-savepoint")
    savepoint(*RULES, tmp_path / "savepoint-with-rules")
    page = PAGE.read_text(encoding="utf-8")
    said = ""
    ran = 0
    for language, text in BLOCK.findall(page):
        if language == "python":
            (tmp_path / "job.py").write_text(text)
        elif language == "text":
            assert sorted(lines(said)) == sorted(lines(text))
            ran += 1
        else:
            program, *arguments = shlex.split(text.replace("\\\n", " "))
            assert program == "tidegate"
            said = run([sys.executable, "-m", "tidegate.cli.main", *arguments], tmp_path)
    assert ran == 4
    migrating, changing = re.findall(
        r"^    from tidegate import .*?\n(?=\S)", page, re.DOTALL | re.MULTILINE
    )
    left = run([sys.executable, "-c", dedent(migrating) + "\nprint(left)"], tmp_path)
    assert "('orders', 'total'," in left and "'count'" not in left
    run([sys.executable, "-c", dedent(changing)], tmp_path)
    repaired = FlinkSnapshot.open(tmp_path / "repaired")
    [(_, [rules])] = repaired.operator_state(*repaired.operators)
    assert rules.elements == [{"rule-0": 0, "rule-1": 11, "rule-2": 20}]
