"""Values of a program that counts flights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Flights:
    count: int
    carrier: str
