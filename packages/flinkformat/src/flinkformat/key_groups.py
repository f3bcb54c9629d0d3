"""Key groups: the units in which keyed state is spread over subtasks, and moved on rescale.

All arithmetic is Flink's, so that a snapshot of either can be read by the other.
Source: Flink, KeyGroupRangeAssignment; golden values in tests/fixtures/golden-rules.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.errors import ConfigError
from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

PARALLELISM_MAX: Final = 32768
DEFAULT_LOWER_BOUND: Final = 128


@frozen
class KeyGroupRange:
    """The key groups from `first` to `last`, both included; the empty range is (0, -1) alone."""

    first: int
    last: int

    def __post_init__(self) -> None:
        assert (0 <= self.first <= self.last < PARALLELISM_MAX) or self.is_empty, (
            f"no range of key groups: {self.first} to {self.last}"
        )

    @staticmethod
    def of(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
        """Range of a subtask; the ranges of all subtasks cover each key group exactly once.

        Raises ConfigError if the parallelisms are out of bounds.
        """
        check_parallelism(parallelism, max_parallelism)
        assert 0 <= subtask < parallelism, f"no subtask {subtask} of {parallelism}"
        first = (subtask * max_parallelism + parallelism - 1) // parallelism
        last = ((subtask + 1) * max_parallelism - 1) // parallelism
        return KeyGroupRange(first, last)

    @staticmethod
    def empty() -> KeyGroupRange:
        return KeyGroupRange(0, -1)

    @property
    def is_empty(self) -> bool:
        return self.first == 0 and self.last == -1

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        first, last = max(self.first, other.first), min(self.last, other.last)
        return KeyGroupRange(first, last) if first <= last else KeyGroupRange.empty()

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.first <= key_group <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"[{self.first}, {self.last}]"


def subtask_of_key_group(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Index of the subtask that holds a key group.

    Unchecked, since it is called per channel and per handle; the bounds were checked by
    check_parallelism when the graph was built.
    """
    return key_group * parallelism // max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Default max parallelism of an operator: room to grow by half, at least 128."""
    check_parallelism(parallelism)
    room = parallelism + parallelism // 2
    power = 1 << (room - 1).bit_length()
    return min(max(power, DEFAULT_LOWER_BOUND), PARALLELISM_MAX)


def key_group_prefix_bytes(max_parallelism: int) -> int:
    """Length in bytes of the key group before a key, in RocksDB and in canonical savepoints."""
    return 2 if max_parallelism > 128 else 1


def check_parallelism(parallelism: int, max_parallelism: int | None = None) -> None:
    """Raises ConfigError unless 1 <= parallelism <= max_parallelism <= 32768."""
    numbers: dict[str, object] = {"parallelism": parallelism, "max parallelism": max_parallelism}
    for name, given in numbers.items():
        if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
            raise ConfigError(
                f"The {name} is {given!r}, which is not a whole number",
                where=name,
                remedy=f"Set a number from 1 to {PARALLELISM_MAX}.",
            )
    if not 1 <= parallelism <= PARALLELISM_MAX:
        raise ConfigError(
            f"Operator parallelism not within bounds: {parallelism}",
            where="parallelism",
            remedy=f"Set a parallelism from 1 to {PARALLELISM_MAX}.",
        )
    if max_parallelism is None:
        return
    if not 1 <= max_parallelism <= PARALLELISM_MAX:
        raise ConfigError(
            f"Maximum parallelism not within bounds: {max_parallelism}",
            where="max parallelism",
            remedy=f"Set a max parallelism from 1 to {PARALLELISM_MAX}.",
        )
    if max_parallelism < parallelism:
        raise ConfigError(
            "Maximum parallelism must not be smaller than parallelism.",
            where=f"parallelism {parallelism}, max parallelism {max_parallelism}",
            remedy="Lower the parallelism or raise the max parallelism.",
        )
