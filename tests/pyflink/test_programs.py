"""Programs in the patterns of PyFlink's documentation: the same files, the same output.

`outputs` has what PyFlink 2.3 prints for each; scripts/pyflink_outputs.py makes it.
"""

from pathlib import Path

import pytest

from tidegate.cli.main import commands

FOLDER = Path(__file__).parent
PROGRAMS = sorted((FOLDER / "programs").glob("*.py"))


def test_there_are_twenty_programs_and_each_has_its_output() -> None:
    assert len(PROGRAMS) == 20
    outputs = {path.stem for path in (FOLDER / "outputs").glob("*.txt")}
    assert outputs == {path.stem for path in PROGRAMS}


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


def printed(capfd: pytest.CaptureFixture[str], program: Path, *options: str) -> list[str]:
    """The lines of the program and of its slots; keys take turns in any order."""
    commands.main(["run", "--pyflink", *options, str(program)], standalone_mode=False)
    return sorted(capfd.readouterr().out.splitlines())


def expected(program: Path) -> list[str]:
    output = FOLDER / "outputs" / f"{program.stem}.txt"
    return sorted(output.read_text(encoding="utf-8").splitlines())
