"""Rates of Tidegate on Spark beside those of Spark's own means for the same work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.measure import conditions, keep, medians, quiet_runs, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from benchmarks.measure import Runs


@dataclass(frozen=True)
class BesideSpark:
    """Two or more programs that do the same work.

    file: of results. floors: of each form of ours, which of Spark's has the same work, and how many
    times its rate is due.
    """

    title: str
    file: str
    floors: Mapping[str, tuple[str, float]]

    def ratio(self, name: str, rates: Mapping[str, float]) -> tuple[float, float] | None:
        """How many times the rate of Spark's own one has, and the floor; None without the two."""
        other, floor = self.floors.get(name, ("", 0.0))
        return (rates[name] / rates[other], floor) if {name, other} <= set(rates) else None

    def report(self, console: Console, results: Runs, rounds: int, only: str, scale: float) -> bool:
        """Print the table, keep the result of a whole session; whether the floors hold."""
        rates, costs = medians(results, "records_per_s"), medians(results, "processor_ns")
        ratios = {name: self.ratio(name, rates) for name in rates}
        shown = Table("", "rows/s", "processor ns each", "times", "floor", title=self.title)
        for name, rate in rates.items():
            beside = [f"{each:.3g}" for each in ratios[name] or ()]
            cost = f"{costs[name]:,.0f}" if name in costs else ""
            shown.add_row(name, f"{rate:,.0f}", cost, *beside)
        console.print(shown)
        console.print(conditions(results))
        held = all(each is None or each[0] >= each[1] for each in ratios.values())
        if whole(only, scale):
            record = {"rounds": rounds, "medians": rates, "processor_ns": costs, "held": held}
            keep(self.file, record | {"quiet_runs": quiet_runs(results), "runs": results})
        return held
