"""Report of a migration from Flink: each state, whether it was converted, and why not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigratedState:
    """Fate of a state in a migration.

    operator: its uid, else its name or id. kind, type: as it is here; None if it was not taken.
    entries: keys, timers, elements or map entries of it. why: it was not taken, else None. hint:
    what would have it taken, as far as there is something.
    """

    operator: str
    state: str
    kind: str | None
    type: str | None
    entries: int
    why: str | None = None
    hint: str | None = None

    @property
    def taken(self) -> bool:
        """True if the state is in the savepoint."""
        return self.why is None


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """Report of a migration. target: None if nothing was to be written."""

    source: str
    target: str | None
    states: tuple[MigratedState, ...]

    @property
    def complete(self) -> bool:
        """True if all state of the snapshot is in the savepoint."""
        return all(state.taken for state in self.states)

    def to_json(self) -> dict[str, object]:
        """The report as values of JSON."""
        names = ("operator", "state", "kind", "type", "entries", "taken", "why", "hint")
        states = [{name: getattr(state, name) for name in names} for state in self.states]
        return {
            "source": self.source,
            "target": self.target,
            "complete": self.complete,
            "states": states,
        }
