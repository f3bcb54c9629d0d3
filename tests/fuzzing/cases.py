"""What is read, which input a number stands for, and what is wrong with how it was read."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.fuzzing.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

MEMORY_GROWTH_MAX_MB: Final = 256
"""More memory than this for one small input is unbounded."""

FLOOR: Final = 100_000
SLOW_FLOOR: Final = 10_000
"""Inputs that a long run reaches of each reader, and of one that reads whole folders."""

_SOURCE: Final = "tidegate"


@dataclass(frozen=True, slots=True)
class Opened:
    """A reader that is ready. read: takes the index of the seed, and the changed bytes."""

    seeds: Sequence[bytes]
    read: Callable[[int, bytes], object]


@dataclass(frozen=True, slots=True)
class Reader:
    """Something that reads bytes which may be anything.

    open: called once in the process that reads. refusals: errors with which it refuses bytes, as
    its documentation says. text: whether it reads texts.
    """

    name: str
    open: Callable[[], Opened]
    refusals: tuple[type[Exception], ...]
    text: bool = False
    floor: int = FLOOR


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a case. place: where in the source, by which equal faults are told."""

    reader: str
    number: int
    what: str
    place: str
    trace: str = ""

    @property
    def replay(self) -> str:
        """The command that reads the same input again."""
        return f'make fuzz MINUTES=0 FIRST={self.number} READER="{self.reader}"'


def input_of(reader: Reader, opened: Opened, number: int) -> tuple[int, bytes]:
    """Index of a seed, and the changed bytes: the same for a number, today and tomorrow."""
    random = Random(f"{reader.name} {number}")
    index = random.randrange(len(opened.seeds))
    return index, mutated(opened.seeds, index, random, text=reader.text)


def fault_of(reader: Reader, opened: Opened, number: int) -> Fault | None:
    """Reads the input of a number; None where it was read, or refused as it should be."""
    index, data = input_of(reader, opened, number)
    try:
        opened.read(index, data)
    except reader.refusals:
        return None
    except MemoryError as error:
        return _raised(reader, number, error)
    except Exception as error:
        return _raised(reader, number, error)
    return None


def fault_of_growth(reader: Reader, number: int, grown_mb: float) -> Fault | None:
    """What is wrong with so much more memory after a case."""
    if grown_mb <= MEMORY_GROWTH_MAX_MB:
        return None
    return Fault(reader.name, number, f"took {grown_mb:.0f} MB", "memory")


def _raised(reader: Reader, number: int, error: Exception) -> Fault:
    what = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error, limit=-12))
    return Fault(
        reader.name, number, _shown(what[:300]), _place(error.__traceback__), _shown(trace)
    )


def _shown(text: str) -> str:
    """As any terminal takes it; the bytes that were read may be anything."""
    return text.encode("ascii", "backslashreplace").decode()


def _place(trace: TracebackType | None) -> str:
    """File and function of the innermost frame of our own source."""
    found = "outside"
    for frame, _ in traceback.walk_tb(trace):
        file = Path(frame.f_code.co_filename)
        if _SOURCE in file.parts and "site-packages" not in file.parts:
            found = f"{file.parent.name}/{file.name}:{frame.f_code.co_name}"
    return found
