"""What must hold of the programs in examples/, undisturbed and with a killed slot; on any runtime.

Each is given its input by a script. What it finds is compared with the page of the programs, and
with a plain Python computation over the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from examples import (
    abandoned_carts,
    backfill,
    cache,
    crash_loop,
    deduplicate,
    enrich,
    file_etl,
    fraud_rules,
    heartbeats,
    late_data,
    latest_row,
    live_rules,
    orders_and_payments,
    page_views,
    priced_trades,
    sensor_average,
    top_products,
    transaction_features,
    two_level_windows,
    upgrade,
    web_sessions,
    word_count,
)
from tests.e2e import plain
from tests.e2e.files import committed_rows, hidden_files, json_rows
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.staged import KILL, Death, Pause, Script, StagedSource
from tests.e2e.watch import kill_slot, view, wait_completed, wait_for
from tidegate import DataStream, JobFailed, RowKind, Time, TypeInformation
from tidegate.connectors import CollectSink, FileSource


@dataclass(frozen=True)
class Example:
    """A program with one input, or with two.

    plain: what plain Python finds in the scripts. order: results of which it gives the same come
    in the order of plain Python's. type_info: of the input.
    """

    program: Callable[..., DataStream[Any]]
    script: Script
    plain: Callable[..., list[Any]]
    order: Callable[[Any], object] = repr
    type_info: TypeInformation | None = None
    second: Script | None = None

    @property
    def scripts(self) -> list[Script]:
        return [script for script in (self.script, self.second) if script is not None]


def nothing(result: object) -> bool:
    return False


def whole(result: object) -> object:
    return None


def with_calls_in_bounds(found: tuple[int, str, int]) -> tuple[int, str, bool]:
    number, name, calls = found
    return number, name, calls <= enrich.CAPACITY


def names(ids: Script) -> list[Any]:
    return [(n, "unknown" if n == enrich.NEVER_ANSWERS else f"name {n}", True) for n in ids]


def beats(silent_beats: int) -> list[object]:
    """All devices every 100 ms; one of them is silent for so many beats."""
    script: list[object] = []
    silent_to = heartbeats.SILENT_FROM + silent_beats
    for number in range(silent_to + 10):
        silent = heartbeats.SILENT_FROM <= number < silent_to
        for device in heartbeats.DEVICES:
            script.append(None if silent and device == heartbeats.SILENT else device)
        script.append(Pause(100))
    return script


def deduplication(ttl_ms: int, script: Script) -> Example:
    return Example(
        lambda ids: deduplicate.first_seen(ids, Time.milliseconds(ttl_ms)),
        script,
        lambda script: plain.first_seen(script, ttl_ms),
    )


def caching(ttl_ms: int, script: Script) -> Example:
    return Example(
        lambda commands: cache.both_kinds(commands, Time.milliseconds(ttl_ms)),
        script,
        lambda script: plain.cache_answers(script, ttl_ms),
        order=lambda answer: answer[0],
    )


def watching(offline_after_ms: int, script: Script) -> Example:
    return Example(
        lambda heard: heartbeats.outages(heard, offline_after_ms),
        script,
        lambda script: plain.outages(script, offline_after_ms),
        order=lambda outage: outage[1],
    )


def enriching(timeout_ms: int, *, ordered: bool) -> Example:
    def program(ids: DataStream[int]) -> DataStream[Any]:
        found = enrich.with_names(ids, ordered, timeout_ms)
        return found.map(with_calls_in_bounds).set_parallelism(1)

    return Example(program, enrich.IDS, names, order=whole if ordered else repr)


def features(by_record: bool) -> Example:
    form = transaction_features.by_record if by_record else transaction_features.by_batch
    return Example(
        lambda rows: united(*form(rows)),
        transaction_features.TRANSACTIONS,
        plain.features,
    )


def united(one: DataStream[Any], other: DataStream[Any]) -> DataStream[Any]:
    """Dicts of both streams, with their items in the order of names."""
    return one.union(other).map(lambda row: dict(sorted(row.items())))


EXAMPLES = {
    "word_count": Example(
        word_count.counts, word_count.LINES, plain.word_counts, order=lambda pair: pair[0]
    ),
    "page_views": Example(page_views.views_per_minute, page_views.VIEWS, plain.views_per_minute),
    "sensor_average": Example(
        sensor_average.sliding_averages, sensor_average.READINGS, plain.sliding_averages
    ),
    "web_sessions": Example(web_sessions.sessions, web_sessions.VISITS, plain.sessions),
    "web_sessions, merged": Example(
        web_sessions.sessions, web_sessions.VISITS + web_sessions.LATER, plain.sessions
    ),
    "late_data": Example(
        late_data.reports,
        late_data.EVENTS,
        plain.counts_and_late,
        order=lambda report: report[:2],
    ),
    "two_level_windows": Example(
        two_level_windows.clicks_of_eight,
        two_level_windows.CLICKS,
        plain.clicks_of_eight,
        order=whole,
    ),
    "deduplicate": deduplication(1_000, ["x", "y", "x", Pause(2_000), "x"]),
    "latest_row": Example(
        latest_row.changes_once,
        latest_row.LOG,
        plain.changes_once,
        order=lambda row: row["id"],
        type_info=latest_row.CHANGE,
    ),
    "top_products": Example(top_products.best_products, top_products.SALES, plain.best_products),
    "transaction_features, by record": features(by_record=True),
    "transaction_features, by batch": features(by_record=False),
    "enrich, ordered": enriching(500, ordered=True),
    "enrich, unordered": enriching(500, ordered=False),
    "abandoned_carts": Example(
        abandoned_carts.abandoned, abandoned_carts.ACTIONS, plain.abandoned, order=lambda a: a[0]
    ),
    "fraud_rules": Example(
        fraud_rules.frauds,
        fraud_rules.PAYMENTS,
        plain.frauds,
        second=fraud_rules.RULES,
    ),
    "orders_and_payments": Example(
        orders_and_payments.matched,
        orders_and_payments.ORDERS,
        plain.matched,
        second=orders_and_payments.PAYMENTS,
    ),
    "priced_trades": Example(
        priced_trades.priced, priced_trades.TRADES, plain.priced, second=priced_trades.QUOTES
    ),
    "heartbeats": watching(1_500, beats(30)),
    "cache": caching(2_000, ["put", Pause(1_200), "get", Pause(1_200), "get", Pause(3_000), "get"]),
}
"""The programs as the page gives them."""


def killed(example: Example, script: Script, at: int, second: Script | None = None) -> Example:
    """The example with other scripts, and a death before one of the first one's steps."""
    return replace(example, script=[*script[:at], KILL, *script[at:]], second=second)


CHANGES = [latest_row.change(RowKind.UPDATE_AFTER, n % 7, f"name {n}", n) for n in range(1, 300)]
EVENTS = [(f"k{n % 3}", n * 4 - n * n % 31) for n in range(300)]

# Where the wall clock counts, times are so long that a restart is short beside them.
KILLED = {
    "word_count": killed(
        EXAMPLES["word_count"], [f"word{n * n % 11} word{n % 7}" for n in range(500)], 200
    ),
    "page_views": killed(
        EXAMPLES["page_views"], [("abc"[n * n % 3], n * 700) for n in range(400)], 130
    ),
    "sensor_average": killed(
        EXAMPLES["sensor_average"],
        [(f"s{n % 3}", float(n * n % 41), n * 900 - 20_000) for n in range(300)],
        100,
    ),
    "web_sessions": killed(
        EXAMPLES["web_sessions"],
        [(f"u{n % 5}", 60 * (n // 12) + n * n % 97) for n in range(400)],
        170,
    ),
    # A watermark is no part of a checkpoint: the row behind the death has to bring it back.
    "late_data": killed(EXAMPLES["late_data"], EVENTS, max(range(150), key=lambda n: EVENTS[n][1])),
    "two_level_windows": killed(
        EXAMPLES["two_level_windows"], [n + n % 4 for n in range(0, 900, 3)], 150
    ),
    "deduplicate": killed(deduplication(6_000, []), ["x", "y", "x", "y", Pause(7_000), "x"], 2),
    "latest_row": killed(EXAMPLES["latest_row"], [*CHANGES, *CHANGES[100:]], 150),
    "top_products": killed(
        EXAMPLES["top_products"],
        [(f"p{n * 7 % 9}", n * n % 23, n // 3) for n in range(600)],
        250,
    ),
    "transaction_features, by record": killed(
        features(by_record=True), transaction_features.TRANSACTIONS, 5_000
    ),
    "transaction_features, by batch": killed(
        features(by_record=False), transaction_features.TRANSACTIONS, 5_000
    ),
    "enrich, ordered": killed(enriching(2_000, ordered=True), enrich.IDS, 15),
    "enrich, unordered": killed(enriching(2_000, ordered=False), enrich.IDS, 15),
    "abandoned_carts": killed(
        EXAMPLES["abandoned_carts"],
        [("buy" if n % 5 == 4 else "add", f"u{n * n % 13}", n * 4) for n in range(300)],
        77,
    ),
    "fraud_rules": killed(
        EXAMPLES["fraud_rules"],
        [(f"card{n % 7}", n * n % 150, n) for n in range(300)],
        140,
        [("limit", 120 - n, 10 * n) for n in range(50)],
    ),
    "orders_and_payments": killed(
        EXAMPLES["orders_and_payments"],
        [(f"o{n}", n) for n in range(400) if n % 7],
        170,
        [(f"o{n}", n + n % 5) for n in range(400) if n % 11],
    ),
    "priced_trades": killed(
        EXAMPLES["priced_trades"],
        [(f"t{n}", "AB"[n % 3 // 2], n, n * 40) for i in range(400) for n in {i, i * i % (i + 1)}],
        250,
        [("AB"[n % 4 // 3], n / 2, n * 90 + n * n % 7) for n in range(150)],
    ),
    "heartbeats": killed(watching(5_000, []), beats(80), 4 * (heartbeats.SILENT_FROM + 5)),
    "cache": killed(caching(8_000, []), ["put", Pause(5_000), "get", Pause(4_000), "get"], 3),
}
"""The same programs with more rows, and a killed slot among them."""


def check(jobs: Jobs, example: Example, parallelism: int, **settings: object) -> None:
    """The program finds what plain Python finds. settings: by option key, as of `Jobs.env`."""
    found = found_by(jobs, example, parallelism, **settings)
    undisturbed = [[step for step in script if step is not KILL] for script in example.scripts]
    expected = example.plain(*undisturbed)
    assert in_order(found, example) == in_order(expected, example), found


def found_by(jobs: Jobs, example: Example, parallelism: int, **settings: object) -> list[Any]:
    """What the program finds; a slot that is to be killed, was."""
    env = jobs.checkpointed(parallelism, 100, **settings)
    inputs = [
        env.from_source(StagedSource(script), None, "input", example.type_info)
        .set_parallelism(1)
        .uid(f"input {number}")
        for number, script in enumerate(example.scripts)
    ]
    results = example.program(*inputs)
    results.sink_to(CollectSink("results")).set_parallelism(1)
    # Some programs have one subtask throughout; this makes a local job of theirs run in processes.
    results.filter(nothing).set_parallelism(parallelism).print()
    client = jobs.start(env, "example")
    found = list(client.collected("results"))
    finished(client)
    deaths = [step for script in example.scripts for step in script if step is KILL]
    assert view(client).restarts == len(deaths)
    return found


def in_order(results: list[Any], example: Example) -> list[Any]:
    """The results, sorted as far as their order does not count."""
    return sorted(results, key=lambda result: repr(example.order(result)))


def check_live_rules(jobs: Jobs, rules: Script, parallelism: int, *deaths: Death) -> None:
    """Each payment above all limits is reported once, none below all of them ever."""
    payments = [(f"card{n % 7}", n * 37 % 150, n) for n in range(400)]
    script: list[object] = []
    for number, payment in enumerate(payments):
        script += [payment, Pause(20)] if number % 8 == 0 else [payment]
    script[250:250] = deaths
    example = Example(live_rules.frauds, script, list, second=rules)
    found = found_by(jobs, example, parallelism)
    assert len(found) == len(set(found))
    assert {payment for payment in payments if payment[1] > 100} <= set(found)
    assert {payment for payment in payments if payment[1] > 50} >= set(found)


# Programs with files of their own


def check_file_etl(jobs: Jobs) -> None:
    """A run with a killed slot, and one without, clean the same lines to the same rows."""
    lines, folders = jobs.folder / "lines", [jobs.folder / "killed", jobs.folder / "again"]
    file_etl.write_lines(lines)
    source = FileSource.text(str(lines))
    env = jobs.checkpointed(2, 150)
    file_etl.clean(env, source.rate(1_000), folders[0])
    client = jobs.start(env, "etl")
    wait_completed(client, 2)
    kill_slot(client, 0)
    finished(client)
    assert view(client).restarts == 1
    env = jobs.checkpointed(1, 150)
    file_etl.clean(env, source, folders[1])
    finished(jobs.start(env, "etl again"))
    texts = [line for file in sorted(lines.iterdir()) for line in file.read_text().splitlines()]
    by_day, broken = plain.sales_by_day(texts)
    for folder in folders:
        found = {day.name: committed_rows(day) for day in folder.glob("day=*")}
        assert {day: sorted(map(repr, rows)) for day, rows in found.items()} == {
            f"day={day}": sorted(map(repr, rows)) for day, rows in by_day.items()
        }
        rows = [row["line"] for row in json_rows(folder / "broken")]
        assert sorted(rows) == sorted(broken)
        assert not hidden_files(folder)


def check_crash_loop(jobs: Jobs, attempts: int) -> None:
    """Three failures: with three restarts all rows are there once, with two some of each key."""
    out = jobs.folder / "out"
    env = jobs.env(2).configure(crash_loop.settings(attempts))
    crash_loop.sums_to_files(env, out, rate=150.0)
    client = jobs.start(env, "crash loop")
    error = failure_of(client)
    found = sorted(crash_loop.committed(out))
    expected = plain.running_sums(range(1, crash_loop.NUMBERS + 1), crash_loop.KEYS)
    if attempts == len(crash_loop.BREAKS_AT):
        assert error is None, error
        assert found == expected
        assert view(client).restarts == attempts
        assert not hidden_files(out)
        return
    assert isinstance(error, JobFailed) and f"broken at {crash_loop.BREAKS_AT[attempts]}" in str(
        error
    )
    assert found, "nothing was committed before the last failure"
    for key in range(crash_loop.KEYS):
        rows = [row for row in found if row[0] % crash_loop.KEYS == key]
        wanted = [row for row in expected if row[0] % crash_loop.KEYS == key]
        assert rows == wanted[: len(rows)], f"key {key}: {rows}"


def check_backfill(jobs: Jobs, history_rate: float | None) -> None:
    """Files and a live stream give what one run over both does; a slot is killed on the way.

    history_rate: sales a second from the files; None for all at once.
    """
    folder = jobs.folder / "history"
    backfill.write_history(folder)
    past = FileSource.json(str(folder))
    sales = [backfill.sale(number) for number in range(-backfill.HISTORY, backfill.LIVE)]
    live = [*sales[backfill.HISTORY : -200], KILL, *sales[-200:]]
    env = jobs.checkpointed(2, 100)
    history = env.from_source(past.rate(history_rate) if history_rate else past).uid("history")
    present = env.from_source(StagedSource(live), None, "live").set_parallelism(1).uid("live")
    backfill.totals_by_hour(history, present).sink_to(CollectSink("totals"))
    client = jobs.start(env, "backfill")
    found = cast("list[tuple[str, int, int]]", list(client.collected("totals")))
    finished(client)
    assert view(client).restarts == 1
    assert sorted(found) == sorted(plain.totals_by_hour(sales))


def check_upgrade(jobs: Jobs) -> None:
    """A job goes on with another program at another parallelism, and under a kill."""
    out = jobs.folder / "out"
    env = jobs.checkpointed(1, upgrade.NEVER_MS)
    upgrade.first_version(env, out)
    client = jobs.start(env, "first version")
    wait_for(client, lambda seen: upgrade.rows_read(client) >= 100, "a hundred numbers")
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(timeout=100)
    assert upgrade.committed(out)

    env = jobs.checkpointed(3, 150).configure(upgrade.from_savepoint(path))
    upgrade.second_version(env, out)
    client = jobs.start(env, "second version")
    wait_completed(client, 2)
    kill_slot(client, 0)
    finished(client)
    assert view(client).restarts == 1
    rows = upgrade.committed(out)
    expected = plain.running_sums(range(1, upgrade.NUMBERS + 1), upgrade.KEYS)
    assert sorted((number, total) for number, total, *_ in rows) == expected
    first = sorted(number for number, _, *version in rows if not version)
    assert first == list(range(1, len(first) + 1))
    assert 100 <= len(first) < upgrade.NUMBERS
