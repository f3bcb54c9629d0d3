"""Rows into a table of a database: at least once, and exact where the statement is an upsert."""

import builtins
import pickle
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from tests.operators.world import Hosted, World
from tidegate import (
    BadRecord,
    ConfigError,
    JobFailed,
    Row,
    StreamExecutionEnvironment,
    Types,
)
from tidegate.connectors import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from tidegate.connectors.jdbc import databases
from tidegate.errors import StorageFailed, TidegateError
from tidegate.operators.sinks.sink import SinkOperator

TOTAL = Types.ROW_NAMED(["key", "total"], [Types.STRING(), Types.LONG()])
UPSERT = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET total = excluded.total"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "totals.db"
    run(path, "CREATE TABLE totals (name TEXT PRIMARY KEY, total INTEGER CHECK (total >= 0))")
    return path


def run(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def totals(path: Path) -> list[tuple[object, ...]]:
    return run(path, "SELECT * FROM totals ORDER BY name")


def at(path: Path) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    return builder.with_url(f"jdbc:sqlite:{path}").build()


def opened(world: World, sink: JdbcSink) -> Hosted:
    step = Hosted(SinkOperator(sink), world, name="to totals")
    world.at_end.callback(step.close)
    return step


def upserts(path: Path, execution: JdbcExecutionOptions | None = None) -> JdbcSink:
    return JdbcSink.sink(UPSERT, TOTAL, at(path), execution)


def tried(retries: int) -> JdbcExecutionOptions:
    return JdbcExecutionOptions.builder().with_max_retries(retries).build()


def failure_of_checkpoint(step: Hosted, kind: type[TidegateError]) -> TidegateError:
    """What a checkpoint fails with, and the subtask too."""
    durable = step.cut(1).durable
    assert durable is not None
    with pytest.raises(kind) as failed:
        step.world.wait_for(durable)
    with suppress(kind):  # which of the two is told first is open
        step.world.settle()
    return failed.value


# When rows are written


def test_rows_are_there_before_their_checkpoint_is_acknowledged(
    world: World, database: Path
) -> None:
    step = opened(world, upserts(database))
    step.rows(Row(key="a", total=1), Row("b", 2), ("a", 3))
    assert totals(database) == []
    step.snapshot(1)
    assert totals(database) == [("a", 3), ("b", 2)]
    step.operator.close()


def test_a_full_batch_is_written_at_once_and_the_rest_at_the_end(
    world: World, database: Path
) -> None:
    step = opened(
        world, upserts(database, JdbcExecutionOptions.builder().with_batch_size(2).build())
    )
    step.rows(("a", 1))
    assert totals(database) == []
    step.rows(("b", 2), ("c", 3))
    assert len(totals(database)) == 3
    step.rows(("d", 4))
    assert len(totals(database)) == 3
    step.finish()
    step.snapshot(1)
    assert len(totals(database)) == 4


def test_a_row_is_kept_no_longer_than_the_interval(world: World, database: Path) -> None:
    execution = JdbcExecutionOptions.builder().with_batch_interval_ms(200).build()
    step = opened(world, upserts(database, execution))
    step.rows(("a", 1))
    world.pass_time(150)
    step.rows(("b", 2))
    assert totals(database) == []
    world.pass_time(60)
    world.settle()
    assert totals(database) == [("a", 1), ("b", 2)]


def test_the_end_does_not_wait_for_the_interval(world: World, database: Path) -> None:
    execution = JdbcExecutionOptions.builder().with_batch_interval_ms(60_000).build()
    step = opened(world, upserts(database, execution))
    step.rows(("a", 1))
    step.finish()
    step.snapshot(1)
    world.settle()
    assert totals(database) == [("a", 1)]
    assert not world.started


def test_rows_that_come_while_others_are_written_stay_behind_them(
    world: World, database: Path
) -> None:
    step = opened(
        world, upserts(database, JdbcExecutionOptions.builder().with_batch_size(2).build())
    )
    step.rows(("a", 1))
    cut = step.cut(1)
    step.rows(("a", 2), ("a", 3))
    assert cut.durable is not None
    world.wait_for(cut.durable)
    assert totals(database) == [("a", 3)]


# Failures


def test_rows_written_again_after_a_kill_leave_one_for_each_key(
    world: World, database: Path
) -> None:
    sink = upserts(database, JdbcExecutionOptions.builder().with_batch_size(2).build())
    step = opened(world, sink)
    step.rows(("a", 1), ("b", 1))
    before = step.snapshot(1)
    assert before.lists == [{"SinkCommittables": [], "SinkWriterState": []}]
    behind = [("a", 2), ("b", 2), ("a", 3)]
    step.rows(*behind[:2])
    step.rows(behind[2])
    assert totals(database) == [("a", 2), ("b", 2)]
    world.forget()

    again = opened(world, sink)
    again.rows(*behind)
    again.finish()
    again.snapshot(2)
    assert totals(database) == [("a", 3), ("b", 2)]


def test_a_row_that_the_database_refuses_is_told_with_operator_and_table(
    world: World, database: Path
) -> None:
    step = opened(world, upserts(database))
    step.rows(("a", 1), ("b", -5), ("c", 3))
    bad = failure_of_checkpoint(step, BadRecord)
    assert "CHECK constraint failed" in bad.what
    assert bad.where == "operator 'to totals', table 'totals', row ('b', -5)"
    assert UPSERT in bad.remedy
    assert totals(database) == [], "a batch is written as a whole or not at all"


def test_nothing_stays_of_a_refused_batch_though_its_statement_begins_with_another(
    world: World, database: Path
) -> None:
    sql = "WITH new(name, total) AS (VALUES (?, ?)) INSERT INTO totals SELECT * FROM new"
    step = opened(world, JdbcSink.sink(sql, TOTAL, at(database)))
    step.rows(("a", 1), ("b", -1))
    failed = failure_of_checkpoint(step, BadRecord)
    assert "row ('b', -1)" in failed.where and totals(database) == []


def test_a_number_that_is_too_large_is_told_with_its_row(world: World, database: Path) -> None:
    wide = Types.ROW_NAMED(["key", "total"], [Types.STRING(), Types.BIG_INT()])
    step = opened(world, JdbcSink.sink(UPSERT, wide, at(database)))
    step.rows(("a", 2**80))
    bad = failure_of_checkpoint(step, BadRecord)
    assert "OverflowError" in bad.what
    assert f"row ('a', {2**80})" in bad.where


def test_a_table_that_is_missing_fails_the_job_at_once(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    rows = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    rows.add_sink(upserts(tmp_path / "other.db")).name("to totals")
    with pytest.raises(JobFailed) as failed:
        env.execute()
    for told in ["no such table: totals", "to totals', table 'totals', row ('a', 1)"]:
        assert told in str(failed.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("a", "many"), "field 'total': 'many' is not of type Long"),
        (("a",), "('a',) is not of type RowTypeInfo"),
        (None, "None is not of type RowTypeInfo"),
    ],
)
def test_a_row_of_another_type_is_told_with_operator_and_field(
    world: World, database: Path, row: object, told: str
) -> None:
    step = opened(world, upserts(database))
    with pytest.raises(BadRecord) as bad:
        step.rows(row)
    assert told in bad.value.what
    assert "operator 'to totals', row 0 of a batch" in bad.value.where


@pytest.mark.slow
def test_a_locked_database_is_tried_again_until_it_is_free(world: World, database: Path) -> None:
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        step = opened(world, upserts(database, tried(1)))
        step.rows(("a", 1))
        world.loop.call_later(0.5, other.rollback)
        step.snapshot(1)
    assert totals(database) == [("a", 1)]


@pytest.mark.slow
def test_a_database_that_stays_locked_fails_in_bounded_tries(world: World, database: Path) -> None:
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        step = opened(world, upserts(database, tried(0)))
        step.rows(("a", 1), ("b", 2))
        failed = failure_of_checkpoint(step, StorageFailed)
    assert "2 rows could not be written in 1 tries" in failed.what
    assert "database is locked" in failed.what
    assert failed.where == "operator 'to totals', table 'totals'"


def test_a_checkpoint_behind_a_failed_write_does_not_take_it_for_done(
    world: World, database: Path
) -> None:
    execution = JdbcExecutionOptions.builder().with_batch_interval_ms(100).build()
    step = opened(world, upserts(database, execution))
    step.rows(("a", -1))
    world.pass_time(100)
    durable = step.cut(1).durable
    assert durable is not None
    with pytest.raises(BadRecord, match="refused"):
        world.settle()  # the write of the interval
    with pytest.raises(BadRecord, match="refused"):
        world.wait_for(durable)
    with suppress(BadRecord):
        world.settle()
    assert totals(database) == []


def test_a_lost_connection_is_made_anew(world: World, database: Path) -> None:
    step = opened(world, upserts(database, tried(2)))
    step.rows(("a", 1))
    step.snapshot(1)
    aside = database.with_name("aside")
    database.rename(aside)
    database.mkdir()
    step.rows(("b", 2))

    def back() -> None:
        database.rmdir()
        aside.rename(database)

    world.loop.call_later(0.5, back)
    step.snapshot(2)
    assert totals(database) == [("a", 1), ("b", 2)]


class Lost(sqlite3.Cursor):
    """The connection is lost while it is asked which row of the batch was refused."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == UPSERT:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, parameters)


class Losing(sqlite3.Connection):
    def cursor(self, factory: Any = Lost) -> Any:
        return super().cursor(factory)


def test_a_connection_that_is_lost_while_the_row_is_looked_for_refuses_no_row(
    database: Path,
) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database, factory=Losing, isolation_level=None)

    session = databases.Session(databases.Sqlite(), connect, UPSERT, "to totals")
    with pytest.raises(StorageFailed, match="did not take rows: OperationalError: disk I/O error"):
        session.write([("a", -1)])


# What is asked for


def test_each_type_of_a_column_is_written(world: World, tmp_path: Path) -> None:
    path = tmp_path / "types.db"
    run(path, "CREATE TABLE types (b, i, d, s, x, n, day, t, ts)")
    types = [
        Types.BOOLEAN(),
        Types.INT(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
    ]
    sql = f"INSERT INTO types VALUES ({', '.join('?' * len(types))})"
    step = opened(world, JdbcSink.sink(sql, Types.ROW(types), at(path)))
    moment = datetime.fromisoformat("2024-02-01 12:30")
    row = (True, 7, 1.5, "é?", b"\0", Decimal("1.10"), date(2024, 2, 1), time(12, 30), moment)
    step.rows(row, (None,) * len(types))
    step.snapshot(1)
    there = (1, 7, 1.5, "é?", b"\0", "1.10", "2024-02-01", "12:30:00", "2024-02-01 12:30:00")
    assert run(path, "SELECT * FROM types") == [there, (None,) * len(types)]


@pytest.mark.slow
def test_a_job_writes_from_several_subtasks(database: Path) -> None:
    env = StreamExecutionEnvironment.local()
    env.set_parallelism(2)
    numbers = env.from_collection([(f"k{n % 7}", n) for n in range(100)])
    typed = numbers.key_by(lambda pair: pair[0], Types.STRING())
    rows = typed.map(lambda pair: Row(key=pair[0], total=pair[1]), TOTAL)
    rows.sink_to(pickle.loads(pickle.dumps(upserts(database))))
    env.execute()
    assert totals(database) == [(f"k{key}", 98 + key - (7 if key > 1 else 0)) for key in range(7)]


def test_options_are_flinks_unless_said_otherwise() -> None:
    options = JdbcExecutionOptions.defaults()
    assert (options.batch_size, options.batch_interval_ms, options.max_retries) == (5_000, 0, 3)
    assert JdbcExecutionOptions.builder().build() == options


def test_a_password_is_not_shown() -> None:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_user_name("ann")
    builder.with_driver_name("org.postgresql.Driver").with_password("secret")
    options = builder.with_url("jdbc:postgresql://localhost/db").build()
    assert options.password == "secret"
    assert "secret" not in repr(options)
    url = "jdbc:postgresql://ann:secret@host/db?password=hush&ssl=1"
    shown = repr(replace(options, url=url))
    assert "//ann:…@host/db?password=…&ssl=1" in shown


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: options("jdbc:mysql://host/db"), "'jdbc:mysql://host/db'.*jdbc:sqlite:"),
        (lambda: options("jdbc:mysql://a:secret@host/db?password=hush"), "//a:…@host.*=…'"),
        (lambda: options(""), "No database is known for the URL ''"),
        (lambda: options("jdbc:sqlite::memory:"), "names no file"),
        (lambda: JdbcExecutionOptions.builder().with_batch_size(0), "with_batch_size was given 0"),
        (lambda: JdbcExecutionOptions.builder().with_max_retries(-1), "Give 0 or more"),
        (lambda: JdbcSink.sink("INSERT …", Types.LONG(), SOME), "type of the rows is Long"),
        (lambda: JdbcSink.sink("… (?)", TOTAL, SOME), "has 1 question marks.* have 2 fields"),
        (lambda: JdbcSink.sink("… ('?', ?)", TOTAL, SOME), "has 1 question marks"),
        (lambda: JdbcSink.sink("(?)", LISTS, SOME), r"No column .* takes the fields 'all' \(List"),
    ],
)
def test_what_cannot_be_is_refused_while_the_program_is_built(
    build: Callable[[], object], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert re.search(told, str(refused.value), re.DOTALL)


def options(url: str) -> JdbcConnectionOptions:
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()


SOME = options("jdbc:sqlite:some.db")
LISTS = Types.ROW_NAMED(["all"], [Types.LIST(Types.LONG())])


def test_a_database_that_cannot_be_reached_is_refused_before_anything_runs(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    env.from_collection([("a", 1)]).sink_to(upserts(tmp_path / "no folder" / "totals.db"))
    with pytest.raises(ConfigError, match="cannot be reached: OperationalError"):
        env.execute()


# PostgreSQL, without a server


def test_a_statement_is_written_as_its_driver_wants_it() -> None:
    postgres = databases.database_of("jdbc:postgresql://localhost:5432/db")
    sql = """INSERT INTO "a?" VALUES (?, 'it''s 5%?', ?) -- ? %\n/* ? */ WHERE ? % 2"""
    assert databases.placeholders(sql) == 3
    assert postgres.statement(sql) == (
        """INSERT INTO "a?" VALUES (%s, 'it''s 5%%?', %s) -- ? %%\n/* ? */ WHERE %s %% 2"""
    )
    assert databases.database_of("jdbc:sqlite:a.db").statement(sql) == sql


@pytest.mark.parametrize(
    ("state", "passes"), [("40P01", True), ("25006", True), ("25P03", True), ("23514", False)]
)
def test_a_failover_is_waited_for_and_a_refused_row_is_not(state: str, passes: bool) -> None:
    postgres = databases.database_of("jdbc:postgresql://localhost:5432/db")
    assert postgres.may_pass(errors.lookup(state)("said the server")) is passes


def test_a_server_that_does_not_answer_is_told() -> None:
    sink = JdbcSink.sink(UPSERT, TOTAL, options("jdbc:postgresql://127.0.0.1:1/db"))
    with pytest.raises(ConfigError, match="cannot be reached: OperationalError"):
        sink.check()


def test_a_server_is_given_limits_unless_the_url_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, object]] = []

    def connect(address: str, **given: object) -> sqlite3.Connection:
        named = {name: value for name, value in given.items() if value is not None}
        asked.append(conninfo_to_dict(address, **named))
        return sqlite3.connect(":memory:")

    monkeypatch.setattr(psycopg, "connect", connect)
    url = "jdbc:postgresql://bo@localhost/db?connect_timeout=3"
    ann = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_user_name("ann")
    for made in (options(url), ann.with_password("secret").with_url(url).build()):
        JdbcSink.sink(UPSERT, TOTAL, made).check()
    assert asked == [
        {
            "host": "localhost",
            "dbname": "db",
            "connect_timeout": "3",
            "tcp_user_timeout": "60000",
            "keepalives_idle": "30",
            "keepalives_interval": "10",
            "keepalives_count": "3",
            "options": "-c statement_timeout=60s",
            **who,
        }
        for who in ({"user": "bo"}, {"user": "ann", "password": "secret"})
    ]


def test_a_driver_that_is_missing_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(databases, "find_spec", lambda name: None)
    sink = JdbcSink.sink(UPSERT, TOTAL, options("jdbc:postgresql://127.0.0.1:1/db"))
    with pytest.raises(ConfigError) as refused:
        sink.check()
    assert "no module psycopg" in refused.value.what
    assert "tidegate[postgres]" in refused.value.remedy


def test_the_driver_is_loaded_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *arguments: object) -> object:
        assert not name.startswith("psycopg")
        return load(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    JdbcSink.sink(UPSERT, TOTAL, options("jdbc:postgresql://127.0.0.1:1/db"))
