"""A fault to plant, and who has to find it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted fault.

    file: below src/tidegate. kinds: of what the simulator draws (see scripts/simulate.py). tests:
    where the quick tests are that have to fall; empty where the simulator has to find it.
    """

    name: str
    file: str
    old: str
    new: str
    kinds: tuple[str, ...] = ()
    tests: str = ""
