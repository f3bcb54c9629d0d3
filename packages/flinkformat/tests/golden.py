"""Snapshots that real Flink wrote, and what Flink says of them; see fixtures/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
GOOD = sorted(path.parent.name for path in FIXTURES.glob("*/_metadata"))
BAD = json.loads((FIXTURES / "bad" / "expected.json").read_text())


def expected(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / name / "expected.json").read_text())


def without_places(value: Any) -> Any:
    """The same without what the fixtures add for whoever opens their files."""
    if isinstance(value, dict):
        added = ("localFile", "originalLocation", "originalSharedParent")
        return {k: without_places(v) for k, v in value.items() if k not in added}
    if isinstance(value, list):
        return [without_places(item) for item in value]
    return value
