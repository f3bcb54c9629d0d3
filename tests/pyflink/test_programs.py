"""Programs in the patterns of PyFlink's documentation: the same files, the same output.

`outputs` has what PyFlink 2.3 prints for each, and `savepoint` is one that it took of `continued`;
scripts/pyflink_outputs.py makes them.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.main import commands

FOLDER = Path(__file__).parent
PROGRAMS = sorted((FOLDER / "programs").glob("*.py"))
STATES = {
    "last": "value:INT",
    "all": "list:INT",
    "times": "map:INT,LONG",
    "total": "reducing:INT",
    "mean": "aggregating:TUPLE(INT,INT)",
}
"""What `continued` keeps of a name."""


def test_there_are_twenty_programs_and_more_and_each_has_its_output() -> None:
    assert len(PROGRAMS) > 20
    outputs = {path.stem for path in (FOLDER / "outputs").glob("*.txt")}
    assert outputs == {path.stem for path in PROGRAMS} | {"continued.go-on"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_in_pyflink(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert printed(capfd, program) == expected(program)


@pytest.mark.parametrize("name", ["keyed_state", "two_streams"])
def test_a_program_prints_the_same_with_its_state_on_disk(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = FOLDER / "programs" / f"{name}.py"
    assert printed(capfd, program, "-Dstate.backend.type=rocksdb") == expected(program)


def test_a_program_goes_on_here_from_a_savepoint_that_pyflink_took(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, target = FOLDER / "programs" / "continued.py", tmp_path / "migrated"
    states = [f"--state=known/{name}={kind}" for name, kind in STATES.items()]
    took = CliRunner().invoke(
        commands, ["migrate", str(FOLDER / "savepoint"), str(target), *states]
    )
    assert took.exit_code == 1, took.output
    assert "numbers" in took.output, "where the first source was is not taken, which is said"
    found = printed(capfd, program, arguments=["go-on", str(target)])
    assert found == lines_of("continued.go-on")
    whole = lines_of("continued")
    assert not set(found) - set(whole), "as if nobody had stopped it"


def printed(
    capfd: pytest.CaptureFixture[str],
    program: Path,
    *options: str,
    arguments: Sequence[str] = (),
) -> list[str]:
    """The lines of the program and of its slots; keys take turns in any order."""
    commands.main(["run", "--pyflink", *options, str(program), *arguments], standalone_mode=False)
    return sorted(capfd.readouterr().out.splitlines())


def expected(program: Path) -> list[str]:
    return lines_of(program.stem)


def lines_of(output: str) -> list[str]:
    """What PyFlink has printed."""
    text = (FOLDER / "outputs" / f"{output}.txt").read_text(encoding="utf-8")
    return sorted(text.splitlines())
