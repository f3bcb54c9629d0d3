"""One workload on Tidegate and its peers: who takes part, the floors, and what is said of them."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import (
    HERE,
    Contender,
    conditions,
    interleaved,
    keep,
    medians,
    quiet_runs,
    whole,
)

FLINK, PYFLINK, PYFLINK_20K = "flink-jvm", "pyflink", "pyflink bundle 20,000"
JVM, PYTHON = "Flink on the JVM", "PyFlink, the faster"
ON_SPARK = "tidegate-spark "
PYFLINK_ROUNDS = 2
"""PyFlink's runs take a minute, and its rate is a hundredth of the others'."""
APIS = {
    "spark": (
        *("records", "listed", "text", "dicts", "dataclasses"),
        *("reduce", "declared", "traced", "batches", "running"),
    ),
    "local": ("records", "batches"),
}
"""Forms of our programs that are measured on each runtime."""


@dataclass(frozen=True)
class Comparison:
    """A workload, its shape, how many records each contender gets, and what must hold.

    workload: of the peers' programs. records: by our API or by the peer's name. shape: arguments
    that all programs share. floors: the API whose rate on Spark is guarded, whom it is compared
    with, and how many times as fast it must be at least.
    """

    title: str
    workload: str
    shape: tuple[str, ...]
    records: dict[str, int]
    floors: tuple[tuple[str, str, float], ...]

    @property
    def file(self) -> str:
        """Name of its file of results, without the ending."""
        return self.title.lower().replace(",", "").replace(" ", "-")

    def main(self, console: Console, rounds: int, only: str, scale: float) -> bool:
        """Run all, print the table, keep the result; whether what was measured holds."""
        with tempfile.TemporaryDirectory() as scratch:
            chosen = [one for one in self.contenders(Path(scratch), scale) if only in one.name]
            if not all(one.name.startswith("tidegate-") for one in chosen):
                set_up_peers()
            results = interleaved(chosen, rounds, console)
        rates, costs = medians(results, "records_per_s"), medians(results, "processor_ns")
        held = {
            f"{name} / {base}": ratio >= floor for name, base, floor, ratio in self.measured(rates)
        }
        console.print(self.table(rates, costs))
        console.print(conditions(results))
        for name, base, floor, ratio in self.measured(rates):
            verdict = "[green]holds[/]" if ratio >= floor else "[red]falls short[/]"
            console.print(f"{name}: {ratio:.2f} times {base}, at least {floor:g}: {verdict}")
        if whole(only, scale):
            record = {"rounds": rounds, "medians": rates, "processor_ns": costs, "held": held}
            record["quiet_runs"] = quiet_runs(results)
            record["runs"] = results
            keep(f"{self.file}.jsonl", record)
        return all(held.values())

    def contenders(self, scratch: Path, scale: float) -> list[Contender]:
        """Ours, then the peers; the order within a round."""
        size = {name: str(int(records * scale)) for name, records in self.records.items()}
        program = (sys.executable, "-m", f"benchmarks.{self.workload}_tidegate", *self.shape)
        ours = [
            Contender(
                f"tidegate-{runtime} {api}",
                (*program, "--runtime", runtime, "--api", api, "--records", size[api]),
            )
            for runtime in APIS
            for api in APIS[runtime]
            if api in size
        ]
        common = ("--workload", self.workload, *self.shape)
        jvm = (sys.executable, str(HERE / "peers/flink_jvm/run.py"), *common)
        python = (str(peers_cache() / "flink/bin/python"), str(HERE / "peers/pyflink/bench.py"))
        python += (*common, "--mode", "process")
        programs = {
            FLINK: jvm,
            PYFLINK: python,
            PYFLINK_20K: (*python, "--bundle-size", "20000"),
        }
        return ours + [
            Contender(
                name,
                (*command, "--records", size[name], "--out", str(scratch / name[:12])),
                None if name == FLINK else PYFLINK_ROUNDS,
            )
            for name, command in programs.items()
            if name in size
        ]

    def measured(self, rates: dict[str, float]) -> list[tuple[str, str, float, float]]:
        base_rates = bases(rates)
        return [
            (ON_SPARK + api, base, floor, rates[ON_SPARK + api] / base_rates[base])
            for api, base, floor in self.floors
            if ON_SPARK + api in rates and base in base_rates
        ]

    def table(self, rates: dict[str, float], costs: dict[str, float]) -> Table:
        """Medians, and each one's ratio to what it is compared with."""
        base_rates = bases(rates)
        result = Table(title=f"{self.title}: medians")
        result.add_column("system")
        result.add_column("records/s", justify="right")
        result.add_column("processor ns each", justify="right")
        for base in base_rates:
            result.add_column(f"× {base}", justify="right")
        for name, rate in rates.items():
            ratios = [f"{rate / base:.3g}" for base in base_rates.values()]
            cost = f"{costs[name]:,.0f}" if name in costs else ""
            result.add_row(name, f"{rate:,.0f}", cost, *ratios)
        return result


def bases(rates: dict[str, float]) -> dict[str, float]:
    pyflink = [rates[name] for name in (PYFLINK, PYFLINK_20K) if name in rates]
    found = {JVM: rates[FLINK]} if FLINK in rates else {}
    return found | ({PYTHON: max(pyflink)} if pyflink else {})


def set_up_peers() -> None:
    """Have what the peers need in the cache folder; quick where it is there."""
    script = HERE / "peers/pyflink/setup.sh"
    subprocess.run(["bash", str(script)], stdout=sys.stderr, check=True)


def peers_cache() -> Path:
    """Where the peers' environments are: as in peers/common/cache.sh."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PEERS_CACHE") or f"{base}/tidegate-peers")
