"""The call that a slot is in, read from the output of Python's fault handler."""

from __future__ import annotations

import re
from typing import Final

from tidegate.model.control import LongCall

_LINE: Final = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_OURS: Final = re.compile(r"[/\\\\]tidegate[/\\\\][^/\\\\]+[/\\\\]")


def long_call(dump: str) -> LongCall | None:
    """The user's part of a stack; None if the slot was in our own code, or no stack came."""
    users: list[str] = []
    function = ""
    for text in dump.splitlines():
        line = _LINE.match(text)
        if line is None:
            continue
        if _OURS.search(line["file"]):
            break
        users.append(text.strip())
        function = f"{line['name']} ({line['file']}:{line['line']})"
    return LongCall(function, "\n".join(users)) if users else None
