"""Names of PyFlink that Tidegate has."""

import csv
from pathlib import Path

from tests.house.pyflink_surface import LINES

WANTED = {line["row"].partition(".")[0] for line in LINES}


def surface() -> list[dict[str, str]]:
    with Path(__file__).with_name("surface.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


SURFACE = surface()
