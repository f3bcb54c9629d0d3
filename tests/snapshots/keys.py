"""Files with a key for signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def key_in(path: Path, text: str = "0123456789abcdef-of-a-test") -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path
