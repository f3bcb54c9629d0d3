"""What must have come out, computed without the engine."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.e2e.jobs import KEYS


def check_each_counted_once(rows: Iterable[Mapping[str, int]], total: int) -> None:
    """Numbers 0 to total: none lost, none doubled, and each key's counts without gap or repeat."""
    rows = list(rows)
    seen = Counter(row["number"] for row in rows)
    lost = [number for number in range(total) if number not in seen]
    doubled = [number for number, times in seen.items() if times > 1]
    assert not lost, f"lost {len(lost)} of {total}: {lost[:10]}"
    assert not doubled, f"doubled {len(doubled)} of {total}: {doubled[:10]}"
    assert len(seen) == total, "rows that nobody made"
    for key in range(min(KEYS, total)):
        counts = sorted(row["count"] for row in rows if row["key"] == key)
        assert counts == list(range(1, len(range(key, total, KEYS)) + 1)), f"key {key}"
