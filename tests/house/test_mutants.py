"""Each planted fault fits today's source; whether it is found is for `make mutants` to say."""

from io import StringIO
from pathlib import Path

from rich.console import Console

import tidegate
from scripts.mutants import shown
from tests.mutants.catalogue import MUTANTS

SOURCE = Path(tidegate.__file__).parent


def test_each_piece_is_in_its_file_just_once() -> None:
    counts = {
        mutant.name: (SOURCE / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        for mutant in MUTANTS
    }
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_the_slot_and_rest_are_held_too() -> None:
    rooms = [mutant.file.partition("/")[0] for mutant in MUTANTS]
    assert rooms.count("slot") >= 30 and rooms.count("rest") >= 15


def test_each_fault_has_a_name_of_its_own_and_changes_something() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert [mutant.name for mutant in MUTANTS if mutant.old == mutant.new] == []


def test_the_table_of_what_was_found_takes_any_name_of_a_test() -> None:
    said = StringIO()
    Console(file=said, width=150).print(
        shown([MUTANTS[0]], [("test_x[/savepoints/../etc]", 1, "")])
    )
    assert "test_x[/savepoints/../etc]" in said.getvalue()
