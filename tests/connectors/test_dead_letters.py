"""What a source cannot read: it fails the job, is counted, or goes to a side output."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.connectors.file_jobs import BAD_LINES, operator
from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tidegate import ConfigError, DeadLetter, OutputTag, StreamExecutionEnvironment, Types
from tidegate.connectors import (
    CsvRowDeserializationSchema,
    FileSource,
    JsonRowDeserializationSchema,
    JsonSchema,
    SimpleStringSchema,
)
from tidegate.connectors.schemas.messages import DeserializationSchema
from tidegate.errors import FormatError
from tidegate.ha.chain import decode
from tidegate.model.settings import SlotSettings

BAD = OutputTag[DeadLetter]("bad")
DEEP = b"[" * 100_000
NUMBERS = pa.schema([("n", pa.int64())]).serialize().to_pybytes()
ROW = Types.ROW_NAMED(["id"], [Types.LONG()])


@pytest.mark.parametrize("kind", ["json", "text"])
def test_lines_of_files_that_cannot_be_read_go_to_a_side_output_once(
    world: World, tmp_path: Path, kind: str
) -> None:
    source, text, _ = BAD_LINES[kind]
    file = tmp_path / "bad"
    file.write_bytes((text * 3).encode("utf-8", "surrogateescape"))
    env = StreamExecutionEnvironment.local()
    rows = env.from_source(source(str(file)).on_malformed(BAD))
    letters = rows.get_side_output(BAD)
    with rows.union(letters).execute_and_collect() as results:
        found: list[Any] = list(results)
    bad = [each for each in found if isinstance(each, DeadLetter)]
    assert len(bad) == 3 and len(found) == 9
    for letter in bad:
        path, _, offset = letter.where.partition(", byte ")
        assert path == str(file) and letter.why and letter.raw
        assert file.read_bytes()[int(offset) :].startswith(letter.raw)


def test_a_file_of_nothing_but_bad_lines_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("no\nnone\n")
    (tmp_path / "b.json").write_text('{"n": 1}\n')
    env = StreamExecutionEnvironment.local()
    rows = env.from_source(FileSource.json(str(tmp_path)).on_malformed(BAD))
    found = rows.union(rows.get_side_output(BAD)).execute_and_collect(limit=9)
    assert sorted(each.raw for each in found if isinstance(each, DeadLetter)) == [
        b"no\n",
        b"none\n",
    ]
    assert {"n": 1} in found


def test_lines_that_were_told_are_not_told_again_after_a_restore(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\nbad\n{"n": 2}\n{"n": 3}\n')
    source = FileSource.json(str(tmp_path)).on_malformed("skip")
    job = SourceJob(world, operator(source), 1, settings=SlotSettings(rows=1))
    while not job.emitted:
        job.step(0)
    job.checkpoint(1)
    assert job.readers[0].context.rows_skipped == 1
    again = job.killed()
    again.run_to_end()
    assert again.emitted == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert again.readers[0].context.rows_skipped == 0


def test_a_block_of_bad_lines_is_behind_the_position_as_soon_as_it_was_told(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text("no\nnone\n")
    source = FileSource.json(str(tmp_path)).on_malformed("skip")
    job = SourceJob(world, operator(source), 1)
    told = job.readers[0].context
    while not told.rows_skipped:
        world.settle()
        job.deliver()
        job.readers[0].poll()
    job.checkpoint(1)
    again = job.killed()
    again.run_to_end()
    assert (told.rows_skipped, again.readers[0].context.rows_skipped) == (2, 0)


@pytest.mark.parametrize("source", [FileSource.json, FileSource.csv])
@pytest.mark.parametrize("steps", range(0, 46, 3))
def test_each_bad_line_is_told_once_wherever_a_restore_goes_on(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[str], FileSource],
    steps: int,
) -> None:
    monkeypatch.setattr("tidegate.connectors.files.lines.BLOCK_BYTES", 120)
    good = {n for n in range(100) if n % 3 and not 20 < n < 60}
    header = "" if source is FileSource.json else "n\n1000\n"
    lines = [str(n) if n in good else f"bad {n}{'!' * (n % 50)}" for n in range(100)]
    (tmp_path / "a").write_text(header + "\n".join(lines) + "\n")
    made = source(str(tmp_path)).on_malformed("skip")
    if header:
        made = replace(made, file_format=replace(made.file_format, schema=NUMBERS))
    job = SourceJob(world, operator(made), 1, settings=SlotSettings(rows=1))
    for _ in range(steps):
        job.step(0)
    job.checkpoint(1)
    told = job.readers[0].context.rows_skipped
    again = job.killed()
    again.run_to_end()
    assert len(again.emitted) == len(good) + bool(header)
    assert told + again.readers[0].context.rows_skipped == 100 - len(good)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (JsonSchema(), b"7", b"x"),
        (JsonSchema(), b"7", DEEP),
        (SimpleStringSchema(), b"x", b"\xff"),
        (JsonRowDeserializationSchema.builder().type_info(ROW).build(), b'{"id": 7}', DEEP),
        (CsvRowDeserializationSchema.Builder(ROW).build(), b"7", b"seven"),
    ],
)
def test_every_schema_says_what_becomes_of_a_bad_message(
    schema: DeserializationSchema, good: bytes, bad: bytes
) -> None:
    assert schema.malformed == "fail"
    with pytest.raises((ValueError, RecursionError)):
        schema.parse(bad)
    for policy in ("skip", BAD):
        told = schema.on_malformed(policy)
        assert told.malformed == policy and schema.malformed == "fail"
        assert told.parse(good) == schema.deserialize(good)


@pytest.mark.parametrize("bad", [b"{", DEEP, b'{"id": "x"}'])
def test_rows_whose_errors_are_ignored_are_counted_where_they_are_read(bad: bytes) -> None:
    schema = JsonRowDeserializationSchema.builder().type_info(ROW).ignore_parse_errors().build()
    assert schema.deserialize(bad) is None and schema.malformed == "skip"
    with pytest.raises((ValueError, RecursionError)):
        schema.parse(bad)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="The policy is 'ignore'"):
        JsonSchema().on_malformed("ignore")  # pyright: ignore[reportArgumentType]


def test_a_record_of_the_chain_that_nests_too_deeply_is_told_by_its_path() -> None:
    with pytest.raises(FormatError, match="RecursionError") as caught:
        decode(DEEP, "chain/7")
    assert caught.value.where == "chain/7"
