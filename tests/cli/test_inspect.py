"""What the command line tells of snapshots."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from golden import BAD, FIXTURES, GOOD, expected, without_places

from tidegate.cli.main import commands


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(commands, [*map(str, args)])


@pytest.mark.feature("F182")
@pytest.mark.parametrize("name", GOOD)
def test_raw_prints_what_flink_says_a_file_says(name: str) -> None:
    result = run("inspect", FIXTURES / name, "--raw")
    assert result.exit_code == 0, result.stderr
    assert next(iter(json.loads(result.output))) == "version"
    told = json.loads(result.output.replace(str(FIXTURES / name), "${DIR}"))
    assert told == without_places(expected(name))


@pytest.mark.parametrize("name", [case["file"] for case in BAD])
def test_a_file_that_cannot_be_read_is_named_with_the_place_in_it(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "_metadata").write_bytes((FIXTURES / "bad" / name).read_bytes())
    result = run("inspect", tmp_path, "--raw")
    assert (result.exit_code, result.output) == (1, result.stderr)
    assert f"where: {tmp_path}/_metadata" in result.stderr and "at byte: " in result.stderr
