"""Cost of a key's key group, beside plain Python one by one; guards 100 ns an int, 120 a text.

A batch of 4,000 keys, the median of rounds that take turns. Sketch: an integer is moved three
times (types, NumPy, group) at some 10 ns each and mixed in 15 operations of half a nanosecond; a
text adds some 2 ns for each of its characters.

    python benchmarks/key_hash.py
"""

import statistics
from collections.abc import Callable
from random import Random
from time import perf_counter_ns

from rich.console import Console

from flinkformat import java_hash
from tidegate.typeinfo.key_hash import KeyHasher

ROWS = 4_000
ROUNDS = 200
WARM_UP = 20


def main() -> None:
    """Prints nanoseconds a key, and how many times faster than one by one."""
    chance = Random(1)
    numbers = [chance.randrange(10_000) for _ in range(ROWS)]
    texts = [f"user-{number}" for number in numbers]
    console = Console()
    for name, keys, one in (
        ("int", numbers, java_hash.hash_long),
        ("str, 9 characters", texts, java_hash.hash_string),
        ("(str, int)", list(zip(texts, numbers, strict=True)), hash_of_pair),
    ):
        batch = cost_ns(lambda hasher, keys=keys: hasher.key_groups(keys))
        single = cost_ns(
            lambda _, keys=keys, one=one: [java_hash.key_group_of_hash(one(k), 128) for k in keys]
        )
        console.print(f"{name:20} {batch:7.0f} ns a key {single / batch:7.0f} times one by one")


def hash_of_pair(pair: tuple[str, int]) -> int:
    """Java's hash of a tuple of text and number."""
    text, number = pair
    return java_hash.hash_tuple((java_hash.hash_string(text), java_hash.hash_long(number)))


def cost_ns(work: Callable[[KeyHasher], object]) -> float:
    """Median nanoseconds a key."""
    hasher = KeyHasher(None, 128)
    taken: list[int] = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        work(hasher)
        taken.append(perf_counter_ns() - start)
    return statistics.median(taken[WARM_UP:]) / ROWS


if __name__ == "__main__":
    main()
