"""Interface of a state backend: a table with one entry for each key.

The kinds of state are written once over `KeyedTable`. Its functions stand on the operator's
`KeyCell`, so that a kind may hand them to the user as they are: `ValueState.value` of the HashMap
backend is `KeyedTable.read` itself, and a record pays for one call (benchmarks/state_bench.py).

Ownership of values: a written value belongs to the state from then on. A value that was read may be
looked at until the next record; a change to it counts only when it is written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.api.state import ValueState


class KeyedEntries(Protocol):
    """Entries of one named keyed state, each taken as a whole. No entry is None."""

    @property
    def read(self) -> Callable[[], object]:
        """The current key's entry to give away; None if there is none."""
        ...

    @property
    def write(self) -> Callable[[object], None]:
        """Sets the current key's entry; None removes it."""
        ...

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        """Merge each value into its key's entry, in order, and emit each new entry.

        The first value of a key is its entry. Exceptions of ``merge`` pass through.
        """
        ...

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        """Set each key's entry to ``add(value, entry)``, in order; ``create`` makes a first entry.

        Exceptions of the functions pass through.
        """
        ...

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Announces keys that are requested next, so that they can be read at once."""
        ...


class Pruned(Protocol):
    """Entries of one named keyed state, as clean-up sees them."""

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at about that many entries, other ones each time, and leave of each what is kept.

        kept: gives the entry itself, a new one, or None if nothing is left of it; what it once
        gave itself may be missed until it is looked at again.
        """
        ...


class KeyedTable(KeyedEntries, Pruned, Protocol):
    """The entries of one named keyed state, as a backend holds them.

    The functions are attributes, not methods: a backend makes each of them for its own needs.
    """

    @property
    def peek(self) -> Callable[[], object]:
        """The current key's entry, for reading only."""
        ...

    @property
    def is_shared(self) -> Callable[[], bool]:
        """True if a snapshot needs the current key's entry: parts are copied before use."""
        ...

    @property
    def edit(self) -> Callable[[], object]:
        """The current key's entry, to be changed in place at once, without a later write."""
        ...

    def value_state(self) -> ValueState[object]:
        """Value state over the entries, in the fastest form."""
        ...

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of everything, for reading only; no writes meanwhile."""
        ...
