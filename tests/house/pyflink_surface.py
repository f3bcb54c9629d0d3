"""Public names of PyFlink, by module."""

import csv
from pathlib import Path


def lines() -> list[dict[str, str]]:
    table = Path(__file__).with_name("pyflink.tsv")
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


LINES = lines()
