"""What the programs in examples/ find, computed in plain Python, without the engine.

Each function takes the rows of an input. Where the wall clock counts it takes the whole script;
rows take no time then, pauses what they say.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from tests.e2e.staged import Pause

Rows = Iterable[Any]
Found = list[Any]


def views_per_minute(rows: Rows) -> Found:
    counts = Counter((page, time // 60_000 * 60_000) for page, time in rows)
    return [(page, start, count) for (page, start), count in counts.items()]


def word_counts(rows: Rows) -> Found:
    seen: Counter[str] = Counter()
    found: Found = []
    for word in (word for line in rows for word in line.split()):
        seen[word] += 1
        found.append((word, seen[word]))
    return found


def sessions(rows: Rows) -> Found:
    found: Found = []
    for visitor, time in sorted(rows):
        if found and found[-1][0] == visitor and time <= found[-1][2]:
            _, start, _, count = found.pop()
            found.append((visitor, start, time + 20, count + 1))
        else:
            found.append((visitor, time, time + 20, 1))
    return found


def features(rows: Rows) -> Found:
    found: Found = []
    ever: dict[int, list[int]] = defaultdict(list)
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        ever[row["user"]].append(row["amount"])
        found.append({**row, **statistics(ever[row["user"]])})
        latest = row["time"] // 10_000 * 10_000
        for start in range(latest - 50_000, latest + 1, 10_000):
            windows[row["user"], start].append(row["amount"])
    for (user, start), amounts in windows.items():
        bounds = {"user": user, "window_start": start, "window_end": start + 60_000}
        found.append({**bounds, **statistics(amounts)})
    return [dict(sorted(row.items())) for row in found]


def statistics(amounts: list[int]) -> dict[str, object]:
    return {
        "count": len(amounts),
        "amount_sum": sum(amounts),
        "amount_mean": sum(amounts) / len(amounts),
        "amount_max": max(amounts),
    }


def totals_by_hour(rows: Rows) -> Found:
    totals: Counter[tuple[str, int]] = Counter()
    for row in rows:
        start = (row["time"] - 1_800_000) // 3_600_000 * 3_600_000 + 1_800_000
        totals[row["shop"], start] += row["cents"]
    return [(shop, start, cents) for (shop, start), cents in totals.items()]


def sliding_averages(rows: Rows) -> Found:
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for sensor, value, time in rows:
        latest = time // 5_000 * 5_000
        for start in (latest - 5_000, latest):
            values[sensor, start].append(value)
    return [(s, start, start + 10_000, sum(v) / len(v)) for (s, start), v in values.items()]


def counts_and_late(rows: Rows) -> Found:
    found: Found = []
    counts: Counter[tuple[str, int]] = Counter()
    fired: set[tuple[str, int]] = set()
    now = -(2**63)
    for key, time in rows:
        start = time // 10 * 10
        if start + 14 <= now:
            found.append(("late", key, time))
        else:
            counts[key, start] += 1
            if (key, start) in fired:
                found.append(("count", key, start, start + 10, counts[key, start]))
        now = max(now, time)
        due = sorted(w for w in counts if w not in fired and w[1] + 9 <= now)
        found += [("count", key, start, start + 10, counts[key, start]) for key, start in due]
        fired.update(due)
    left = sorted(counts.keys() - fired)
    return found + [("count", key, start, start + 10, counts[key, start]) for key, start in left]


def clicks_of_eight(rows: Rows) -> Found:
    counts = Counter(time // 8 * 8 for time in rows)
    return [(start, start + 8, counts[start]) for start in sorted(counts)]


def changes_once(rows: Rows) -> Found:
    found: Found = []
    versions: Counter[object] = Counter()
    for row in rows:
        if row["version"] > versions[row["id"]]:
            versions[row["id"]] = row["version"]
            found.append(row)
    return found


def best_products(rows: Rows) -> Found:
    sold: dict[int, Counter[str]] = defaultdict(Counter)
    for product, amount, time in rows:
        sold[time // 10 * 10 + 10][product] += amount
    return [
        (end, sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:3])
        for end, sums in sold.items()
    ]


def abandoned(rows: Rows) -> Found:
    found: Found = []
    due: dict[str, int] = {}
    for action, customer, time in rows:
        due.pop(customer, None)
        if action == "add":
            due[customer] = time + 30
        over = [(customer, at) for customer, at in due.items() if at <= time]
        found += over
        for customer, _ in over:
            del due[customer]
    return found + list(due.items())


def frauds(payments: Rows, rules: Rows) -> Found:
    *_, (_, limit, _) = rules
    return [(card, amount) for card, amount, _ in payments if amount > limit]


def matched(orders: Rows, payments: Rows) -> Found:
    ordered, paid = {key for key, _ in orders}, {key for key, _ in payments}
    return [
        *(("joined", key) for key in ordered & paid),
        *(("unpaid", key) for key in ordered - paid),
        *(("payment without order", key) for key in paid - ordered),
    ]


def as_of(lefts: Rows, rights: Rows, tolerance: int | None) -> Found:
    """Rows: key first, time third. Of rights of one time the last in the list counts."""
    found = []
    for left in lefts:
        least = -1 if tolerance is None else left[2] - tolerance
        held = [row for row in rights if row[0] == left[0] and least <= row[2] <= left[2]]
        # `max` gives the first of equal ones.
        found.append((left, max(reversed(held), key=lambda row: row[2], default=None)))
    return found


def priced(trades: Rows, quotes: Rows) -> Found:
    found = []
    for id, symbol, shares, at in dict.fromkeys(trades):
        held = [quote for quote in quotes if quote[0] == symbol and at - 5_000 <= quote[2] <= at]
        price = max(held, key=lambda quote: quote[2])[1] if held else None
        found.append((id, None if price is None else shares * price))
    return found


def first_seen(script: Sequence[Any], ttl_ms: int) -> Found:
    found: Found = []
    passed_at: dict[Hashable, int] = {}
    for now, name in timed(script):
        if now - passed_at.get(name, -ttl_ms) >= ttl_ms:
            passed_at[name] = now
            found.append(name)
    return found


def cache_answers(script: Sequence[Any], ttl_ms: int) -> Found:
    found: Found = []
    for kind in ("kept by reads", "kept by writes"):
        young_at = -ttl_ms
        for now, command in timed(script):
            hit = now - young_at < ttl_ms
            if command == "get":
                found.append((kind, "hit" if hit else "miss"))
            if command == "put" or (hit and kind == "kept by reads"):
                young_at = now
    return found


def outages(script: Sequence[Any], offline_after_ms: int) -> Found:
    found: Found = []
    seen_at: dict[str, int] = {}
    for now, device in timed(script):
        if device is not None:
            if now - seen_at.get(device, now) >= offline_after_ms:
                found += [("offline", device), ("online", device)]
            seen_at[device] = now
    return found


def timed(script: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    """The rows of a script, each with its time in ms."""
    now = 0
    for step in script:
        if isinstance(step, Pause):
            now += step.ms
        else:
            yield now, step


def sales_by_day(lines: Iterable[str]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The sales of each day, and the lines that are none."""
    by_day: dict[str, list[dict[str, Any]]] = defaultdict(list)
    broken: list[str] = []
    for line in lines:
        match = re.fullmatch(r"(\d{4}-\d\d-\d\d),([^,]*),(\d+)", line)
        if match is None:
            broken.append(line)
        else:
            by_day[match[1]].append({"day": match[1], "product": match[2], "cents": int(match[3])})
    return by_day, broken


def running_sums(numbers: Iterable[int], keys: int) -> list[tuple[int, int]]:
    """Each number with the sum so far of those with its remainder."""
    sums: Counter[int] = Counter()
    found: list[tuple[int, int]] = []
    for number in numbers:
        sums[number % keys] += number
        found.append((number, sums[number % keys]))
    return found
