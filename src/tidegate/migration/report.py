"""What a migration from Flink has taken over, state by state, and what not and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigratedState:
    """What has become of a state.

    operator: its uid, else its name or id. kind, type: as it is here; None where it was not taken.
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
        """Whether it is in the savepoint."""
        return self.why is None


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration has taken, and what not. target: None where nothing was to be written."""

    source: str
    target: str | None
    states: tuple[MigratedState, ...]

    @property
    def complete(self) -> bool:
        """Whether all that there was is in the savepoint."""
        return all(state.taken for state in self.states)

    def to_json(self) -> dict[str, object]:
        """All of it as values of JSON."""
        names = ("operator", "state", "kind", "type", "entries", "taken", "why", "hint")
        states = [{name: getattr(state, name) for name in names} for state in self.states]
        return {
            "source": self.source,
            "target": self.target,
            "complete": self.complete,
            "states": states,
        }
