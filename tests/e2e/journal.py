"""What functions in any process note down, in the order in which it happened."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELD_MAX_S = 60.0
"""How long a function may be held back; a test that forgets to let it go must end too."""


@dataclass(frozen=True)
class Journal:
    """A file of one line a note; a line is written at once, so lines never mix."""

    path: Path

    def note(self, event: str, **fields: object) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def notes(self, event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """The notes of an event, with these fields; of all where none is named."""
        if not self.path.exists():
            return []
        # A line that is being written may be seen in part, where it reaches into another page.
        whole, _, _ = self.path.read_text().rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines()]
        return [
            note
            for note in found
            if event in (None, note["event"])
            and all(note.get(name) == value for name, value in fields.items())
        ]


@dataclass(frozen=True)
class Latch:
    """Holds back whoever comes while it is set; works across processes."""

    path: Path

    def set(self) -> None:
        self.path.touch()

    def release(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def is_set(self) -> bool:
        return self.path.exists()

    def take(self) -> bool:
        """Release it; whether this call did. Of several at once it is one."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def wait(self, give_up: Callable[[], bool] = lambda: False) -> None:
        deadline = time.monotonic() + HELD_MAX_S
        while self.is_set and not give_up() and time.monotonic() < deadline:
            time.sleep(0.005)
