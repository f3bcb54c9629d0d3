"""Writes docs/benchmarks.md and its plots from the last whole session of each benchmark.

python -m benchmarks.page [--results FOLDER] [--docs FOLDER]
Nothing is measured: the same results give the same page. A benchmark without a whole session is
named as such. A result that lacks a field, or holds what it must not, ends it with file and line.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    batch_on_spark,
    first_program,
    many_keys,
    micro_batches,
    recovery,
    w1,
    w1_rocksdb,
    w2,
    w4,
)
from benchmarks.comparison import FLINK, JVM, ON_SPARK, PYTHON, Comparison, bases
from benchmarks.kafka_latency import comparison as kafka_latency
from benchmarks.measure import RESULTS, ROOT
from benchmarks.nexmark import NAMES
from benchmarks.nexmark import comparison as nexmark
from benchmarks.plots import Bar, Panel, groups, panels

DOCS = ROOT / "docs"
FORMS = {
    "records": "`process`, a generator",
    "listed": "`process`, a list",
    "reduce": "`reduce`, traced",
    "declared": "declared aggregates",
    "traced": "traced functions",
    "batches": "Arrow batches",
    "running": "Arrow, declared aggregates",
    "text": "`process`, text keys",
    "dicts": "`process`, dict records",
    "dataclasses": "`process`, dataclass records",
}
RUNTIMES = {"tidegate-spark ": "on Spark", "tidegate-local ": "local"}
PEERS = {
    FLINK: "Flink on the JVM",
    "pyflink": "PyFlink, its own bundles",
    "pyflink bundle 20,000": "PyFlink, bundles of 20,000",
}
RATES = (
    ("w1", w1.W1),
    ("w1", w1.MANY),
    ("w2", w2.W2),
    ("w1-rocksdb", w1_rocksdb.FEW),
    ("w1-rocksdb", w1_rocksdb.MANY),
)
"""Comparisons, each with the benchmark that runs it."""

MORE = {
    "checkpoint-loss": (
        "The rate with a checkpoint each second, as a share of that without",
        "shares",
    ),
    "million-keys": ("A million keys in memory, a checkpoint each second", "figures"),
    "rocksdb-state": ("Ten million keys on disk", "figures"),
    "savepoint": ("A savepoint of a gigabyte", "figures"),
    "changelog": ("Checkpoints of a gigabyte, with a changelog and without", "figures"),
    "increments": ("State of which a hundredth changes", "figures"),
    "state-read": ("Ten million entries of state as a Spark DataFrame", "figures"),
}
"""Benchmarks whose figures are shown as they are kept: title, and field."""

HEAD = """# Benchmarks

<!-- Written by `make bench-page` from benchmarks/results/. Change benchmarks/page.py instead. -->

Figures of the last whole session of each benchmark. Contenders alternate every few seconds on one
machine, and **only ratios within one session mean anything**. Medians are taken over runs in the
machine's quiet mode, where these are half of all at least; each part says how many were. A floor is
what `make bench` guards. [The programs](../benchmarks/README.md) say how it is measured.
"""


class ResultsError(Exception):
    """A file of results that cannot be shown: where, and what is wrong."""


@dataclass(frozen=True)
class Session:
    """One line of a file of results. where: file and line, for messages."""

    where: str
    fields: Mapping[str, object]

    def of(self, name: str, kind: type) -> object:
        """A field. Raises ResultsError if it is missing or of another kind."""
        if name not in self.fields:
            raise ResultsError(f"{self.where}: the field '{name}' is missing")
        found = self.fields[name]
        if not isinstance(found, kind):
            raise ResultsError(f"{self.where}: '{name}' is {found!r:.60}, no {kind.__name__}")
        return found

    def numbers(self, *names: str) -> dict[str, float]:
        """A field that holds numbers by name; several names lead to one within another."""
        at, found = self, {}
        for depth, name in enumerate(names, 1):
            found = at.of(name, dict)
            at = Session(f"{self.where}, {'.'.join(names[:depth])}", found)
        for name, value in found.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ResultsError(f"{at.where}: '{name}' is {value!r:.60}, no number")
        return found

    @property
    def conditions(self) -> str:
        """When, what and on what it was measured, and how quiet it was."""
        told = [
            f"Commit `{self.of('commit', str)}`",
            str(self.of("at", str))[:10],
            f"Python {self.of('python', str)}",
            f"{self.of('cores', int)} cores",
        ]
        if "rounds" in self.fields:
            rounds = self.of("rounds", int)
            told.append(f"{rounds} round{'' if rounds == 1 else 's'}")
        if "quiet_runs" in self.fields:
            runs = sum(len(each) for each in self.of("runs", dict).values())
            told.append(f"{sum(self.numbers('quiet_runs').values())} of {runs} runs quiet")
        else:
            told.append(f"load {self.of('load_1m', (int, float))} at its end, quiet runs not noted")
        return "; ".join(told) + "."


def last_session(folder: Path, name: str) -> Session | None:
    """The last whole session of a benchmark; None if there is none."""
    file = folder / f"{name}.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if not lines:
        return None
    where = f"{file}, line {len(lines)}"
    try:
        fields = json.loads(lines[-1])
    except ValueError as error:
        raise ResultsError(f"{where}: this is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ResultsError(f"{where}: this is no JSON object")
    return Session(where, fields)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def picture(file: str, words: str) -> list[str]:
    return [f"![{words}](assets/{file})", ""]


def floor(limit: float | None, held: bool) -> str:
    return "" if limit is None else f"{limit:,g}, {'held' if held else '**missed**'}"


def ceiling(limit: float | None, found: float) -> str:
    return floor(limit, limit is not None and found <= limit)


def form(name: str) -> str:
    """A contender's name for readers."""
    for prefix, runtime in RUNTIMES.items():
        if name.startswith(prefix):
            api = name.removeprefix(prefix)
            return f"{FORMS.get(api, api)}; {runtime}"
    return PEERS.get(name, name)


@dataclass(frozen=True)
class Page:
    """The page as it is made. results, assets: folders."""

    results: Path
    assets: Path

    def text(self) -> str:
        """Writes the plots, and returns the page."""
        parts: list[tuple[str, Callable[[], list[str]]]] = [
            ("Rates beside Flink and PyFlink", self.rates),
            ("Batch and micro-batches beside Spark's own", self.beside_spark),
            ("Nexmark", self.nexmark),
            ("Latency", self.latency),
            ("Back after a kill", self.recovery),
            ("Files to files", self.files),
            ("A first program", self.first_program),
            ("Many keys", self.many_keys),
        ]
        lines = HEAD.splitlines()
        for title, part in parts:
            lines += ["", f"## {title}", "", *part()]
        lines += ["", "## More figures", ""]
        for name, (title, field) in MORE.items():
            lines += [f"### {title}", "", *self.as_kept(name, field)]
        return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"

    def session(self, name: str, benchmark: str = "") -> tuple[Session | None, list[str]]:
        """The last session, and its conditions or that there is none.

        benchmark: what is run for it, if that has another name.
        """
        found = last_session(self.results, name)
        if found is None:
            return None, [f"No whole session yet: `make bench ARGS={benchmark or name}`.", ""]
        return found, [found.conditions, ""]

    def plot(self, name: str, shown: Sequence[Panel], words: str) -> list[str]:
        """A plot of the panels that have bars; without any, none is left from before."""
        file = f"benchmark-{name}.svg"
        shown = [panel for panel in shown if panel.bars]
        if not shown:
            (self.assets / file).unlink(missing_ok=True)
            return []
        panels(self.assets / file, shown)
        return picture(file, words)

    def rates(self) -> list[str]:
        lines: list[str] = []
        shown: list[Panel] = []
        for benchmark, comparison in RATES:
            session, told = self.session(comparison.file, benchmark)
            lines += [f"### {comparison.title}", "", *told]
            if session is None:
                continue
            rates = session.numbers("medians")
            lines += rates_table(comparison, session, rates)
            if comparison in (w1.W1, w2.W2) and FLINK in rates:
                shown.append(rates_panel(comparison, rates))
        words = (
            "W1, running count and sum per key, and W2, sums per key and window: rates of each "
            "form on Spark and on the local runtime, in times that of Flink on the JVM; the tables "
            "below have the same figures"
        )
        return [
            "W1 is a running count and sum by key, an output for each record; W2 sums by key and "
            "window of ten seconds, out of order by a second. Bars begin at Flink on the JVM, "
            "an orange tick a floor.",
            "",
            *self.plot("rates", shown, words),
            *lines,
        ]

    def beside_spark(self) -> list[str]:
        lines = [
            "A running count and sum by key, or those of each key at the end, in a batch over "
            "Spark's own shuffle and in micro-batches of Structured Streaming.",
            "",
        ]
        for beside in (batch_on_spark.BESIDE, micro_batches.BESIDE):
            session, told = self.session(beside.file.removesuffix(".jsonl"))
            lines += [f"### {beside.title}", "", *told]
            if session is None:
                continue
            rates, costs = session.numbers("medians"), session.numbers("processor_ns")
            rows = []
            for name, rate in rates.items():
                cost = f"{costs[name]:,.0f}" if name in costs else ""
                times, due = beside.ratio(name, rates) or (None, None)
                ratio = "" if times is None else f"{times:.3g}"
                held = floor(due, times is not None and due is not None and times >= due)
                rows.append([name, rate_of(rate), cost, ratio, held])
            lines += table(["", "rows/s", "processor ns each", "× Spark's own", "floor"], rows)
        return lines

    def nexmark(self) -> list[str]:
        session, told = self.session("nexmark")
        file = "benchmark-nexmark.svg"
        if session is None:
            (self.assets / file).unlink(missing_ok=True)
            return told
        rates, costs = session.numbers("medians"), session.numbers("processor_ns")
        queries = [query for query in NAMES if f"{query} records" in rates]
        series = {
            name: [rates.get(f"{query} {name}", float("nan")) for query in queries]
            for name in nexmark.EVENTS
        }
        groups(self.assets / file, "events/s", queries, series)
        beside = {
            "× PyFlink": nexmark.beside(rates, "pyflink"),
            "× SQL": nexmark.beside(rates, "flink-sql"),
            "× SQL, q0 off": nexmark.net_beside(rates, "flink-sql"),
        }
        rows = [
            [
                query,
                *(rate_of(rates.get(f"{query} {name}")) for name in nexmark.EVENTS),
                f"{costs[f'{query} records']:,.0f}" if f"{query} records" in costs else "",
                *(f"{each[query]:.2f}" if query in each else "" for each in beside.values()),
            ]
            for query in queries
        ]
        guarded = f"Floors, as medians of the queries: {nexmark.TIMES_PYFLINK:g} times PyFlink, "
        held = ", ".join(
            f"{base}: {'held' if each else '**missed**'}"
            for base, each in session.of("held", dict).items()
        )
        return [
            *told,
            f"{guarded}{nexmark.TIMES_SQL:g} times Flink's SQL with q0's time taken off ({held}).",
            "",
            *picture(
                file,
                "Events a second of each query by records, over batches, in PyFlink and "
                "in Flink's SQL; the table below has the same figures",
            ),
            *table(["query", *nexmark.EVENTS, "ns by records", *beside], rows),
        ]

    def latency(self) -> list[str]:
        lines: list[str] = []
        shown: list[Panel] = []
        for name, title, limits in (
            ("kafka-latency", "Kafka to Kafka, 1,000 records/s, 50,000 keys", kafka_limits()),
            ("w4", "W4: source to sink, 10,000 records/s, a checkpoint each second", w4_limits()),
        ):
            session, told = self.session(name)
            lines += [f"### {title}", "", *told]
            if session is None:
                continue
            found = {
                each: session.numbers("medians", each) for each in ("p50_ms", "p99_ms", "max_ms")
            }
            rows = [
                [
                    contender,
                    *(f"{figures[contender]:,.1f}" for figures in found.values()),
                    ceiling(limits.get(contender), found["p99_ms"][contender]),
                ]
                for contender in found["p50_ms"]
            ]
            lines += table(["milliseconds", "p50", "p99", "longest", "p99 at most"], rows)
            bars = [
                Bar(
                    contender,
                    p50,
                    limits.get(contender),
                    contender.startswith("tidegate"),
                    until=found["p99_ms"][contender],
                )
                for contender, p50 in found["p50_ms"].items()
            ]
            shown.append(Panel(title, "ms, from the median to the 99th percentile", bars))
        words = (
            "Latencies from the median to the 99th percentile; the tables below have the figures"
        )
        return [
            "From a record's stamp as it is made to the sink (W4), or to a reader of committed "
            "records in another topic (Kafka): with exactly-once an output is seen when its "
            "checkpoint is complete. The step reads and updates its key's state once a record. "
            "Spark's real-time mode allows no operator in Python; it ran with an aggregation in "
            f"the JVM. Spark is 4.3.0 with the Kafka connector of {kafka_latency.CONNECTOR}, as "
            "none of 4.3.0 could be had. Spark's sink commits nothing, so a failure doubles "
            "records.",
            "",
            *self.plot("latency", shown, words),
            *lines,
        ]

    def recovery(self) -> list[str]:
        session, told = self.session("recovery")
        if session is None:
            return self.plot("recovery", [], "") + told
        medians = session.numbers("medians_ms")
        longest = session.numbers("longest_ms") if "longest_ms" in session.fields else {}
        limits = {
            f"{runtime} {keys:,} keys": limit if keys < 1_000_000 else recovery.MILLION_LIMIT_MS
            for runtime, limit in recovery.LIMITS_MS.items()
            for keys in recovery.RATES
        }
        rows = [
            [
                name,
                f"{median:,.0f}",
                f"{longest[name]:,.0f}" if name in longest else "",
                ceiling(limits.get(name), median),
            ]
            for name, median in medians.items()
        ]
        bars = [Bar(name, median, limits.get(name)) for name, median in medians.items()]
        title = "SIGKILL of a slot to the first record at a sink"
        panel = Panel(title, "ms, median", bars, linear=True)
        return [
            *told,
            *self.plot(
                "recovery",
                [panel],
                "Milliseconds from the kill of a slot to the first "
                "record at a sink; the table below has the same figures",
            ),
            *table(["milliseconds", "median", "longest", "at most"], rows),
        ]

    def files(self) -> list[str]:
        session, told = self.session("w3")
        if session is None:
            return told
        rates = session.numbers("medians")
        rows = [[name, rate_of(rate)] for name, rate in rates.items()]
        return ["W3: lines of CSV to files, exactly once.", "", *told, *table(["", "rows/s"], rows)]

    def first_program(self) -> list[str]:
        session, told = self.session("first-program")
        if session is None:
            return told
        wall_ms, processor_ms = (
            float(str(session.of(name, (int, float)))) for name in ("wall_ms", "processor_ms")
        )
        limit = ceiling(first_program.LIMIT_MS, wall_ms)
        rows = [
            ["wall time, imports included", f"{wall_ms:,.0f}", limit],
            ["processor time of all its processes", f"{processor_ms:,.0f}", ""],
        ]
        return [*told, *table(["milliseconds", "median", "at most"], rows)]

    def many_keys(self) -> list[str]:
        session, told = self.session("many-keys")
        if session is None:
            return told
        costs = session.numbers("medians", "processor_ns")
        few = min(costs.values())
        rows = [
            [
                name,
                f"{cost:.0f}",
                f"{cost / few:.2f}",
                ceiling(many_keys.COST_MAX, cost / few) if cost > few else "",
            ]
            for name, cost in costs.items()
        ]
        head = ["Arrow batches, declared aggregates", "ns a row", "cost", "at most"]
        return [*told, *table(head, rows)]

    def as_kept(self, name: str, field: str) -> list[str]:
        """Figures by their names, or by case and name."""
        session, told = self.session(name)
        if session is None:
            return told
        kept = session.of(field, dict)
        if all(isinstance(each, dict) for each in kept.values()):
            cases = {case: session.numbers(field, case) for case in kept}
            head = list(dict.fromkeys(figure for each in cases.values() for figure in each))
            rows = [
                [case, *(number(each[figure]) if figure in each else "" for figure in head)]
                for case, each in cases.items()
            ]
            return [*told, *table(["", *head], rows)]
        rows = [[figure, number(value)] for figure, value in session.numbers(field).items()]
        return [*told, *table(["", ""], rows)]


def rates_table(comparison: Comparison, session: Session, rates: Mapping[str, float]) -> list[str]:
    costs = session.numbers("processor_ns") if "processor_ns" in session.fields else {}
    beside = bases(dict(rates))
    floors = {(ON_SPARK + api, base): limit for api, base, limit in comparison.floors}
    rows = []
    for name, rate in rates.items():
        row = [form(name), rate_of(rate), f"{costs[name]:,.0f}" if name in costs else ""]
        for base, base_rate in beside.items():
            ratio, limit = rate / base_rate, floors.get((name, base))
            row += [f"{ratio:.3g}" if ratio < 100 else f"{ratio:,.0f}"]
            if base == JVM:
                row += [floor(limit, limit is not None and ratio >= limit)]
        rows.append(row)
    columns = {JVM: [f"× {JVM}", "floor"], PYTHON: [f"× {PYTHON}"]}
    head = [
        "",
        "records/s",
        "processor ns each",
        *(each for base in beside for each in columns[base]),
    ]
    return table(head, rows)


def rates_panel(comparison: Comparison, rates: Mapping[str, float]) -> Panel:
    """Ratios to Flink on the JVM; PyFlink, a hundredth of it, stands in the table."""
    floors = {ON_SPARK + api: limit for api, base, limit in comparison.floors if base == JVM}
    bars = [
        Bar(form(name).replace("`", ""), rate / rates[FLINK], floors.get(name))
        for name, rate in rates.items()
        if name not in PEERS
    ]
    return Panel(comparison.title, f"times {JVM}", bars, base=1)


def kafka_limits() -> dict[str, float]:
    return dict(kafka_latency.LIMITS_MS)


def w4_limits() -> dict[str, float]:
    return {name: p99 for name, (_, p99) in w4.LIMITS_MS.items()}


def rate_of(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:,.1f} k"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    args = parser.parse_args()
    assets = args.docs / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    try:
        text = Page(args.results, assets).text()
    except ResultsError as error:
        print(f"bench-page: {error}", file=sys.stderr)
        return 1
    (args.docs / "benchmarks.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
