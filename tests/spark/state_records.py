"""Values of state in the tests of the Spark source; workers import this module by its name."""

from dataclasses import dataclass


@dataclass
class Flights:
    count: int
    carrier: str
